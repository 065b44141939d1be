"""How claims about distributions are decided: queries against keys, outputs against values, layer by layer."""

from __future__ import annotations

from collections.abc import Sequence

from analysis.publish.verdicts import EXAMPLES, MISSING, OPEN, Decide, Verdict, beside, decided, evidence
from analysis.records import Record, select
from analysis.spec import Family

ACCURACY_FLOOR = 0.75
LARGEST_P = 0.01
RELABELLINGS = 100


def mismatched(family: Family, pair: str) -> Decide:
    """A classifier and a kernel test tell two clouds apart in every layer of every seed."""

    def decide(records: Sequence[Record]) -> Verdict:
        rows = select(
            records, question="distribution mismatch", parameters={"family": family.value, "pair": pair}
        )
        by_accuracy, by_p = (_by_clouds(rows, metric) for metric in ("classifier_accuracy", "mmd_p_value"))
        if not by_accuracy or by_accuracy.keys() != by_p.keys():
            return Verdict(MISSING)
        pairs = [(accuracy, by_p[key]) for key, accuracy in by_accuracy.items()]
        accuracy, p_values = zip(*pairs, strict=True)
        fewest = min(row.parameters.get("permutations", 0) for row in rows)
        least, most = (beside(end, ACCURACY_FLOOR) for end in (min(accuracy), max(accuracy)))
        measured = f"classifier accuracy {least} to {most}; {_p_text(max(p_values), fewest)}"
        seeds, known = len({row.seeds for row in rows}), evidence(rows, EXAMPLES[family])
        if fewest < RELABELLINGS:
            reason = f"{fewest} relabellings cannot show p < {LARGEST_P}; take {RELABELLINGS} or more"
            return Verdict(OPEN, measured, reason, seeds, known)
        clear = sum(a > ACCURACY_FLOOR and p < LARGEST_P for a, p in pairs)
        layers = len({row.parameters["layer"] for row in rows})
        total = f"{seeds} seeds × {layers} layers" if seeds > 1 else f"{layers} layers"
        reason = (
            f"{clear} of {len(pairs)} pairs of clouds ({total}) are told apart: accuracy above {ACCURACY_FLOOR}, "
            f"p < {LARGEST_P}"
        )
        holds = True if clear == len(pairs) else None if clear else False
        return decided(holds, measured, reason, seeds=seeds, evidence=known)

    return decide


def _by_clouds(rows: Sequence[Record], metric: str) -> dict[tuple[object, ...], float]:
    """The values of a measure by what they were measured on; records come in the order of their keys, which says nothing."""
    named = (row for row in rows if row.metric == metric)
    return {(r.seeds, r.checkpoint, r.parameters["layer"], r.parameters.get("loop")): r.value for r in named}


def _p_text(largest: float, permutations: int) -> str:
    """The largest p-value of the kernel test, or that all of them are the smallest one it can give."""
    floor = 1 / (permutations + 1)
    limit = f"1/{permutations + 1}, the floor of {permutations} relabellings"
    if largest <= floor * (1 + 1e-9):
        return f"MMD p <= {limit}"
    return f"largest MMD p {beside(largest, LARGEST_P)} (at least {limit})"
