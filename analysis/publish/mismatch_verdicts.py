"""How claims about distributions are decided: queries against keys, outputs against values, layer by layer."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from analysis.publish.captions import joined
from analysis.publish.verdicts import EXAMPLES, MISSING, OPEN, Decide, Verdict, beside, decided, evidence
from analysis.records import Record, select
from analysis.spec import Family

ACCURACY_FLOOR = 0.75
LARGEST_P = 0.01
RELABELLINGS = 100


def mismatched(family: Family, pair: str) -> Decide:
    """A classifier and a kernel test tell two clouds apart in every inner loop of every layer of every seed."""

    def decide(records: Sequence[Record]) -> Verdict:
        rows = select(
            records, question="distribution mismatch", parameters={"family": family.value, "pair": pair}
        )
        by_accuracy, by_p = (_by_clouds(rows, metric) for metric in ("classifier_accuracy", "mmd_p_value"))
        if left_out := _unmeasured(rows):
            return Verdict(MISSING, reason=f"no clouds of the inner loop {', '.join(left_out)}")
        if not by_accuracy or by_accuracy.keys() != by_p.keys():
            return Verdict(MISSING)
        clouds = [_Clouds(key[-1], accuracy, by_p[key]) for key, accuracy in by_accuracy.items()]
        fewest = min(row.parameters.get("permutations", 0) for row in rows)
        measured = f"classifier accuracy {_accuracies(clouds)}; {_p_text(max(c.p for c in clouds), fewest)}"
        seeds, known = len({row.seeds for row in rows}), evidence(rows, EXAMPLES[family])
        if fewest < RELABELLINGS:
            reason = f"{fewest} relabellings cannot show p < {LARGEST_P}; take {RELABELLINGS} or more"
            return Verdict(OPEN, measured, reason, seeds, known)
        clear = sum(c.clear for c in clouds)
        reason = (
            f"{clear} of {len(clouds)} pairs of clouds ({_total(rows, clouds)}) are told apart: accuracy above "
            f"{ACCURACY_FLOOR}, p < {LARGEST_P}"
        )
        holds = True if clear == len(clouds) else None if clear else False
        return decided(holds, measured, reason, seeds=seeds, evidence=known)

    return decide


@dataclass(frozen=True)
class _Clouds:
    """How well two clouds of an inner loop are told apart."""

    loop: str
    accuracy: float
    p: float

    @property
    def clear(self) -> bool:
        """Whether classifier and kernel test both tell them apart."""
        return self.accuracy > ACCURACY_FLOOR and self.p < LARGEST_P


def _unmeasured(rows: Sequence[Record]) -> list[str]:
    """The loops that a measured model was trained with and that no record of it is about: a claim is about all of a layer."""
    found, trained = defaultdict[object, set[str]](set), defaultdict[object, set[str]](set)
    for row in rows:
        found[row.seeds, row.checkpoint].add(row.parameters.get("loop", ""))
        trained[row.seeds, row.checkpoint].update(row.trained_spec)
    return sorted({loop for model, loops in trained.items() for loop in loops - found[model]})


def _loops(clouds: Sequence[_Clouds]) -> list[str]:
    return sorted({c.loop for c in clouds})


def _accuracies(clouds: Sequence[_Clouds]) -> str:
    """The range of the accuracies; with several inner loops one range each, by name."""
    ranges = {loop: _range([c.accuracy for c in clouds if c.loop == loop]) for loop in _loops(clouds)}
    if len(ranges) == 1:
        return next(iter(ranges.values()))
    return ", ".join(f"{text} (loop {loop})" for loop, text in ranges.items())


def _range(values: Sequence[float]) -> str:
    return " to ".join(dict.fromkeys(beside(end, ACCURACY_FLOOR) for end in (min(values), max(values))))


def _total(rows: Sequence[Record], clouds: Sequence[_Clouds]) -> str:
    """What the pairs of clouds were counted over: seeds, layers and, with several, the inner loops by name."""
    seeds, layers = len({row.seeds for row in rows}), len({row.parameters["layer"] for row in rows})
    loops = _loops(clouds)
    counted = [f"{seeds} seeds"] * (seeds > 1) + [f"{layers} layers"]
    named = f" × {len(loops)} loops: {joined(loops)}" if len(loops) > 1 else ""
    return " × ".join(counted) + named


def _by_clouds(rows: Sequence[Record], metric: str) -> dict[tuple[Any, ...], float]:
    """The values of a measure by what they were measured on; records come in the order of their keys, which says nothing."""
    named = (row for row in rows if row.metric == metric)
    return {
        (r.seeds, r.checkpoint, r.parameters["layer"], r.parameters.get("loop", "")): r.value for r in named
    }


def _p_text(largest: float, permutations: int) -> str:
    """The largest p-value of the kernel test, or that all of them are the smallest one it can give."""
    floor = 1 / (permutations + 1)
    limit = f"1/{permutations + 1}, the floor of {permutations} relabellings"
    if largest <= floor * (1 + 1e-9):
        return f"MMD p <= {limit}"
    return f"largest MMD p {beside(largest, LARGEST_P)} (at least {limit})"
