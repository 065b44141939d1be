"""What a verdict is, and the rule that all verdicts share: fewer than two training seeds decide nothing.

How claims are decided stands in `retrained_verdicts`, `step_verdicts`, `mismatch_verdicts` and `speed_verdicts`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from analysis.records import Record
from analysis.spec import Family

REPRODUCED, FAILED, OPEN, MISSING, UNDECIDABLE = (
    "reproduced",
    "not reproduced",
    "inconclusive at this scale",
    "not measured",
    "not decidable from one checkpoint",
)
EXAMPLES = {Family.LACT_LM: "windows", Family.LACT_NVS: "scenes", Family.VITTT: "images"}
LEAST_SEEDS = 2


@dataclass(frozen=True)
class Verdict:
    """What the records say about a claim.

    Attributes:
        verdict: one of the words above.
        measured: the measurement in one line.
        reason: why it leads to this verdict.
        seeds: how many training seeds it rests on; None where seeds play no part (a time, a gap).
        evidence: which seeds and how many examples, in words.
        note: what the verdict does not show, whichever way it falls.
    """

    verdict: str
    measured: str = ""
    reason: str = ""
    seeds: int | None = None
    evidence: str = ""
    note: str = ""

    def __post_init__(self) -> None:
        few = self.seeds is not None and self.seeds < LEAST_SEEDS
        assert not (few and self.verdict in (REPRODUCED, FAILED)), "too few seeds to decide anything"


Decide = Callable[[Sequence[Record]], Verdict]


def decided(
    holds: bool | None, measured: str, reason: str, *, seeds: int, evidence: str, note: str = ""
) -> Verdict:
    """Return the verdict on a claim that holds, fails, or stays open (None) by its own rule.

    With fewer than two seeds it is open in any case, and the reason tells which way the one seed points.
    """
    if seeds < LEAST_SEEDS:
        way = "neither way" if holds is None else f"{'for' if holds else 'against'} the claim"
        told = f"one seed points {way}: {reason}"
        return Verdict(OPEN, measured, told, seeds, evidence, note)
    if holds is None:
        return Verdict(OPEN, measured, reason, seeds, evidence, note)
    return Verdict(REPRODUCED if holds else FAILED, measured, reason, seeds, evidence, note)


def evidence(rows: Iterable[Record], examples: str, baseline: Iterable[Record] = ()) -> str:
    """Return in words which seeds records come from, those of a baseline apart, and how many examples each was measured on."""
    rows, baseline = list(rows), list(baseline)
    counts = sorted({row.samples for row in (*rows, *baseline) if row.samples is not None})
    span = str(counts[0]) if len(counts) == 1 else f"{counts[0]} to {counts[-1]}" if counts else ""
    text = seeds_text(rows)
    if baseline and seeds_text(baseline) != text:
        text += f" against {seeds_text(baseline)} of the baseline"
    several = len({row.seeds for row in (*rows, *baseline)}) > 1
    text += f", {span} {examples}{' each' if several else ''}" * bool(span)
    lengths = {row.parameters.get("training_steps") for row in (*rows, *baseline)} - {None}
    return f"{text}, trained for {min(lengths)} to {max(lengths)} steps" if len(lengths) > 1 else text


def seeds_text(rows: Iterable[Record]) -> str:
    """Return 'seed 0', '3 seeds', or 'one checkpoint' for records of a model whose seed is not known."""
    seeds = sorted({seed for row in rows for seed in row.seeds})
    if len(seeds) == 1:
        return f"seed {seeds[0]}"
    return f"{len(seeds)} seeds" if seeds else "one checkpoint"


def beside(value: float, *bounds: float, sign: bool = False) -> str:
    """Return a number with as many digits as it takes to see on which side of every bound it lies, two at least."""
    shown = 2
    while shown < 8 and any(
        value != bound and round(value, shown) == round(bound, shown) for bound in bounds
    ):
        shown += 1
    return f"{value:{'+' if sign else ''}.{shown}f}"
