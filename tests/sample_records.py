"""A valid record to vary in tests."""

from __future__ import annotations

from analysis.records import Record
from analysis.spec import InnerLoop


def make(**changes) -> Record:
    fields = {
        "question": "steps",
        "metric": "top1",
        "value": 0.5,
        "checkpoint": "c0ffee",
        "trained_spec": {"fast_weights": InnerLoop()},
        "run_spec": {"fast_weights": InnerLoop(steps=4)},
        "data": "d1",
        "seeds": (0, 1),
        "samples": 64,
    }
    return Record(**(fields | changes))
