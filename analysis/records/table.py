"""Records side by side: as a pandas table, and as HTML for notebooks and the report."""

from __future__ import annotations

import html
import math
from collections.abc import Iterable, Mapping, Sequence
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
        """Return a text table for a terminal: what all records share in the first line, then one line a record."""
        if not self:
            return "no records"
        shared, own = split_parameters(self)
        columns = {
            "source": [record.kind.value for record in self],
            "question": [record.question for record in self],
            "metric": [metric_text(record) for record in self],
            "value": [format_value(record) for record in self],
            "parameters": own,
            "changed at run time": [difference(record) for record in self],
        }
        varying, constant = condense(columns)
        head = "; ".join([*constant, *([shared] if shared else [])])
        rows = [tuple(varying), *zip(*varying.values(), strict=True)]
        return f"{head}\n{aligned(rows)}"

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        printer.text(repr(self))  # IPython would print a tuple item by item

    def _repr_html_(self) -> str:
        head = ("", "question", "metric", "value", "seeds", "changed at run time", "where")
        rows = ["".join(f"<th scope='col'>{name}</th>" for name in head)]
        rows += ["".join(f"<td>{html.escape(text)}</td>" for text in _row(record)) for record in self]
        return "<table class='records'>" + "".join(f"<tr>{row}</tr>" for row in rows) + "</table>"


def condense(columns: Mapping[str, list[str]]) -> tuple[dict[str, list[str]], list[str]]:
    """Return the columns of a table of records in which they differ, metric and value in any case, and what all share."""
    varying = {
        name: cells for name, cells in columns.items() if len(set(cells)) > 1 or name in ("metric", "value")
    }
    return varying, [cells[0] for name, cells in columns.items() if name not in varying and cells[0]]


def metric_text(record: Record) -> str:
    """Return the name of the metric, and that the loops of a layer were added where its definition says so of several."""
    adds = len(record.run_spec) > 1 and "loops added" in record.extra.get("definition", "")
    return f"{record.metric}, loops added" if adds else record.metric


def split_parameters(records: Sequence[Record]) -> tuple[str, list[str]]:
    """Return the parameters that all records share, and what is left of each, as text."""
    first = records[0].parameters
    shared = {
        name: value
        for name, value in first.items()
        if all(name in record.parameters and record.parameters[name] == value for record in records)
    }
    own = [
        {name: value for name, value in record.parameters.items() if name not in shared} for record in records
    ]
    return _listed(shared), [_listed(values) for values in own]


def _listed(values: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}={value}" for name, value in values.items())


def aligned(rows: Sequence[Sequence[str]]) -> str:
    """Return rows of text as lines whose columns stand under each other."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in rows]
    return "\n".join(line.rstrip() for line in lines)


def _row(record: Record) -> tuple[str, ...]:
    where = record.source or ", ".join(part for part in (record.device, record.commit[:10]) if part)
    seeds = str(len(record.seeds)) if record.seeds else ""
    return (
        record.kind.value,
        record.question,
        metric_text(record),
        format_value(record),
        seeds,
        difference(record),
        where,
    )


def _number(value: float) -> str:
    if not math.isfinite(value):
        return str(value)
    return f"{value:.4g}" if 1e-3 <= abs(value) < 1e5 or value == 0 else f"{value:.2e}"
