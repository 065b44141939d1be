"""Judged theorems as tables: every statement with a permanent anchor, and as values for a comparison of two reports."""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from typing import Any

EQUAL = "identity"


class StatementTable:
    """Rows of `analysis.theorems.verify().rows()`, one statement each, with some of their columns."""

    def __init__(
        self,
        rows: Sequence[Mapping[str, Any]],
        columns: Sequence[str] = ("source", "verdict", "worst over the standard draws"),
    ) -> None:
        self.rows, self.columns = tuple(rows), tuple(columns)

    def plain(self) -> list[dict[str, str]]:
        """Return every verdict as a claim of the report; what rounding alone decides is not told apart."""
        return [
            {
                "key": _key(row),
                "model": "theorem",
                "claim": row["statement"],
                "verdict": row["verdict"],
                "measured here": "equal to rounding"
                if row["verdict"] == EQUAL
                else f"relative error {row['worst over the standard draws']:.2g}",
            }
            for row in self.rows
        ]

    def _repr_mimebundle_(
        self, include: object = None, exclude: object = None
    ) -> tuple[dict[str, str], dict[str, object]]:
        return {"text/html": self._repr_html_(), "text/plain": repr(self)}, {"claims": self.plain()}

    def __repr__(self) -> str:
        return "\n".join(f"{one['claim']} {one['verdict']}, {one['measured here']}" for one in self.plain())

    def _repr_html_(self) -> str:
        head = "".join(f"<th scope='col'>{name}</th>" for name in ("statement", *self.columns))
        body = "".join(
            f"<tr id='claim-{_key(row)}'><th scope='row'>{html.escape(row['statement'])} "
            f"<a href='#claim-{_key(row)}' class='anchor' aria-label='Link to this statement'>#</a></th>"
            + "".join(f"<td data-label='{name}'>{_cell(row[name])}</td>" for name in self.columns)
            + "</tr>"
            for row in self.rows
        )
        return f"<table class='statements'><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _key(row: Mapping[str, Any]) -> str:
    return f"theorem-{row['claim']}"


def _cell(value: Any) -> str:
    return f"{value:.1e}" if isinstance(value, float) else html.escape(str(value))
