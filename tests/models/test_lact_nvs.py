"""LaCT-NVS as a host: the split path, variants of the inner loop, metrics, sites, and refusals."""

from __future__ import annotations

import dataclasses
import warnings

import pytest
import torch

from analysis.errors import InputError
from analysis.models.lact_nvs import LaCTNVS
from analysis.models.lact_nvs_config import (
    CONFIGS,
    LOOP,
    FastWeights,
)
from analysis.models.sites import Tape
from analysis.spec import (
    Family,
    PerTokenRate,
    QuerySource,
    Trained,
    baseline,
    map_loops,
)
from tests.models.lact_nvs_cases import EXACT, FROZEN, LADDER, TINY, gap, make_batch, make_host, render


@pytest.mark.parametrize("key", LADDER)
@pytest.mark.parametrize("size", [(16, 24), (8, 40)], ids=str)
@torch.no_grad()
def test_reconstruct_and_render_equal_one_pass_for_every_rung(key, size):
    host, batch = make_host(loops=LADDER[key]), make_batch(size)
    images = host(batch)
    assert images.shape == (2, 3, 3, *size)
    assert gap(images, render(host, host.reconstruct(batch), batch, size)) < EXACT


@pytest.mark.parametrize(
    "edit", [{"steps": 3}, {"query": QuerySource.KEY}, {"trained": Trained.LAST}], ids=str
)
@torch.no_grad()
def test_the_split_path_carries_edited_loops(edit):
    host, batch = make_host(), make_batch()
    edited = host.edit(**edit)
    assert gap(edited(batch), render(host, host.reconstruct(batch, edited.loops), batch)) < EXACT
    assert gap(edited(batch), render(host, host.reconstruct(batch), batch)) > 1e-3


@torch.no_grad()
def test_the_split_path_fails_with_the_fast_weights_of_another_layer_or_none():
    host, batch = make_host(), make_batch()
    state = host.reconstruct(batch)
    swapped = dataclasses.replace(state, fast_weights=state.fast_weights[::-1])
    initial = tuple(
        {name: w.expand(2, *w.shape) for name, w in host.initial_weights(i)[LOOP].items()} for i in range(2)
    )
    for broken in (swapped, dataclasses.replace(state, fast_weights=initial)):
        assert gap(host(batch), render(host, broken, batch)) > 1e-3


@torch.no_grad()
def test_views_rendered_together_equal_views_rendered_alone():
    host, batch = make_host(), make_batch()
    state = host.reconstruct(batch)
    alone = [
        host.render(state, batch["target_c2w"][:, i : i + 1], batch["target_fxfycxcy"][:, i : i + 1], 16, 24)
        for i in range(3)
    ]
    assert gap(torch.cat(alone, 1), render(host, state, batch)) < EXACT


@torch.no_grad()
def test_a_state_renders_at_a_size_of_its_own_and_tells_its_memory():
    host, batch = make_host(), make_batch()
    state = host.reconstruct(batch)
    assert render(host, state, batch, (24, 8)).shape == (2, 3, 3, 24, 8)
    assert state.num_bytes() == 2 * 2 * 2 * 3 * 16 * 32 * 8


@torch.no_grad()
def test_targets_see_the_inputs_through_fast_weights_alone():
    host, batch = make_host(), make_batch()
    other = batch | {"images": 1 - batch["images"]}
    assert gap(host(batch), host(other)) > 1e-3
    frozen = host.edit(trained=Trained.NONE)
    assert gap(frozen(batch), frozen(other)) == 0


@torch.no_grad()
def test_target_tokens_never_update():
    host, batch = make_host(), make_batch()
    fewer = batch | {key: batch[key][:, :1] for key in ("target_c2w", "target_fxfycxcy", "target_images")}
    assert gap(host(batch)[:, :1], host(fewer)) < EXACT


def test_parameters_of_the_ladder_follow_the_loops():
    small = CONFIGS["small"]
    with torch.device("meta"):
        count = {key: LaCTNVS(small, loops).num_parameters() for key, loops in LADDER.items()}
        frozen = LaCTNVS(small, FROZEN)
    assert count["baseline"] == count["v1"] == count["v2"] == 1_017_647
    assert count["v3"] == 1_017_647 - 5 * (3 * 96 * 192 - 96 * 96 + 2 * 97)
    assert count["v4"] == count["v5"] == count["v6"] == 785_792
    assert frozen.num_parameters() == 1_017_647 - 5 * 3 * 97


def test_a_single_linear_layer_keeps_the_name_w1():
    host = make_host(loops=LADDER["v3"])
    names = {name for name in host.state_dict() if name.startswith("blocks.0.module_list.1.f.")}
    assert {name.rsplit("f.", 1)[1] for name in names} == {
        "w1",
        "to_qkv.weight",
        "c_proj.weight",
        "lr_fc.weight",
        "lr_fc.bias",
        "o_norm.weight",
    }
    assert list(host.initial_weights(0)[LOOP]) == ["w_out"]


@torch.no_grad()
def test_without_a_fast_weight_sublayer_there_is_no_inner_loop():
    config = dataclasses.replace(
        TINY, block_config=tuple(entry for entry in TINY.block_config if not isinstance(entry, FastWeights))
    )
    host, batch = make_host(config), make_batch()
    assert host.loops == {} and host.initial_weights(0) == {}
    assert host(batch).shape == (2, 3, 3, 16, 24)
    assert gap(host(batch), render(host, host.reconstruct(batch), batch)) < EXACT
    assert host.sites()[0] == "layers.0.attention.q"
    with pytest.raises(InputError, match="exactly when it lists"):
        LaCTNVS(config, baseline(Family.LACT_NVS))
    with pytest.raises(InputError, match="exactly when it lists"):
        LaCTNVS(TINY, {})


@torch.no_grad()
def test_shared_rates_have_one_output_per_head():
    loops = map_loops(baseline(Family.LACT_NVS), lambda loop: loop.edit(lr=PerTokenRate(shared=True)))
    host, batch = make_host(loops=loops), make_batch()
    assert host.blocks[0].fast.lr_fc.out_features == 2
    assert gap(host(batch), render(host, host.reconstruct(batch), batch)) < EXACT


@torch.no_grad()
def test_every_site_is_reached_and_has_its_shape():
    host, batch = make_host(), make_batch()
    tape = Tape(host.sites())
    host(batch, tape=tape)
    tokens, in_view = 5 * 6, 6
    for name in "qkvo":
        assert tape[f"layers.1.{name}"].shape == (2, 2, tokens, 16)
    for name in "qkv":
        assert tape[f"layers.1.attention.{name}"].shape == (2 * 5, 2, in_view, 16)
    assert tape["layers.1.attention.o"].shape == (2 * 5, in_view, 32)
    assert (tape["layers.0.inner_loss_after"] < tape["layers.0.inner_loss_before"]).all()
    assert tape["layers.0.update_norm"].min() > 0


@torch.no_grad()
def test_replaced_queries_reach_the_rendering():
    host, batch = make_host(), make_batch()
    swap = Tape(replace={"layers.*.q": lambda q, together: together["k"]})
    by_tape = host(batch, tape=swap)
    assert gap(by_tape, host.edit(query=QuerySource.KEY)(batch)) < EXACT
    assert gap(by_tape, host(batch)) > 1e-3


@torch.no_grad()
def test_metrics_are_per_view_and_psnr_is_of_clamped_images():
    host, batch = make_host(), make_batch()
    images = batch["target_images"].clone()
    images[0, 0] = batch["target_images"][0, 0] + 0.1
    batch["target_images"] = batch["target_images"].clamp(0, 0.9)
    metrics = host.metrics(batch["target_images"] + 0.1, batch)
    assert metrics["psnr_by_view"].shape == metrics["mse_by_view"].shape == (2, 3)
    torch.testing.assert_close(metrics["psnr"], torch.full((2,), 20.0).double())
    torch.testing.assert_close(metrics["mse"], torch.full((2,), 0.01).double())
    above = {"target_images": torch.ones(1, 1, 3, 8, 8)}
    assert host.metrics(torch.full((1, 1, 3, 8, 8), 1.5), above)["mse"].item() == 0
    assert host.loss(torch.full((1, 1, 3, 8, 8), 1.5), above).item() == 0.25


@torch.no_grad()
def test_psnr_counts_the_background_and_is_never_formed_in_half_precision():
    host, batch = make_host(), make_batch()
    batch = {name: tensor.float() for name, tensor in batch.items()}
    inside = torch.zeros(16, 24, dtype=torch.bool)
    inside[4:12, 6:18] = True
    found = {}
    for name, ground in (("white", 1.0), ("black", 0.0)):
        targets = torch.where(inside, batch["target_images"], ground)
        drawn = torch.where(inside, targets + 0.05, 0.8)  # wrong by 0.2 on white, by 0.8 on black
        found[name] = host.metrics(drawn, {**batch, "target_images": targets})
        halved = host.metrics(drawn.bfloat16(), {**batch, "target_images": targets.bfloat16()})
        assert halved["psnr"].dtype == torch.float32
        assert 0 < (halved["psnr"] - found[name]["psnr"]).abs().max() < 0.2
        torch.testing.assert_close(found[name]["psnr"], found[name]["psnr_by_view"].mean(1))
    assert (found["white"]["psnr"] - found["black"]["psnr"]).min() > 10


def test_loss_is_the_mean_square_in_the_precision_of_the_output():
    host, batch = make_host(), make_batch()
    output = host(batch)
    assert host.loss(output, batch).dtype == torch.float64
    expected = ((output - batch["target_images"]) ** 2).mean()
    torch.testing.assert_close(host.loss(output, batch), expected, rtol=0, atol=EXACT)


@pytest.mark.parametrize("is_bfloat16", [False, True], ids=["float32", "bfloat16 autocast"])
@pytest.mark.parametrize("key", ["baseline", "v1", "v6"])
def test_the_small_network_trains(key, is_bfloat16):
    torch.manual_seed(0)
    host = LaCTNVS(CONFIGS["small"], LADDER[key])
    batch = {name: tensor.float() for name, tensor in make_batch((64, 64), 2, 6).items()}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=is_bfloat16):
            loss = host.loss(host(batch), batch)
        loss.backward()
    assert loss.dtype == torch.float32 and 0 < loss.item() < 1
    for name, parameter in host.named_parameters():
        assert parameter.grad is not None and parameter.grad.isfinite().all(), name
        assert parameter.grad.abs().max() > 0, name


@torch.no_grad()
def test_a_host_in_bfloat16_runs_on_wide_cameras():
    host = make_host().bfloat16()
    batch = {name: tensor.float() for name, tensor in make_batch().items()}
    output = host(batch)
    assert output.dtype == torch.bfloat16 and output.isfinite().all()
    assert host.loss(output, batch).dtype == torch.float32
