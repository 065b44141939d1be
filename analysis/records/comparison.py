"""Paired differences between two records that measured the same examples."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from analysis.errors import RecordError
from analysis.records.record import Record
from analysis.records.store import select
from analysis.statistics import interval


@dataclass(frozen=True)
class Change:
    """How a metric changed from one run to another on the same examples, with a 95 % bootstrap interval over them."""

    value: float
    low: float
    high: float
    unit: str

    @property
    def excludes_zero(self) -> bool:
        """Whether the interval lies on one side of no change."""
        return self.low > 0 or self.high < 0

    def __str__(self) -> str:
        if math.isnan(self.value):
            return "diverged"
        return f"{self.value:+.2f} [{self.low:+.2f}, {self.high:+.2f}] {self.unit}"


def change(before: Record, after: Record) -> Change:
    """Return the change of the task metric: % of perplexity, dB of PSNR, percentage points of a share; NaN where a run diverged.

    Raises:
        RecordError: the records hold no per-example values, or measured different examples or metrics.
    """
    if before.metric != after.metric or before.data != after.data:
        raise RecordError(
            f"a paired change needs one metric on the same data, received {before.metric} and {after.metric}; "
            "measure both on one task."
        )
    sides = [list(record.extra.get("per_example", ())) for record in (before, after)]
    if not sides[0] or len(sides[0]) != len(sides[1]):
        raise RecordError(
            "a paired change needs records with the same examples, received others; measure both again."
        )
    differences = np.asarray(sides[1], dtype=np.float64) - np.asarray(sides[0], dtype=np.float64)
    value, low, high = _interval(differences)
    if before.metric == "perplexity":
        value, low, high = (float(100 * _relative_growth(end)) for end in (value, low, high))
        return Change(value, low, high, "% perplexity")
    if before.metric == "top1":
        return Change(100 * value, 100 * low, 100 * high, "% points")
    return Change(value, low, high, "% points" if before.unit == "%" else before.unit)


def _interval(differences: np.ndarray) -> tuple[float, float, float]:
    if not np.isfinite(differences).all():
        return (math.nan,) * 3
    if len(differences) < 2:
        return (float(differences[0]),) * 3
    found = interval(differences, "bootstrap")
    return found.mean, found.low, found.high


def _relative_growth(log_ratio: float) -> float:
    with np.errstate(over="ignore"):  # a blown-up loss is an infinite perplexity, which is what happened
        return float(np.expm1(log_ratio))


def one(records: Iterable[Record], metric: str, **parameters: Any) -> Record:
    """Return the single record with this metric and these parameters.

    Raises:
        RecordError: none or several match.
    """
    found = select(records, metric=metric, parameters=parameters)
    if len(found) != 1:
        raise RecordError(
            f"expected one record of {metric} with {parameters}, found {len(found)}; run the probe again."
        )
    return found[0]


def task_record(records: Iterable[Record], **parameters: Any) -> Record:
    """Return the record of the task metric (the one with per-example values) among those with these parameters."""
    found = [record for record in select(records, parameters=parameters) if "per_example" in record.extra]
    if len(found) != 1:
        raise RecordError(
            f"expected one task record with {parameters}, found {len(found)}; run the probe again."
        )
    return found[0]


def has(records: Iterable[Record], **parameters: Any) -> bool:
    """Return whether any record has these parameters."""
    return bool(select(records, parameters=parameters))


def by_parameter(records: Iterable[Record], metric: str, name: str) -> Mapping[Any, Record]:
    """Return the records of one metric keyed by a parameter, in the order measured."""
    return {
        record.parameters[name]: record
        for record in records
        if record.metric == metric and name in record.parameters
    }
