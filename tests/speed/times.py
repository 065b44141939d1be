"""Measured rows as the benchmark makes them, invented: no number here was measured."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from analysis.kernels.cases import Case
from analysis.records import Record
from analysis.speed.rows import case_records, parameters
from analysis.speed.suites import cases, loop_of

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
        "errors": {name: {"outputs": 1e-3, "first outputs": 1e-3} for name in ("plain", *names)},
        "first_ms": {name: 1200.0 for name in names},
        "device": "a GPU",
        "timings": {name: timing(value) for name, value in zip(names, (ours, other), strict=False)},
    }
    if case.passes == "forward":
        found |= {"operations": 1e9, "bytes": 1e8, "floor_ms": ours / 2, "achieved": 0.5}
    return found


def every_record() -> list[Record]:
    """Records of all suites, with invented times: parallel forms four times as fast, Variant 2 training in half the time."""
    base = Case("baseline", "recurrent")
    found = []
    for suite in ("ladder", "training", "sweeps"):
        for case in cases(suite, base):
            ours = case.tokens / 32768 * case.width / 384 * (3.0 if case.form == "recurrent" else 0.75)
            other = None if suite == "sweeps" else 3 * ours
            found += case_records(case, loop_of(case), row(case, ours, other), CEILINGS, "ttt-analysis bench")
    for case in cases("first", base):
        for cache, seconds in (("empty", 6.0), ("filled", 0.5)):
            where = {**parameters(case, "triton"), "cache": cache}
            found.append(
                Record(
                    question="first call",
                    metric="seconds",
                    unit="s",
                    value=seconds,
                    parameters=where,
                    device="a GPU",
                    extra={"error": 1e-3},
                )
            )
    return [*found, step_record("baseline", 20.0), step_record("v2", 10.0)]


def step_record(variant: str, milliseconds: float) -> Record:
    """The time of a training step, as the suite `steps` records it."""
    made = timing(milliseconds)
    return Record(
        question="training step",
        metric="milliseconds",
        unit="ms",
        value=milliseconds,
        ci_low=0.97 * milliseconds,
        ci_high=1.03 * milliseconds,
        samples=25,
        device="a GPU",
        parameters={"family": "lact_lm", "variant": variant, "form": "parallel"},
        extra={"samples": made["samples"], "first_loss": 7.0, "last_loss": 6.0, "graph": "none"},
    )
