"""Measured times as records: one for every implementation of a case, its median with an interval."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from analysis.kernels.cases import Case
from analysis.records import Record, provenance
from analysis.spec import Family, InnerLoop, describe
from analysis.statistics import median_interval

QUESTION = "throughput"
METRIC, UNIT = "milliseconds", "ms"


HIDDEN, INCLUDED = "hidden", "included"
"""Whether a time holds what the processor takes to issue a call: not behind other work, but on an idle device."""


def parameters(case: Case, implementation: str, issuing: str = HIDDEN) -> dict[str, Any]:
    """Return what tells one measured time from another."""
    sizes = {name: value for name, value in asdict(case).items() if name != "rung"}
    how = {"implementation": implementation, "issuing": issuing}
    return {"family": Family.LACT_LM.value, "variant": case.rung, **sizes, **how}


def timed(
    case: Case,
    implementation: str,
    spec: InnerLoop,
    timing: Mapping[str, Any],
    *,
    device: str,
    command: str,
    extra: Mapping[str, Any],
    issuing: str = HIDDEN,
) -> Record:
    """Return the record of one implementation; `timing` holds its samples, fastest and slowest call, and peak memory."""
    low, high = median_interval(timing["samples"])
    return Record(
        question=QUESTION,
        metric=METRIC,
        unit=UNIT,
        value=timing["median_ms"],
        ci_low=low,
        ci_high=high,
        samples=len(timing["samples"]),
        parameters=parameters(case, implementation, issuing),
        **(provenance(device) | {"command": command}),
        extra={**{k: v for k, v in timing.items() if k != "median_ms"}, "loop": describe(spec), **extra},
    )


_OF_THE_KERNELS = ("operations", "bytes", "floor_ms", "achieved")


def case_records(
    case: Case,
    spec: InnerLoop,
    row: Mapping[str, Any],
    ceilings: Mapping[str, float],
    command: str,
    notes: Sequence[str] = (),
) -> list[Record]:
    """Return the records of one measured row, the kernels' first."""
    records = []
    for name, timing in row["timings"].items():
        extra: dict[str, Any] = {"errors": row["errors"][name], "first_ms": row["first_ms"][name]}
        if name == "triton":
            extra["errors_of_plain"] = row["errors"]["plain"]
            extra |= {key: row[key] for key in _OF_THE_KERNELS if key in row} | {"ceilings": dict(ceilings)}
            extra |= {"notes": list(notes)} if notes else {}
        records.append(timed(case, name, spec, timing, device=row["device"], command=command, extra=extra))
    return records
