"""ViTTT as a host, flat and hierarchical: variants of the inner loops, grids, metrics, sites, and refusals."""

from __future__ import annotations

import dataclasses
import warnings

import pytest
import torch
import torch.nn.functional as F

from analysis.errors import CheckpointError, InputError, UnsupportedSpecError
from analysis.models.inner_call import Call
from analysis.models.sites import Tape
from analysis.models.vittt import HierarchicalViTTT, ViTTT, build_vittt
from analysis.models.vittt_config import (
    CONFIGS,
    HierarchicalViTTTConfig,
    ViTTTConfig,
    vittt_config_from_dict,
    vittt_config_to_dict,
)
from analysis.spec import (
    Direction,
    Family,
    Linear,
    PerTokenRate,
    QuerySource,
    Trained,
    baseline,
    ladder,
    map_loops,
)

FLAT = ViTTTConfig(img_size=24, patch_size=4, num_classes=5, embed_dim=24, depth=2, num_heads=3)
TALL = HierarchicalViTTTConfig(
    img_size=36, num_classes=5, dim=(8, 16, 16), depths=(1, 2, 1), num_heads=(1, 2, 2)
)
CONFIGURATIONS = pytest.mark.parametrize("config", [FLAT, TALL], ids=["flat", "hierarchical"])
LOOPS = baseline(Family.VITTT)
LADDER = ladder(Family.VITTT)
FROZEN = map_loops(LOOPS, lambda loop: loop.frozen())
EXACT = 1e-12


def make_host(config, loops=None):
    """A double-precision host in evaluation mode whose weights are large enough for every part to matter."""
    torch.manual_seed(0)
    host = build_vittt(config, loops).double().eval()
    with torch.no_grad():
        for parameter in host.parameters():
            parameter.add_(0.2 * torch.randn_like(parameter))
    return host


def make_batch(config, count=3, size=None):
    generator = torch.Generator().manual_seed(1)
    images = torch.randn(count, 3, *(size or 2 * (config.img_size,)), generator=generator)
    return {"images": images.double(), "labels": torch.arange(count) % config.num_classes}


def gap(a, b):
    return (a - b).abs().max().item()


@CONFIGURATIONS
@pytest.mark.parametrize("key", LADDER)
@torch.no_grad()
def test_every_rung_gives_logits_per_image_alone(config, key):
    host, batch = make_host(config, LADDER[key]), make_batch(config)
    logits = host(batch)
    assert logits.shape == (3, 5) and logits.isfinite().all()
    alone = torch.cat([host({"images": image}) for image in batch["images"].split(1)])
    assert gap(logits, alone) < EXACT


@torch.no_grad()
def test_the_comparison_with_images_alone_sees_when_images_mix():
    """Batch norm in training mode does mix them."""
    host, batch = make_host(TALL).train(), make_batch(TALL)
    alone = torch.cat([host({"images": image}) for image in batch["images"].split(1)])
    assert gap(host(batch), alone) > 1e-3


@CONFIGURATIONS
@torch.no_grad()
def test_every_edit_of_either_loop_reaches_the_logits(config):
    host, batch = make_host(config), make_batch(config)
    plain = host(batch)
    for loop in LOOPS:
        for edit in (
            {"direction": Direction.ASCENT},
            {"steps": 2},
            {"query": QuerySource.KEY},
            {"trained": Trained.NONE},
        ):
            assert gap(host.edit(only=loop, **edit)(batch), plain) > 1e-6, (loop, edit)
    assert gap(host.edit(steps=1)(batch), plain) == 0


@torch.no_grad()
def test_variant_one_moves_the_linear_branch_alone():
    host, batch = make_host(FLAT, LADDER["v1"]), make_batch(FLAT)
    seen, plain = {}, Call.run_loop
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Call, "run_loop", lambda *args: seen.setdefault(args[1], plain(*args)))
        host(batch)
    initial, moved = host.initial_weights(0)["glu"], seen["glu"].state.fast_weights
    assert gap(initial["w_gate"], moved["w_gate"]) == 0
    assert gap(initial["w_linear"], moved["w_linear"]) > 1e-3


def test_parameters_of_the_ladder_follow_the_loops():
    small = CONFIGS["small"]
    with torch.device("meta"):
        count = {key: build_vittt(small, loops).num_parameters() for key, loops in LADDER.items()}
        frozen = build_vittt(small, FROZEN).num_parameters()
        without = build_vittt(dataclasses.replace(small, ttt_branch=False)).num_parameters()
    assert count["baseline"] == count["v1"] == count["v2"] == frozen == 532_912
    assert count["v3"] == count["v4"] == count["v5"] == count["v6"] == 520_624
    mixer = 2 * 3 * 32**2 + 9 * 32 + (96 + 1) * 384 + (128 + 1) * 96 + 2 * 96
    assert without == 532_912 - 4 * mixer


@CONFIGURATIONS
@torch.no_grad()
def test_a_single_linear_layer_keeps_the_name_w1(config):
    host = make_host(config, LADDER["v3"])
    names = {name.rsplit("attn.", 1)[1] for name in host.state_dict() if ".attn.w" in name}
    assert names == {"w1", "w3"}
    assert list(host.initial_weights(0)["glu"]) == ["w_out"]


@CONFIGURATIONS
@torch.no_grad()
def test_a_host_without_the_branch_has_no_inner_loop(config):
    host, batch = make_host(dataclasses.replace(config, ttt_branch=False)), make_batch(config)
    assert host.loops == {} and host.initial_weights(0) == {} and host.sites() == ()
    assert host(batch).shape == (3, 5)
    assert not any(".attn." in name for name in host.state_dict())
    with pytest.raises(InputError, match="ttt_branch = True, received none"):
        build_vittt(config, {})
    with pytest.raises(InputError, match="ttt_branch = False, received glu, conv"):
        build_vittt(host.config, LOOPS)


@pytest.mark.parametrize("name", ["glu", "conv"])
@torch.no_grad()
def test_one_loop_alone_has_its_share_of_the_projections(name):
    host, batch = make_host(FLAT, {name: LOOPS[name]}), make_batch(FLAT)
    width = {"glu": 24, "conv": 8}[name]
    assert host.blocks[0].attn.qkv.out_features == 3 * width
    assert host.blocks[0].attn.proj.in_features == width
    tape = Tape("layers.1.q")
    assert host(batch, tape=tape).shape == (3, 5)
    assert tape["layers.1.q"].shape == {"glu": (3, 3, 36, 8), "conv": (3, 1, 36, 8)}[name]


@CONFIGURATIONS
@torch.no_grad()
def test_every_site_is_reached_and_has_its_shape(config):
    host, batch = make_host(config), make_batch(config)
    tape = Tape(host.sites())
    host(batch, tape=tape)
    last = host.num_layers - 1
    heads, tokens = (3, 36) if config is FLAT else (2, 9)
    for name in "qkvo":
        assert tape[f"layers.{last}.glu.{name}"].shape == (3, heads, tokens, 8)
        assert tape[f"layers.{last}.conv.{name}"].shape == (3, 1, tokens, 8)
    for loop in LOOPS:
        before, after = (tape[f"layers.0.{loop}.inner_loss_{when}"] for when in ("before", "after"))
        assert (after < before).all() and tape[f"layers.0.{loop}.update_norm"].min() > 0


@torch.no_grad()
def test_flat_hosts_take_any_multiple_of_the_patch():
    host = make_host(FLAT)
    assert host(make_batch(FLAT, size=(12, 28))).shape == (3, 5)
    with pytest.raises(InputError, match="multiples of 4, received 12x30"):
        host(make_batch(FLAT, size=(12, 30)))


@torch.no_grad()
def test_hierarchical_hosts_are_bound_to_their_size():
    host = make_host(TALL)
    assert [tuple(block.rope.rotations.shape[:2]) for block in host.token_blocks] == [
        (9, 9),
        (5, 5),
        (5, 5),
        (3, 3),
    ]
    with pytest.raises(InputError, match="expected 36x36 images, received 32x36"):
        host(make_batch(TALL, size=(32, 36)))
    with pytest.raises(InputError, match="expected a 9x9 grid"):
        host.token_blocks[0].rope(torch.zeros(1, 81, 8).double(), (3, 27))


@CONFIGURATIONS
def test_metrics_are_per_image_and_smoothing_is_for_training(config):
    host = make_host(dataclasses.replace(config, label_smoothing=0.1))
    batch = make_batch(config)
    logits = torch.tensor([[2.0, 0, 0, 0, 0], [0, 0, 3.0, 0, 0], [0, 0, 1.0, 0, 0]])
    metrics = host.metrics(logits, batch)
    assert metrics["correct"].tolist() == [1, 0, 1]
    expected = F.cross_entropy(logits, batch["labels"], reduction="none")
    torch.testing.assert_close(metrics["cross_entropy"], expected)
    torch.testing.assert_close(host.loss(logits, batch), expected.mean())
    smoothed = F.cross_entropy(logits, batch["labels"], label_smoothing=0.1)
    torch.testing.assert_close(host.train().loss(logits, batch), smoothed)
    assert smoothed != expected.mean()


def test_stochastic_depth_grows_with_the_depth():
    rates = [
        b.drop_path_rate for b in build_vittt(dataclasses.replace(TALL, drop_path_rate=0.3)).token_blocks
    ]
    assert rates == pytest.approx([0, 0.1, 0.2, 0.3])


@CONFIGURATIONS
@pytest.mark.parametrize("is_bfloat16", [False, True], ids=["float32", "bfloat16 autocast"])
@pytest.mark.parametrize("key", ["baseline", "v1", "v6"])
def test_networks_train(config, key, is_bfloat16):
    config = CONFIGS["small"] if config is FLAT else config
    torch.manual_seed(0)
    host = build_vittt(config, LADDER[key])
    batch = make_batch(config, count=8)
    batch["images"] = batch["images"].float()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=is_bfloat16):
            loss = host.loss(host(batch), batch)
        loss.backward()
    assert loss.dtype == torch.float32 and loss.isfinite()
    for name, parameter in host.named_parameters():
        assert parameter.grad is not None and parameter.grad.isfinite().all(), name


@CONFIGURATIONS
def test_malformed_batches_are_refused(config):
    host, batch = make_host(config), make_batch(config)
    with pytest.raises(InputError, match="in the batch, received none"):
        host({"labels": batch["labels"]})
    with pytest.raises(InputError, match=r"\[B, 3, H, W\]"):
        host({"images": batch["images"][:, :1]})
    with pytest.raises(InputError, match=r"uint8"):
        host({"images": batch["images"].to(torch.uint8)})
    with pytest.raises(InputError, match=r"integer labels \[3\]"):
        host.loss(host(batch), batch | {"labels": batch["labels"][:2]})


def test_loops_without_parameters_are_refused():
    with pytest.raises(UnsupportedSpecError, match="keeps the parameters"):
        make_host(FLAT).edit(only="glu", network=Linear())
    with pytest.raises(UnsupportedSpecError, match="glu"):
        build_vittt(FLAT, {"fast_weights": LOOPS["glu"]})
    with pytest.raises(UnsupportedSpecError, match="DepthwiseConv3x3"):
        build_vittt(FLAT, {"conv": LOOPS["glu"]})
    with pytest.raises(UnsupportedSpecError, match="no projection"):
        build_vittt(FLAT, {"glu": LOOPS["glu"].edit(lr=PerTokenRate())})


@CONFIGURATIONS
def test_configurations_are_read_strictly(config):
    values = vittt_config_to_dict(config)
    assert vittt_config_from_dict(values) == config
    hash(config)
    with pytest.raises(CheckpointError, match="did you mean 'num_heads'"):
        vittt_config_from_dict(values | {"num_head": 2})
    assert isinstance(build_vittt(config), ViTTT if config is FLAT else HierarchicalViTTT)


def test_impossible_widths_are_refused():
    with pytest.raises(CheckpointError, match="multiple of the heads"):
        ViTTTConfig(embed_dim=10, num_heads=3)
    with pytest.raises(CheckpointError, match="one length"):
        HierarchicalViTTTConfig(depths=(1, 2))
    with pytest.raises(CheckpointError, match="divisible by 4"):
        HierarchicalViTTTConfig(dim=(6,), depths=(1,), num_heads=(1,))
