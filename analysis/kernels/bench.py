"""How fast the kernels are: each shape is checked against float64 first, then timed with device events, and set
against the floor that operations and bytes give and against other implementations of the same loop.

Specifications, the float64 truth and the implementations to compare with are handed in, so that this module needs nothing
but torch and Triton.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor

from analysis import kernels
from analysis.errors import ParameterError
from analysis.kernels.cases import Case, Tensors, draw
from analysis.kernels.forward import forget
from analysis.kernels.roofline import floor
from analysis.kernels.timing import clock

LIMITS = {"float32": 1e-4, "float16": 1e-2, "bfloat16": 1e-2}
"""Largest relative error ||x - exact|| / ||exact|| of outputs and state with which a speed is reported."""
GRADIENT_LIMITS = {"float32": 2e-3, "float16": 3e-2, "bfloat16": 5e-2}
"""The same for gradients, which two passes of rounding separate from the exact ones."""
OTHERS_LIMIT = 0.25
"""The same for the first outputs of other implementations: rounding of their own passes, another function does not."""
FIRST, FIRST_CHUNKS = "first ", 3
"""Chunks whose outputs and gradients are also compared by themselves: rounding has not been through many updates there."""
ROOM = 1.5
"""Times the error of plain arithmetic in the operands' type that the kernels may have where it exceeds the limits.

Orthogonalising lifts small singular values to one and the rounding in them with it, update after update: over sixteen chunks
even plain bfloat16 ends 80 % away from the float64 state of the published layer. There only a comparison tells a fault from
the arithmetic.
"""
SETS = 3
"""Input sets that timed calls rotate through: three of 400 MB at the standard shape, far beyond the L2 cache."""

Implementation = Callable[[Any, Tensors], Tensor]
Truth = Callable[[Any, Tensors], tuple[Tensor, Mapping[str, Tensor]]]


def run_kernels(spec: Any, case: Case, tensors: Tensors) -> Any:
    """Run the kernels in the form a case asks for."""
    return kernels.run(
        kernels.plan_of(spec),
        (tensors.q, tensors.k, tensors.v),
        tensors.rates,
        tensors.momentum,
        tensors.weights,
        case.tokens,
        is_parallel=case.form == "parallel",
    )


@dataclass
class Check:
    """What the first calls of every implementation gave: relative errors by tensor, and the milliseconds they took."""

    errors: dict[str, dict[str, float]] = field(default_factory=dict)
    first_ms: dict[str, float] = field(default_factory=dict)


def check(
    spec: Any,
    case: Case,
    truth: Truth,
    plain: Truth,
    others: Mapping[str, Implementation],
    device: str = "cuda",
) -> Check:
    """Compare the kernels with float64, on buffers that held NaN before, then `plain` and `others`.

    Errors are those of the outputs, of those of the first chunks, for a training case of every gradient, and under 'triton'
    and 'plain' of the moving weights.
    """
    forget()
    torch.cuda.empty_cache()
    with torch.set_grad_enabled(case.passes == "training"):
        return _check(spec, case, truth, plain, others, device)


def _check(
    spec: Any, case: Case, truth: Truth, plain: Truth, others: Mapping[str, Implementation], device: str
) -> Check:
    tensors = draw(spec, case, 97, device)
    exact_inputs = tensors.each(lambda x: x.double())
    if case.passes == "training":
        for leaf in (*tensors.leaves(), *exact_inputs.leaves()):
            leaf.requires_grad_()
    done, fast = Check(), dict[str, Mapping[str, Tensor]]()

    def with_state(name: str, run: Truth, spec: Any, tensors: Tensors) -> Tensor:
        outputs, state = run(spec, tensors)
        fast.setdefault(name, state)
        return outputs

    def again(run: Implementation, tensors: Tensors) -> dict[str, Tensor]:
        is_training = case.passes == "training"
        return _outputs_and_gradients(run, spec, case, tensors, FIRST) if is_training else {}

    exactly = partial(with_state, "exact", truth)
    expected = _outputs_and_gradients(exactly, spec, case, exact_inputs) | again(exactly, exact_inputs)
    weights = fast.pop("exact")
    poison = torch.full((case.batch, case.heads, case.tokens, case.width), float("nan"), device=device)
    del poison

    def ours(spec: Any, tensors: Tensors) -> tuple[Tensor, Mapping[str, Tensor]]:
        result = run_kernels(spec, case, tensors)
        return result.outputs, result.state["fast"]

    states = {"triton": partial(with_state, "triton", ours), "plain": partial(with_state, "plain", plain)}
    for name, implementation in {**states, **others}.items():
        first = partial(_outputs_and_gradients, implementation, spec, case, tensors)
        found, done.first_ms[name] = first_call(first)
        found |= again(implementation, tensors)
        done.errors[name] = {key: _distance(found[key], x) for key, x in expected.items() if x.any()}
    for name, state in fast.items():
        done.errors[name] |= {each: _distance(state[each], weights[each]) for each in spec.moving}
    return done


def first_tokens(case: Case) -> int:
    """Return how many tokens the first chunks have."""
    return min(case.tokens, FIRST_CHUNKS * case.chunk)


def _outputs_and_gradients(
    run: Implementation, spec: Any, case: Case, tensors: Tensors, prefix: str = ""
) -> dict[str, Tensor]:
    """Return what a run is compared by: its outputs, and in training the gradients for one draw of upstream gradients.

    With the prefix FIRST: the gradients alone, of a loss on the first chunks. Over many chunks rounding may grow until the
    gradients of two right implementations have nothing in common, and nothing could be told from them. That takes a run of
    its own: a compiled backward pass uses up what it saved.
    """
    outputs = run(spec, tensors)
    found = {} if prefix else {"outputs": outputs, f"{FIRST}outputs": outputs[:, :, : first_tokens(case)]}
    if not torch.is_grad_enabled():
        return found
    generator = torch.Generator(outputs.device).manual_seed(98)
    upstream = torch.randn(outputs.shape, generator=generator, device=outputs.device).to(outputs.dtype)
    if prefix:
        upstream[:, :, first_tokens(case) :] = 0
    named = tensors.named()
    gradients = torch.autograd.grad(outputs, list(named.values()), upstream, allow_unused=True)
    for (name, leaf), gradient in zip(named.items(), gradients, strict=True):
        found[f"{prefix}gradient {name}"] = torch.zeros_like(leaf) if gradient is None else gradient
    return found


def first_call(call: Callable[[], Any]) -> tuple[Any, float]:
    """Return the result of a call and the milliseconds until it was there, compilation included."""
    _wait()
    begin = time.perf_counter()
    result = call()
    _wait()
    return result, (time.perf_counter() - begin) * 1e3


def _wait() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def within(found: Mapping[str, float], plain: Mapping[str, float], dtype: str) -> bool:
    """Whether every error is small enough for the speed to mean something: below its limit, or that of plain arithmetic.

    What the first chunks alone give may not hide behind plain arithmetic beyond `OTHERS_LIMIT`.
    """
    for name, error in found.items():
        limit = (GRADIENT_LIMITS if "gradient" in name else LIMITS)[dtype]
        room = ROOM * plain[name]
        if not error <= max(limit, min(room, OTHERS_LIMIT) if name.startswith(FIRST) else room):
            return False
    return True


def rule(dtype: str = "bfloat16") -> str:
    """Return `within` in a sentence, for those who read the times."""
    limit, cap, gradients = (f"{100 * x:g} %" for x in (LIMITS[dtype], OTHERS_LIMIT, GRADIENT_LIMITS[dtype]))
    return (
        f"A shape gets a time when the error of its outputs, of those of the first {FIRST_CHUNKS} chunks, and of its final state "
        f"is at most {limit} in {dtype}, or at most {ROOM:g} times that of plain {dtype} arithmetic on the same inputs; that "
        f"excuses the first chunks no further than {cap}. For gradients the limit is {gradients}, with the same exceptions."
    )


def _distance(measured: Tensor, exact: Tensor) -> float:
    with torch.no_grad():
        return float((measured.double() - exact).norm() / exact.norm())


def training_call(run: Callable[[Tensors], Tensor]) -> Callable[[Tensors], Any]:
    """Turn a forward call into forward and backward with respect to every input."""

    def call(tensors: Tensors) -> Any:
        leaves = tensors.leaves()
        for leaf in leaves:
            leaf.requires_grad_()
        outputs = run(tensors)
        return torch.autograd.grad(outputs, leaves, torch.ones_like(outputs), allow_unused=True)

    return call


def measure(
    spec: Any,
    case: Case,
    truth: Truth,
    plain: Truth,
    ceiling: Mapping[str, float],
    others: Mapping[str, Implementation] | None = None,
) -> dict[str, Any]:
    """Check a case, time it, and return its row.

    truth: the loop in float64. plain: the same loop with products in the operands' type, the yardstick where rounding grows.
    others: implementations to check and time on the same inputs, by name; one that computes something else gets no time.

    Raises:
        ParameterError: the kernels disagree with float64, so their speed means nothing.
    """
    others = others or {}
    found = check(spec, case, truth, plain, others)
    checked, yardstick = found.errors["triton"], found.errors["plain"]
    if not within(checked, yardstick, case.dtype):
        raise ParameterError(
            f"expected errors of at most {LIMITS[case.dtype]:g} ({GRADIENT_LIMITS[case.dtype]:g} for gradients) against "
            f"float64 or {ROOM:g} times those of plain {case.dtype}, received {_listed(checked)} where plain arithmetic has "
            f"{_listed(yardstick)}; mend the kernels before timing."
        )
    same = {
        name: other for name, other in others.items() if found.errors[name]["first outputs"] <= OTHERS_LIMIT
    }
    row: dict[str, Any] = asdict(case) | asdict(found) | {"device": torch.cuda.get_device_name()}
    row["timings"] = _timings(spec, case, same)
    if case.passes == "forward":
        limits = floor(kernels.plan_of(spec), case)
        least = max(limits[what] / ceiling[f"{what}_per_s"] * 1e3 for what in limits)
        row |= {**limits, "floor_ms": least, "achieved": least / row["timings"]["triton"]["median_ms"]}
    return row


def _listed(found: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {error:.1e}" for name, error in found.items())


def _timings(spec: Any, case: Case, others: Mapping[str, Implementation]) -> dict[str, dict[str, Any]]:
    sets = [draw(spec, case, seed) for seed in range(SETS)]
    forget()  # the check has built the layer already, and its buffers belong to the peak
    torch.cuda.empty_cache()
    calls: dict[str, Implementation] = {
        "triton": lambda spec, tensors: run_kernels(spec, case, tensors).outputs,
        **others,
    }
    found = {}
    for name, call in calls.items():
        bound, is_training = partial(call, spec), case.passes == "training"
        with torch.set_grad_enabled(is_training):
            found[name] = asdict(clock(training_call(bound) if is_training else bound, sets))
    return found
