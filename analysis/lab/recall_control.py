"""The control of section 4.1 as records: `python -m analysis.lab.recall_control RECORDS`.

A delta-rule layer stores pairs by construction, and its task can be solved in no other way. What a sweep over inner steps does
to such a layer cannot speak against a memory anywhere else. A few seeds are trained on the processor in a minute.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from analysis.lab.delta_rule import Recall, recall_batch, recall_task, train_recall
from analysis.lab.own_layer import AdoptedHost, adopt
from analysis.models.evaluation import Metric
from analysis.probes import paradoxes
from analysis.records import Record, Store

TITLE = "DeltaNet recall"
SEEDS, STEPS = (0, 1, 2), (1, 2, 3, 4, 6, 8)


def adopted(model: Recall) -> AdoptedHost:
    """Return the classifier as a host that takes every probe."""
    return adopt(model, recall_batch(8, seed=5), title=TITLE, metric=Metric("accuracy", unit="%"))


def record(folder: Path, seeds: Sequence[int] = SEEDS, *, training_steps: int = 400) -> list[Record]:
    """Train one model a seed, sweep its inner steps, and write the records under their seed."""
    rows = [
        row.edit(seeds=(seed,), command="python -m analysis.lab.recall_control RECORDS")
        for seed in seeds
        for row in paradoxes.inner_steps(
            adopted(train_recall(training_steps, seed=seed)), recall_task(), STEPS
        )
    ]
    return [Store(folder).put(row) for row in rows]


def main(arguments: Sequence[str] | None = None) -> None:
    """Record the sweep of every seed of the control."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("records", type=Path, help="folder of the records")
    record(parser.parse_args(arguments).records)


if __name__ == "__main__":
    main()
