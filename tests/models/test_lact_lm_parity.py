"""The LaCT language model and its inner operation against golden tensors of the published code."""

from __future__ import annotations

import dataclasses
import json

import pytest
import torch
from safetensors.torch import load_file

from analysis.inner import Inputs, run
from analysis.models.checkpoints import load
from analysis.models.lact_lm import LaCTLM
from analysis.models.lact_lm_config import LOOP, parse_config
from analysis.models.sites import Tape
from analysis.spec import Order, presets

VARIANTS = (
    "lowrank_muon_momentum",
    "fullrank_plain",
    "prenorm_muon",
    "nope_momentum",
    "prenorm_momentum_novsilu",
)
OPERATIONS = ("g16_L16_c16", "g16_L33_c16", "g24_L72_c24", "g32_L89_c32", "g48_L10_c16", "g48_L65_c16")
BROKEN = 10  # how far beyond the tolerance a deliberately wrong host must be
RATES = {"lr0": "w_gate", "lr1": "w_out", "lr2": "w_up"}
WEIGHTS = {"w0": "w_gate", "w1": "w_out", "w2": "w_up"}


def excess(actual, expected, tolerance):
    assert actual.shape == expected.shape
    return ((actual - expected).abs().max() / tolerance).item()


def relative(actual, expected):
    return ((actual.float() - expected.float()).norm() / expected.float().norm()).item()


class Golden:
    """One published language model: host, batches, expected tensors and tolerances."""

    def __init__(self, folder, name):
        self.folder = folder / name
        self.facts = json.loads((folder / "metadata.json").read_text())[name]
        self.host = load(self.folder)
        self.io = load_file(self.folder / "io.safetensors")

    def batch(self, sequence):
        return {part: self.io[f"{sequence}.{part}"] for part in ("input_ids", "labels")}

    def tolerance(self, sequence, quantity):
        return self.facts["sequences"][sequence]["recommended_atol_fp32"][quantity]

    def expected(self, sequence, quantity):
        return self.io[f"{sequence}.{quantity}_fp32ns"]


@pytest.fixture
def golden(parity_folder):
    return lambda name: Golden(parity_folder / "lact_lm", name)


@pytest.mark.parametrize("sequence", ["main", "mult", "short"])
@pytest.mark.parametrize("name", VARIANTS)
def test_logits_and_loss(golden, name, sequence):
    case = golden(name)
    batch = case.batch(sequence)
    logits = case.host(batch)
    assert excess(logits, case.expected(sequence, "logits"), case.tolerance(sequence, "logits")) < 1
    loss = case.host.loss(logits, batch)
    assert excess(loss, case.expected(sequence, "loss"), case.tolerance(sequence, "loss")) < 1
    metrics = case.host.metrics(logits, batch)
    assert torch.allclose(metrics["nll"].sum() / metrics["tokens"].sum(), loss)


@pytest.mark.parametrize("name", VARIANTS)
def test_captured_tensors(golden, name):
    case = golden(name)
    tape = Tape(
        ["layers.*.q", "layers.*.k", "layers.*.v", "layers.*.o", "layers.*.inner", "layers.*.attention.o"]
    )
    case.host(case.batch("main"), tape=tape)
    expected = load_file(case.folder / "captures_fp32ns.safetensors")
    tolerances = case.facts["sequences"]["main"]["captures_fp32_vs_fp64"]
    for name_, reference in expected.items():
        _, layer, quantity = name_.split(".")
        actual = captured(tape, layer, quantity)
        actual = actual if actual.shape == reference.shape else actual.flatten(0, 1)
        assert excess(actual, reference, tolerances[name_]["recommended_atol_fp32"]) < 1, name_


def captured(tape, layer, quantity):
    site = f"layers.{layer}."
    if quantity in ("fast_q", "fast_k", "fast_v"):
        return tape[site + quantity[-1]]
    if quantity == "fw_x":
        return tape[f"{site}o"]
    if quantity == "swa_out":
        return tape[f"{site}attention.o"]
    inputs, weights = tape[f"{site}inner"]
    if quantity == "momentum":
        return inputs.momentum
    if quantity in RATES:
        return inputs.rates[RATES[quantity]]
    return weights[WEIGHTS[quantity]][0].transpose(-1, -2)


@pytest.mark.parametrize("name", ["fullrank_plain", "prenorm_momentum_novsilu"])
def test_gradients(golden, name):
    case = golden(name)
    batch = case.batch("main")
    case.host.loss(case.host(batch), batch).backward()
    parameters = dict(case.host.named_parameters())
    tolerances = case.facts["sequences"]["main"]["grads_fp32_vs_fp64"]
    for parameter, expected in load_file(case.folder / "grads_fp32ns.safetensors").items():
        tolerance = tolerances[parameter]["recommended_atol_fp32"]
        assert excess(parameters[parameter].grad, expected, tolerance) < 1, parameter


@pytest.mark.parametrize("name", ["lowrank_muon_momentum", "prenorm_muon", "prenorm_momentum_novsilu"])
def test_published_precision_of_newton_schulz(golden, name):
    case = golden(name)
    case.host.options = {"newton_schulz_dtype": torch.bfloat16}
    for sequence in ("main", "mult"):
        limit = case.facts["sequences"][sequence]["recommended_rel_l2_official_logits"]
        assert relative(case.host(case.batch(sequence)), case.io[f"{sequence}.logits"]) < limit


def test_wrong_hosts_are_found_out(golden):
    case = golden("lowrank_muon_momentum")
    batch, expected, tolerance = (
        case.batch("main"),
        case.expected("main", "logits"),
        case.tolerance("main", "logits"),
    )
    edits = {
        "order": {"order": Order.UPDATE_THEN_APPLY},
        "momentum": {"momentum": None},
        "norm": {"weight_norm": None},
        "chunk": {"chunk": 8},
    }
    for label, fields in edits.items():
        assert excess(case.host.edit(**fields)(batch), expected, tolerance) > BROKEN, label


def test_stream_equals_golden_logits(golden):
    case = golden("prenorm_momentum_novsilu")
    batch = case.batch("main")
    stream = case.host.stream()
    logits = torch.cat([stream.feed(piece) for piece in batch["input_ids"].split(7, dim=1)], 1)
    assert excess(logits, case.expected("main", "logits"), case.tolerance("main", "logits")) < 1


class GoldenOperation:
    """The published block-causal operation alone."""

    def __init__(self, folder, name):
        self.facts = json.loads((folder / "metadata.json").read_text())["cases"][name]
        self.tensors = load_file(folder / f"{name}.safetensors")
        self.given = {
            key.removeprefix("in."): value.clone().requires_grad_()
            for key, value in self.tensors.items()
            if key.startswith("in.")
        }

    def run(self, kind, muon, momentum, **options):
        given = {name: value.unsqueeze(0) for name, value in self.given.items()}
        spec = presets.lact_lm(
            chunk=self.facts["chunk_size"],
            muon=muon == "muon",
            momentum=momentum == "mom",
            prenorm=kind == "pre",
        )
        inputs = Inputs(
            given["q"],
            given["k"],
            given["v"],
            rates={RATES[lr]: given[lr] for lr in RATES},
            momentum=given["momentum"] if momentum == "mom" else None,
        )
        weights = {WEIGHTS[w]: given[w].transpose(-1, -2) for w in WEIGHTS}
        return run(spec, inputs, weights, **options).outputs[0]


@pytest.mark.parametrize("momentum", ["mom", "nomom"])
@pytest.mark.parametrize("muon", ["muon", "nomuon"])
@pytest.mark.parametrize("kind", ["post", "pre"])
@pytest.mark.parametrize("name", OPERATIONS)
def test_inner_operation(parity_folder, name, kind, muon, momentum):
    case = GoldenOperation(parity_folder / "lact_op", name)
    combination = f"{kind}.{muon}.{momentum}"
    facts = case.facts["combos"][combination]
    out = case.run(kind, muon, momentum)
    suffix = "_fp32ns" if muon == "muon" else ""
    assert excess(out, case.tensors[f"out{suffix}.{combination}"], facts["recommended_atol_fp32"]) < 1
    if muon == "muon":
        rounded = case.run(kind, muon, momentum, newton_schulz_dtype=torch.bfloat16)
        # without an update there is nothing to round, and the recorded distance is zero
        limit = max(facts["recommended_rel_l2_official"], 1e-5)
        assert relative(rounded, case.tensors[f"out.{combination}"]) < limit
    gradients = {
        key: value for key, value in case.tensors.items() if key.startswith(f"grad_fp32ns.{combination}.")
    }
    if gradients:
        (out * case.tensors["cotangent"]).sum().backward()
    for key, expected in gradients.items():
        parameter = key.rsplit(".", 1)[1]
        tolerance = facts["grad_fp32_vs_fp64"][parameter]["recommended_atol_fp32"]
        assert excess(case.given[parameter].grad, expected, tolerance) < 1, parameter


def published_keys(parity_folder):
    return sorted((parity_folder / "keys").glob("lact_llm_*.json"))


def test_published_names_and_shapes(parity_folder):
    files = published_keys(parity_folder)
    assert len(files) == 2
    for file in files:
        facts = json.loads(file.read_text())
        config, notes = parse_config(facts["config"])
        assert not notes
        with torch.device("meta"):
            host = LaCTLM(config)
        shapes = {name: list(parameter.shape) for name, parameter in host.named_parameters()}
        assert shapes == {name: entry["shape"] for name, entry in facts["parameters"].items()}
        assert host.num_parameters() == facts["total_parameters"]
        assert dict(host.named_buffers()) == {}
        fast = sum(
            p.numel()
            for n, p in host.named_parameters()
            if ".attn.w" in n and n.split(".attn.")[1][1] in "012"
        )
        assert fast == facts["count_fast_weight_parameters"]


def test_frozen_edit_is_the_published_model_without_updates(golden):
    case = golden("fullrank_plain")
    whole = case.host.edit(lambda loop: dataclasses.replace(loop, chunk=1000))
    batch = case.batch("main")
    assert torch.equal(case.host.edit(lambda loop: loop.frozen())(batch), whole(batch))
    assert case.host.loops[LOOP].chunk == 16
