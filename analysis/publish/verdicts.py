"""How claims are decided: each function makes a decision from records, with the margin stated beforehand.

Two retrained models count as equal when two one-sided Welch tests put their difference within a quarter of the gap between
the baseline and the same model retrained without updates; "at least as good" is the one-sided half of that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from analysis.publish import published
from analysis.records import Record, select
from analysis.records.comparison import Change, change
from analysis.spec import Family
from analysis.statistics import Equivalence, tost

REPRODUCED, FAILED, OPEN, MISSING = (
    "reproduced",
    "not reproduced",
    "inconclusive at this scale",
    "not measured",
)
MARGIN_SHARE = 0.25
ACCURACY_FLOOR = 0.75
RELABELLINGS = 100


@dataclass(frozen=True)
class Verdict:
    """What the records say about a claim: the verdict, the measurement in one line, the reason, how many seeds."""

    verdict: str
    measured: str = ""
    reason: str = ""
    seeds: int = 0


Decide = Callable[[Sequence[Record]], Verdict]


def steps(family: Family) -> Decide:
    """More inner steps lower the inner loss at every step count and hurt the metric at every count above one."""

    def decide(records: Sequence[Record]) -> Verdict:
        where = {"family": family.value, "variant": "baseline", "step_size": 1.0}
        rows = select(records, question="inner steps", parameters=where)
        by_seed = [[r for r in rows if r.seeds == seeds] for seeds in sorted({r.seeds for r in rows})]
        sweeps = [_sweep(found) for found in by_seed]
        if not sweeps or any(sweep is None for sweep in sweeps):
            return Verdict(MISSING)
        found = [sweep for sweep in sweeps if sweep is not None]
        last = max(found[0].changes)
        losses = [sweep.losses[last] - sweep.losses[1] for sweep in found]
        moved = "; ".join(str(sweep.changes[last]) for sweep in found)
        fall = f"{losses[0]:+.3g}" if len(losses) == 1 else f"{min(losses):+.3g} to {max(losses):+.3g}"
        measured = f"{last} steps change the inner loss by {fall}, the task metric by {moved}"
        falls, hurts = all(sweep.falls for sweep in found), [sweep.hurts for sweep in found]
        if falls and all(hurts):
            reason = "the inner loss falls with every further step, and the metric is worse at every k > 1, in every seed"
            return Verdict(REPRODUCED, measured, reason, len(found))
        if not falls:
            return Verdict(
                FAILED, measured, "the mean inner loss does not fall with every further step", len(found)
            )
        if any(sweep.helps for sweep in found):
            return Verdict(
                FAILED, measured, "some k > 1 is better than k = 1 beyond its interval", len(found)
            )
        return Verdict(
            OPEN, measured, "not every k > 1 is worse beyond its interval in every seed", len(found)
        )

    return decide


@dataclass(frozen=True)
class _Sweep:
    losses: dict[int, float]
    changes: dict[int, Change]
    lower_is_better: bool

    @property
    def falls(self) -> bool:
        counts = [1, *sorted(self.changes)]
        return all(self.losses[b] < self.losses[a] for a, b in pairwise(counts))

    @property
    def hurts(self) -> bool:
        return all(m.low > 0 if self.lower_is_better else m.high < 0 for m in self.changes.values())

    @property
    def helps(self) -> bool:
        return any(m.high < 0 if self.lower_is_better else m.low > 0 for m in self.changes.values())


def _sweep(rows: Sequence[Record]) -> _Sweep | None:
    task = {r.parameters["inner_steps"]: r for r in rows if "per_example" in r.extra}
    losses = {r.parameters["inner_steps"]: r.value for r in rows if r.metric == "inner_loss_after"}
    more = sorted(k for k in task if k > 1)
    if 1 not in task or not more:
        return None
    return _Sweep(losses, {k: change(task[1], task[k]) for k in more}, bool(task[1].extra["lower_is_better"]))


def by_variant(
    records: Iterable[Record], family: Family, variant: str, metric: str | None = None
) -> list[float]:
    """Return the measured task metric (or another) of a retrained variant, one value a seed.

    Only runs of the family's full schedule count: a shortened one would be compared with models that saw more data.
    """
    rows = select(records, question="retrained", kind="measured", parameters={"family": family.value})
    longest = max((row.parameters["training_steps"] for row in rows), default=0)
    where = {"variant": variant, "training_steps": longest}
    full = select(rows, metric=metric or published.METRIC[family][0], parameters=where)
    return [row.value for row in sorted(full, key=lambda row: row.seeds)]


def margin(records: Iterable[Record], family: Family) -> float | None:
    """Return a quarter of what the updates are worth: the gap between the baseline and the model retrained without them.

    None without records, or when the baseline is not the better of the two: then no difference could be called small.
    """
    rows = list(records)
    baseline, frozen = (by_variant(rows, family, variant) for variant in ("baseline", "frozen"))
    if not baseline or not frozen:
        return None
    gap = _worse_is(family) * (sum(frozen) / len(frozen) - sum(baseline) / len(baseline))
    return MARGIN_SHARE * gap if gap > 0 else None


@dataclass(frozen=True)
class _Against:
    """A retrained variant against the baseline: the test, the margin, and both in words."""

    test: Equivalence
    margin: float
    measured: str
    seeds: int


def _against_baseline(records: Sequence[Record], family: Family, variant: str) -> _Against | Verdict:
    ours, base = by_variant(records, family, variant), by_variant(records, family, "baseline")
    bound = margin(records, family)
    if len(ours) < 2 or len(base) < 2:
        return Verdict(MISSING, reason="fewer than two seeds" if ours else "")
    if bound is None or worse(family, "frozen", "baseline")(records).verdict != REPRODUCED:
        return Verdict(OPEN, reason="no margin: that the updates help at all is not established")
    found = tost(ours, base, bound)
    measured = (
        f"{found.difference:+.2f} {published.METRIC[family][1]} against the baseline, "
        f"90 % interval [{found.low:+.2f}, {found.high:+.2f}], margin {bound:.2f}"
    )
    return _Against(found, bound, measured, min(len(ours), len(base)))


_ACROSS = "the interval reaches across the margin: too few seeds for this spread"


def equal(family: Family, variant: str) -> Decide:
    """A retrained variant equals the baseline within the margin (two one-sided tests)."""

    def decide(records: Sequence[Record]) -> Verdict:
        found = _against_baseline(records, family, variant)
        if isinstance(found, Verdict):
            return found
        if found.test.equivalent:
            reason = f"equivalent within the margin (p = {found.test.p_value:.2g})"
            return Verdict(REPRODUCED, found.measured, reason, found.seeds)
        if found.test.low > found.margin or found.test.high < -found.margin:
            return Verdict(FAILED, found.measured, "the whole interval lies beyond the margin", found.seeds)
        return Verdict(OPEN, found.measured, _ACROSS, found.seeds)

    return decide


def at_least_as_good(family: Family, variant: str) -> Decide:
    """A retrained variant is no worse than the baseline by more than the margin (one-sided)."""

    def decide(records: Sequence[Record]) -> Verdict:
        found = _against_baseline(records, family, variant)
        if isinstance(found, Verdict):
            return found
        least, most = sorted(_worse_is(family) * end for end in (found.test.low, found.test.high))
        if most < found.margin:
            better = ", and better than the baseline" if most < 0 else ""
            return Verdict(
                REPRODUCED, found.measured, f"no worse than the margin allows{better}", found.seeds
            )
        if least > found.margin:
            return Verdict(FAILED, found.measured, "worse by more than the margin", found.seeds)
        return Verdict(OPEN, found.measured, _ACROSS, found.seeds)

    return decide


def _worse_is(family: Family) -> int:
    """+1 where a larger metric is worse (perplexity), -1 where it is better."""
    return 1 if family is Family.LACT_LM else -1


def worse(family: Family, variant: str, than: str) -> Decide:
    """A retrained variant is worse than another: the 95 % interval of the difference excludes zero."""

    def decide(records: Sequence[Record]) -> Verdict:
        ours, other = (by_variant(records, family, name) for name in (variant, than))
        if len(ours) < 2 or len(other) < 2:
            return Verdict(MISSING, reason="fewer than two seeds" if ours else "")
        found = tost(ours, other, 1e9, alpha=0.025)
        sign = _worse_is(family)
        unit = published.METRIC[family][1]
        measured = f"{found.difference:+.2f} {unit}, 95 % interval [{found.low:+.2f}, {found.high:+.2f}]"
        seeds = min(len(ours), len(other))
        if min(sign * found.low, sign * found.high) > 0:
            return Verdict(REPRODUCED, measured, "the interval excludes no difference", seeds)
        if max(sign * found.low, sign * found.high) < 0:
            return Verdict(FAILED, measured, "the difference has the other sign", seeds)
        return Verdict(OPEN, measured, "the interval includes no difference", seeds)

    return decide


def ascent_loss(family: Family) -> Decide:
    """The update raises the inner loss under ascent and lowers it under descent, in every seed."""

    def decide(records: Sequence[Record]) -> Verdict:
        moves = {}
        for variant in ("baseline", "ascent"):
            before, after = (
                by_variant(records, family, variant, f"inner_loss_{side}") for side in ("before", "after")
            )
            moves[variant] = [b - a for a, b in zip(before, after, strict=True)]
        seeds = min(len(found) for found in moves.values())
        if not seeds:
            return Verdict(MISSING)
        down, up = (sum(found) / len(found) for found in moves.values())
        measured = f"the update moves the inner loss by {down:+.3g} (descent) and {up:+.3g} (ascent)"
        good = all(move > 0 for move in moves["ascent"]) and all(move < 0 for move in moves["baseline"])
        return Verdict(
            REPRODUCED if good else FAILED, measured, "in every seed" if good else "not in every seed", seeds
        )

    return decide


def mismatched(family: Family, pair: str) -> Decide:
    """A classifier and a kernel test tell two clouds apart in every layer."""

    def decide(records: Sequence[Record]) -> Verdict:
        rows = select(
            records, question="distribution mismatch", parameters={"family": family.value, "pair": pair}
        )
        accuracy = [row.value for row in rows if row.metric == "classifier_accuracy"]
        p_values = [row.value for row in rows if row.metric == "mmd_p_value"]
        if not accuracy:
            return Verdict(MISSING)
        layers = len({row.parameters["layer"] for row in rows})
        measured = (
            f"classifier accuracy {min(accuracy):.2f} to {max(accuracy):.2f} over {layers} layers; "
            f"largest MMD p {max(p_values):.2g}"
        )
        seeds = len({seed for row in rows for seed in row.seeds})
        fewest = min(row.parameters.get("permutations", 0) for row in rows)
        if fewest < RELABELLINGS:
            return Verdict(
                OPEN,
                measured,
                f"{fewest} relabellings cannot show p < 0.01; take {RELABELLINGS} or more",
                seeds,
            )
        clear = sum(a > ACCURACY_FLOOR and p < 0.01 for a, p in zip(accuracy, p_values, strict=True))
        reason = f"{clear} of {len(accuracy)} layers (all seeds) are told apart: accuracy above {ACCURACY_FLOOR}, p < 0.01"
        verdict = REPRODUCED if clear == len(accuracy) else OPEN if clear else FAILED
        return Verdict(verdict, measured, reason, seeds)

    return decide
