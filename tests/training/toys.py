"""Toy data for training tests: a repetitive token stream written as an exported corpus, and tasks made from it."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np
import torch

from analysis.data import text
from analysis.spec import Family
from analysis.training.recipes import Recipe, find, smoke
from analysis.training.tasks import EVALUATION_FILE, TRAINING_FILE, Task, load_task

CPU = torch.device("cpu")


def write_corpus(folder: Path) -> Path:
    tokens = np.tile(np.arange(50, dtype=np.uint16), 40)
    for name in (TRAINING_FILE, EVALUATION_FILE):
        stream = text.TokenStream(name, "counting to fifty", name, tokens, np.ones(1024, dtype=np.int64))
        text.save_stream(stream, folder / name)
    return folder


def toy(name: str, steps: int = 4, **changes: object) -> Recipe:
    return smoke(find(name), steps).edit(**changes)


@cache
def task_of(family: Family, corpus: Path) -> Task:
    return load_task(toy(f"{family.value}-baseline"), CPU, corpus)
