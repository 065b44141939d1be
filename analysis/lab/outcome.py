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
    """The evaluation of an edit, and the mean over layers of inner losses and update size (empty where nothing moves)."""

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
        for name, tensor in seen.tape.items():
            kind = name.rsplit(".", 1)[-1]
            if kind in MEASURED:
                share = len(seen.output) / (choice.samples * edited.num_layers)
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
