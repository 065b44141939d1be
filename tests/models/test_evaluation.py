"""Task metrics with their intervals, against values computed by hand."""

from __future__ import annotations

import math

import pytest
import torch

from analysis.errors import InputError
from analysis.models.evaluation import evaluate
from analysis.models.lact_nvs import LaCTNVS
from analysis.models.lact_nvs_config import lact_nvs_config
from analysis.models.vittt import build_vittt
from analysis.models.vittt_config import ViTTTConfig
from tests.models.lm_cases import small_lm, tokens


def batches(count=3, size=4, length=21):
    return [{"tokens": tokens(size, length, seed=i)} for i in range(count)]


def test_perplexity_and_bits_per_byte():
    host, data, sizes = small_lm(), batches(), torch.arange(1, 129)
    found = evaluate(host, data, token_bytes=sizes)
    logits = torch.cat([host(batch) for batch in data]).double()
    targets = torch.cat([batch["tokens"][:, 1:] for batch in data])
    nll = -logits.log_softmax(-1).gather(-1, targets[..., None]).squeeze(-1)
    assert found.metric == "perplexity" and found.lower_is_better and found.samples == 12
    assert found.value == pytest.approx(nll.mean().exp().item(), rel=1e-5)
    assert found.ci_low < found.value < found.ci_high
    bits = nll.sum() / math.log(2) / sizes[targets].sum()
    assert found.others["bits_per_byte"].value == pytest.approx(bits.item(), rel=1e-5)
    assert found.others["loss"].value == pytest.approx(math.log(found.value))
    assert torch.allclose(found.mean_by_position(), nll.mean(0), atol=1e-5)
    assert "bits_per_byte" not in evaluate(host, data).others


def test_limit_cuts_within_a_batch_and_progress_is_told():
    seen = []
    found = evaluate(small_lm(), batches(), limit=6, progress=seen.append)
    assert found.samples == 6 and seen == [4, 6]


def test_evaluation_leaves_the_mode_and_is_repeatable():
    host = small_lm().train()
    first, second = (evaluate(host, batches()) for _ in range(2))
    assert host.training and (first.value, first.ci_low) == (second.value, second.ci_low)
    assert evaluate(host.edit(steps=2), batches()).value != first.value
    assert not any(p.grad is not None for p in host.parameters())


def test_sequences_of_different_lengths_are_weighted_by_tokens():
    host = small_lm()
    data = [{"tokens": tokens(1, 11)}, {"tokens": tokens(1, 31)}]
    found = evaluate(host, data)
    short, long = (host.loss(host(batch), batch) for batch in data)
    assert found.value == pytest.approx(((10 * short + 30 * long) / 40).exp().item(), rel=1e-5)
    assert found.mean_by_position().shape == (30,)


def test_nothing_to_evaluate_is_an_error():
    with pytest.raises(InputError, match="at least one batch"):
        evaluate(small_lm(), [])
    with pytest.raises(InputError, match="at least one batch"):
        evaluate(small_lm(), batches(), limit=0)


def test_view_synthesis_averages_psnr_over_views_and_not_errors():
    torch.manual_seed(0)
    config = lact_nvs_config(layers=1, dim=32, attention_head_dim=16, head_dim=32, inter_multi=2)
    pose = torch.eye(4).expand(2, 2, 4, 4).clone()
    lens = torch.tensor([16.0, 16.0, 8.0, 8.0]).expand(2, 2, 4)
    batch = {"images": torch.rand(2, 2, 3, 16, 16), "c2w": pose, "fxfycxcy": lens}
    batch |= {"target_c2w": pose, "target_fxfycxcy": lens, "target_images": torch.rand(2, 2, 3, 16, 16)}
    host = LaCTNVS(config).eval()
    found = evaluate(host, [batch])
    mse = (host(batch) - batch["target_images"]).square().mean((-3, -2, -1))
    assert found.value == pytest.approx((-10 * mse.log10()).mean().item(), rel=1e-5)
    assert found.unit == "dB" and found.per_example["psnr_by_view"].shape == (2, 2)
    with pytest.raises(InputError, match="language-model"):
        found.mean_by_position()


def test_top1_is_a_percentage():
    torch.manual_seed(0)
    host = build_vittt(
        ViTTTConfig(img_size=16, patch_size=8, num_classes=2, embed_dim=16, depth=1, num_heads=2)
    )
    images = torch.rand(8, 3, 16, 16)
    labels = host.eval()({"images": images}).argmax(-1)
    labels[0] = 1 - labels[0]
    found = evaluate(host, [{"images": images, "labels": labels}])
    assert found.metric == "top1" and found.value == pytest.approx(87.5) and not found.lower_is_better
    assert found.ci_low <= 87.5 <= found.ci_high == 100
