"""LaCT-NVS against golden tensors of the published code, at the tolerance recorded with them."""

from __future__ import annotations

import dataclasses
import json

import pytest
import torch
import yaml
from safetensors.torch import load_file

from analysis.models import lact_nvs_layers
from analysis.models.lact_nvs import LaCTNVS
from analysis.models.lact_nvs_config import CONFIGS, LOOP, LaCTNVSConfig
from analysis.spec import Direction, FrobeniusScaling, Identity, Trained

MULTI2, MULTI4, MULTI1 = VARIANTS = (
    "dim64_32x32_v2t1_multi2_muon5",
    "dim48_24x32_v3t2_multi4_muon0",
    "dim48_32x32_v3t3_multi1_muon5",
)
BROKEN = 10  # how far beyond the tolerance a deliberately wrong host must be


class Golden:
    """One published variant: the host with its weights, the batch, the expected tensors and their tolerances."""

    def __init__(self, folder, variant):
        self.folder = folder / variant
        self.facts = json.loads((folder / "metadata.json").read_text())[variant]
        self.host = LaCTNVS(
            LaCTNVSConfig.from_dict(yaml.safe_load((self.folder / "config.yaml").read_text()))
        )
        self.host.load_state_dict(
            torch.load(self.folder / self.facts["checkpoint"], weights_only=True)["model"]
        )
        self.host.eval()
        self.io = io = self.tensors("io")
        self.batch = {"images": io["input.image"], "c2w": io["input.c2w"], "fxfycxcy": io["input.fxfycxcy"]}
        self.batch |= {f"target_{name}": io[f"target.{name}"] for name in ("c2w", "fxfycxcy")}
        self.batch |= {"target_images": io["target.image"]}

    def tensors(self, name):
        return load_file(self.folder / f"{name}.safetensors")

    @torch.no_grad()
    def rendering_excess(self, **edit):
        """Largest error of the rendering over the tolerance."""
        run = self.host.edit(**edit) if edit else self.host
        return excess(
            run(self.batch),
            self.io["rendering_fp32ns"],
            self.facts["recommended_atol_fp32"]["rendering_fp32ns"],
        )

    def gradient_excess(self):
        """Largest error over the tolerance of all published gradients of the fast-weight sub-layers."""
        self.host.loss(self.host(self.batch), self.batch).backward()
        facts, own = self.facts["grads_fp32_vs_fp64"], dict(self.host.named_parameters())
        return max(
            excess(own[name].grad, grad, facts[name]["recommended_atol_fp32"])
            for name, grad in self.tensors("grads_fp32ns").items()
        )


def excess(actual, expected, tolerance):
    assert actual.shape == expected.shape
    return ((actual - expected).abs().max() / tolerance).item()


@pytest.fixture
def golden(parity_folder):
    return lambda variant: Golden(parity_folder / "lact_nvs", variant)


@pytest.mark.parametrize("variant", VARIANTS)
def test_rendering_is_the_published_one(golden, variant):
    assert golden(variant).rendering_excess() < 1


@pytest.mark.parametrize("variant", VARIANTS)
@torch.no_grad()
def test_reconstruct_then_render_one_view_at_a_time_is_the_published_one(golden, variant):
    case = golden(variant)
    state = case.host.reconstruct(case.batch)
    views = zip(case.batch["target_c2w"].split(1, 1), case.batch["target_fxfycxcy"].split(1, 1), strict=True)
    images = [
        case.host.render(state, c2w, fxfycxcy, case.facts["h"], case.facts["w"]) for c2w, fxfycxcy in views
    ]
    tolerance = case.facts["recommended_atol_fp32"]["rendering_recon_fp32ns"]
    assert excess(torch.cat(images, 1), case.io["rendering_recon_fp32ns"], tolerance) < 1


@pytest.mark.parametrize("variant", VARIANTS)
@torch.no_grad()
def test_bfloat16_newton_schulz_is_as_close_to_the_official_run_as_recommended(golden, variant):
    case = golden(variant)
    case.host.options = {"newton_schulz_dtype": torch.bfloat16}
    official = case.io["rendering"]
    distance = (case.host(case.batch) - official).norm() / official.norm()
    assert distance < case.facts["recommended_rel_l2_official_rendering"]


@pytest.mark.parametrize(
    "edit",
    [
        {"direction": Direction.ASCENT},
        {"steps": 2},
        {"transform": Identity()},
        {"transform": FrobeniusScaling()},
        {"weight_norm": None},
        {"trained": Trained.LAST},
        {"trained": Trained.NONE},
    ],
    ids=str,
)
def test_another_inner_loop_is_not_the_published_one(golden, edit):
    assert golden(MULTI2).rendering_excess(**edit) > BROKEN


def test_head_major_rates_are_not_the_published_ones(golden):
    """The language model's layout of the rates; it differs only where there are several heads."""
    case = golden(MULTI4)
    with torch.no_grad():
        for block in case.host.blocks:
            rates = block.fast.lr_fc
            for parameter in (rates.weight, rates.bias):
                head_major = (
                    parameter.unflatten(0, (3, rates.out_features // 3)).transpose(0, 1).flatten(0, 1)
                )
                parameter.copy_(head_major)
    assert case.rendering_excess() > BROKEN


def test_rates_in_the_order_gate_up_out_are_not_the_published_ones(golden):
    case = golden(MULTI1)
    for block in case.host.blocks:
        block.fast.rates = ("w_gate", "w_up", "w_out")
    assert case.rendering_excess() > BROKEN


def test_exchanged_gate_and_up_are_not_the_published_network(golden, monkeypatch):
    case = golden(MULTI2)
    monkeypatch.setattr(lact_nvs_layers, "PUBLISHED_NAMES", {"w0": "w_up", "w1": "w_out", "w2": "w_gate"})
    assert case.rendering_excess() > BROKEN


def test_target_tokens_that_update_are_not_the_published_model(golden, monkeypatch):
    case = golden(MULTI1)
    plain = lact_nvs_layers.FastWeights._inputs
    monkeypatch.setattr(
        lact_nvs_layers.FastWeights, "_inputs", lambda self, x, loop, num_input: plain(self, x, loop, None)
    )
    assert case.rendering_excess() > BROKEN


@pytest.mark.parametrize("variant", VARIANTS)
@torch.no_grad()
def test_hidden_states_and_updated_fast_weights_are_the_published_ones(golden, variant):
    case = golden(variant)
    host, last = case.host, len(case.host.blocks) - 1
    updated = host.reconstruct(case.batch).fast_weights[last]
    names = {"w0": "w_gate", "w1": "w_out", "w2": "w_up"}
    seen = {f"states.{last}.{published}": updated[name].flatten(0, 1) for published, name in names.items()}
    keep = {
        "fwd.embedded": host.input_layernorm,
        **{f"fwd.blocks.{i}.out": block for i, block in enumerate(host.blocks)},
        **{f"fwd.blocks.{i}.ttt_out": block.fast.c_proj for i, block in enumerate(host.blocks)},
    }
    for key, module in keep.items():
        module.register_forward_hook(lambda _, __, out, key=key: seen.update({key: out}))
    tokens = []
    host.input_linear.register_forward_pre_hook(lambda _, args: tokens.append(args[0]))
    host(case.batch)
    captures = case.tensors("captures_fp32ns")
    for name, entry in case.facts["captures_fp32_vs_fp64"].items():
        actual = seen[name][0] if isinstance(seen[name], tuple) else seen[name]
        assert excess(actual, captures[f"{name}_fp32ns"], entry["recommended_atol_fp32"]) < 1, name
    corners = tokens[0][:1, [0, 1, -1]]
    torch.testing.assert_close(corners, captures["fwd.tokens_in_first_and_last_fp32ns"], atol=2e-6, rtol=0)


def test_outer_gradients_are_the_published_ones(golden):
    assert golden(MULTI1).gradient_excess() < 1


def test_a_norm_target_that_is_not_detached_changes_the_gradients(golden):
    case = golden(MULTI1)
    loop = case.host.loops[LOOP]
    case.host.loops = {
        LOOP: loop.edit(weight_norm=dataclasses.replace(loop.weight_norm, detach_target=False))
    }
    assert case.rendering_excess() < 1
    assert case.gradient_excess() > BROKEN


@pytest.mark.parametrize("name", ["l14_d768_ttt2x", "l24_d768_ttt2x", "l24_d768_ttt4x"])
def test_full_size_names_and_shapes_are_the_published_ones(parity_folder, name):
    listed = json.loads((parity_folder / "keys" / f"lact_nvs_{name}.json").read_text())
    assert CONFIGS[name] == LaCTNVSConfig.from_dict(listed["config"])
    assert CONFIGS[name].to_dict() == listed["config"]
    with torch.device("meta"):
        host = LaCTNVS(CONFIGS[name])
    own = {key: list(parameter.shape) for key, parameter in host.named_parameters()}
    assert own == {key: entry["shape"] for key, entry in listed["parameters"].items()}
    assert list(own) == list(listed["parameters"])
    assert set(host.state_dict()) == set(own)
    assert host.num_parameters() == listed["total_parameters"]
    fast = sum(w.numel() for i in range(host.num_layers) for w in host.initial_weights(i)[LOOP].values())
    assert fast == listed["count_fast_weight_parameters"]
