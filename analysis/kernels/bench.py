"""How fast the kernels are: each shape is checked against float64 first, then timed with device events, and set
against the floor that operations and bytes give and against other implementations of the same loop.

Specifications, the float64 truth and the implementations to compare with are handed in, so that this module needs nothing
but torch and Triton.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import torch
from torch import Tensor

from analysis import kernels
from analysis.errors import ParameterError
from analysis.kernels.forward import forget
from analysis.kernels.plan import Plan

LIMITS = {"float32": 1e-4, "float16": 1e-2, "bfloat16": 1e-2}
"""Largest relative error ||x - exact|| / ||exact|| of outputs and state with which a speed is reported."""
SETS = 3
"""Input sets that timed calls rotate through: three of 400 MB at the standard shape, far beyond the L2 cache."""


@dataclass(frozen=True)
class Case:
    """One shape to measure; `form` is 'recurrent' or 'parallel', `passes` 'forward' or 'training'."""

    rung: str
    form: str
    tokens: int = 32768
    chunk: int = 2048
    width: int = 384
    heads: int = 4
    batch: int = 1
    dtype: str = "bfloat16"
    passes: str = "forward"


@dataclass(frozen=True)
class Tensors:
    """One input set: q, k, v [B, H, T, D] (tokens outside heads in memory), rates, gates and fast weights in float32."""

    q: Tensor
    k: Tensor
    v: Tensor
    rates: dict[str, Tensor]
    momentum: Tensor | None
    weights: dict[str, Tensor]

    def leaves(self) -> list[Tensor]:
        """Every tensor, in a fixed order."""
        gates = [] if self.momentum is None else [self.momentum]
        return [self.q, self.k, self.v, *self.rates.values(), *gates, *self.weights.values()]

    def each(self, change: Callable[[Tensor], Tensor]) -> Tensors:
        """Return the set with every tensor changed."""
        return Tensors(
            change(self.q),
            change(self.k),
            change(self.v),
            {name: change(rate) for name, rate in self.rates.items()},
            None if self.momentum is None else change(self.momentum),
            {name: change(weight) for name, weight in self.weights.items()},
        )


Implementation = Callable[[Any, Tensors], Tensor]
Truth = Callable[[Any, Tensors], tuple[Tensor, Mapping[str, Tensor]]]


def draw(spec: Any, case: Case, seed: int) -> Tensors:
    """Return random inputs with the statistics of a LaCT layer: unit queries and keys, rates near 0.02."""
    device = torch.device("cuda")
    generator = torch.Generator(device).manual_seed(seed)
    lead = (case.batch, case.heads, case.tokens)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, device=device)

    def tokens() -> Tensor:
        flat = normal(case.batch, case.tokens, case.heads, case.width)
        return flat.to(getattr(torch, case.dtype)).transpose(1, 2)

    def unit(x: Tensor) -> Tensor:
        return torch.nn.functional.normalize(x.float(), dim=-1).to(x.dtype)

    return Tensors(
        unit(tokens()),
        unit(tokens()),
        tokens(),
        {name: torch.nn.functional.softplus(normal(*lead, 1) - 4) for name in spec.rate_names},
        torch.sigmoid(normal(*lead, 1)) if spec.needs_momentum_input else None,
        {
            name: normal(case.batch, case.heads, case.width, case.width) / case.width**0.5
            for name in spec.network.fast_weights
        },
    )


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


def errors(spec: Any, case: Case, truth: Truth) -> dict[str, float]:
    """Return the relative error of outputs and moving weights against float64, on buffers that held NaN before."""
    tensors = draw(spec, case, seed=97)
    poison = torch.full((case.batch, case.heads, case.tokens, case.width), float("nan"), device="cuda")
    del poison
    found = run_kernels(spec, case, tensors)
    exact, weights = truth(spec, tensors.each(lambda x: x.double()))
    each = {"outputs": _distance(found.outputs, exact)}
    return each | {name: _distance(found.state["fast"][name], weights[name]) for name in spec.moving}


def _distance(measured: Tensor, exact: Tensor) -> float:
    return float((measured.double() - exact).norm() / exact.norm())


@dataclass
class Timing:
    """Milliseconds of one implementation on one case: first call, then warm calls; peak GiB beyond the inputs."""

    first_ms: float
    median_ms: float
    fastest_ms: float
    slowest_ms: float
    peak_gib: float
    samples: list[float] = field(repr=False)


def clock(call: Callable[[Tensors], Any], sets: list[Tensors], repeats: int = 25) -> Timing:
    """Time a call with device events, warm, over rotating inputs, as a user makes it."""
    torch.cuda.synchronize()
    held = torch.cuda.memory_allocated()
    begin = time.perf_counter()
    call(sets[0])
    torch.cuda.synchronize()
    first = (time.perf_counter() - begin) * 1e3
    for index in range(4):
        call(sets[index % len(sets)])
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    samples = []
    for index in range(repeats):
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        call(sets[index % len(sets)])
        end.record()
        torch.cuda.synchronize()
        samples.append(start.elapsed_time(end))
    peak = (torch.cuda.max_memory_allocated() - held) / 2**30
    return Timing(first, statistics.median(samples), min(samples), max(samples), peak, samples)


def training_call(run: Callable[[Tensors], Tensor]) -> Callable[[Tensors], Any]:
    """Turn a forward call into forward and backward with respect to every input."""

    def call(tensors: Tensors) -> Any:
        leaves = tensors.leaves()
        for leaf in leaves:
            leaf.requires_grad_()
        outputs = run(tensors)
        return torch.autograd.grad(outputs, leaves, torch.ones_like(outputs), allow_unused=True)

    return call


# --- the floor ----------------------------------------------------------------------------------------------------


def floor(plan: Plan, case: Case) -> dict[str, float]:
    """Count multiply-adds (as two operations) and the fewest bytes of one forward pass."""
    z, square = case.batch * case.heads, 2 * case.width**2
    chunks = -(-case.tokens // case.chunk)
    updates = chunks if plan.tail_updates else chunks - 1
    is_linear = plan.network == "linear"
    read = 1 if is_linear else 3
    learn = 1 if is_linear else 6 if plan.moves_all else 3
    products = z * square * (case.tokens * read + min(case.tokens, updates * case.chunk) * learn)
    iterations = 3 * len(plan.coefficients) * square * case.width * len(plan.moving)
    size = torch.empty((), dtype=getattr(torch, case.dtype)).element_size()
    return {
        "operations": float(products + z * updates * plan.steps * iterations),
        "bytes": float(4 * z * case.tokens * case.width * size),
    }


def ceilings() -> dict[str, float]:
    """Measure bf16 operations and copied bytes (read plus written) per second on this device."""
    x = torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16)
    y = torch.randn(2**29, device="cuda", dtype=torch.float32)
    target = torch.empty_like(y)
    multiply = _median(lambda: x @ x)
    copy = _median(lambda: target.copy_(y))
    return {"operations_per_s": 2 * 8192**3 / multiply * 1e3, "bytes_per_s": 2 * y.nbytes / copy * 1e3}


def _median(call: Callable[[], Any]) -> float:
    samples = []
    for index in range(13):
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        call()
        end.record()
        torch.cuda.synchronize()
        if index > 2:
            samples.append(start.elapsed_time(end))
    return statistics.median(samples)


# --- rows ---------------------------------------------------------------------------------------------------------


def measure(
    spec: Any,
    case: Case,
    truth: Truth,
    ceiling: Mapping[str, float],
    others: Mapping[str, Implementation] | None = None,
    check_tokens: int | None = None,
) -> dict[str, Any]:
    """Check a case, time it, and return its row.

    others: implementations to time on the same inputs, by name. check_tokens: check on a shorter sequence.

    Raises:
        ParameterError: the kernels disagree with float64, so their speed means nothing.
    """
    forget()
    torch.cuda.empty_cache()
    checked = Case(**(asdict(case) | {"tokens": check_tokens or case.tokens}))
    found = errors(spec, checked, truth)
    if not max(found.values()) <= LIMITS[case.dtype]:
        raise ParameterError(
            f"expected errors of at most {LIMITS[case.dtype]} on {case}, received {found}; mend the kernels before timing."
        )
    torch.cuda.empty_cache()
    sets = [draw(spec, case, seed) for seed in range(SETS)]
    row: dict[str, Any] = {**asdict(case), "errors": found, "device": torch.cuda.get_device_name()}
    calls = {"triton": lambda tensors: run_kernels(spec, case, tensors).outputs}
    for name, other in (others or {}).items():
        calls[name] = lambda tensors, other=other: other(spec, tensors)
    for name, call in calls.items():
        timing = asdict(clock(training_call(call) if case.passes == "training" else call, sets))
        row[name] = timing
    limits = floor(kernels.plan_of(spec), case)
    times = (
        limits["operations"] / ceiling["operations_per_s"] * 1e3,
        limits["bytes"] / ceiling["bytes_per_s"] * 1e3,
    )
    if case.passes == "forward":
        row |= {**limits, "floor_ms": max(times), "achieved": max(times) / row["triton"]["median_ms"]}
    return row


def sweep(base: Case, **axes: Iterable[Any]) -> list[Case]:
    """Return a case for every value along each axis, the other axes at their base value."""
    return [Case(**(asdict(base) | {name: value})) for name, values in axes.items() for value in values]
