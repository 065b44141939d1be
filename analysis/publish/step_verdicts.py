"""How the claim about inner steps is decided (section 4.1), with the size of the update beside it, and what it does not show."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import inf, isnan

from analysis.publish import trained_steps
from analysis.publish.verdicts import EXAMPLES, LEAST_SEEDS, MISSING, Decide, Verdict, decided, evidence
from analysis.records import Record, select
from analysis.records.comparison import Change, change
from analysis.spec import Family, baseline

CONTROL = "deltanet_recall"
"""Family of the recorded control: the delta-rule layer of `analysis.lab.delta_rule`, which stores pairs."""

UNSHRUNK = 0.9
"""Share of the first step's length above which the mean step of a sweep counts as no shorter."""


def steps(family: Family) -> Decide:
    """More inner steps lower the inner loss at every step count and hurt the metric at every count above one."""

    def decide(records: Sequence[Record]) -> Verdict:
        found = _sweeps(records, family=family.value, variant="baseline")
        if not found:
            return Verdict(MISSING)
        last = found[0].last
        losses = [sweep.losses[last] - sweep.losses[1] for sweep in found]
        measured = _failed_text(found) + (
            f"{last} steps change the inner loss by {span(losses, '{:+.4g}')} and the task metric by "
            f"{_moved_text([sweep.changes[last] for sweep in found])}"
        )
        falls, hurts = all(s.falls for s in found), all(s.hurts for s in found)
        helps = any(s.helps for s in found)
        holds = None if falls and not hurts and not helps else falls and hurts
        why = _stop_text(found, family) if holds is False and len(found) >= LEAST_SEEDS else ""
        reason = "; ".join(filter(None, (_loss_text(found), _metric_text(found), _size_text(found), why)))
        rows = [row for sweep in found for row in sweep.rows]
        known = evidence(rows, EXAMPLES[family])
        note = " ".join(filter(None, (control_text(records), trained_steps.note(records))))
        return decided(holds, measured, reason, seeds=len(found), evidence=known, note=note)

    return decide


@dataclass(frozen=True)
class _Sweep:
    """One model over the step counts: inner loss, paired change of the metric, size of the update, and its records."""

    rows: tuple[Record, ...]
    losses: dict[int, float]
    changes: dict[int, Change]
    sizes: dict[int, float]
    beats_no_update: bool
    lower_is_better: bool

    @property
    def counts(self) -> list[int]:
        return [1, *sorted(self.changes)]

    @property
    def last(self) -> int:
        return self.counts[-1]

    @property
    def falls_to(self) -> int:
        """The largest count up to which every further step lowers the inner loss."""
        reached = 1
        for before, after in pairwise(self.counts):
            if not self.losses[after] < self.losses[before]:
                break
            reached = after
        return reached

    @property
    def falls(self) -> bool:
        return self.falls_to == self.last

    def hurts_at(self, count: int) -> bool:
        moved = self.changes[count]
        return moved.low > 0 if self.lower_is_better else moved.high < 0

    @property
    def hurts(self) -> bool:
        return all(self.hurts_at(count) for count in self.changes)

    @property
    def helps(self) -> bool:
        return any(m.high < 0 if self.lower_is_better else m.low > 0 for m in self.changes.values())


def _sweeps(records: Sequence[Record], **parameters: str) -> list[_Sweep]:
    """One sweep a seed; none at all when a seed lacks what the claim needs, or seeds differ in their step counts."""
    rows = select(records, question="inner steps", parameters={**parameters, "step_size": 1.0})
    found = [_sweep([r for r in rows if r.seeds == seeds]) for seeds in sorted({r.seeds for r in rows})]
    whole = [sweep for sweep in found if sweep is not None]
    same = len({tuple(sweep.counts) for sweep in whole}) == 1
    return whole if same and len(whole) == len(found) else []


def _sweep(rows: Sequence[Record]) -> _Sweep | None:
    task = {r.parameters["inner_steps"]: r for r in rows if "per_example" in r.extra}
    losses = {r.parameters["inner_steps"]: r.value for r in rows if r.metric == "inner_loss_after"}
    sizes = {r.parameters["inner_steps"]: update_size(r) for r in rows if r.metric == "update_norm"}
    more = sorted(k for k in task if k > 1)
    if 1 not in task or not more or not losses.keys() >= {1, *more}:
        return None
    lower_is_better = bool(task[1].extra["lower_is_better"])
    gained = change(task[0], task[more[-1]]) if 0 in task else None
    beats = gained is None or (gained.high < 0 if lower_is_better else gained.low > 0)
    changes = {k: change(task[1], task[k]) for k in more}
    return _Sweep(tuple(rows), losses, changes, sizes, beats, lower_is_better)


def update_size(record: Record) -> float:
    """Return the length of all steps added up over the length of the weights: the mean over layers and over a layer's loops.

    The value of the record adds a layer's loops instead, so that a layer with two would look twice as far moved.
    """
    sites = record.extra.get("by_site") or {"all": record.value}
    return sum(sites.values()) / len(sites)


def _moved_text(changes: Sequence[Change]) -> str:
    """The change with its interval, or over several seeds their range and what holds all their intervals."""
    if len(changes) == 1 or any(isnan(one.value) for one in changes):
        return "; ".join(map(str, changes))
    low, high = min(one.low for one in changes), max(one.high for one in changes)
    values = span([one.value for one in changes], "{:+.2f}")
    return f"{values} {changes[0].unit} (95 % intervals within [{low:+.2f}, {high:+.2f}])"


def _failed_text(found: Sequence[_Sweep]) -> str:
    """What of the strict rule does not hold, before the numbers that could pass for a reproduction; '' where all of it holds."""
    stopped = [sweep for sweep in found if not sweep.falls]
    if not stopped and all(sweep.hurts for sweep in found):
        return ""
    if not stopped:
        return f"{_loss_text(found)}; {_task_text(found)}; "
    some = f" in {len(stopped)} of {len(found)} seeds" if len(found) > 1 else ""
    reached = span([sweep.falls_to for sweep in stopped], "{}")
    return f"the inner loss falls only up to k = {reached}{some}; {_task_text(found)}; "


def _loss_text(found: Sequence[_Sweep]) -> str:
    if all(sweep.falls for sweep in found):
        return "the inner loss falls with every further step" + _every(found)
    reached = ", ".join(str(sweep.falls_to) for sweep in found)
    seeds = ", ".join(str(seed) for sweep in found for seed in sweep.rows[0].seeds)
    named = f" (seed{'s' if len(found) > 1 else ''} {seeds})" if seeds else ""
    return f"the inner loss falls up to k = {reached}{named} and not with every further step, as the rule stated beforehand asks"


def _metric_text(found: Sequence[_Sweep]) -> str:
    stands = all(sweep.hurts for sweep in found) and not all(sweep.falls for sweep in found)
    return _task_text(found) + ": this part of the claim holds" * stands


def _task_text(found: Sequence[_Sweep]) -> str:
    if all(sweep.hurts for sweep in found):
        return f"the metric is worse at every k > 1{_every(found)}"
    if any(sweep.helps for sweep in found):
        return "some k > 1 is better than k = 1 beyond its interval"
    return "not every k > 1 is worse beyond its interval" + _every(found)


def _every(found: Sequence[_Sweep]) -> str:
    return " in every seed" if len(found) > 1 else ""


def _size_text(found: Sequence[_Sweep]) -> str:
    """Whether the claim already holds while the update is no larger than the weights, and whether the far end blows up."""
    if not all(sweep.sizes for sweep in found):
        return "the size of the update was not recorded"
    counts, last = found[0].counts[1:], found[0].last
    small = [k for k in counts if all(sweep.sizes.get(k, inf) <= 1 for sweep in found)]
    near = small or counts[:1]
    both = all(s.falls_to >= near[-1] and all(s.hurts_at(k) for k in near) for s in found)
    at = f"k = {', '.join(map(str, near))}"
    times = span([s.sizes[k] for s in found for k in near], "{:.2g}")
    holds = f"loss and metric {'already part' if both else 'do not part yet'}"
    if small:
        text = f"{holds} at {at}, where the update is no larger than the weights ({times} times)"
    else:
        text = f"no k > 1 keeps the update within the weights, {holds} at {at}, where it is {times} times as large"
    if any(sweep.sizes[last] <= last for sweep in found):
        return text
    far = span([s.sizes[last] for s in found], "{:.2g}")
    lost = (
        "" if any(s.beats_no_update for s in found) else ", and the model is no better than without updates"
    )
    return (
        f"{text}; k = {last} is a blow-up: the steps add up to {far} times the weights, on average each is larger "
        f"than the weights{lost}"
    )


def _stop_text(found: Sequence[_Sweep], family: Family) -> str:
    """Return how far the steps have led where the loss stops falling, and what that most likely comes from.

    '' when it never stops. The sizes are computed; the reason was not tested, and says so.
    """
    stopped = [sweep for sweep in found if not sweep.falls]
    if not stopped or not all(s.sizes.keys() >= {1, s.falls_to, s.last} for s in stopped):
        return ""
    last = stopped[0].last
    at = [s.sizes[s.falls_to] for s in stopped]
    lengths = [s.sizes[last] / (last * s.sizes[1]) for s in stopped]
    text = (
        f"where it stops, the steps add up to {span(at, '{:.2g}')} times the weights, and over k = {last} a step is on average "
        f"{span(lengths, '{:.2f}')} times as long as the first"
    )
    if min(at) <= 1 or min(lengths) < UNSHRUNK:
        return text
    held = any(loop.weight_norm is not None for loop in baseline(family).values())
    fixed = ", while weight normalisation holds the length of the weights" * held
    return (
        f"{text}; a likely reason, not tested here, is that steps which do not shrink overshoot once they have outgrown the "
        f"weights{fixed}"
    )


def control_text(records: Sequence[Record]) -> str:
    """Return what the same sweep does to a layer that stores pairs, from the records of the control; '' without any."""
    found = _sweeps(records, family=CONTROL)
    if not found:
        return ""
    last = found[0].last
    falls = all(s.falls for s in found)
    hurts = all(s.hurts_at(last) for s in found)
    losses = [s.losses[last] - s.losses[1] for s in found]
    moved = [s.changes[last].value for s in found]
    known = evidence([row for s in found for row in s.rows], "sequences")
    said = (
        f"{last} steps change the inner loss of a layer that does store pairs (delta rule, {known}) by "
        f"{span(losses, '{:+.2f}')} and its accuracy by {span(moved, '{:+.1f}')} percentage points"
    )
    if falls and hurts:
        return f"A lower inner loss with a worse metric does not by itself tell a memory from linear attention: {said}."
    return f"A layer that does store pairs answers otherwise: {said}."


def span(values: Sequence[float], form: str) -> str:
    """Return the smallest and the largest value as text, or the one that both round to."""
    ends: list[str] = list(dict.fromkeys(form.format(end) for end in (min(values), max(values))))
    return " to ".join(ends)
