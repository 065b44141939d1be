"""Compare two reports claim by claim, from the values that every report carries beside its text.

Like is compared with like: a claim decided on the shipped models is another one than the same claim on a checkpoint of the
reader's own.
"""

from __future__ import annotations

import html
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from html.parser import HTMLParser
from pathlib import Path

from analysis.errors import ReportError
from analysis.publish.claims import Origin
from analysis.publish.verdicts import UNDECIDABLE

Claims = dict[str, Mapping[str, str]]
NAMED = 3
"""So many claims that only one report has are named; more are counted."""


class Kind(Enum):
    """How a claim differs between two reports, in the order in which differences are shown."""

    VERDICT = "other verdict"
    VALUE = "other value"
    ONLY_FIRST = "only in the first"
    ONLY_SECOND = "only in the second"
    SAME = "same"


class Ground(Enum):
    """What a claim was decided on, in the words that count such claims."""

    THEOREM = "theorems"
    SHIPPED = "claims of the shipped models"
    HERE = "claims measured in a notebook on a shipped model"
    OWN = "claims on the reader's own checkpoint"

    def count(self, number: int) -> str:
        """Return '1 theorem', '2 theorems'."""
        noun, *rest = self.value.split(" ")
        return " ".join([str(number), noun.removesuffix("s") if number == 1 else noun, *rest])


_GROUNDS = {Origin.RECORDED: Ground.SHIPPED, Origin.HERE: Ground.HERE, Origin.OWN: Ground.OWN}


@dataclass(frozen=True, kw_only=True)
class Row:
    """One claim in both reports: (verdict, measured value) on either side, None where a report does not hold it."""

    key: str
    ground: Ground
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
    """Two reports beside each other: where they were built, and one row for every claim of either, the changed ones first.

    `notes` say why the two are not of one kind: about other models, of other families, made of other pages.
    """

    built: tuple[str, str]
    rows: tuple[Row, ...]
    notes: tuple[str, ...] = ()

    @property
    def shared(self) -> list[Row]:
        """The rows of claims that both reports decide on the same ground."""
        return [row for row in self.rows if row.first is not None and row.second is not None]

    def counts(self) -> dict[str, int]:
        """Return how many claims differ in which way."""
        return {kind.value: number for kind in Kind if (number := sum(row.kind is kind for row in self.rows))}

    def folded(self) -> list[str]:
        """Return a line for each report that has claims which the other lacks: how many of which kind, a few by name."""
        lines = []
        for kind in (Kind.ONLY_FIRST, Kind.ONLY_SECOND):
            alone = [row for row in self.rows if row.kind is kind]
            counted = [
                _counted(ground, rows)
                for ground in Ground
                if (rows := [row for row in alone if row.ground is ground])
            ]
            lines += [f"{kind.value}: {', '.join(counted)}"] * bool(counted)
        return lines

    def cells(self) -> list[tuple[str, ...]]:
        """Return the shared rows as text: what differs, model, claim, then verdict and value of both."""
        return [
            (row.kind.value, row.model, row.claim, *(row.first or ()), *(row.second or ()))
            for row in self.shared
        ]

    def _repr_html_(self) -> str:
        titles = ("difference", "model", "claim", "first: verdict", "measured", "second: verdict", "measured")
        head = "".join(f"<th scope='col'>{title}</th>" for title in titles)
        body = "".join(
            "<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in cells) + "</tr>"
            for cells in self.cells()
        )
        said = "".join(f"<p>{html.escape(line)}</p>" for line in (*self.notes, *self.folded()))
        return f"{said}<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _counted(ground: Ground, rows: list[Row]) -> str:
    names = "; ".join(f"{row.model}: {row.claim}" for row in rows)
    return f"{ground.count(len(rows))}{f' ({names})' if len(rows) <= NAMED else ''}"


def compare_reports(first: Path, second: Path) -> Difference:
    """Return the difference of two reports, given as report folders or as their HTML files.

    Raises:
        ReportError: a path is no report, or the report carries no claims.
    """
    sides = _read(first), _read(second)
    ours, theirs = (side.by_ground() for side in sides)
    keys = list(dict.fromkeys([*ours, *theirs]))
    rows = [_row(*key, ours.get(key), theirs.get(key)) for key in keys]
    order = list(Kind)
    rows.sort(key=lambda row: order.index(row.kind))
    return Difference(
        built=(sides[0].built, sides[1].built),
        rows=tuple(rows),
        notes=tuple(_notes(*sides, comparable=bool(ours.keys() & theirs.keys()))),
    )


def _row(key: str, ground: Ground, first: Mapping[str, str] | None, second: Mapping[str, str] | None) -> Row:
    shown = second if first is None else first
    assert shown is not None
    sides = [None if side is None else (_verdict(side), side["measured here"]) for side in (first, second)]
    return Row(
        key=key, ground=ground, model=shown["model"], claim=shown["claim"], first=sides[0], second=sides[1]
    )


@dataclass(frozen=True, kw_only=True)
class _Report:
    """What a comparison needs of a report; `checkpoint` is the name of the reader's own, '' for the shipped models."""

    built: str
    checkpoint: str
    pages: tuple[str, ...]
    claims: Claims

    def by_ground(self) -> dict[tuple[str, Ground], Mapping[str, str]]:
        """Return the claims by key and by what they were decided on."""
        own = {
            claim["model"] for claim in self.claims.values() if self.checkpoint and _is_of_one_model(claim)
        }
        return {(key, self._ground(claim, own)): claim for key, claim in self.claims.items()}

    def _ground(self, claim: Mapping[str, str], own: set[str]) -> Ground:
        """Return what a claim was decided on; a report from before this was written down tells it by its wording."""
        if claim["model"] == "theorem":
            return Ground.THEOREM
        if claim.get("origin") in list(Origin):
            return _GROUNDS[Origin(claim["origin"])]
        if claim.get("evidence", "").startswith(Origin.RECORDED.value):
            return Ground.SHIPPED
        if claim["model"] in own:
            return Ground.OWN
        return Ground.HERE if _is_of_one_model(claim) else Ground.SHIPPED

    @property
    def is_own(self) -> bool:
        """Whether the report is about a checkpoint of the reader's own."""
        return bool(self.checkpoint) or any(ground is Ground.OWN for _, ground in self.by_ground())

    def families(self) -> set[str]:
        """Return the models that the report is about: that of the reader's own checkpoint, or all of its claims."""
        found = self.by_ground()
        own = {claim["model"] for (_, ground), claim in found.items() if ground is Ground.OWN}
        return own or {claim["model"] for (_, ground), claim in found.items() if ground is not Ground.THEOREM}


def _is_of_one_model(claim: Mapping[str, str]) -> bool:
    measured = claim.get("evidence", "").startswith(Origin.HERE.value)
    return measured or claim["key"].startswith("own-") or claim["verdict"] == UNDECIDABLE


def _notes(first: _Report, second: _Report, *, comparable: bool) -> Iterable[str]:
    """Say in which way two reports are of different kinds."""
    sides = (first, second)
    if first.is_own != second.is_own:
        about = [
            f"the checkpoint {side.checkpoint}".rstrip() if side.is_own else "the shipped models"
            for side in sides
        ]
        yield f"different reports: the first is about {about[0]}, the second about {about[1]}"
    named = {"families": [side.families() for side in sides], "pages": [set(side.pages) for side in sides]}
    for what, (ours, theirs) in named.items():
        alone = (("first", ours - theirs), ("second", theirs - ours))
        if said := [f"only in the {name} {', '.join(sorted(found))}" for name, found in alone if found]:
            yield f"different {what}: {'; '.join(said)}"
    if not comparable:
        yield (
            "nothing to compare: no claim is decided on the same ground in both; build both with --checkpoint on models of one "
            "family, or both without"
        )


def _verdict(claim: Mapping[str, str]) -> str:
    """Return the verdict, with the way that a single seed points where the reason opens with it."""
    way, _, _ = claim.get("reason", "").partition(":")
    return f"{claim['verdict']}; {way}" if way.startswith("one seed points") else claim["verdict"]


class _Reader(HTMLParser):
    """Takes the claims, the subtitle, the line about the build and the names of the pages out of a report."""

    def __init__(self) -> None:
        super().__init__()
        self.found: dict[str, str] = {}
        self.pages: list[str] = []
        self._inside = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        name = given.get("id") or given.get("class", "")
        self._inside = name if name in ("claims", "build", "subtitle") else ""
        if tag == "article" and given.get("class") == "notebook":
            self.pages.append(given.get("aria-labelledby", ""))

    def handle_endtag(self, tag: str) -> None:
        self._inside = ""

    def handle_data(self, data: str) -> None:
        if self._inside:
            self.found[self._inside] = self.found.get(self._inside, "") + data


def _read(path: Path) -> _Report:
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
    built, subtitle = (" ".join(reader.found.get(name, "").split()) for name in ("build", "subtitle"))
    about = re.match(r"What the checkpoint (.+) tells by itself", subtitle)
    return _Report(
        built=built, checkpoint=about.group(1) if about else "", pages=tuple(reader.pages), claims=claims
    )


def _wrong(error: Exception) -> str:
    """What is wrong with a file, in a few words: a decoding error by itself would repeat every byte of it."""
    if isinstance(error, UnicodeDecodeError):
        return "no text in UTF-8"
    return f"without {error}" if isinstance(error, KeyError) else f"{error}"


def _check(claims: Claims) -> None:
    for claim in claims.values():
        optional = [name for name in ("origin", "evidence", "reason") if name in claim]
        for name in ("model", "claim", "verdict", "measured here", *optional):
            if not isinstance(claim[name], str):
                raise TypeError(f"{name} of {claim['key']} is no text")
