"""Every claim of the paper that this suite measures: section, statement, printed numbers, and what decides it.

The theorems of sections 5 and 6 are claims of their own kind, see `analysis.theorems`.
"""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from analysis.publish import published, speed_verdicts, verdicts
from analysis.publish.verdicts import Decide, Verdict
from analysis.records import Record
from analysis.spec import Family
from analysis.statistics import interval


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


def _printed(rows: Iterable[Record], family: Family, variant: str) -> str:
    values = {r.parameters["variant"]: r.value for r in rows if r.parameters["family"] == family.value}
    unit = published.METRIC[family][1]
    return f"{values[variant]:.2f} against {values['baseline']:.2f} {unit}"


def _of_family(family: Family) -> Iterable[Claim]:
    speeds = _speeds() if family is Family.LACT_LM else ()
    for key, section, statement, printed, decide in (*_paradoxes(family), *_reductions(family), *speeds):
        yield Claim(f"{key}-{family.value}", section, family, statement, printed, decide)


Row = tuple[str, str, str, str, Decide]


def _paradoxes(family: Family) -> tuple[Row, ...]:
    table = published.table_1()
    figure_1 = "not shown" if family is Family.VITTT else "Figure 1"
    figure_2 = "Figure 2" if family is Family.LACT_NVS else "not shown"
    ascent, keys = (_printed(table, family, variant) for variant in ("ascent", "q_is_k"))
    update = verdicts.worse(family, "frozen", "baseline")
    return (
        ("update", "3", "without inner updates the model is worse", "assumed", update),
        (
            "steps",
            "4.1",
            "more inner steps lower the inner loss and hurt the task",
            figure_1,
            verdicts.steps(family),
        ),
        ("ascent", "4.2", "retrained with ascent it is as good", ascent, verdicts.equal(family, "ascent")),
        ("ascent-loss", "4.2", "ascent raises the inner loss", "stated", verdicts.ascent_loss(family)),
        ("qk", "4.3", "queries are distributed unlike keys", figure_2, verdicts.mismatched(family, "Q/K")),
        ("vo", "4.3", "outputs are distributed unlike values", figure_2, verdicts.mismatched(family, "V/O")),
        ("q-is-k", "4.4", "retrained with K for Q it is as good", keys, verdicts.equal(family, "q_is_k")),
    )


def _reductions(family: Family) -> tuple[Row, ...]:
    table = published.table_2()
    first, last = (_printed(table, family, variant) for variant in ("v1", "v6"))
    last_layer = verdicts.at_least_as_good(family, "v1")
    return (
        ("v1", "6.1", "moving only the last layer is at least as good", first, last_layer),
        ("v6", "6.1", "linear attention is only marginally different", last, verdicts.equal(family, "v6")),
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
    """The verdicts as a table for notebooks and the report: one row a claim, measured and published in separate columns."""

    COLUMNS = ("section", "model", "claim", "published", "measured here", "verdict", "reason", "seeds")

    def __init__(self, decided: Sequence[tuple[Claim, Verdict]]) -> None:
        self.decided = tuple(decided)

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
                str(verdict.seeds or ""),
            )
            for claim, verdict in self.decided
        ]

    def counts(self) -> dict[str, int]:
        """Return how many claims have each verdict, in the order of the verdicts."""
        order = (verdicts.REPRODUCED, verdicts.FAILED, verdicts.OPEN, verdicts.MISSING)
        return {name: sum(verdict.verdict == name for _, verdict in self.decided) for name in order}

    def plain(self) -> list[dict[str, str]]:
        """Return every row as JSON-ready values under the claim's key, for a comparison of two reports."""
        return [
            {"key": claim.key, **dict(zip(self.COLUMNS, cells, strict=True))}
            for (claim, _), cells in zip(self.decided, self.rows(), strict=True)
        ]

    def _repr_mimebundle_(
        self, include: object = None, exclude: object = None
    ) -> tuple[dict[str, str], dict[str, object]]:
        return {"text/html": self._repr_html_()}, {"claims": self.plain()}

    def _repr_html_(self) -> str:
        """Lay the claims out with one column a family, so that a statement is read once and compared across models."""
        families = list(dict.fromkeys(claim.family for claim, _ in self.decided))
        statements = dict.fromkeys((claim.section, claim.statement) for claim, _ in self.decided)
        cells = {(claim.statement, claim.family): (claim, verdict) for claim, verdict in self.decided}
        head = "".join(
            f"<th scope='col'>{name}</th>" for name in ("section", "claim", *(f.title for f in families))
        )
        body = [
            f"<tr><td>{section}</td><th scope='row'>{html.escape(statement)}</th>"
            + "".join(_cell(cells.get((statement, family))) for family in families)
            + "</tr>"
            for section, statement in statements
        ]
        return f"<table class='claims'><thead><tr>{head}</tr></thead><tbody>{''.join(body)}</tbody></table>"


MARKS = {verdicts.REPRODUCED: "✓", verdicts.FAILED: "✗", verdicts.OPEN: "~", verdicts.MISSING: "–"}


def _cell(entry: tuple[Claim, Verdict] | None) -> str:
    """One verdict: mark and word, then what was measured here and, apart from it, what the paper printed."""
    if entry is None:
        return "<td></td>"
    claim, verdict = entry
    seeds = f"{verdict.seeds} seed{'s' if verdict.seeds > 1 else ''}" if verdict.seeds else ""
    here = "; ".join(part for part in (verdict.measured, verdict.reason, seeds) if part)
    link = f'<a href="#{claim.anchor}" class="anchor" aria-label="Link to this claim">#</a>'
    lines = [f"<b>{MARKS[verdict.verdict]} {verdict.verdict}</b> {link}"]
    lines += [f"<small>Here: {html.escape(here)}.</small>"] if here else []
    lines += [f"<small>Published: {html.escape(claim.published)}.</small>"]
    kind = verdict.verdict.replace(" ", "-")
    return f"<td id='{claim.anchor}' class='verdict-{kind}' data-label='{claim.family.title}'>{'<br>'.join(lines)}</td>"


def summary(values: Sequence[float]) -> str:
    """Return 'mean ± half-width (n)' of the 95 % t-interval over seeds, or the single value with its count."""
    if len(values) < 2:
        return f"{values[0]:.2f} (n = 1)" if values else "not measured"
    found = interval(list(values), "t")
    return f"{found.mean:.2f} ± {found.high - found.mean:.2f} (n = {found.count})"
