"""Whether the shipped checkpoints, measured again on this machine, give the values that were recorded.

Where a record holds a value for every example, the shared examples are compared one by one, which is far sharper than a mean
within an interval: evaluation sets of different sizes begin with the same windows, scenes and images.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from analysis.publish.captions import joined
from analysis.publish.ladder_plots import NAMES
from analysis.publish.plots import task_records
from analysis.publish.published import quantity
from analysis.publish.verdicts import EXAMPLES
from analysis.records import Record, select
from analysis.spec import Family

TOLERANCES = {"perplexity": (0.01, "nats"), "psnr": (0.1, "dB"), "top1": (0.01, "")}
"""By metric, how far one example may be off and in which unit; of top-1, the share of images that may be decided otherwise."""


@dataclass(frozen=True)
class Pair:
    """A checkpoint measured again beside its records: the one after training, and the one that tells every example."""

    measured: Record
    trained: Record | None
    recorded: Record | None

    @property
    def family(self) -> Family:
        """The family of the model."""
        return Family(self.measured.parameters["family"])

    @property
    def name(self) -> str:
        """The model and how it was trained, as tables print it."""
        variant = self.measured.parameters["variant"]
        return f"{self.family.title}, {NAMES.get(variant, variant)}"

    @property
    def each(self) -> list[tuple[float, float]]:
        """Recorded and measured value of every shared example; none without a record that tells them."""
        if self.recorded is None:
            return []
        sides = (self.recorded.extra["per_example"], self.measured.extra["per_example"])
        return list(zip(*sides, strict=False))

    @property
    def largest(self) -> float:
        """The largest difference of one example, or the share of images decided otherwise."""
        apart = [abs(one - other) for one, other in self.each]
        return sum(apart) / len(apart) if self.measured.metric == "top1" else max(apart)

    @property
    def within(self) -> bool | None:
        """Whether the value recorded after training lies in the interval measured now; None without the one or the other."""
        low, high = self.measured.ci_low, self.measured.ci_high
        if self.trained is None or low is None or high is None:
            return None
        return low <= self.trained.value <= high

    @property
    def agree(self) -> bool | None:
        """Whether recorded and measured values agree: example by example where that is recorded, by the interval otherwise."""
        return self.largest <= TOLERANCES[self.measured.metric][0] if self.each else self.within

    @property
    def apart(self) -> str:
        """The difference of the shared examples in words."""
        if self.measured.metric == "top1":
            return f"{round(self.largest * len(self.each))} of {len(self.each)} images decided otherwise"
        unit = TOLERANCES[self.measured.metric][1]
        most = f"at most {self.largest:.5f} {unit}" if self.largest else "nothing"
        return f"{most} in {len(self.each)} {EXAMPLES[self.family]}"


def pairs(measured: Iterable[Record], records: Sequence[Record]) -> list[Pair]:
    """Return the task metrics measured now, each with the records of the same checkpoint and metric."""
    found = []
    for mine in task_records(list(measured)):
        same = [row for row in select(records, metric=mine.metric) if row.checkpoint == mine.checkpoint]
        trained = select(same, question="retrained")
        told = task_records(select(same, question="evaluation"))
        told.sort(key=lambda row: len(row.extra["per_example"]))
        found.append(Pair(mine, trained[0] if trained else None, told[-1] if told else None))
    return found


def table(found: Sequence[Pair]) -> Any:
    """Return recorded and measured values side by side, and whether they agree: by example, or by the interval alone."""
    import pandas as pd

    cells = [
        {
            "model": pair.name,
            "recorded after training": _recorded(pair),
            "measured again": _measured(pair.measured),
            "agree": _agreement(pair),
        }
        for pair in found
    ]
    return pd.DataFrame(cells).set_index("model")


def sentence(found: Sequence[Pair]) -> str:
    """Return in words which models agree with their records and by how much the others are off."""
    told = [pair for pair in found if pair.each]
    alone = [pair for pair in found if not pair.each and pair.within is not None]
    said = [_compared(told)] * bool(told)
    if alone:
        inside = [pair.name for pair in alone if pair.agree]
        outside = [pair.name for pair in alone if not pair.agree]
        said += [
            f"Without values recorded by example, {joined(names)} can only be held against the interval: the recorded mean lies "
            f"{where} it."
            for names, where in ((inside, "within"), (outside, "**outside**"))
            if names
        ]
    missing = [pair.name for pair in found if not pair.each and pair.within is None]
    said += [f"Nothing is recorded for {joined(missing)}."] * bool(missing)
    return " ".join(said)


def _compared(told: Sequence[Pair]) -> str:
    """Say what comparing example by example gave."""
    limits = [
        f"{TOLERANCES[metric][0]:g} {TOLERANCES[metric][1]} {one}"
        if TOLERANCES[metric][1]
        else f"{TOLERANCES[metric][0]:.0%} of the {one}".replace("%", " %")
        for metric, one in (("perplexity", "a window"), ("psnr", "a scene"), ("top1", "images"))
        if any(pair.measured.metric == metric for pair in told)
    ]
    rule = f"(up to {' or '.join(limits)})"
    wrong = [pair for pair in told if not pair.agree]
    if not wrong:
        by = joined([f"{pair.name} {pair.apart}" for pair in told])
        same = all(pair.largest == 0 for pair in told)
        exact = "to the last recorded digit" if same else rule
        count = len(told)
        shown = f"{sum(len(pair.each) for pair in told)} shared examples" if same else by
        return f"Recorded and re-measured values of {count} models agree example by example {exact}: {shown}."
    differ = joined([f"{pair.name} ({pair.apart})" for pair in wrong])
    return f"**Recorded and re-measured values differ** by more than they should {rule}: {differ}."


def _recorded(pair: Pair) -> str:
    row = pair.trained
    if row is None:
        return "no record"
    where = {True: "", False: ", outside the interval", None: ""}[pair.within]
    return f"{quantity(row.metric, row.value, row.unit)} ({row.samples} {EXAMPLES[pair.family]}{where})"


def _measured(row: Record) -> str:
    interval = "" if row.ci_low is None else f" [{row.ci_low:.2f}, {row.ci_high:.2f}]"
    return f"{row.value:.2f}{interval} ({row.samples})"


def _agreement(pair: Pair) -> str:
    if pair.agree is None:
        return "no record"
    how = f"differ by {pair.apart}" if pair.each else "by the interval alone"
    return f"{'yes' if pair.agree else 'no'}: {how}"
