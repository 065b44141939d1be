"""A kernel with one fault planted in it must disagree with the reference, or these tests would prove nothing."""

import importlib.util
import sys

import pytest
import torch

from analysis.spec import DotProduct, NormMode, Order, Reduction, Tail, WeightNorm
from tests.kernels.agreement import LADDER, errors

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
    "no momentum": (
        "matrix",
        "d = g + tl.load(alpha + chunk * total_z + matrix % total_z) * d",
        "d = g",
        LADDER["v4"],
    ),
    "momentum over the wrong count": ("matrix", "tl.sum(total) / count", "tl.sum(total) / length", BASE),
    "no Frobenius norm": ("matrix", "/ (norm + eps)", "/ (1.0 + eps)", LADDER["v5"]),
    "Gram matrix that is not mirrored": ("matrix", "if row != col", "if row > col", LADDER["v5"]),
    "polynomial without its linear term": (
        "matrix",
        "accumulator += beta * linear",
        "accumulator += 0.0 * linear",
        LADDER["v5"],
    ),
    "iteration of the wrong sign": ("matrix", "accumulator += a *", "accumulator -= a *", LADDER["v5"]),
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
    "turned matrices read straight": (
        "matrix",
        "(offset % cols) * rows + offset // cols if TURNED",
        "offset if TURNED",
        LADDER["v5"],
    ),
}
TARGETS = {"token": "analysis.kernels.tokens", "matrix": "analysis.kernels.matrices"}


def planted(kind: str, right: str, wrong: str, folder) -> object:
    """Return the kernel module with one piece of its text replaced, loaded from a file as Triton needs."""
    original = importlib.import_module(f"analysis.kernels.{kind}_kernels")
    with open(original.__file__, encoding="utf-8") as file:
        text = file.read()
    assert right in text, f"the fault's anchor is gone: {right}"
    path = folder / f"{kind}_with_a_fault.py"
    path.write_text(text.replace(right, wrong), encoding="utf-8")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


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
    if kind == "matrix":
        monkeypatch.setattr("analysis.kernels.layer.matrix_kernels", module)
    found = errors(spec, torch.float32, **sizes)
    assert not max(found.values()) < 1e-3, found


def test_the_kernels_without_a_fault_agree():
    sizes = {"width": 20, "hidden": 20, "values": 18}
    for spec in (BASE, MEAN, LADDER["v5"]):
        assert max(errors(spec, torch.float32, **sizes).values()) < 1e-4
