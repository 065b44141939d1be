"""What a panel measures for one edit: the task metric, and what the inner loops did."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from analysis.lab.examples import Bench
from analysis.lab.latest import Superseded
from analysis.models.evaluation import Evaluation, evaluate
from analysis.models.host import EditedHost
from analysis.models.sites import Tape

INNER = ("inner_loss_before", "inner_loss_after", "update_norm")


@dataclass(frozen=True)
class Outcome:
    """The evaluation of an edit, and the mean over layers of inner losses and update size (None where nothing moves)."""

    evaluation: Evaluation
    inner: Mapping[str, float]
    text: str


def measure_edit(
    bench: Bench, edited: EditedHost, samples: int, text: str, wanted: Callable[[], bool] = lambda: True
) -> Outcome:
    """Evaluate an edit on the first `samples` examples; stops between batches when it is no longer wanted.

    Raises:
        Superseded: `wanted` returned False.
    """
    moving = any(loop.moving for loop in edited.loops.values())
    names = [name for name in edited.sites() if name.rsplit(".", 1)[-1] in INNER] if moving else []
    tape, rows = Tape(names), dict[str, list[float]]()

    def forward(batch: Mapping[str, Tensor]) -> Tensor:
        if not wanted():
            raise Superseded
        output = edited(batch, tape=tape)
        weight = len(next(iter(batch.values()))) / samples
        for kind in INNER if moving else ():
            found = [float(tensor.double().mean()) for name, tensor in tape.items() if name.endswith(kind)]
            rows.setdefault(kind, []).append(weight * sum(found) / edited.num_layers)
        return output

    with torch.no_grad():
        evaluation = evaluate(
            edited, bench.batches(samples), token_bytes=bench.token_bytes, forward=forward, resamples=200
        )
    return Outcome(evaluation, {kind: sum(values) for kind, values in rows.items()}, text)
