"""The language-model host: causality, streaming, padding, ladder variants, initialisation, window attention."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F

from analysis.errors import CheckpointError, InputError, SpecError, UnsupportedSpecError
from analysis.models.attention import causal_attention
from analysis.models.lact_lm import LaCTLM
from analysis.models.lact_lm_config import LOOP, parse_config
from analysis.models.sites import Tape
from analysis.spec import MLP, Direction, Family, Order, Trained, ladder
from tests.models.lm_cases import SMALL, small_config, small_lm, tokens

RUNGS = ladder(Family.LACT_LM, chunk=16)


def test_no_token_moves_an_earlier_logit():
    host, ids = small_lm(), tokens(1, 48)
    changed = ids.clone()
    changed[0, 20] = (changed[0, 20] + 1) % 128
    moved = (host({"input_ids": ids}) - host({"input_ids": changed})).abs().amax(-1)[0]
    assert torch.all(moved[:20] == 0) and moved[20] > 0


def test_branch_mask_is_block_shifted():
    """Changing the key of token 20 (chunk 2 of 3) moves fast-weight outputs of the third chunk only."""
    host, ids = small_lm(num_hidden_layers=1), tokens(1, 48)

    def other_key(k, _):
        k = k.clone()
        k[:, :, 20] = -k[:, :, 20]
        return k

    plain, edited = Tape(["layers.0.o"]), Tape(["layers.0.o"], replace={"layers.0.k": other_key})
    host({"input_ids": ids}, tape=plain)
    host({"input_ids": ids}, tape=edited)
    moved = (plain["layers.0.o"] - edited["layers.0.o"]).abs().amax((0, 1, 3))
    assert torch.all(moved[:32] == 0) and torch.all(moved[32:] > 0)


@pytest.mark.parametrize("split", [(1,) * 40, (24, 16), (16, 24), (39, 1), (1, 39), (7, 9, 24)])
@pytest.mark.parametrize("prenorm", [False, True])
def test_stream_equals_one_pass(split, prenorm):
    host = small_lm(ttt_prenorm=prenorm).double()
    ids = tokens(2, 40)
    stream = host.stream()
    logits = torch.cat([stream.feed(piece) for piece in ids.split(split, 1)], 1)
    expected = host({"input_ids": ids})
    assert (logits - expected).norm() / expected.norm() < 1e-10
    assert stream.position == 40 and stream.layers[0].inner.pending.num_tokens == 8


def test_stream_without_carried_weights_differs():
    host, ids = small_lm(), tokens(1, 40)
    stream = host.stream()
    stream.feed(ids[:, :20])
    for layer in stream.layers:
        layer.inner = None
    lost = stream.feed(ids[:, 20:])
    assert (lost - host({"input_ids": ids})[:, 20:]).abs().max() > 1e-3


@pytest.mark.parametrize("changes", [{"ttt_branch": False}, {"full_attention": True}, {"window_size": 5}])
def test_stream_of_attention_variants(changes):
    host, ids = small_lm(**changes).double(), tokens(2, 33)
    stream = host.stream()
    logits = torch.cat([stream.feed(piece) for piece in ids.split(9, 1)], 1)
    assert torch.allclose(logits, host({"input_ids": ids}), rtol=1e-10, atol=1e-12)


def test_stream_refuses_what_needs_the_future():
    host = small_lm()
    with pytest.raises(UnsupportedSpecError, match="apply_then_update"):
        host.stream(host.edit(order=Order.UPDATE_THEN_APPLY).loops)
    stream = host.stream()
    stream.feed(tokens(2, 4))
    with pytest.raises(InputError, match="2 sequences"):
        stream.feed(tokens(3, 4))


@pytest.mark.parametrize("side", ["left", "right"])
def test_padded_batch_equals_single_prompts(side):
    host = small_lm(lact_chunk_size=8)
    short, long = tokens(1, 24, seed=5), tokens(1, 32, seed=6)
    pad = (8, 0) if side == "left" else (0, 8)
    batch = {
        "input_ids": torch.cat((F.pad(short, pad), long)),
        "attention_mask": torch.cat((F.pad(torch.ones(1, 24), pad), torch.ones(1, 32))).long(),
    }
    logits = host(batch)
    real = logits[0, 8:] if side == "left" else logits[0, :24]
    alone = {"input_ids": short}
    assert torch.allclose(real, host(alone)[0], atol=1e-5)
    assert torch.allclose(logits[1], host({"input_ids": long})[0], atol=1e-5)
    assert torch.allclose(host.metrics(logits, batch)["nll"][0], host.metrics(host(alone), alone)["nll"][0])
    batch["attention_mask"][0, 12] = 0
    with pytest.raises(InputError, match="holes"):
        host(batch)
    with pytest.raises(InputError, match="one length"):
        host(batch, tape=Tape("layers.0.q"))


def test_both_batch_formats_score_the_same_predictions():
    host, ids = small_lm(), tokens(2, 33)
    packed, published = {"tokens": ids}, {"input_ids": ids, "labels": ids}
    first, second = host(packed), host(published)
    assert first.shape[1] == 32 and second.shape[1] == 33
    assert torch.allclose(host.loss(first, packed), host.loss(second, published), atol=1e-6)
    metrics = host.metrics(second, published)
    assert metrics["tokens"].tolist() == [32, 32]
    assert torch.isnan(metrics["nll_by_position"][:, -1]).all()


@pytest.mark.parametrize(
    ("batch", "message"),
    [
        ({"tokens": tokens(1, 4), "input_ids": tokens(1, 4)}, "either tokens or input_ids"),
        ({"tokens": tokens(1, 1)}, "at least one"),
        ({"tokens": torch.rand(1, 4)}, "integer tokens"),
        ({"tokens": tokens(1, 4) + 1000}, "0..127"),
        ({}, "nothing"),
    ],
)
def test_malformed_batches_are_refused(batch, message):
    with pytest.raises(InputError, match=message):
        small_lm()(batch)


def test_bytes_follow_the_targets():
    host, ids = small_lm(), tokens(2, 9)
    sizes = torch.arange(128)
    metrics = host.metrics(host({"tokens": ids}), {"tokens": ids, "token_bytes": sizes})
    assert metrics["bytes"].tolist() == ids[:, 1:].sum(1).tolist()


@pytest.mark.parametrize("key", list(RUNGS))
def test_every_rung_trains(key):
    loops = RUNGS[key]
    host = LaCTLM(small_config(), loops)
    batch = {"tokens": tokens(2, 50)}
    host.loss(host(batch), batch).backward()
    without = [name for name, p in host.named_parameters() if p.grad is None]
    assert without == []
    names = {name.split("attn.")[1] for name in host.state_dict() if "layers.0.attn." in name}
    late = key >= "v3"
    assert ("w0" in names) == (not late)
    assert ("lr_proj.weight" in names) == (key in ("baseline", "v1", "v2", "v3"))
    assert ("momentum_proj.0.weight" in names) == (key not in ("v5", "v6"))
    assert host.initial_weights(0)[LOOP]["w_out"].shape == (2, 32, 32)


def test_frozen_and_attention_only_variants_have_no_unused_parameters():
    for host in (
        small_lm(lambda loop: loop.frozen()),
        small_lm(ttt_branch=False),
        small_lm(ttt_branch=False, full_attention=True),
    ):
        batch = {"tokens": tokens(2, 40)}
        host.loss(host(batch), batch).backward()
        assert all(p.grad is not None for p in host.parameters())
    assert host.loops == {} and "layers.0.q" not in host.sites() and host.initial_weights(0) == {}
    with pytest.raises(InputError, match="received one without"):
        host.edit(steps=2)


def test_zero_initialised_gate_starts_as_attention_alone():
    torch.manual_seed(0)
    gated = LaCTLM(small_config(zero_init_ttt_scale=True))
    tape = Tape(["layers.*.o"])
    ids = {"tokens": tokens(1, 40)}
    logits = gated(ids, tape=tape)
    assert tape["layers.0.o"].abs().max() > 0
    assert torch.allclose(gated.edit(direction=Direction.ASCENT)(ids), logits, atol=1e-6)


def test_initialisation_statistics():
    torch.manual_seed(0)
    config = small_config(
        hidden_size=256, num_lact_heads=2, inter_multi=2, w0_w2_low_rank=32, initializer_range=0.02
    )
    attn = LaCTLM(config).model.layers[0].attn
    expected = {
        "qkv.weight": 0.02,
        "o_proj.weight": 0.02,
        "w1": 1 / math.sqrt(256),
        "w0.w_left": 0.5 / math.sqrt(32),
        "w2.w_right": 0.5 / math.sqrt(128),
    }
    parameters = dict(attn.named_parameters())
    for name, std in expected.items():
        assert parameters[name].std().item() == pytest.approx(std, rel=0.05), name
    assert (
        torch.all(attn.lr_proj.bias == 0) and torch.all(attn.qk_scale == 1) and torch.all(attn.qk_offset == 0)
    )
    full = LaCTLM(small_config(hidden_size=256)).model.layers[0].attn
    assert full.w0.std().item() == pytest.approx(1 / math.sqrt(128), rel=0.05)
    assert attn.initial_weights()["w_gate"].shape == (2, 128, 256)


def test_fresh_rates_are_a_thousandth():
    torch.manual_seed(0)
    tape = Tape("layers.0.inner")
    LaCTLM(small_config(initializer_range=1e-4))({"tokens": tokens(1, 20)}, tape=tape)
    inputs, _ = tape["layers.0.inner"]
    for rate in inputs.rates.values():
        assert torch.allclose(rate, torch.full_like(rate, 1e-3), rtol=2e-2)


@pytest.mark.parametrize(("length", "window"), [(16, 16), (17, 16), (40, 16), (37, 5), (9, 1), (20, None)])
def test_window_attention_is_exact(length, window):
    torch.manual_seed(0)
    q, k, v = (torch.randn(2, 3, length, 8, dtype=torch.float64) for _ in range(3))
    i, j = torch.arange(length)[:, None], torch.arange(length)
    seen = (j <= i) & (j > i - (window or length))
    scores = (q @ k.mT / math.sqrt(8)).masked_fill(~seen, -math.inf)
    expected = scores.softmax(-1) @ v
    assert torch.allclose(causal_attention(q, k, v, window), expected, atol=1e-12)
    late = causal_attention(q[:, :, 6:], k, v, window)
    assert torch.allclose(late, expected[:, :, 6:], atol=1e-12)


def test_tied_embeddings_are_one_parameter():
    tied, free = small_lm(tie_word_embeddings=True), small_lm()
    assert tied.lm_head.weight is tied.model.embeddings.weight
    assert free.num_parameters() - tied.num_parameters() == 128 * 64


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"num_attn_heads": 5}, SpecError, "divisible by num_attn_heads"),
        ({"lr_dim": 2}, UnsupportedSpecError, "lr_dim"),
        ({"use_fused_kernel": True}, UnsupportedSpecError, "stacked"),
        ({"hidden_act": "gelu"}, UnsupportedSpecError, "gelu"),
        ({"model_type": "llama"}, CheckpointError, "llama"),
        ({"hidden_size": "64"}, CheckpointError, "hidden_size"),
    ],
)
def test_configurations_that_cannot_run_are_refused(changes, error, message):
    with pytest.raises(error, match=message):
        parse_config({**SMALL, **changes})


def test_unknown_configuration_fields_are_noted():
    _, notes = parse_config({**SMALL, "window_sise": 8, "use_cache": True})
    assert len(notes) == 1 and "did you mean 'window_size'" in notes[0]


def test_hosts_refuse_loops_they_cannot_hold():
    with pytest.raises(UnsupportedSpecError, match="SwiGLU or Linear"):
        small_lm(lambda loop: loop.edit(network=MLP()))
    with pytest.raises(InputError, match="ttt_branch"):
        LaCTLM(small_config(ttt_branch=False), small_config().default_loops())
    assert small_lm(lambda loop: loop.edit(trained=Trained.LAST)).loops[LOOP].moving == ("w_out",)


def test_half_precision_stays_near_full_precision():
    host, batch = small_lm(), {"tokens": tokens(2, 40)}
    expected = host.loss(host(batch), batch)
    with torch.autocast("cpu", torch.bfloat16):
        mixed = host(batch)
    half = host.bfloat16()(batch)
    assert half.dtype == mixed.dtype == torch.bfloat16
    for logits in (mixed, half):
        loss = host.loss(logits, batch)
        assert loss.dtype == torch.float32 and abs(loss - expected) < 0.2
