"""No speed without agreement: the check sees every tensor, a planted fault stops the clock, the floor counts by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from analysis.errors import ParameterError
from analysis.kernels import bench
from analysis.kernels.bench import check, measure, within
from analysis.kernels.cases import Case, draw
from analysis.kernels.plan import plan_of
from analysis.kernels.roofline import floor
from analysis.kernels.timing import Timing
from analysis.speed.comparisons import plain, truth
from analysis.speed.suites import loop_of

SMALL = Case("v2", "parallel", tokens=40, chunk=16, width=16, heads=1, dtype="float32")
CEILING = {"operations_per_s": 1e12, "bytes_per_s": 1e11}


@pytest.fixture
def on_a_cpu(monkeypatch):
    """The interpreter in place of a device, and a clock that reads one millisecond."""
    monkeypatch.setattr(bench, "draw", lambda spec, case, seed, device="cpu": draw(spec, case, seed, "cpu"))
    full = torch.full
    monkeypatch.setattr(torch, "full", lambda *a, device=None, **k: full(*a, **k))
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda *a: "a GPU")
    monkeypatch.setattr(bench, "clock", lambda call, sets: Timing(1.0, 0.9, 1.1, 0.1, [1.0]))


@pytest.mark.parametrize("passes", ["forward", "training"])
def test_the_check_covers_outputs_state_and_every_gradient(passes):
    case = replace(SMALL, passes=passes)
    found = check(loop_of(case), case, truth, plain, {}, device="cpu").errors
    named = draw(loop_of(case), case, 0, "cpu").named()
    kinds = ("gradient", "first gradient") if passes == "training" else ()
    gradients = {f"{kind} {name}" for kind in kinds for name in named}
    assert set(found["triton"]) == set(found["plain"]) == {"outputs", "first outputs", "w_out"} | gradients
    assert within(found["triton"], found["plain"], "float32")


def test_a_row_holds_times_and_the_floor(on_a_cpu):
    spec = loop_of(SMALL)
    same = {"same": lambda spec, tensors: truth(spec, tensors)[0]}
    found = measure(spec, SMALL, truth, plain, CEILING, same)
    assert set(found["timings"]) == {"triton", "same"}
    assert found["floor_ms"] == pytest.approx(found["achieved"])
    assert found["errors"]["same"]["outputs"] < 1e-5


def test_another_function_is_compared_with_but_gets_no_time(on_a_cpu):
    found = measure(loop_of(SMALL), SMALL, truth, plain, CEILING, {"other": lambda spec, tensors: -tensors.v})
    assert set(found["timings"]) == {"triton"}
    assert found["errors"]["other"]["outputs"] > 0.5


def test_kernels_that_disagree_get_no_time(on_a_cpu, monkeypatch):
    right = bench.run_kernels

    def shifted(spec, case, tensors):
        found = right(spec, case, tensors)
        return replace(found, outputs=found.outputs + 1e-2 * found.outputs.norm())

    monkeypatch.setattr(bench, "run_kernels", shifted)
    monkeypatch.setattr(bench, "clock", lambda *a: pytest.fail("it was timed"))
    with pytest.raises(ParameterError, match=r"expected errors of at most 0\.0001 .* outputs"):
        measure(loop_of(SMALL), SMALL, truth, plain, CEILING)


def test_agreement_is_a_limit_or_the_error_of_plain_arithmetic():
    small = {"outputs": 1e-3, "gradient q": 1e-3}
    assert within({"outputs": 9e-3, "gradient q": 4e-2}, small, "bfloat16")
    assert not within({"outputs": 4e-2}, small, "bfloat16")
    assert within({"outputs": 4e-2}, {"outputs": 3e-2}, "bfloat16")
    assert not within({"outputs": 4e-2}, {"outputs": 2e-2}, "bfloat16")
    assert not within({"outputs": float("nan")}, {"outputs": 1.0}, "bfloat16")
    assert not within({"outputs": 1.0}, {"outputs": float("nan")}, "bfloat16")


def test_no_arithmetic_excuses_what_the_first_chunks_get_wrong():
    nothing_in_common = {"gradient q": 1.0, "first gradient q": 0.2}
    assert within(nothing_in_common, {"gradient q": 0.9, "first gradient q": 0.2}, "bfloat16")
    assert not within(
        nothing_in_common | {"first gradient q": 1.0}, dict.fromkeys(nothing_in_common, 0.9), "bfloat16"
    )


@pytest.mark.parametrize("passes", ["forward", "training"])
def test_a_first_call_that_leaves_no_state_is_found(passes, monkeypatch):
    calls, right = [], bench.run_kernels

    def empty_at_first(spec, case, tensors):
        calls.append(case)
        found = right(spec, case, tensors)
        fast = {name: x * float("nan") for name, x in found.state["fast"].items()}
        return replace(found, state={**found.state, "fast": fast}) if len(calls) == 1 else found

    monkeypatch.setattr(bench, "run_kernels", empty_at_first)
    case = replace(SMALL, passes=passes)
    found = check(loop_of(case), case, truth, plain, {}, device="cpu").errors
    assert not within(found["triton"], found["plain"], "float32")


@pytest.mark.parametrize("at", [0, 1])
def test_gradients_that_are_zero_are_found(at, on_a_cpu, monkeypatch):
    case = replace(SMALL, passes="training", tokens=80)
    calls, right = [], torch.autograd.grad

    def zero(outputs, inputs, given, **options):
        calls.append(outputs)
        found = right(outputs, inputs, given, **options)
        is_wrong = len(calls) == 3 + at and outputs.dtype == torch.float32
        return tuple(torch.zeros_like(each) for each in found) if is_wrong else found

    monkeypatch.setattr(torch.autograd, "grad", zero)
    found = check(loop_of(case), case, truth, plain, {}, device="cpu").errors
    wrong = ("gradient q", "first gradient q")[at]
    assert found["triton"][wrong] == 1.0 and not within(found["triton"], found["plain"], "float32")


def test_the_floor_of_linear_attention_is_two_products_and_four_sequences():
    case = Case("v6", "parallel", tokens=4096, chunk=1024, width=64, heads=2)
    found = floor(plan_of(loop_of(case)), case)
    assert found["operations"] == 2 * 2 * 64 * 64 * (4096 + 3072)
    assert found["bytes"] == 4 * 2 * 4096 * 64 * 2


def test_the_rule_is_told_with_the_numbers_that_decide():
    told = bench.rule()
    assert (
        f"at most {100 * bench.LIMITS['bfloat16']:g} %" in told
        and f"limit is {100 * bench.GRADIENT_LIMITS['bfloat16']:g} %" in told
        and f"{bench.ROOM:g} times" in told
        and f"first {bench.FIRST_CHUNKS} chunks" in told
    )
