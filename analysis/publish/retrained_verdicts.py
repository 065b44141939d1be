"""How claims about retrained models are decided, with the margin stated beforehand.

Two retrained models count as equal when two one-sided Welch tests put their difference within a quarter of the gap between
the baseline and the same model retrained without updates; "at least as good" is the one-sided half of that. A single seed has
no interval: its difference is held against the same margin, and decides nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from analysis.publish import published
from analysis.publish.verdicts import (
    EXAMPLES,
    LEAST_SEEDS,
    MISSING,
    OPEN,
    REPRODUCED,
    Decide,
    Verdict,
    beside,
    decided,
    evidence,
)
from analysis.records import Record, select
from analysis.spec import RUNGS, Family
from analysis.statistics import Equivalence, interval, tost

MARGIN_SHARE = 0.25


def runs(records: Iterable[Record], family: Family, variant: str, metric: str | None = None) -> list[Record]:
    """Return the measured records of a retrained variant, one a seed: of its task metric, or of another.

    Only runs of the family's full schedule count: a shortened one would be compared with models that saw more data.
    """
    rows = select(records, question="retrained", kind="measured", parameters={"family": family.value})
    longest = max((row.parameters["training_steps"] for row in rows), default=0)
    where = {"variant": variant, "training_steps": longest}
    full = select(rows, metric=metric or published.METRIC[family][0], parameters=where)
    return sorted(full, key=lambda row: row.seeds)


def by_variant(
    records: Iterable[Record], family: Family, variant: str, metric: str | None = None
) -> list[float]:
    """Return the values of `runs`, one a seed."""
    return [row.value for row in runs(records, family, variant, metric)]


def added_loops(record: Record) -> int:
    """Return over how many loops of a layer a training run averaged its inner loss: times this, it is their sum as elsewhere."""
    return max(1, len(record.trained_spec))


def summary(values: Sequence[float]) -> str:
    """Return 'mean ± half-width (n)' of the 95 % t-interval over seeds, or the single value with its count."""
    if len(values) < 2:
        return f"{values[0]:.2f} (n = 1)" if values else "not measured"
    found = interval(list(values), "t")
    return f"{found.mean:.2f} ± {found.high - found.mean:.2f} (n = {found.count})"


def margin(records: Iterable[Record], family: Family) -> float | None:
    """Return a quarter of what the updates are worth: the gap between the baseline and the model retrained without them.

    "Without updates" means frozen fast weights: network and features stay where they are, with as many learned weights, and only
    the updates go. Against a model without any inner loop the gap would also hold what a fixed network there is worth, and
    the margin would forgive more. None without records, or when the baseline is not the better of the two: then no difference
    could be called small.
    """
    rows = list(records)
    baseline, frozen = (by_variant(rows, family, variant) for variant in ("baseline", "frozen"))
    if not baseline or not frozen:
        return None
    gap = worse_is(family) * (_mean(frozen) - _mean(baseline))
    return MARGIN_SHARE * gap if gap > 0 else None


@dataclass(frozen=True)
class Pair:
    """A retrained variant against another: their means, the interval where there are seeds for one, and where it comes from."""

    family: Family
    difference: float
    test: Equivalence | None
    means: str
    seeds: int
    evidence: str

    @property
    def where(self) -> dict[str, Any]:
        """What a verdict on the pair rests on."""
        return {"seeds": self.seeds, "evidence": self.evidence}

    def ends(self) -> tuple[float, float]:
        """The interval, oriented so that larger is worse; the difference twice where there is none."""
        low, high = (self.difference,) * 2 if self.test is None else (self.test.low, self.test.high)
        one, other = worse_is(self.family) * low, worse_is(self.family) * high
        return min(one, other), max(one, other)

    def text(self, confidence: int, *bounds: float) -> str:
        """The difference with its unit, both means, and the interval."""
        either = (0.0, *bounds, *(-bound for bound in bounds))
        told = f"{beside(self.difference, *either, sign=True)} {published.DIFFERENCE[self.family]} ({self.means})"
        if self.test is None:
            return told
        low, high = (beside(end, *either, sign=True) for end in (self.test.low, self.test.high))
        return f"{told}, {confidence} % interval [{low}, {high}]"


def compare(
    records: Sequence[Record],
    family: Family,
    variant: str,
    than: str,
    *,
    bound: float = 1e9,
    alpha: float = 0.05,
) -> Pair | Verdict:
    """Return a variant against another with the interval at 1 - 2 `alpha`, or the verdict that a run is missing."""
    ours, other = (runs(records, family, name) for name in (variant, than))
    if not ours or not other:
        return Verdict(MISSING, reason=_gap(records, family, variant if not ours else than))
    left, right = ([row.value for row in rows] for rows in (ours, other))
    seeds = min(len(left), len(right))
    unit = published.METRIC[family][1]
    first, second = f"{_mean(left):.2f}", f"{_mean(right):.2f}"
    return Pair(
        family,
        _mean(left) - _mean(right),
        tost(left, right, bound, alpha=alpha) if seeds >= LEAST_SEEDS else None,
        f"{first} against {second}" if family is Family.LACT_LM else f"{first} against {second} {unit}",
        seeds,
        evidence(ours, EXAMPLES[family], other).replace("the baseline", _called(than)),
    )


def _called(variant: str) -> str:
    """Return how a sentence calls the second model of a pair."""
    return _REFERENCES.get(variant) or next((one.name for one in RUNGS if one.key == variant), variant)


def _gap(records: Sequence[Record], family: Family, variant: str) -> str:
    """Say which runs there are where none counts: a shortened run is named, never compared."""
    rows = select(records, question="retrained", kind="measured", parameters={"family": family.value})
    longest = max((row.parameters["training_steps"] for row in rows), default=0)
    short = {row.parameters["training_steps"] for row in select(rows, parameters={"variant": variant})}
    if not rows or (not short and variant not in _REFERENCES):
        return ""
    if not short:
        return f"no run of {_REFERENCES[variant]}"
    done = ", ".join(str(steps) for steps in sorted(short))
    return f"only shortened runs of {_REFERENCES.get(variant, 'it')} ({done} of {longest} steps), not compared with full ones"


_REFERENCES = {"baseline": "the baseline", "frozen": "the model without updates"}


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


@dataclass(frozen=True)
class _Against:
    """A retrained variant against the baseline: the pair, the margin, and both in words."""

    pair: Pair
    margin: float
    measured: str


def _against_baseline(records: Sequence[Record], family: Family, variant: str) -> _Against | Verdict:
    bound = margin(records, family)
    pair = compare(records, family, variant, "baseline", bound=bound or 1e9)
    if isinstance(pair, Verdict):
        return pair
    helps = worse(family, "frozen", "baseline")(records).verdict == REPRODUCED
    if bound is None or not helps:
        reason = "no margin: that the updates help at all is not established"
        return Verdict(OPEN, pair.text(90), reason, pair.seeds, pair.evidence)
    share = worse_is(family) * pair.difference / (bound / MARGIN_SHARE)
    lost = f", {share:.0%} of the gap to the model without updates".replace("%", " %") if share > 0 else ""
    near = beside(bound, *map(abs, (pair.difference, *pair.ends())))
    return _Against(pair, bound, f"{pair.text(90, bound)}{lost}, margin {near}")


def _beyond(least: float, most: float, word: str = "") -> str:
    """Say of a difference that the margin forgives or cannot place when its interval excludes zero all the same."""
    if least <= 0 <= most:
        return ""
    return f"; {word}{'worse' if least > 0 else 'better'} than the baseline beyond its interval"


_ACROSS = "the interval reaches across the margin: too few seeds for this spread"


def equal(family: Family, variant: str) -> Decide:
    """A retrained variant equals the baseline within the margin (two one-sided tests)."""

    def decide(records: Sequence[Record]) -> Verdict:
        found = _against_baseline(records, family, variant)
        if isinstance(found, Verdict):
            return found
        pair, (least, most) = found.pair, found.pair.ends()
        if pair.test is None:
            inside = abs(pair.difference) <= found.margin
            reason = f"the difference lies {'within' if inside else 'beyond'} the margin"
            return decided(inside, found.measured, reason, **pair.where)
        if pair.test.equivalent:
            beyond = _beyond(least, most, "nevertheless ")
            reason = f"equivalent within the margin (p = {pair.test.p_value:.2g}){beyond}"
            return decided(True, found.measured, reason, **pair.where)
        if least > found.margin or most < -found.margin:
            return decided(False, found.measured, "the whole interval lies beyond the margin", **pair.where)
        return decided(None, found.measured, _ACROSS + _beyond(least, most), **pair.where)

    return decide


def at_least_as_good(family: Family, variant: str) -> Decide:
    """A retrained variant is no worse than the baseline by more than the margin (one-sided)."""

    def decide(records: Sequence[Record]) -> Verdict:
        found = _against_baseline(records, family, variant)
        if isinstance(found, Verdict):
            return found
        (least, most), sure = found.pair.ends(), found.pair.test is not None
        if most < found.margin:
            beyond = _beyond(least, most, "nevertheless " * (least > 0)) if sure else ""
            reason = f"no worse than the margin allows{beyond}"
            return decided(True, found.measured, reason, **found.pair.where)
        if least > found.margin:
            return decided(False, found.measured, "worse by more than the margin", **found.pair.where)
        return decided(None, found.measured, _ACROSS + _beyond(least, most), **found.pair.where)

    return decide


def worse_is(family: Family) -> int:
    """+1 where a larger metric is worse (perplexity), -1 where it is better."""
    return 1 if family is Family.LACT_LM else -1


def worse(family: Family, variant: str, than: str) -> Decide:
    """A retrained variant is worse than another: the 95 % interval of the difference excludes zero."""

    def decide(records: Sequence[Record]) -> Verdict:
        found = compare(records, family, variant, than, alpha=0.025)
        if isinstance(found, Verdict):
            return found
        least, most = found.ends()
        measured, where = found.text(95), found.where
        if least > 0:
            sure = "it is worse" if found.test is None else "the interval excludes no difference"
            return decided(True, measured, sure, **where)
        if most < 0:
            return decided(False, measured, "the difference has the other sign", **where)
        return decided(None, measured, "the interval includes no difference", **where)

    return decide


def ascent_loss(family: Family) -> Decide:
    """The update raises the inner loss under ascent and lowers it under descent, in every seed.

    A training run reads its inner losses on one batch, not on the examples of its task metric: the records' count is left out.
    """

    def decide(records: Sequence[Record]) -> Verdict:
        moves, rows = {}, {}
        for variant in ("baseline", "ascent"):
            before, after = (
                runs(records, family, variant, f"inner_loss_{side}") for side in ("before", "after")
            )
            began = {row.seeds: row.value for row in before}
            rows[variant] = [row.edit(samples=None) for row in after if row.seeds in began]
            moves[variant] = [added_loops(row) * (row.value - began[row.seeds]) for row in rows[variant]]
        seeds = min(len(found) for found in moves.values())
        if not seeds:
            return Verdict(MISSING)
        down, up = (_mean(found) for found in moves.values())
        added = ", the loops of a layer added" * any(added_loops(row) > 1 for row in rows["ascent"])
        measured = f"the update moves the inner loss by {down:+.3g} (descent) and {up:+.3g} (ascent){added}"
        good = all(move > 0 for move in moves["ascent"]) and all(move < 0 for move in moves["baseline"])
        reason = "descent lowers it and ascent raises it" + (" in every seed" if seeds >= LEAST_SEEDS else "")
        known = f"{evidence(rows['ascent'], '', rows['baseline'])}, the first held-out batch alone"
        return decided(
            good, measured, reason if good else "it has the other sign in a seed", seeds=seeds, evidence=known
        )

    return decide
