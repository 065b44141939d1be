"""Forward passes of a panel: each is made once, and every view takes from it what it shows."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from analysis.inner import FastWeights, Inputs
from analysis.lab.edits import Choice, as_trained, edit_key
from analysis.lab.examples import Bench
from analysis.lab.latest import Superseded, Wanted
from analysis.models.host import EditedHost
from analysis.models.sites import Tape

Key = tuple[Hashable, int, int, bool]
KEPT = 4  # the edit and the host as trained, each on the first evaluated examples and on the one that is looked at
SMALL = 50_000_000  # parameters; a larger host runs anew for every view, because keeping its passes costs gigabytes
MEASURED = ("inner_loss_before", "inner_loss_after", "update_norm")
SEEN = ("q", "k", "v", "o", "inner")


@dataclass(frozen=True)
class Pass:
    """An edited host run on the examples from `start` on: the batch, its output, and the sites of the inner loops."""

    start: int
    batch: Mapping[str, Tensor]
    output: Tensor
    tape: Tape

    def covers(self, index: int, count: int) -> bool:
        """Return whether the pass holds these examples."""
        return self.start <= index and index + count <= self.start + len(self.output)

    def outputs(self, index: int, count: int = 1) -> Tensor:
        """Return the outputs of examples by their number."""
        return self.output[index - self.start : index - self.start + count]

    def inner(self, prefix: str, index: int, head: int) -> tuple[Inputs, FastWeights]:
        """Return what the inner loop whose sites begin with `prefix` got for one head of one example."""

        def mine(tensor: Tensor) -> Tensor:
            return tensor[index - self.start : index - self.start + 1, head : head + 1]

        inputs, weights = self.tape[f"{prefix}inner"]
        one = replace(
            inputs,
            q=mine(inputs.q),
            k=mine(inputs.k),
            v=mine(inputs.v),
            rates={name: mine(rate) for name, rate in inputs.rates.items()},
            momentum=None if inputs.momentum is None else mine(inputs.momentum),
        )
        return one, {name: mine(weight) for name, weight in weights.items()}


class Passes:
    """The passes of one bench; those that views come back to are kept, with all layers, where the host is small."""

    def __init__(self, bench: Bench) -> None:
        self.bench = bench
        self._small = bench.host.num_parameters() <= SMALL
        self._kept: dict[Key, Pass] = {}

    def prefix(self, choice: Choice) -> str:
        """Return how the sites of the chosen layer and loop begin; '' for a host without inner loops."""
        return f"layers.{choice.layer}.{self.bench.host.loop_prefix(choice.loop)}" if choice.loop else ""

    def evaluated(
        self, edited: EditedHost, start: int, batch: Mapping[str, Tensor], prefix: str, wanted: Wanted
    ) -> Pass:
        """Return the pass over one batch of an evaluation, which begins with example `start`, with its inner losses."""
        return self._run(edited, start, batch, prefix, wanted, measured=True)

    def showing(self, edited: EditedHost, choice: Choice, wanted: Wanted, count: int = 1) -> Pass:
        """Return a pass that holds the chosen example and its `count` - 1 followers; one of the evaluation if it does."""
        index, first = choice.example, min(choice.samples, self.bench.limits[2])
        for key, found in self._kept.items():
            if key[0] == edit_key(edited) and found.covers(index, count):
                return self._newest(key)
        if index + count <= first:
            return self.evaluated(edited, 0, self.bench.example(0, first), self.prefix(choice), wanted)
        alone = self.bench.example(index, count)
        return self._run(edited, index, alone, self.prefix(choice), wanted, measured=False)

    def trained(self, choice: Choice, wanted: Wanted, count: int = 1) -> Pass:
        """Return the same of the host as trained."""
        return self.showing(as_trained(self.bench.host), choice, wanted, count)

    def _run(
        self,
        edited: EditedHost,
        start: int,
        batch: Mapping[str, Tensor],
        prefix: str,
        wanted: Wanted,
        *,
        measured: bool,
    ) -> Pass:
        key = (edit_key(edited), start, len(next(iter(batch.values()))), measured)
        if key in self._kept:
            return self._newest(key)
        tape = _Watched(self._sites(edited, prefix, measured), wanted)
        with torch.no_grad():
            found = Pass(start, batch, edited(batch, tape=tape), tape)
        if self._small and (start == 0 or not measured):
            self._kept[key] = found
            for old in list(self._kept)[:-KEPT]:
                del self._kept[old]
        return found

    def _newest(self, key: Key) -> Pass:
        self._kept[key] = self._kept.pop(key)
        return self._kept[key]

    def _sites(self, edited: EditedHost, prefix: str, measured: bool) -> list[str]:
        """Names to record: a small host keeps all layers, another the one that is looked at."""
        names = edited.sites()
        loops = [name.removesuffix("inner") for name in names if name.endswith(".inner")]
        seen = loops if self._small else [one for one in loops if one == prefix]
        moving = any(loop.moving for loop in edited.loops.values())
        return [one + kind for one in seen for kind in SEEN] + [
            name for name in names if measured and moving and name.rsplit(".", 1)[-1] in MEASURED
        ]


class _Watched(Tape):
    """A tape that stops the forward pass at the next inner loop when nobody waits for it any more."""

    def __init__(self, sites: list[str], wanted: Wanted) -> None:
        super().__init__(sites)
        self._asked = wanted

    def keep(self, name: str, value: Any) -> None:
        if not self._asked():
            raise Superseded
        super().keep(name, value)
