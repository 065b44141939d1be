"""Records side by side: as a pandas table, and as HTML for notebooks and the report."""

from __future__ import annotations

import html
import math
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from analysis.records.record import Record, difference

if TYPE_CHECKING:
    import pandas

COLUMNS = (
    "kind",
    "question",
    "metric",
    "value",
    "ci_low",
    "ci_high",
    "unit",
    "seeds",
    "samples",
    "diverged",
    "difference",
    "checkpoint",
    "data",
    "device",
    "commit",
    "source",
    "key",
)


def to_frame(records: Iterable[Record]) -> pandas.DataFrame:
    """Return one row per record; the column `kind` comes first, so measured and published numbers stay apart.

    The inputs in `parameters` follow as columns of their own, with the prefix 'parameters.'.
    """
    import pandas

    rows = []
    for record in records:
        row = {name: getattr(record, name) for name in COLUMNS if name not in ("difference", "kind")}
        row["kind"] = record.kind.value
        row["difference"] = difference(record)
        row |= {f"parameters.{name}": value for name, value in record.parameters.items()}
        rows.append(row)
    extra = sorted({name for row in rows for name in row} - set(COLUMNS))
    return pandas.DataFrame(rows, columns=[*COLUMNS, *extra])


def format_value(record: Record) -> str:
    """Return the value with its interval and unit, for example '21.43 [21.10, 21.76] dB'."""
    text = _number(record.value)
    if record.ci_low is not None and record.ci_high is not None:
        text += f" [{_number(record.ci_low)}, {_number(record.ci_high)}]"
    return f"{text} {record.unit}".rstrip() + (" (diverged)" if record.diverged else "")


class RecordTable(tuple[Record, ...]):
    """Records as a table that JupyterLab and the report show; every row says whether it was measured or published."""

    __slots__ = ()

    def __new__(cls, records: Iterable[Record] = ()) -> RecordTable:
        """Take the records in their order."""
        return super().__new__(cls, records)

    def __repr__(self) -> str:
        """Return one line per record: question, metric, value with its interval, what was changed at run time."""
        return "\n".join("  ".join(_row(record)[1:4] + _row(record)[5:6]) for record in self) or "no records"

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        printer.text(repr(self))  # IPython would print a tuple item by item

    def _repr_html_(self) -> str:
        head = ("", "question", "metric", "value", "seeds", "changed at run time", "where")
        rows = ["".join(f"<th scope='col'>{name}</th>" for name in head)]
        rows += ["".join(f"<td>{html.escape(text)}</td>" for text in _row(record)) for record in self]
        return "<table class='records'>" + "".join(f"<tr>{row}</tr>" for row in rows) + "</table>"


def _row(record: Record) -> tuple[str, ...]:
    where = record.source or ", ".join(part for part in (record.device, record.commit[:10]) if part)
    seeds = str(len(record.seeds)) if record.seeds else ""
    return (
        record.kind.value,
        record.question,
        record.metric,
        format_value(record),
        seeds,
        difference(record),
        where,
    )


def _number(value: float) -> str:
    if not math.isfinite(value):
        return str(value)
    return f"{value:.4g}" if 1e-3 <= abs(value) < 1e5 or value == 0 else f"{value:.2e}"
