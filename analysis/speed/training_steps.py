"""How long a whole training step of the language model takes, baseline against Variant 2 in parallel form (Figure 4)."""

from __future__ import annotations

import functools
import statistics
from pathlib import Path

import torch

from analysis.records import Record, provenance
from analysis.speed.rows import METRIC, UNIT
from analysis.speed.suites import STEPS
from analysis.statistics import median_interval
from analysis.training.distributed import join
from analysis.training.recipes import find
from analysis.training.tasks import Task, load_task
from analysis.training.timing import time_recipe

QUESTION = "training step"
SECONDS = 6.0


@functools.cache
def _task(name: str, corpus: Path | None) -> Task:
    return load_task(find(name), join().device, corpus)


def step_records(name: str, corpus: Path | None, command: str) -> list[Record]:
    """Train a small recipe for some seconds, its code compiled, and return the median time of its steps.

    corpus: folder of the exported text; see `analysis.training.tasks`.
    """
    recipe = find(name)
    timing = time_recipe(recipe, _task(STEPS[0], corpus), compiled=True, seconds=SECONDS)
    low, high = median_interval(timing.windows)
    return [
        Record(
            question=QUESTION,
            metric=METRIC,
            unit=UNIT,
            value=statistics.median(timing.windows),
            ci_low=low,
            ci_high=high,
            samples=len(timing.windows),
            parameters={
                "family": recipe.family.value,
                "variant": recipe.variant,
                "form": "recurrent" if recipe.variant in ("baseline", "v1") else "parallel",
                "batch": recipe.batch,
                "precision": recipe.precision,
            },
            **(provenance(torch.cuda.get_device_name()) | {"command": command}),
            extra={
                "samples": timing.windows,
                "start_seconds": timing.start_seconds,
                "first_loss": timing.first_loss,
                "last_loss": timing.last_loss,
                "graph": timing.reason,
            },
        )
    ]
