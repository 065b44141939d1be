"""How long a step of a recipe takes here: `python -m analysis.training.timing lact_lm-baseline vittt-v6`."""

from __future__ import annotations

import argparse
import logging
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from analysis.spec import Family
from analysis.training.distributed import join
from analysis.training.recipes import Recipe, find
from analysis.training.run import Run
from analysis.training.tasks import Task, load_task


@dataclass(frozen=True)
class Timing:
    """Milliseconds of a step in steady state, seconds until that state, and the outer losses on the way.

    windows: the milliseconds of a step between one wait for the device and the next.
    """

    milliseconds: float
    start_seconds: float
    first_loss: float
    last_loss: float
    reason: str
    windows: tuple[float, ...] = ()

    def __str__(self) -> str:
        return (
            f"{self.milliseconds:8.2f} ms/step, start {self.start_seconds:5.1f} s, "
            f"loss {self.first_loss:.3f} -> {self.last_loss:.3f} ({self.reason})"
        )


def time_recipe(
    recipe: Recipe, task: Task, *, graph: str = "auto", compiled: bool = False, seconds: float = 3.0
) -> Timing:
    """Train a recipe for about `seconds` and time its steps, two waits for the device apart; nothing is saved."""
    with tempfile.TemporaryDirectory() as folder:
        run = Run(recipe, task, join(), Path(folder), graph=graph, compiled=compiled, resume=False)
    begun = time.monotonic()
    run.advance(8)
    run.check()
    started = time.monotonic()
    windows: list[float] = []
    while time.monotonic() - started < seconds and not run.done:
        window = time.monotonic()
        run.advance(20)
        last = run.check()
        windows.append(1000 * (time.monotonic() - window) / 20)
    mean, first = sum(windows) / len(windows), float(run.outer.losses[0])
    return Timing(mean, started - begun, first, last, run.graph_reason, tuple(windows))


def main(arguments: Sequence[str] | None = None) -> None:
    """Time the recipes named on the command line, with and without a CUDA graph where there is a choice."""
    parser = argparse.ArgumentParser(prog="python -m analysis.training.timing", description=main.__doc__)
    parser.add_argument("recipes", nargs="+")
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--corpus", type=Path)
    parser.add_argument("--compiled", default="off", choices=["off", "on", "both"])
    parser.add_argument("--graph", default="auto", choices=["auto", "on", "off", "both"])
    given = parser.parse_args(arguments)
    logging.basicConfig(level=logging.INFO)
    device = join().device
    tasks: dict[Family, Task] = {}
    for recipe in map(find, given.recipes):
        if recipe.family not in tasks:
            begun = time.monotonic()
            tasks[recipe.family] = load_task(recipe, device, given.corpus)
            if device.type == "cuda":
                torch.cuda.synchronize(device)
            sys.stdout.write(f"{recipe.family.title} data: {time.monotonic() - begun:.1f} s\n")
        for graph in ("on", "off") if given.graph == "both" else (given.graph,):
            for compiled in (False, True) if given.compiled == "both" else (given.compiled == "on",):
                timing = time_recipe(
                    recipe, tasks[recipe.family], graph=graph, compiled=compiled, seconds=given.seconds
                )
                sys.stdout.write(f"{recipe.name:24} {timing}\n")
                sys.stdout.flush()


if __name__ == "__main__":
    main()
