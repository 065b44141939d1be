"""Compare two reports claim by claim, from the values that every report carries beside its text."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from html.parser import HTMLParser
from pathlib import Path

from analysis.errors import ReportError

Claims = dict[str, Mapping[str, str]]


class Kind(Enum):
    """How a claim differs between two reports, in the order in which differences are shown."""

    VERDICT = "other verdict"
    VALUE = "other value"
    ONLY_FIRST = "only in the first"
    ONLY_SECOND = "only in the second"
    SAME = "same"


@dataclass(frozen=True, kw_only=True)
class Row:
    """One claim in both reports: (verdict, measured value) on either side, None where a report does not hold it."""

    key: str
    model: str
    claim: str
    first: tuple[str, str] | None
    second: tuple[str, str] | None

    @property
    def kind(self) -> Kind:
        """What differs."""
        if self.first is None or self.second is None:
            return Kind.ONLY_SECOND if self.first is None else Kind.ONLY_FIRST
        if self.first[0] != self.second[0]:
            return Kind.VERDICT
        return Kind.SAME if self.first == self.second else Kind.VALUE


@dataclass(frozen=True, kw_only=True)
class Difference:
    """Two reports beside each other: where they were built, and one row for every claim of either, the changed ones first."""

    built: tuple[str, str]
    rows: tuple[Row, ...]

    def counts(self) -> dict[str, int]:
        """Return how many claims differ in which way."""
        return {kind.value: number for kind in Kind if (number := sum(row.kind is kind for row in self.rows))}

    def cells(self) -> list[tuple[str, ...]]:
        """Return the rows as text: what differs, model, claim, then verdict and value of both."""
        return [
            (
                row.kind.value,
                row.model,
                row.claim,
                *(row.first or ("absent", "")),
                *(row.second or ("absent", "")),
            )
            for row in self.rows
        ]

    def _repr_html_(self) -> str:
        titles = ("difference", "model", "claim", "first: verdict", "measured", "second: verdict", "measured")
        head = "".join(f"<th scope='col'>{title}</th>" for title in titles)
        body = "".join(
            "<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in cells) + "</tr>"
            for cells in self.cells()
        )
        return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def compare_reports(first: Path, second: Path) -> Difference:
    """Return the difference of two reports, given as report folders or as their HTML files.

    Raises:
        ReportError: a path is no report, or the report carries no claims.
    """
    (built_first, ours), (built_second, theirs) = _read(first), _read(second)
    keys = list(dict.fromkeys([*ours, *theirs]))
    rows = [_row(key, ours.get(key), theirs.get(key)) for key in keys]
    order = list(Kind)
    rows.sort(key=lambda row: order.index(row.kind))
    return Difference(built=(built_first, built_second), rows=tuple(rows))


def _row(key: str, first: Mapping[str, str] | None, second: Mapping[str, str] | None) -> Row:
    shown = second if first is None else first
    assert shown is not None
    sides = [None if side is None else (_verdict(side), side["measured here"]) for side in (first, second)]
    return Row(key=key, model=shown["model"], claim=shown["claim"], first=sides[0], second=sides[1])


def _verdict(claim: Mapping[str, str]) -> str:
    """Return the verdict, with the way that a single seed points where the reason opens with it."""
    way, _, _ = claim.get("reason", "").partition(":")
    return f"{claim['verdict']}; {way}" if way.startswith("one seed points") else claim["verdict"]


class _Reader(HTMLParser):
    """Takes the claims and the line about the build out of a report."""

    def __init__(self) -> None:
        super().__init__()
        self.found: dict[str, str] = {}
        self._inside = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        name = dict(attrs).get("id") or ""
        self._inside = name if name in ("claims", "build") else ""

    def handle_endtag(self, tag: str) -> None:
        self._inside = ""

    def handle_data(self, data: str) -> None:
        if self._inside:
            self.found[self._inside] = self.found.get(self._inside, "") + data


def _read(path: Path) -> tuple[str, Claims]:
    file = path / "index.html" if path.is_dir() else path
    if not file.is_file():
        raise ReportError(
            f"expected a report folder or its index.html, received {path}; run `ttt-analysis report` first"
        )
    reader = _Reader()
    try:
        reader.feed(file.read_text(encoding="utf-8"))
        claims = {claim["key"]: claim for claim in json.loads(reader.found["claims"])["claims"]}
        _check(claims)
    except (UnicodeDecodeError, KeyError, TypeError, ValueError, RecursionError) as error:
        raise ReportError(
            f"expected a report of this suite with its claims inside, received {file} ({_wrong(error)}); build it again"
        ) from error
    if not claims:
        raise ReportError(
            f"expected a report with claims, received {file} without any; its notebooks judge none, add --only 00 or --only 09"
        )
    return re.sub(r"\s+", " ", reader.found.get("build", "")).strip(), claims


def _wrong(error: Exception) -> str:
    """What is wrong with a file, in a few words: a decoding error by itself would repeat every byte of it."""
    if isinstance(error, UnicodeDecodeError):
        return "no text in UTF-8"
    return f"without {error}" if isinstance(error, KeyError) else f"{error}"


def _check(claims: Claims) -> None:
    for claim in claims.values():
        for name in ("model", "claim", "verdict", "measured here"):
            if not isinstance(claim[name], str):
                raise TypeError(f"{name} of {claim['key']} is no text")
