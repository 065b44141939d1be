"""The claims of section 6.1 about the ladder of Table 2: every rung, the two exceptions, and which rung is the best.

A rung is held against the baseline with the margin of `retrained_verdicts`; an exception is one step down the ladder, from a
rung to the next, and needs an interval without zero. A rung whose edit changes nothing for a family makes no claim about it.
"""

from __future__ import annotations

from collections.abc import Sequence

from analysis.publish import published
from analysis.publish.captions import joined
from analysis.publish.likely import changing, explained
from analysis.publish.retrained_verdicts import Pair, at_least_as_good, compare, equal, worse, worse_is
from analysis.publish.verdicts import Decide, Verdict, decided
from analysis.records import Record
from analysis.spec import Family, Rung, rung

Row = tuple[str, str, str, str, Decide]
"""Key, section, statement, what the paper printed, and the rule."""

SECTION, BEST = "6.1", "v1"
SAME = {
    "v2": "also without weight normalisation it is only marginally different",
    "v3": "also with a single linear layer it is only marginally different",
    "v4": "also without per-token learning rates it is only marginally different",
    "v5": "also without momentum it is only marginally different",
    "v6": "linear attention is only marginally different",
}
"""What the paper says of each rung below the first, every edit on top of those above it."""
EXCEPTIONS = (
    ("depth", Family.LACT_NVS, "v3", "v2", "a deeper inner network helps: a single linear layer is worse"),
    ("orthogonal", Family.LACT_LM, "v6", "v5", "gradient orthogonalisation helps: without it it is worse"),
)
"""The parts that the paper does not call redundant: key, family, the rung without the part, the rung with it, statement."""


def reductions(family: Family) -> tuple[Row, ...]:
    """Return every claim of section 6.1 about a family."""
    table = published.table_2()
    first = published.printed(table, family, BEST)
    return (
        (
            BEST,
            SECTION,
            "moving only the last layer is at least as good",
            first,
            at_least_as_good(family, BEST),
        ),
        (
            "best",
            SECTION,
            "moving only the last layer is the best of the ladder",
            _printed_best(table, family),
            best_of_ladder(family),
        ),
        *(
            (
                key,
                SECTION,
                said,
                published.printed(table, family, key),
                explained(equal(family, key), family, down_to=key),
            )
            for key, said in SAME.items()
            if family not in rung(key).no_op_for
        ),
        *(
            (
                key,
                SECTION,
                said,
                published.printed(table, family, without, having),
                worse(family, without, having),
            )
            for key, about, without, having, said in EXCEPTIONS
            if about is family
        ),
    )


def others(family: Family) -> list[Rung]:
    """Return the rungs that Variant 1 is held against: the baseline, and all others whose edit changes something."""
    return [each for each in changing(family) if each.key != BEST]


def _printed_best(table: Sequence[Record], family: Family) -> str:
    """Return what the paper printed for Variant 1 beside the best of the other rungs."""
    values = {r.parameters["variant"]: r.value for r in table if r.parameters["family"] == family.value}
    nearest = min(others(family), key=lambda each: worse_is(family) * values[each.key])
    return f"{published.printed(table, family, BEST, nearest.key)} ({nearest.name}, the best of the others)"


def best_of_ladder(family: Family) -> Decide:
    """Variant 1 is the best: every other rung is worse, each 95 % interval of the difference excludes zero.

    It fails when a rung is better even at the level that all comparisons share, so that many rungs do not refute it by chance.
    """

    def decide(records: Sequence[Record]) -> Verdict:
        held = others(family)
        pairs = {each: compare(records, family, each.key, BEST, alpha=0.025) for each in held}
        for found in pairs.values():
            if isinstance(found, Verdict):
                return found
        known = {each: pair for each, pair in pairs.items() if isinstance(pair, Pair)}
        nearest = min(held, key=lambda each: worse_is(family) * known[each].difference)
        losing = [each for each, pair in known.items() if pair.ends()[0] > 0]
        winning = [each for each in held if _is_better(records, family, each, len(held))]
        measured = f"{nearest.name}, the best of the others, differs by {known[nearest].text(95)}"
        holds = True if len(losing) == len(held) else False if winning else None
        seeds = min(pair.seeds for pair in known.values())
        told = _told(held, losing, winning)
        return decided(holds, measured, told, seeds=seeds, evidence=known[nearest].evidence)

    return decide


def _is_better(records: Sequence[Record], family: Family, each: Rung, comparisons: int) -> bool:
    """Whether a rung beats Variant 1 at the level of one test divided by the number of comparisons."""
    found = compare(records, family, each.key, BEST, alpha=0.025 / comparisons)
    return isinstance(found, Pair) and found.ends()[1] < 0


def _told(held: Sequence[Rung], losing: Sequence[Rung], winning: Sequence[Rung]) -> str:
    if len(losing) == len(held):
        return "every other rung is worse"
    if winning:
        return f"{joined([each.name for each in winning])} {'is' if len(winning) == 1 else 'are'} better"
    named = f" ({joined([each.name for each in losing])})" if losing else ""
    return (
        f"worse beyond their 95 % intervals: {len(losing)} of {len(held)} other rungs{named}; better at the level that all "
        "comparisons share: none"
    )
