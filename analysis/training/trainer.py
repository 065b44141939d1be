"""Train one recipe: a progress bar, a state to resume from, a checkpoint at the end.

One process: `train(find("lact_lm-baseline"))`. Several: `torchrun --nproc-per-node 8 -m analysis train NAME`, the same
batches and, up to rounding, the same numbers.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any

import torch
from tqdm import tqdm

from analysis import paths
from analysis.models.evaluation import Evaluation
from analysis.training.distributed import Team, join
from analysis.training.recipes import Recipe
from analysis.training.resume import require_free
from analysis.training.run import Run, Stopwatch
from analysis.training.tasks import Task, load_task

LOG = logging.getLogger(__name__)
CHECK_EVERY = {"cpu": 10, "cuda": 250}
"""Steps between two looks at the losses, by kind of device: a look makes the host wait for the device."""


def train(
    recipe: Recipe,
    folder: Path | str | None = None,
    *,
    device: str | torch.device | None = None,
    task: Task | None = None,
    corpus: Path | None = None,
    data: Path | None = None,
    graph: str = "auto",
    compiled: bool = False,
    resume: bool = True,
    save_seconds: float = 300.0,
    commit_name: str | None = None,
    progress: bool = True,
) -> Evaluation | None:
    """Train a recipe into `folder` and return the final evaluation.

    An interrupted run (Ctrl-C, or a kill) leaves `resume.pt`, from which the next call continues; on a CPU the result is the
    one of an uninterrupted run, bit for bit. Under torchrun all processes call this; only the first returns an evaluation.

    folder: default checkpoints/<name>-s<seed>. device: None takes the first CUDA device, else the CPU. task: the data, if
    already loaded; else `corpus` and `data` are handed to `load_task`. graph: auto, on or off, whether the whole step is
    captured as a CUDA graph. compiled: fuse pointwise work with torch.compile, slow to start. save_seconds: time between two
    writes of the state. commit_name: the git commit to record where no repository is.

    Raises:
        DivergedError: the outer loss is not finite.
        AlreadyFinishedError: the folder holds the finished checkpoint of this recipe; nothing is trained.
        CheckpointError: the folder holds the state, or the finished checkpoint, of another recipe.
        StorageError: the folder cannot be written.
    """
    folder = Path(folder) if folder is not None else paths.CHECKPOINTS / recipe.folder
    require_free(folder, recipe)
    team = join(device)
    if task is None:
        task = _prepare(recipe, team, corpus, data)
    paths.require_writable(folder)  # it makes the folder, which a run without data must not leave behind
    run = Run(
        recipe, task, team, folder, graph=graph, compiled=compiled, resume=resume, commit_name=commit_name
    )
    if team.leads:
        LOG.info("%s: %d steps on %s; %s", recipe.folder, recipe.steps, team.device, run.graph_reason)
    with tqdm(
        total=recipe.steps, initial=run.step, desc=recipe.folder, disable=not (progress and team.leads)
    ) as shown:
        _to_the_end(run, shown, save_seconds)
    run.save_state()  # the evaluation takes a while too, and its interruption must not cost the training
    return run.finish(progress=progress)


def _prepare(recipe: Recipe, team: Team, corpus: Path | None, data: Path | None) -> Task:
    """Load or render the data, which takes minutes, and say so beforehand."""
    if team.leads:
        LOG.info("%s: preparing %s", recipe.folder, recipe.data.summary() if data is None else data)
    return load_task(recipe, team.device, corpus, data)


def _to_the_end(run: Run, shown: tqdm[Any], save_seconds: float) -> None:
    """Take all steps that are left, looking at the losses and writing the state now and then."""
    every = CHECK_EVERY.get(run.team.device.type, 10)
    watch, since_save = Stopwatch(), 0.0
    with Interruption() as interruption:
        while not run.done:
            # Several processes must agree to stop, so they look at the same steps; one process looks at every step.
            for _ in range(min(every - run.step % every, run.recipe.steps - run.step)):
                run.advance(1)
                shown.update(1)
                if run.team.world == 1 and interruption.requested:
                    break
            stops = run.team.any(interruption.requested)
            loss = run.check() if not stops else float("nan")
            passed = watch.lap()
            run.seconds += passed
            since_save += passed
            if stops:
                run.save_state()
                raise KeyboardInterrupt(
                    f"stopped at step {run.step} of {run.recipe.steps}; the same command continues from {run.folder}"
                )
            shown.set_postfix(loss=f"{loss:.3f}")
            if since_save >= save_seconds:
                run.save_state()
                since_save = 0.0


class Interruption:
    """Within the context, Ctrl-C and SIGTERM set `requested` instead of stopping mid-step; a second Ctrl-C stops at once."""

    def __init__(self) -> None:
        self.requested = False
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Interruption:
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                self._before[number] = signal.signal(number, self._request)
        return self

    def _request(self, number: int, frame: FrameType | None) -> None:
        if self.requested and number == signal.SIGINT:
            raise KeyboardInterrupt
        self.requested = True

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)


def log_to_terminal() -> None:
    """Show the log of this package on standard error, for programs that set up no logging of their own."""
    logging.basicConfig(
        stream=sys.stderr, level=os.environ.get("LOGLEVEL", "INFO"), format="%(asctime)s %(message)s"
    )
