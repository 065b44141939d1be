"""Every claim of the paper that this suite measures: section, statement, printed numbers, and what decides it.

The theorems of sections 5 and 6 are claims of their own kind, see `analysis.theorems`.
"""

from __future__ import annotations

import html
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from analysis.publish import published, speed_verdicts, verdicts
from analysis.publish.ladder_claims import Row, reductions
from analysis.publish.likely import explained
from analysis.publish.mismatch_verdicts import mismatched
from analysis.publish.retrained_verdicts import ascent_loss, equal, worse
from analysis.publish.step_verdicts import steps
from analysis.publish.verdicts import Decide, Verdict
from analysis.records import Record
from analysis.records.table import aligned
from analysis.spec import Family

ASSUMED, STATED, NOT_SHOWN = "assumed", "stated", "not shown"
STEPS = "every further inner step lowers the inner loss, and any number of them above one hurts the task"


class Basis(StrEnum):
    """What the paper offers for a claim about one model."""

    NUMBERS = "with published numbers"
    FIGURE = "with a published figure"
    WORDS = "that the paper only states, assumes, or shows for another model"


class Origin(StrEnum):
    """Where the records come from that a table of claims is decided on."""

    RECORDED = "recorded"
    HERE = "measured in this notebook"
    OWN = "the reader's own checkpoint"


@dataclass(frozen=True)
class Claim:
    """A statement of the paper about one family, its section, what it printed, and the function that decides it."""

    key: str
    section: str
    family: Family
    statement: str
    published: str
    decide: Decide

    @property
    def anchor(self) -> str:
        """The permanent anchor of the claim in the report."""
        return f"claim-{self.key}"

    @property
    def basis(self) -> Basis:
        """Whether the paper printed numbers for this model, drew them, or put it in words."""
        if self.published in (ASSUMED, STATED, NOT_SHOWN):
            return Basis.WORDS
        return Basis.FIGURE if self.published.startswith("Figure") else Basis.NUMBERS


def _of_family(family: Family) -> Iterable[Claim]:
    speeds = _speeds() if family is Family.LACT_LM else ()
    for key, section, statement, printed, decide in (*_paradoxes(family), *reductions(family), *speeds):
        yield Claim(f"{key}-{family.value}", section, family, statement, printed, decide)


def _paradoxes(family: Family) -> tuple[Row, ...]:
    table = published.table_1()
    figure_1 = NOT_SHOWN if family is Family.VITTT else "Figure 1"
    figure_2 = "Figure 2" if family is Family.LACT_NVS else NOT_SHOWN
    ascent, keys = (published.printed(table, family, variant) for variant in ("ascent", "q_is_k"))
    update = worse(family, "frozen", "baseline")
    return (
        ("update", "3", "without inner updates the model is worse", ASSUMED, update),
        ("steps", "4.1", STEPS, figure_1, steps(family)),
        ("ascent", "4.2", "retrained with ascent it is as good", ascent, equal(family, "ascent")),
        ("ascent-loss", "4.2", "ascent raises the inner loss", STATED, ascent_loss(family)),
        ("qk", "4.3", "queries are distributed unlike keys", figure_2, mismatched(family, "Q/K")),
        ("vo", "4.3", "outputs are distributed unlike values", figure_2, mismatched(family, "V/O")),
        (
            "q-is-k",
            "4.4",
            "retrained with K for Q it is as good",
            keys,
            explained(equal(family, "q_is_k"), family),
        ),
    )


def _speeds() -> tuple[Row, ...]:
    trained = f"{speed_verdicts.TRAINING_SPEEDUP} times (Figure 4)"
    return (
        (
            "parallel",
            "6.2",
            "in parallel form the layer is faster on every reducible rung",
            speed_verdicts.printed_ratios(),
            speed_verdicts.parallel_is_faster,
        ),
        (
            "training-speed",
            "6.2",
            f"Variant 2 in parallel form trains at least {speed_verdicts.TRAINING_SPEEDUP} times as fast",
            trained,
            speed_verdicts.training_is_faster,
        ),
    )


CLAIMS: tuple[Claim, ...] = tuple(claim for family in Family for claim in _of_family(family))


def decide_all(records: Iterable[Record]) -> list[tuple[Claim, Verdict]]:
    """Return every claim with its verdict on the given records."""
    rows = list(records)
    return [(claim, claim.decide(rows)) for claim in CLAIMS]


class ClaimTable:
    """The verdicts as a table for notebooks and the report: one row a claim, measured and published in separate columns.

    `origin` says in every cell whether the records are the recorded ones or those of the notebook that shows the table.
    """

    COLUMNS = (
        "section",
        "model",
        "claim",
        "published",
        "measured here",
        "verdict",
        "reason",
        "evidence",
        "seeds",
    )

    def __init__(
        self, decided: Sequence[tuple[Claim, Verdict]], origin: Origin | str = Origin.RECORDED
    ) -> None:
        self.decided, self.origin = tuple(decided), Origin(origin)

    def rows(self) -> list[tuple[str, ...]]:
        """Return the cells of every row as text."""
        return [
            (
                claim.section,
                claim.family.title,
                claim.statement,
                claim.published,
                verdict.measured or "no record",
                verdict.verdict,
                verdict.reason,
                self.source(verdict),
                str(verdict.seeds or ""),
            )
            for claim, verdict in self.decided
        ]

    def source(self, verdict: Verdict) -> str:
        """Return where a measurement comes from: recorded or measured here, which seeds, how many examples."""
        return ", ".join(part for part in (self.origin.value, verdict.evidence) if part) * bool(
            verdict.measured
        )

    def counts(self, basis: Basis | None = None) -> dict[str, int]:
        """Return how many claims (of one basis, or all) have each verdict, in the order of the verdicts."""
        order = (verdicts.REPRODUCED, verdicts.FAILED, verdicts.OPEN, verdicts.MISSING, verdicts.UNDECIDABLE)
        found = [verdict.verdict for claim, verdict in self.decided if basis in (None, claim.basis)]
        return {name: found.count(name) for name in order}

    def headline(self) -> str:
        """Return the counts as Markdown: claims with published numbers, with figures, and those only put in words, apart."""
        lines = []
        for basis in Basis:
            counts = self.counts(basis)
            listed = ", ".join(f"**{number} {verdict}**" for verdict, number in counts.items() if number)
            lines.append(f"- {sum(counts.values())} claims {basis.value}: {listed or 'none'}.")
        return "\n".join(lines)

    def __repr__(self) -> str:
        """Return a text table for a terminal: model, claim, verdict and what was measured."""
        cells = [
            (claim.family.title, claim.statement, verdict.verdict, verdict.measured)
            for claim, verdict in self.decided
        ]
        return aligned([("model", "claim", "verdict", "measured"), *cells])

    def plain(self) -> list[dict[str, str]]:
        """Return every row as JSON-ready values under the claim's key, for a comparison of two reports."""
        return [
            {"key": claim.key, "origin": self.origin.value, **dict(zip(self.COLUMNS, cells, strict=True))}
            for (claim, _), cells in zip(self.decided, self.rows(), strict=True)
        ]

    def _repr_mimebundle_(
        self, include: object = None, exclude: object = None
    ) -> tuple[dict[str, str], dict[str, object]]:
        return {"text/html": self._repr_html_()}, {"claims": self.plain()}

    def _repr_html_(self) -> str:
        """Lay the claims out with one column a family, so that a statement is read once and compared across models."""
        families = list(dict.fromkeys(claim.family for claim, _ in self.decided))
        statements = sorted(
            dict.fromkeys((claim.section, claim.statement) for claim, _ in self.decided), key=lambda x: x[0]
        )
        cells = {(claim.statement, claim.family): (claim, verdict) for claim, verdict in self.decided}
        head = "".join(
            f"<th scope='col'>{name}</th>" for name in ("section", "claim", *(f.title for f in families))
        )
        notes = {claim.statement: verdict.note for claim, verdict in self.decided if verdict.note}
        body = [
            f"<tr><td>{section}</td><th scope='row'>{html.escape(statement)}"
            + f"{_folded('What it does not show', notes.get(statement))}</th>"
            + "".join(self._cell(cells.get((statement, family))) for family in families)
            + "</tr>"
            for section, statement in statements
        ]
        table = f"<table class='claims'><thead><tr>{head}</tr></thead><tbody>{''.join(body)}</tbody></table>"
        return table + self._reasons(statements, notes)

    def _reasons(self, statements: Sequence[tuple[str, str]], notes: Mapping[str, str]) -> str:
        """All reasons below the table, for paper alone: in its narrow columns they would fill pages."""
        told = []
        for section, statement in statements:
            about = [(c, v) for c, v in self.decided if (c.section, c.statement) == (section, statement)]
            parts = [f"<i>{c.family.title}</i>: {_sentence(v.reason)}" for c, v in about if v.reason]
            if note := notes.get(statement):
                parts.append(f"<i>What it does not show</i>: {_sentence(note)}")
            if parts:
                told.append(f"<p><b>{section}, {html.escape(statement)}.</b> {' '.join(parts)}</p>")
        return f"<div class='reasons' hidden>{''.join(told)}</div>" if told else ""

    def _cell(self, entry: tuple[Claim, Verdict] | None) -> str:
        """One verdict: mark and word, what was measured here, apart from it what the paper printed, and the reason folded."""
        if entry is None:
            return "<td></td>"
        claim, verdict = entry
        source = f"{self.source(verdict)}: " if verdict.measured else ""
        link = f'<a href="#{claim.anchor}" class="anchor" aria-label="Link to this claim">#</a>'
        lines = [f"<b>{MARKS[verdict.verdict]} {verdict.verdict}</b> {link}"]
        if verdict.measured:
            lines += [f"<small>{_sentence(source + verdict.measured)}</small>"]
        lines += [f"<small>Published: {html.escape(claim.published)}.</small>"]
        kind, label = verdict.verdict.replace(" ", "-"), claim.family.title
        return (
            f"<td id='{claim.anchor}' class='verdict-{kind}' data-label='{label}'>{'<br>'.join(lines)}"
            f"{_folded('Why', verdict.reason)}</td>"
        )


MARKS = {
    verdicts.REPRODUCED: "✓",
    verdicts.FAILED: "✗",
    verdicts.OPEN: "~",
    verdicts.MISSING: "–",
    verdicts.UNDECIDABLE: "·",
}


def _sentence(text: str) -> str:
    return html.escape(f"{text[0].upper()}{text[1:].rstrip('.')}.")


def _folded(title: str, text: str | None) -> str:
    """Text that a reader opens on demand, and that a printed page shows."""
    if not text:
        return ""
    return f"<details class='why'><summary>{title}</summary><small>{_sentence(text)}</small></details>"
