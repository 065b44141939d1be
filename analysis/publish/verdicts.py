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
from analysis.statistics import tost

REPRODUCED, FAILED, OPEN, MISSING = (
    "reproduced",
    "not reproduced",
    "inconclusive at this scale",
    "not measured",
)
MARGIN_SHARE = 0.25
ACCURACY_FLOOR = 0.75


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
        verdict = OPEN if any(hurts) else FAILED
        return Verdict(
            verdict, measured, "not every k > 1 is worse beyond its interval in every seed", len(found)
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


def _sweep(rows: Sequence[Record]) -> _Sweep | None:
    task = {r.parameters["inner_steps"]: r for r in rows if "per_example" in r.extra}
    losses = {r.parameters["inner_steps"]: r.value for r in rows if r.metric == "inner_loss_after"}
    more = sorted(k for k in task if k > 1)
    if 1 not in task or not more:
        return None
    return _Sweep(losses, {k: change(task[1], task[k]) for k in more}, bool(task[1].extra["lower_is_better"]))


def by_variant(records: Iterable[Record], family: Family, variant: str) -> list[float]:
    """Return the measured task metric of a retrained variant, one value a seed.

    Only runs of the family's full schedule count: a shortened one would be compared with models that saw more data.
    """
    metric = published.METRIC[family][0]
    rows = select(records, question="retrained", kind="measured", parameters={"family": family.value})
    longest = max((row.parameters["training_steps"] for row in rows), default=0)
    full = select(rows, metric=metric, parameters={"variant": variant, "training_steps": longest})
    return [row.value for row in sorted(full, key=lambda row: row.seeds)]


def margin(records: Iterable[Record], family: Family) -> float | None:
    """Return a quarter of the gap between baseline and the retrained model without updates, or None without records."""
    rows = list(records)
    baseline, frozen = (by_variant(rows, family, variant) for variant in ("baseline", "frozen"))
    if not baseline or not frozen:
        return None
    return MARGIN_SHARE * abs(sum(baseline) / len(baseline) - sum(frozen) / len(frozen))


def equal(family: Family, variant: str) -> Decide:
    """A retrained variant equals the baseline within the margin (two one-sided tests)."""
    unit = published.METRIC[family][1]

    def decide(records: Sequence[Record]) -> Verdict:
        ours, base = by_variant(records, family, variant), by_variant(records, family, "baseline")
        bound = margin(records, family)
        if len(ours) < 2 or len(base) < 2 or not bound:
            return Verdict(MISSING, reason="fewer than two seeds" if ours else "")
        found = tost(ours, base, bound)
        measured = (
            f"{found.difference:+.2f} {unit} against the baseline, 90 % interval [{found.low:+.2f}, {found.high:+.2f}], "
            f"margin {bound:.2f}"
        )
        seeds = min(len(ours), len(base))
        if found.equivalent:
            return Verdict(
                REPRODUCED, measured, f"equivalent within the margin (p = {found.p_value:.2g})", seeds
            )
        if found.low > bound or found.high < -bound:
            return Verdict(FAILED, measured, "the whole interval lies beyond the margin", seeds)
        if abs(found.difference) > bound and not found.low < 0 < found.high:
            return Verdict(
                FAILED, measured, "different from the baseline, and by more than the margin", seeds
            )
        return Verdict(
            OPEN, measured, "the interval reaches across the margin: too few seeds for this spread", seeds
        )

    return decide


def at_least_as_good(family: Family, variant: str) -> Decide:
    """A retrained variant is no worse than the baseline by more than the margin (one-sided)."""
    sign, unit = _worse_is(family), published.METRIC[family][1]

    def decide(records: Sequence[Record]) -> Verdict:
        ours, base = by_variant(records, family, variant), by_variant(records, family, "baseline")
        bound = margin(records, family)
        if len(ours) < 2 or len(base) < 2 or not bound:
            return Verdict(MISSING, reason="fewer than two seeds" if ours else "")
        found = tost(ours, base, bound)
        loss = sorted((sign * found.low, sign * found.high))
        measured = (
            f"{found.difference:+.2f} {unit} against the baseline, 90 % interval [{found.low:+.2f}, {found.high:+.2f}], "
            f"margin {bound:.2f}"
        )
        seeds = min(len(ours), len(base))
        if loss[1] < bound:
            better = " and better than the baseline" if loss[1] < 0 else ""
            return Verdict(REPRODUCED, measured, f"no worse than the margin allows{better}", seeds)
        if loss[0] > bound:
            return Verdict(FAILED, measured, "worse by more than the margin", seeds)
        return Verdict(
            OPEN, measured, "the interval reaches across the margin: too few seeds for this spread", seeds
        )

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
        sides = {}
        for variant in ("baseline", "ascent"):
            for side in ("before", "after"):
                rows = select(
                    records,
                    question="retrained",
                    metric=f"inner_loss_{side}",
                    parameters={"family": family.value, "variant": variant},
                )
                sides[variant, side] = [row.value for row in sorted(rows, key=lambda row: row.seeds)]
        counts = {len(values) for values in sides.values()}
        if not min(counts):
            return Verdict(MISSING)
        moves = {
            variant: [a - b for a, b in zip(sides[variant, "after"], sides[variant, "before"], strict=True)]
            for variant in ("baseline", "ascent")
        }
        means = {name: sum(values) / len(values) for name, values in moves.items()}
        measured = f"the update moves the inner loss by {means['baseline']:+.3g} (descent) and {means['ascent']:+.3g} (ascent)"
        good = all(move > 0 for move in moves["ascent"]) and all(move < 0 for move in moves["baseline"])
        reason = "in every seed" if good else "not in every seed"
        return Verdict(REPRODUCED if good else FAILED, measured, reason, min(counts))

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
        clear = sum(a > ACCURACY_FLOOR and p < 0.01 for a, p in zip(accuracy, p_values, strict=True))
        reason = f"{clear} of {len(accuracy)} layers (all seeds) are told apart: accuracy above {ACCURACY_FLOOR}, p < 0.01"
        verdict = REPRODUCED if clear == len(accuracy) else OPEN if clear else FAILED
        return Verdict(verdict, measured, reason, seeds)

    return decide
