"""Running a list of measurements within a budget: what is recorded is kept, what would not fit is named."""

from __future__ import annotations

import importlib.util
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from analysis.errors import AnalysisError
from analysis.records import Record, Store, code_digest
from analysis.records.provenance import versions

CODE = ("spec", "kernels", "inner", "speed")
"""The parts of `analysis` whose change makes a recorded time one of the past."""


@dataclass(frozen=True)
class Job:
    """One measurement: a name to show, the seconds it is expected to take, what it depends on, and how to take it."""

    name: str
    seconds: float
    inputs: dict[str, Any]
    take: Callable[[], Sequence[Record]]


@dataclass
class Outcome:
    """The names of the jobs by what became of them."""

    measured: list[str] = field(default_factory=list)
    kept: list[str] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)


class _OutOfTime(Exception):
    """A job would not fit into the budget."""


def _failures() -> tuple[type[Exception], ...]:
    """What ends one job but not the session: refusals, memory, and code that does not compile."""
    if importlib.util.find_spec("triton") is None:
        return (AnalysisError, RuntimeError)
    from triton.errors import TritonError

    return (AnalysisError, RuntimeError, TritonError)


def open_store(folder: Any) -> Store:
    """Return the store of a folder of times; those that other code measured are taken again."""
    return Store(folder, environment={"code": code_digest(CODE), "versions": versions()})


class Session:
    """Runs jobs one after the other; `show` is told every job with its records, `say` every other sentence."""

    def __init__(
        self,
        store: Store,
        budget: float | None,
        show: Callable[[str, Sequence[Record]], None],
        say: Callable[[str], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.store, self.budget, self.show, self.say, self.clock = store, budget, show, say, clock
        self.begun = clock()
        self.expected = self.taken = 0.0

    @property
    def left(self) -> float:
        """Seconds of the budget that are left."""
        return float("inf") if self.budget is None else self.budget - (self.clock() - self.begun)

    def fits(self, seconds: float) -> bool:
        """Whether a job of so many expected seconds fits, as fast as the jobs before have turned out to be."""
        pace = self.taken / self.expected if self.expected else 1.0
        return seconds * min(max(pace, 0.5), 4.0) <= self.left

    def run(self, jobs: Sequence[Job]) -> Outcome:
        """Run the jobs; one that fails is named with its reason, and the next one begins."""
        outcome = Outcome()
        for job in jobs:
            fresh: list[Record] = []
            try:
                records = self.store.cached_all(
                    job.inputs, lambda job=job, fresh=fresh: self._take(job, fresh)
                )
            except _OutOfTime:
                outcome.left_out.append(job.name)
            except _failures() as error:
                outcome.failed.append(job.name)
                self.say(f"{job.name}\n  no time is given: {' '.join(str(error).split())[:400]}")
            else:
                (outcome.measured if fresh else outcome.kept).append(job.name)
                self.show(job.name, records)
        return outcome

    def _take(self, job: Job, fresh: list[Record]) -> list[Record]:
        if not self.fits(job.seconds):
            raise _OutOfTime
        begun = self.clock()
        fresh.extend(job.take())
        self.expected += job.seconds
        self.taken += self.clock() - begun
        return fresh
