"""A kernel with one fault planted in it must disagree with the reference, or these tests would prove nothing."""

import importlib.util
import sys

import pytest
import torch

from analysis.spec import DotProduct, NormMode, Order, QuerySource, Reduction, Tail, WeightNorm
from tests.kernels.agreement import LADDER, all_errors, errors

BASE = LADDER["baseline"].edit(tail=Tail.UPDATE, order=Order.UPDATE_THEN_APPLY)
MEAN = LADDER["v6"].edit(loss=DotProduct(reduction=Reduction.MEAN), tail=Tail.UPDATE)

FAULTS = {
    "gate gradient without the other branch": ("token", "r * b * slope", "r * slope", BASE),
    "up gradient without the gate": ("token", "r * swish, DTYPE", "r, DTYPE", BASE),
    "silu without its input": ("token", "h = silu_parts(a)[0] * b", "h = a * b", LADDER["v2"]),
    "rates of the wrong sign": (
        "token",
        "mask=mask, other=0.0) * factor",
        "mask=mask, other=0.0) * -factor",
        LADDER["v2"],
    ),
    "linear rates left out": ("token", "each[None, :], DTYPE", "1.0, DTYPE", LADDER["v3"]),
    "a mean that is a sum": ("token", "return scale / count", "return scale", MEAN),
    "a sum whose factor is lost": (
        "token",
        "first_part * factor",
        "first_part",
        LADDER["v6"],
    ),
    "the tail mask of the parts": (
        "token",
        "inside = t < last_token",
        "inside = t < last_token - 1",
        LADDER["v6"],
    ),
    "a split that is lost": ("token", "begin, split * part,", "begin, part,", BASE.edit(chunk=16)),
    "one state for all chunks": (
        "token",
        "tl.minimum(chunk, w_last)",
        "0 * tl.minimum(chunk, w_last)",
        LADDER["v6"],
    ),
    "programs that stop after their first tile": (
        "token",
        "tiles * chunks, tl.num_programs(0), flatten",
        "tl.minimum(tiles * chunks, tl.num_programs(0)), tl.num_programs(0), flatten",
        LADDER["v6"],
    ),
    "no momentum": (
        "matrix",
        "d = g + tl.load(alpha + chunk * total_z + matrix % total_z) * d",
        "d = g",
        LADDER["v4"],
    ),
    "momentum over the wrong count": ("matrix", "tl.sum(total) / count", "tl.sum(total) / length", BASE),
    "no Frobenius norm": ("matrix", "/ (norm + eps)", "/ (1.0 + eps)", LADDER["v5"]),
    "Gram matrix that is not mirrored": ("newton_schulz", "row != col", "row > col", LADDER["v5"]),
    "polynomial without its linear term": (
        "newton_schulz",
        "accumulator += beta * linear",
        "accumulator += 0.0 * linear",
        LADDER["v5"],
    ),
    "polynomial without its constant": ("newton_schulz", "diagonal, 0.0)", "0.0, 0.0)", LADDER["v5"]),
    "norm over the wrong axis": (
        "matrix",
        "total += tl.sum(w * w, 0)\n        goal",
        "total += tl.sum(tl.sum(w * w, 1), 0)\n        goal",
        BASE,
    ),
    "norm without its target": ("matrix", "factor = goal /", "factor = 1.0 /", BASE),
    "update of the wrong sign": (
        "matrix",
        "w += step * tl.load(change + turned, mask=mask",
        "w -= step * tl.load(change + turned, mask=mask",
        LADDER["v1"],
    ),
    "pre-norm that keeps no sum": (
        "matrix",
        "tl.store(main + offsets, w, mask=mask)",
        "pass",
        BASE.edit(weight_norm=WeightNorm(NormMode.PRE)),
    ),
    "running sum of the wrong sign": (
        "matrix",
        "w += step * tl.load(change + at + turned",
        "w -= step * tl.load(change + at + turned",
        LADDER["v6"],
    ),
    "initial weights read across": (
        "matrix",
        "i[:, None] * w_i + j[None, :] * w_o",
        "i[:, None] * w_o + j[None, :] * w_i",
        BASE,
    ),
    "initial norms without a root": (
        "matrix",
        "tl.store(target + z * cols + j, tl.sqrt(total)",
        "tl.store(target + z * cols + j, total",
        BASE,
    ),
    "initial operands that stay unwritten": (
        "matrix",
        "tl.store(operand + offsets, narrow(w, DTYPE), mask=mask)\n        total",
        "total",
        BASE,
    ),
    "turned matrices read straight": (
        "matrix",
        "(offset % cols) * rows + offset // cols if TURNED",
        "offset if TURNED",
        LADDER["v5"],
    ),
}
TARGETS = {
    "token": "analysis.kernels.tokens",
    "matrix": "analysis.kernels.matrices",
    "newton_schulz": "analysis.kernels.newton_schulz",
}


def planted(kind: str, right: str, wrong: str, folder) -> object:
    """Return a module of kernels with one piece of its text replaced."""
    return replaced(f"{kind}_kernels", right, wrong, folder)


def replaced(name: str, right: str, wrong: str, folder) -> object:
    """Return a module with one piece of its text replaced, loaded from a file as Triton needs."""
    original = importlib.import_module(f"analysis.kernels.{name}")
    with open(original.__file__, encoding="utf-8") as file:
        text = file.read()
    assert right in text, f"the fault's anchor is gone: {right}"
    path = folder / f"{name}_with_a_fault.py"
    path.write_text(text.replace(right, wrong), encoding="utf-8")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    # dataclasses look their module up by name
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


KEYS, LINEAR_KEYS = (LADDER[key].edit(query=QuerySource.KEY) for key in ("v2", "v3"))
WAY_BACK = {
    "half of a symmetric product": (
        "newton_schulz_kernels",
        "second + i[:, None] * depth, 1, first",
        "second + i[:, None] * depth, 1, second",
        LADDER["v2"],
    ),
    "a linear term that is lost": (
        "newton_schulz_kernels",
        "alpha * accumulator, second, beta",
        "alpha * accumulator, second, 0 * beta",
        LADDER["v2"],
    ),
    "an adjoint without its polynomial": (
        "newton_schulz_kernels",
        "y + right, cols, accumulator",
        "y + right, cols, 0 * accumulator",
        LADDER["v2"],
    ),
    "an adjoint without its matrix": ("newton_schulz_kernels", "if TWICE", "if False", LADDER["v2"]),
    "an overwritten operand": (
        "newton_schulz",
        "narrow, spare = spare, narrow",
        "spare = narrow",
        LADDER["v2"],
    ),
    "a norm that is taken as constant": ("adjoint", "along / (norm", "0 * along / (norm", LADDER["v5"]),
    "columns whose length is constant": ("adjoint", "back, value=-1.0", "back, value=0.0", BASE),
    "chunks in the order of sequences": (
        "adjoint",
        "unflatten(1, (chunks, -1)).transpose(0, 1)",
        "unflatten(1, (chunks, -1))",
        LADDER["v2"],
    ),
    "chunks that replace each other": ("adjoint", "into.add_(made)", "into.copy_(made)", LINEAR_KEYS),
    "lessons that replace read-outs": ("adjoint", "d_k, beta=float(rates.adds)", "d_k", KEYS),
    "gates of the same chunk": ("parallel_backward", "d[:-1]", "d[1:]", LADDER["v3"]),
    "momentum that ends": (
        "parallel_backward",
        "d_grads[chunk - 1].addcmul_",
        "d_grads[chunk].addcmul_",
        LADDER["v3"],
    ),
    "states one too early": (
        "parallel_backward",
        "first + plan.inclusive",
        "first",
        LADDER["v6"].edit(order=Order.UPDATE_THEN_APPLY),
    ),
    "gates over the wrong count": ("backward", "/ (stop - start)", "/ self.chunks.length", BASE),
    "steps that replace each other": (
        "backward",
        "plan.reads_keys or plan.steps > 1",
        "False",
        BASE.edit(steps=2),
    ),
    "weights of another state": ("backward", "if state == self.state", "if self.state >= 0", BASE),
}


def plant_on_the_way_back(kind, right, wrong, folder, monkeypatch):
    module = replaced(kind, right, wrong, folder)
    if kind == "adjoint":
        for user in ("backward", "parallel_backward"):
            monkeypatch.setattr(f"analysis.kernels.{user}.adjoint", module)
    elif kind == "newton_schulz_kernels":
        monkeypatch.setattr("analysis.kernels.newton_schulz.kernels", module)
    elif kind == "newton_schulz":
        monkeypatch.setattr("analysis.kernels.adjoint.NewtonSchulz", module.NewtonSchulz)
    elif kind == "backward":
        monkeypatch.setattr("analysis.kernels.differentiable.backward", module)
    else:
        monkeypatch.setattr("analysis.kernels.differentiable.ParallelWalk", module.ParallelWalk)


@pytest.mark.parametrize("fault", WAY_BACK)
def test_a_fault_planted_on_the_way_back_is_found(fault, tmp_path, monkeypatch):
    kind, right, wrong, spec = WAY_BACK[fault]
    sizes = {"width": 12, "hidden": 12, "values": 12, "heads": 2}
    values, gradients = all_errors(spec, torch.float32, **sizes)
    assert max(gradients.values()) < 2e-3
    plant_on_the_way_back(kind, right, wrong, tmp_path, monkeypatch)
    again, gradients = all_errors(spec, torch.float32, **sizes)
    assert again == values
    assert not max(gradients.values()) < 1e-2, gradients


@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_is_found(fault, tmp_path, monkeypatch):
    kind, right, wrong, spec = FAULTS[fault]
    importlib.import_module(TARGETS[kind])
    # one tile of sixteen is quick; the faults of a network without hidden layer need several, and turned matrices
    is_linear = spec.network.kind == "linear"
    sizes = (
        {"width": 20, "hidden": 20, "values": 18} if is_linear else {"width": 12, "hidden": 12, "values": 12}
    )
    module = planted(kind, right, wrong, tmp_path)
    monkeypatch.setattr(sys.modules[TARGETS[kind]], "kernels", module)
    monkeypatch.setattr("analysis.kernels.tokens.PROGRAMS", 2)
    if kind == "matrix":
        monkeypatch.setattr("analysis.kernels.layer.matrix_kernels", module)
    found = errors(spec, torch.float32, **sizes)
    assert not max(found.values()) < 1e-3, found


def test_the_kernels_without_a_fault_agree():
    sizes = {"width": 20, "hidden": 20, "values": 18}
    for spec in (BASE, MEAN, LADDER["v5"]):
        assert max(errors(spec, torch.float32, **sizes).values()) < 1e-4
