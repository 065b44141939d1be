"""The least time that the operations and bytes of a layer can take on a device, from ceilings measured there."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from typing import Any

import torch

from analysis.kernels.cases import Case
from analysis.kernels.plan import Plan


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


def event_milliseconds(call: Callable[[], Any]) -> float:
    """Return the milliseconds between device events around a call."""
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    start.record()
    call()
    end.record()
    torch.cuda.synchronize()
    return float(start.elapsed_time(end))


def _median(call: Callable[[], Any]) -> float:
    samples = [event_milliseconds(call) for _ in range(13)]
    return statistics.median(samples[3:])
