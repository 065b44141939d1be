"""What a failed or open claim about a retrained model most likely comes from: where on the ladder quality is lost, and scale.

The first half is computed from records. The second was not tested here, and says so.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from analysis.publish import published
from analysis.publish.captions import joined
from analysis.publish.retrained_verdicts import Pair, by_variant, compare, worse_is
from analysis.publish.verdicts import FAILED, LEAST_SEEDS, OPEN, Decide, Verdict, beside
from analysis.records import Record
from analysis.spec import RUNGS, Family, Rung

SCALE = (
    "a likely reason, not tested here, is scale: few and narrow layers stand around the loop and can make up for less than in "
    "the paper's larger models"
)
IN_VITTT = {"v1": "updates of its gate", "v3": "its gate", "v6": "its soft clip"}
"""What the rungs take away from ViTTT's loops, which differ from LaCT's."""


@dataclass(frozen=True)
class Step:
    """From one retrained rung of the ladder to the next: the difference of the task metric and its 95 % interval over seeds."""

    rung: Rung
    above: Rung
    difference: float
    low: float
    high: float

    @property
    def is_sure(self) -> bool:
        """Whether the interval excludes no difference."""
        return self.low > 0 or self.high < 0

    def text(self, family: Family) -> str:
        """Return what the rung removes, and the difference with its interval."""
        removed = IN_VITTT[self.rung.key] if family is Family.VITTT else self.rung.removes
        value, low, high = (beside(x, 0.0, sign=True) for x in (self.difference, self.low, self.high))
        return f"{removed} ({self.above.name} to {self.rung.name.removeprefix('Variant ')}: {value} [{low}, {high}])"


def changing(family: Family) -> list[Rung]:
    """Return the baseline and every rung whose edit changes something for a family."""
    return [rung for rung in RUNGS if rung.key == "baseline" or family not in rung.no_op_for]


def steps_down(records: Sequence[Record], family: Family) -> list[Step]:
    """Return the steps between neighbouring rungs that were both retrained with seeds enough for an interval."""
    trained = [rung for rung in changing(family) if len(by_variant(records, family, rung.key)) >= LEAST_SEEDS]
    found = []
    for above, rung in pairwise(trained):
        pair = compare(records, family, rung.key, above.key, alpha=0.025)
        assert isinstance(pair, Pair) and pair.test is not None
        found.append(Step(rung, above, pair.difference, pair.test.low, pair.test.high))
    return found


def where_lost(records: Sequence[Record], family: Family, down_to: str = RUNGS[-1].key) -> str:
    """Return in words which steps from the baseline down to a rung lose: all beyond their intervals, apart from other large ones.

    A step whose interval includes zero is named where its estimate is one of the largest two, and never as a loss. '' without two
    steps to compare.
    """
    keys = [rung.key for rung in RUNGS]
    reached = keys[: keys.index(down_to) + 1]
    found = [one for one in steps_down(records, family) if one.rung.key in reached]
    sign = worse_is(family)
    losing = sorted(
        (one for one in found if sign * one.difference > 0), key=lambda one: -sign * one.difference
    )
    if len(found) < 2 or not losing:
        return ""
    unit = f"in {published.DIFFERENCE[family]} with 95 % intervals"
    sure = joined([one.text(family) for one in losing if one.is_sure])
    large = [one.text(family) for one in losing[:2] if not one.is_sure]
    if not sure:
        estimates = "estimates" if len(large) > 1 else "estimate"
        told = f"the largest {estimates}, not told from zero, {unit}"
        return f"no single step down the ladder is sure to lose anything; {told}: without {joined(large)}"
    others = (
        f"; not told from zero, though among the largest estimates: without {joined(large)}" if large else ""
    )
    return f"down the ladder quality is lost, {unit}, without {sure}{others}"


def explained(decide: Decide, family: Family, *, down_to: str = "") -> Decide:
    """Add to the reason of a failed or open verdict what it most likely comes from; on the ladder, down to which rung."""

    def decide_and_explain(records: Sequence[Record]) -> Verdict:
        found = decide(records)
        if found.verdict not in (FAILED, OPEN) or (found.seeds or 0) < LEAST_SEEDS:
            return found
        where = where_lost(records, family, down_to) if down_to else ""
        likely = SCALE if found.verdict == FAILED else ""
        return replace(found, reason="; ".join(filter(None, (found.reason, where, likely))))

    return decide_and_explain
