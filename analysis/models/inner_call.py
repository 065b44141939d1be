"""What one forward pass carries through the layers of a host, and the single place where a host runs an inner loop."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from analysis.inner import Inputs, Result, backends, run
from analysis.models.sites import Scope
from analysis.spec import Loops

_MEASURED = ("inner_loss_before", "inner_loss_after", "update_norm")
_NAMES = ("backend", "measured_by")
LOOP_SITES = ("q", "k", "v", "o", *_MEASURED, "inner", *_NAMES)
MEASURING = frozenset({"recurrent", "parallel"})
"""The backends that keep inner losses; every other refuses measure=True."""


@dataclasses.dataclass(frozen=True)
class Call:
    """The inner loops to run, the place of the tape, and how to execute; handed from the host to every layer."""

    loops: Loops
    site: Scope
    backend: str = "auto"
    options: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    def inside(self, name: str | int) -> Call:
        """Return the same call one level deeper in the site names."""
        return dataclasses.replace(self, site=self.site.inside(name))

    def run_loop(self, loop: str, inputs: Inputs, weights: Mapping[str, Tensor]) -> Result:
        """Run the inner loop called `loop` and record its sites.

        q, k, v: [B, H, T, D] as the inner loop gets them. weights: initial fast weights [H, in, out], the same for
        every example. Sites: q, k, v, o; inner_loss_before and inner_loss_after, means over tokens [B, H]; update_norm,
        the relative size of each chunk's update [B, H, N]; `inner`, the pair (Inputs, weights) for the effective
        linear-attention view; `backend`, the name of what gave the outputs, and `measured_by`, of what gave the inner
        losses. A sequence too short to update has no measured sites and no `measured_by`.
        """
        q, k, v = self.site.group(q=inputs.q, k=inputs.k, v=inputs.v)
        inputs = dataclasses.replace(inputs, q=q, k=k, v=v)
        if not torch.is_grad_enabled():
            # a view made here of a parameter would still ask for gradients that cannot flow
            weights = {name: w.detach() for name, w in weights.items()}
        batched = {name: w.expand(q.shape[0], *w.shape) for name, w in weights.items()}
        self.site.keep("inner", (inputs, batched))
        result, observed = self._run(loop, inputs, batched)
        self.site.keep("backend", result.backend)
        if observed.trace is not None:
            self.site.group(
                inner_loss_before=observed.trace.mean("before"),
                inner_loss_after=observed.trace.mean("after"),
                update_norm=observed.trace.update_norm,
            )
            self.site.keep("measured_by", observed.backend)
        outputs = self.site.note("o", result.outputs)
        return dataclasses.replace(result, outputs=outputs, trace=observed.trace)

    def _run(self, loop: str, inputs: Inputs, weights: Mapping[str, Tensor]) -> tuple[Result, Result]:
        """Return the run that gives the outputs and the one that gives the inner losses: one run where one backend does both.

        Recording does not decide which backend gives the outputs. Where that one keeps no inner losses, the loop runs once
        more on the same inputs, on the backend that `auto` takes for measuring.
        """
        execute = functools.partial(run, self.loops[loop], inputs, weights, **self.options)
        measures = self.site.wants(*_MEASURED, "measured_by")
        name = self.backend
        if measures and name == "auto":
            name = backends.choose(self.loops[loop], inputs, **self.options)
        if measures and name not in MEASURING:
            result = execute(backend=name)
            with torch.no_grad():
                return result, execute(backend="auto", measure=True)
        result = execute(backend=name, measure=measures)
        return result, result
