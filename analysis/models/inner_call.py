"""What one forward pass carries through the layers of a host, and the single place where a host runs an inner loop."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from torch import Tensor

from analysis.inner import Inputs, Result, run
from analysis.models.sites import Scope
from analysis.spec import Loops

LOOP_SITES = ("q", "k", "v", "o", "inner_loss_before", "inner_loss_after", "update_norm", "inner")
_MEASURED = ("inner_loss_before", "inner_loss_after", "update_norm")


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
        linear-attention view. A sequence too short to update has no measured sites.
        """
        q, k, v = self.site.group(q=inputs.q, k=inputs.k, v=inputs.v)
        inputs = dataclasses.replace(inputs, q=q, k=k, v=v)
        batched = {name: w.expand(q.shape[0], *w.shape) for name, w in weights.items()}
        self.site.keep("inner", (inputs, batched))
        measured = self.site.wants(*_MEASURED)
        result = run(
            self.loops[loop], inputs, batched, backend=self.backend, measure=measured, **self.options
        )
        if result.trace is not None:
            self.site.group(
                inner_loss_before=result.trace.mean("before"),
                inner_loss_after=result.trace.mean("after"),
                update_norm=result.trace.update_norm,
            )
        return dataclasses.replace(result, outputs=self.site.note("o", result.outputs))
