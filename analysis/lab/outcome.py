"""What a panel measures for one edit: the task metric, and what the inner loops did."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from torch import Tensor

from analysis.lab.edits import Choice, short_text
from analysis.lab.latest import Wanted
from analysis.lab.passes import MEASURED, Passes
from analysis.models.evaluation import Evaluation, evaluate
from analysis.models.host import EditedHost


@dataclass(frozen=True)
class Outcome:
    """The evaluation of an edit, and means over layers of inner losses and update size (empty where nothing moves).

    The losses of a layer's loops are added, the sizes of their updates averaged, as everywhere in the report.
    """

    evaluation: Evaluation
    inner: Mapping[str, float]
    text: str


def measure_edit(passes: Passes, edited: EditedHost, choice: Choice, wanted: Wanted) -> Outcome:
    """Evaluate an edit on the first `choice.samples` examples.

    Raises:
        Superseded: `wanted` returned False.
    """
    done, prefix, inner = 0, passes.prefix(choice), dict[str, float]()

    def forward(batch: Mapping[str, Tensor]) -> Tensor:
        nonlocal done
        seen = passes.evaluated(edited, done, batch, prefix, wanted)
        done += len(seen.output)
        found = [(name.rsplit(".", 1)[-1], tensor) for name, tensor in seen.tape.items()]
        updates = sum(kind == "update_norm" for kind, _ in found)
        for kind, tensor in found:
            if kind in MEASURED:
                parts = updates if kind == "update_norm" else edited.num_layers
                share = len(seen.output) / (choice.samples * parts)
                inner[kind] = inner.get(kind, 0.0) + share * float(tensor.double().mean())
        return seen.output

    evaluation = evaluate(
        edited,
        passes.bench.batches(choice.samples),
        token_bytes=passes.bench.token_bytes,
        forward=forward,
        resamples=200,
    )
    return Outcome(evaluation, inner, short_text(edited))
