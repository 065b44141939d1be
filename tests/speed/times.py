"""Measured rows as the benchmark makes them, invented: no number here was measured."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from analysis.kernels.cases import Case

CEILINGS = {"operations_per_s": 1e12, "bytes_per_s": 1e11}


def timing(milliseconds: float) -> dict[str, Any]:
    samples = [milliseconds * (1 + 0.01 * (index - 12)) for index in range(25)]
    return {
        "median_ms": milliseconds,
        "fastest_ms": min(samples),
        "slowest_ms": max(samples),
        "peak_gib": 0.25,
        "samples": samples,
    }


def row(case: Case, ours: float = 1.0, other: float | None = 4.0) -> dict[str, Any]:
    """One row of `kernels.bench.measure`: the kernels at `ours` milliseconds, torch.compile at `other`."""
    names = ["triton"] if other is None else ["triton", "torch.compile"]
    found = {
        **asdict(case),
        "errors": {name: {"outputs": 1e-3} for name in names},
        "first_ms": {name: 1200.0 for name in names},
        "device": "a GPU",
        "checked_tokens": case.tokens,
        "timings": {name: timing(value) for name, value in zip(names, (ours, other), strict=False)},
    }
    if case.passes == "forward":
        found |= {"operations": 1e9, "bytes": 1e8, "floor_ms": ours / 2, "achieved": 0.5}
    return found
