"""flash-linear-attention counts as Variant 6 only where it computes linear attention, causal by token, from the same state."""

from __future__ import annotations

import sys
import types

import pytest
import torch

from analysis.errors import ParameterError
from analysis.kernels.cases import Case, draw
from analysis.kernels.timing import Timing
from analysis.speed import flash
from analysis.speed.flash import flash_records
from analysis.speed.suites import loop_of

CASE = Case("v6", "parallel", tokens=24, chunk=8, width=8, heads=2, dtype="float32")


def naive(q, k, v, scale, initial_state, normalize):
    """o_t = q_t (S_0 + sum over s <= t of k_s^T v_s), heads behind tokens as the package takes them."""
    assert scale == 1.0 and not normalize
    sums = torch.einsum("bthk,bthv->bthkv", k, v).cumsum(1) + initial_state.unsqueeze(1)
    return torch.einsum("bthk,bthkv->bthv", q, sums), None


@pytest.fixture
def package(monkeypatch):
    """A stand-in for the package, on a processor."""
    module = types.ModuleType("fla.ops.linear_attn")
    module.chunk_linear_attn = naive
    for name in ("fla", "fla.ops"):
        monkeypatch.setitem(sys.modules, name, types.ModuleType(name))
    monkeypatch.setitem(sys.modules, "fla.ops.linear_attn", module)
    monkeypatch.setattr(flash, "draw", lambda spec, case, seed: draw(spec, case, seed, "cpu"))
    monkeypatch.setattr(
        flash, "clock", lambda call, sets: call(sets[0]) is None or Timing(1.0, 0.9, 1.1, 0.1, [1.0])
    )
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda *a: "a GPU")
    return module


def test_the_same_function_gets_a_time_beside_variant_6(package):
    (record,) = flash_records(CASE, loop_of(CASE), "bench")
    assert record.parameters["implementation"] == "flash-linear-attention"
    assert record.parameters["variant"] == "v6"
    assert record.extra["errors"]["outputs"] < 1e-5


@pytest.mark.parametrize(
    "change",
    [
        lambda q, k, v, s: (q, k, v, torch.zeros_like(s)),
        lambda q, k, v, s: (q, k, -v, s),
        lambda q, k, v, s: (q, k.roll(1, 1), v, s),
    ],
)
def test_another_function_gets_none(package, change):
    def other(q, k, v, scale, initial_state, normalize):
        q, k, v, initial_state = change(q, k, v, initial_state)
        return naive(q, k, v, scale, initial_state, normalize)

    package.chunk_linear_attn = other
    with pytest.raises(ParameterError, match="compare without it"):
        flash_records(CASE, loop_of(CASE), "bench")
