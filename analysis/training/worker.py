"""One process of a queue: trains several runs side by side on one device, data loaded once per task.

A small model leaves most of an accelerator idle, so each run has a stream of its own and a few hundred captured steps
waiting on it. Jobs are claimed by creating a file, so that any number of workers can share one list.
"""

from __future__ import annotations

import json
import logging
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from analysis.errors import AnalysisError
from analysis.models.manifest import MANIFEST_FILE
from analysis.spec import Family
from analysis.training.distributed import Team
from analysis.training.plan import Job
from analysis.training.run import Run, Stopwatch
from analysis.training.scales import Data
from analysis.training.step import EAGER_STEPS
from analysis.training.tasks import Task, load_task

LOG = logging.getLogger(__name__)
CLAIMS, STATUS = "claims", "status"
QUANTUM_SECONDS = 0.5
CHECK_STEPS, FIRST_LOOK = 500, 100
MARGIN = 5.0
CROWDING = 0.7
"""Slowdown to expect for each run that shares a device, until it is measured."""


@dataclass(frozen=True)
class Settings:
    """What all workers of a queue share: output folder, deadline (seconds since the epoch), runs side by side, options.

    slots: runs of one process. crowd: runs of all processes of a device.
    """

    output: Path
    deadline: float
    slots: int
    crowd: int
    corpus: Path | None
    commit_name: str | None
    graph: str = "auto"
    compiled: bool = False


@dataclass
class Active:
    """A run in progress, the events that end its enqueued stretches, when it started and when it was last looked at."""

    job: Job
    run: Run
    started: float
    watch: Stopwatch = field(default_factory=Stopwatch)
    pending: list[tuple[int, torch.cuda.Event]] = field(default_factory=list)
    quantum: int = 10
    checked: int = 0
    checked_at: float = 0.0
    milliseconds: float = 0.0

    def look(self) -> None:
        """Check the losses and measure the wall-clock time of a step since the last look."""
        self.run.check()
        now, steps = time.time(), self.run.step - self.checked
        if self.checked_at and steps:
            self.milliseconds = 1000 * (now - self.checked_at) / steps
        self.checked, self.checked_at = self.run.step, now


class Worker:
    """Claims and trains jobs on one device until none is left that would finish before the deadline."""

    def __init__(self, device: torch.device, jobs: Sequence[Job], settings: Settings) -> None:
        self.team = Team(0, 1, device)
        self.jobs, self.settings = jobs, settings
        self.tasks: dict[tuple[Family, Data], Task] = {}
        self.active: list[Active] = []
        self.compiled = settings.compiled
        self.slowdown = max(1.0, CROWDING * settings.crowd)
        for name in (CLAIMS, STATUS):
            (settings.output / name).mkdir(parents=True, exist_ok=True)

    def work(self) -> None:
        """Run until nothing is left to start."""
        while True:
            while len(self.active) < self.settings.slots and (job := self._claim()) is not None:
                self._start(job)
            if not self.active:
                return
            moved = False
            for active in list(self.active):
                moved = self._tend(active) or moved
            if not moved:
                time.sleep(0.002)

    def _claim(self) -> Job | None:
        left = self.settings.deadline - time.time() - MARGIN
        for job in self.jobs:
            path = self.settings.output / CLAIMS / job.name
            if job.seconds(self.slowdown) > left or path.exists():
                continue
            try:
                os.close(os.open(path, os.O_CREAT | os.O_EXCL))
            except FileExistsError:
                continue
            return job
        return None

    def _start(self, job: Job) -> None:
        key = (job.recipe.family, job.recipe.data)
        if key not in self.tasks:
            begun = time.time()
            self.tasks[key] = load_task(job.recipe, self.team.device, self.settings.corpus)
            self._wait()
            LOG.info("%s data ready in %.1f s", job.recipe.family.title, time.time() - begun)
        started = time.time()
        try:
            run = self._built(job, self.tasks[key], self.compiled)
        except RuntimeError as error:
            if not self.compiled:
                raise
            LOG.error("torch.compile failed on %s, this worker goes on without it: %s", job.name, error)
            self.compiled = False
            run = self._built(job, self.tasks[key], False)
        active = Active(job, run, started)
        active.look()
        self.active.append(active)
        LOG.info("%s started on %s after %.1f s", job.name, self.team.device, time.time() - started)

    def _built(self, job: Job, task: Task, compiled: bool) -> Run:
        """Build a run and take its first steps, in which everything is compiled and captured."""
        settings = self.settings
        options: dict[str, Any] = {"graph": settings.graph, "commit_name": settings.commit_name}
        run = Run(
            job.recipe,
            task,
            self.team,
            settings.output / job.name,
            resume=False,
            compiled=compiled,
            **options,
        )
        run.advance(EAGER_STEPS + 1)
        run.synchronise()
        return run

    def _tend(self, active: Active) -> bool:
        """Look after one run: note finished stretches, enqueue the next, check, finish; returns whether anything moved."""
        before = len(active.pending)
        active.pending = [(steps, event) for steps, event in active.pending if not event.query()]  # type: ignore[no-untyped-call]
        moved = len(active.pending) < before
        try:
            if active.run.done and not active.pending:
                self._finish(active)
                return True
            if not active.run.done and len(active.pending) < 2:
                self._enqueue(active)
                return True
        except AnalysisError as error:
            self._report(active, "failed", str(error))
            self.active.remove(active)
            return True
        return moved

    def _enqueue(self, active: Active) -> None:
        run, before = active.run, active.run.step
        if run.step - active.checked >= (CHECK_STEPS if active.milliseconds else FIRST_LOOK):
            active.look()
            active.quantum = max(1, int(1000 * QUANTUM_SECONDS / (active.milliseconds or 50.0)))
            self._learn_slowdown()
        run.advance(active.quantum)
        if run.stream is None:
            run.synchronise()
            return
        event = torch.cuda.Event()  # type: ignore[no-untyped-call]
        event.record(run.stream)
        active.pending.append((run.step - before, event))

    def _learn_slowdown(self) -> None:
        """Compare measured step times with the table, so that only jobs that will finish are started."""
        ratios = [one.milliseconds / one.job.milliseconds for one in self.active if one.milliseconds]
        if ratios:
            self.slowdown = max(ratios)

    def _finish(self, active: Active) -> None:
        active.run.seconds = active.watch.lap()
        evaluation = active.run.finish()
        assert evaluation is not None
        self.active.remove(active)
        self._report(active, "finished", f"{evaluation.metric} {evaluation.value:.3f} {evaluation.unit}")

    def _report(self, active: Active, state: str, text: str) -> None:
        seconds = time.time() - active.started
        row = {
            "name": active.job.name,
            "state": state,
            "result": text,
            "seconds": round(seconds, 1),
            "milliseconds": round(active.milliseconds, 2),
            "loss": round(float(active.run.outer.losses[: active.run.step][-50:].mean()), 4),
        }
        path = self.settings.output / STATUS / f"{active.job.name}.json"
        partial = path.with_suffix(".tmp")
        partial.write_text(json.dumps(row), encoding="utf-8")
        os.replace(partial, path)
        LOG.info("%s %s after %.1f s: %s", active.job.name, state, seconds, text)

    def _wait(self) -> None:
        if self.team.device.type == "cuda":
            torch.cuda.synchronize(self.team.device)


def work(device: str, jobs: Sequence[Job], settings: Settings) -> None:
    """Entry point of a worker process."""
    logging.basicConfig(level=logging.INFO, format=f"%(asctime)s {device} %(message)s", datefmt="%H:%M:%S")
    chosen = torch.device(device)
    if chosen.type == "cuda":
        torch.cuda.set_device(chosen)
    else:
        torch.set_num_threads(1)
    Worker(chosen, jobs, settings).work()


def is_finished(folder: Path) -> bool:
    """Whether a folder holds a finished checkpoint."""
    return (folder / MANIFEST_FILE).is_file()
