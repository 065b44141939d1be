"""All claims at once: check each on random draws and compare its verdict with the recorded one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from analysis.errors import InputError, closest
from analysis.theorems import (
    architectures,
    attention_history,
    corrections,
    costs,
    linearization,
    parallel_forms,
    rates_and_momentum,
    signs_and_steps,
)
from analysis.theorems.claims import Claim, Judgement, judge
from analysis.theorems.draws import DRAWS, Sizes

_MODULES = (
    linearization,
    architectures,
    corrections,
    parallel_forms,
    signs_and_steps,
    rates_and_momentum,
    attention_history,
    costs,
)

CLAIMS: dict[str, Claim] = {}
for _module in _MODULES:
    for _claim in _module.CLAIMS:
        assert _claim.id not in CLAIMS, f"two claims are called {_claim.id}"
        CLAIMS[_claim.id] = _claim


@dataclass(frozen=True)
class VerdictTable:
    """The judgements of a set of claims, in the order in which they are registered."""

    judgements: tuple[Judgement, ...]

    @property
    def ok(self) -> bool:
        """Whether every verdict is the recorded one."""
        return not self.changed

    @property
    def changed(self) -> tuple[Judgement, ...]:
        """The judgements whose verdict differs from the recorded one."""
        return tuple(judgement for judgement in self.judgements if not judgement.as_recorded)

    @property
    def exit_code(self) -> int:
        """0 when every verdict is the recorded one, 1 otherwise."""
        return 0 if self.ok else 1

    def __iter__(self) -> Iterator[Judgement]:
        """Yield the judgements."""
        return iter(self.judgements)

    def __len__(self) -> int:
        """Return the number of judgements."""
        return len(self.judgements)

    def __getitem__(self, id: str) -> Judgement:
        """Return the judgement of one claim.

        Raises:
            InputError: no claim of this name was judged.
        """
        known = {judgement.claim.id: judgement for judgement in self.judgements}
        if id not in known:
            raise InputError(
                f"expected the name of a judged claim, received {id!r}{closest(id, known)}; see rows()."
            )
        return known[id]

    def rows(self) -> list[dict[str, Any]]:
        """Return one dictionary per claim, ready for a table."""
        return [judgement.row() for judgement in self.judgements]

    def __str__(self) -> str:
        """Return one line per claim, then a sentence on whether any verdict changed."""
        lines = [
            f"{'' if j.as_recorded else '! '}{j.claim.id}: {j.verdict.value} (worst {j.worst:.1e}"
            f"{'' if j.as_recorded else f', recorded {j.claim.recorded.value}'})"
            for j in self.judgements
        ]
        return "\n".join([*lines, self.summary()])

    def summary(self) -> str:
        """Say how many claims came out how, and which verdicts changed."""
        counts: dict[str, int] = {}
        for judgement in self.judgements:
            counts[judgement.verdict.value] = counts.get(judgement.verdict.value, 0) + 1
        found = ", ".join(f"{count} {verdict}" for verdict, count in counts.items())
        if self.ok:
            return f"{len(self.judgements)} claims: {found}; every verdict is the recorded one."
        return (
            f"{len(self.judgements)} claims: {found}; changed: {', '.join(j.claim.id for j in self.changed)}."
        )


def verify(only: Iterable[str] | None = None, draws: Sequence[Sizes] = DRAWS, seed: int = 0) -> VerdictTable:
    """Judge every claim (or those named) on random draws in float64.

    Raises:
        InputError: a claim that does not exist.
    """
    names = list(CLAIMS) if only is None else list(only)
    for name in names:
        if name not in CLAIMS:
            raise InputError(
                f"expected the name of a claim, received {name!r}{closest(name, CLAIMS)}; see CLAIMS."
            )
    return VerdictTable(tuple(judge(CLAIMS[name], draws, seed) for name in names))
