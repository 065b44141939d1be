"""ViTTT against golden tensors of the published code, at the tolerance recorded with them."""

from __future__ import annotations

import json

import pytest
import torch
from safetensors.torch import load_file

from analysis.inner import Inputs
from analysis.models import vittt_block
from analysis.models.inner_call import Call
from analysis.models.sites import Scope, Tape
from analysis.models.vittt import build_vittt
from analysis.models.vittt_block import TTT
from analysis.models.vittt_config import CONFIGS, vittt_config_from_dict, vittt_config_to_dict
from analysis.models.vittt_layers import Rotary
from analysis.spec import Direction, DotProduct, Family, Identity, Reduction, Trained, baseline

PLAIN, NO_BIAS, ROTARY = BLOCKS = ("block_d32_h2_4x6", "block_d48_h3_5x3", "block_d48_h3_3x7_rope")
FLAT, HIERARCHICAL = MODELS = ("vit_d48_depth2", "hvit_4stage_64")
BROKEN = 10  # how far beyond the tolerance a deliberately wrong host must be
LOOPS = baseline(Family.VITTT)


def excess(actual, expected, tolerance):
    assert actual.shape == expected.shape
    return ((actual - expected).abs().max() / tolerance).item()


class GoldenBlock:
    """The published token mixer alone: module, input, rotary table, expected tensors and tolerances."""

    def __init__(self, folder, name):
        self.facts = json.loads((folder / "metadata.json").read_text())["blocks"][name]
        self.expected = load_file(folder / f"{name}.safetensors")
        self.grid = (self.facts["h"], self.facts["w"])
        self.module = TTT(self.facts["dim"], self.facts["num_heads"], self.facts["qkv_bias"], LOOPS)
        self.module.load_state_dict(
            {
                key.removeprefix("param."): value
                for key, value in self.expected.items()
                if key.startswith("param.")
            }
        )
        self.x = self.expected["x"].clone().requires_grad_()
        self.rope = Rotary(self.grid, self.facts["dim"]) if self.facts["rope"] else None

    def run(self, loops=LOOPS, tape=None):
        return self.module(self.x, self.grid, Call(loops, Scope(tape or Tape())), self.rope)

    def output_excess(self, loops=LOOPS):
        return excess(self.run(loops), self.expected["out"], self.facts["recommended_atol_fp32"])


@pytest.fixture
def block(parity_folder):
    return lambda name: GoldenBlock(parity_folder / "vittt", name)


@pytest.mark.parametrize("name", BLOCKS)
def test_block_output_is_the_published_one(block, name):
    assert block(name).output_excess() < 1


@pytest.mark.parametrize("name", BLOCKS)
def test_block_keys_values_and_updated_fast_weights_are_the_published_ones(block, name):
    case = block(name)
    seen, plain = {}, Call.run_loop

    def run_loop(call, loop, inputs, weights):
        result = plain(call, loop, inputs, weights)
        seen[loop] = (inputs, result.state.fast_weights)
        return result

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Call, "run_loop", run_loop)
        case.run()
    (glu, glu_weights), (conv, conv_weights) = seen["glu"], seen["conv"]
    image = lambda x: x[:, 0].transpose(1, 2).unflatten(2, case.grid)  # noqa: E731
    actual = {"k1": glu.k, "v1": glu.v, "k2": image(conv.k), "v2": image(conv.v)}
    actual |= {"w1_new": glu_weights["w_linear"], "w2_new": glu_weights["w_gate"]}
    kernels = conv_weights["w_conv"][:, 0]
    actual["w3_new"] = kernels.transpose(1, 2).reshape(-1, 1, 3, 3)
    for key, entry in case.facts["inner_fp32_vs_fp64"].items():
        assert excess(actual[key], case.expected[f"inner.{key}"], entry["recommended_atol_fp32"]) < 1, key


@pytest.mark.parametrize("name", BLOCKS)
def test_block_gradients_are_the_published_ones(block, name):
    case = block(name)
    (case.run() * case.expected["cotangent"]).sum().backward()
    own = {key: parameter.grad for key, parameter in case.module.named_parameters()} | {"x": case.x.grad}
    published = {key for key in case.expected if key.startswith("grad.")}
    assert published == {f"grad.{key}" for key in own}
    for key, entry in case.facts["grad_fp32_vs_fp64"].items():
        assert excess(own[key], case.expected[f"grad.{key}"], entry["recommended_atol_fp32"]) < 1, key


@pytest.mark.parametrize(
    ("loop", "edit"),
    [
        ("glu", {"direction": Direction.ASCENT}),
        ("glu", {"loss": DotProduct(scale=0.25, reduction=Reduction.MEAN)}),
        ("glu", {"loss": DotProduct(scale=1 / 3, reduction=Reduction.SUM)}),
        ("glu", {"transform": Identity()}),
        ("glu", {"trained": Trained.LAST}),
        ("conv", {"transform": Identity()}),
        ("conv", {"steps": 2}),
        ("conv", {"trained": Trained.NONE}),
    ],
    ids=str,
)
def test_another_inner_loop_is_not_the_published_block(block, loop, edit):
    assert block(PLAIN).output_excess({**LOOPS, loop: LOOPS[loop].edit(**edit)}) > BROKEN


def test_exchanged_gate_and_linear_branch_are_not_the_published_block(block):
    case = block(PLAIN)
    case.module.glu_names = {"w1": "w_gate", "w2": "w_linear"}
    assert case.output_excess() > BROKEN


def test_column_major_kernel_offsets_are_not_the_published_block(block):
    case = block(NO_BIAS)
    case.module.w3.data = case.module.w3.data.transpose(2, 3).contiguous()
    assert case.output_excess() > BROKEN


def test_a_transposed_grid_is_not_the_published_block(block, monkeypatch):
    case = block(PLAIN)
    monkeypatch.setattr(vittt_block, "Inputs", lambda q, k, v, grid: Inputs(q, k, v, grid=(grid[1], grid[0])))
    assert case.output_excess() > BROKEN


def test_rotary_table_is_the_published_buffer(block):
    case = block(ROTARY)
    torch.testing.assert_close(case.rope.rotations, case.expected["rope.rotations"], atol=2e-6, rtol=0)


def test_rotary_with_rows_and_columns_exchanged_is_not_the_published_block(block):
    case = block(ROTARY)
    rows, columns = case.rope.rotations.chunk(2, dim=2)
    case.rope.rotations = torch.cat((columns, rows), dim=2)
    assert case.output_excess() > BROKEN


class GoldenModel:
    """A whole published classifier: host, raw and EMA weights, expected tensors and tolerances."""

    def __init__(self, folder, name):
        self.facts = json.loads((folder / "metadata.json").read_text())["hvit" if name[0] == "h" else "vit"][
            name
        ]
        self.checkpoint = torch.load(folder / name / "ckpt_epoch_3.pth", weights_only=True)
        self.io = load_file(folder / name / "io.safetensors")
        config = json.loads((folder / name / "config.json").read_text())
        self.host = build_vittt(vittt_config_from_dict(config)).eval()
        assert config.items() <= vittt_config_to_dict(self.host.config).items()
        self.host.load_state_dict(self.checkpoint["model"])

    @torch.no_grad()
    def logits_excess(self, name="logits"):
        logits = self.host({"images": self.io["images"]})
        return excess(logits, self.io[name], self.facts[f"{name}_recommended_atol_fp32"])


@pytest.fixture
def model(parity_folder):
    return lambda name: GoldenModel(parity_folder / "vittt", name)


@pytest.mark.parametrize("name", MODELS)
def test_logits_are_the_published_ones(model, name):
    case = model(name)
    assert case.logits_excess() < 1
    assert case.host.num_parameters() == case.facts["parameters"]


def test_averaged_weights_give_the_published_averaged_logits_and_the_raw_ones_do_not(model):
    case = model(HIERARCHICAL)
    assert case.logits_excess("logits_ema") > BROKEN
    case.host.load_state_dict(case.checkpoint["state_dict_ema"])
    assert case.logits_excess("logits_ema") < 1


@pytest.mark.parametrize("name", MODELS)
@torch.no_grad()
def test_hidden_states_are_the_published_ones(model, name):
    case = model(name)
    host, seen, entered = case.host, {}, []
    stages = host.blocks if name == FLAT else [stage.downsample or stage.blocks[-1] for stage in host.layers]
    keep = {"patch_embed": host.patch_embed}
    keep |= {f"{'blocks' if name == FLAT else 'layers'}.{i}": stage for i, stage in enumerate(stages)}
    for key, module in keep.items():
        module.register_forward_hook(lambda _, __, out, key=key: seen.update({key: out}))
    host.head.register_forward_pre_hook(lambda _, args: entered.append(args[0]))
    host({"images": case.io["images"]})
    seen["features"] = entered[0]
    for key, entry in case.facts["hidden_fp32_vs_fp64"].items():
        expected = case.io[f"hidden.{key}"]
        actual = seen[key][0] if isinstance(seen[key], tuple) else seen[key]
        actual = actual[:, : expected.shape[1]]
        assert excess(actual, expected, entry["recommended_atol_fp32"]) < 1, key


@pytest.mark.parametrize("name", [key for key in CONFIGS if key != "small"])
def test_full_size_names_and_shapes_are_the_published_ones(parity_folder, name):
    listed = json.loads((parity_folder / "keys" / f"{name}.json").read_text())
    with torch.device("meta"):
        host = build_vittt(CONFIGS[name])
    own = {key: list(parameter.shape) for key, parameter in host.named_parameters()}
    assert own == {key: entry["shape"] for key, entry in listed["parameters"].items()}
    assert list(own) == list(listed["parameters"])
    saved = {key: list(value.shape) for key, value in host.state_dict().items() if key not in own}
    assert saved == {key: entry["shape"] for key, entry in listed["persistent_buffers"].items()}
    assert host.num_parameters() == listed["total_parameters"]
    weights = [
        w for i in range(host.num_layers) for loop in host.initial_weights(i).values() for w in loop.values()
    ]
    assert sum(w.numel() for w in weights) == listed["count_fast_weight_parameters"]
