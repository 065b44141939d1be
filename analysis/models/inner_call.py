"""What one forward pass carries through the layers of a host, and the single place where a host runs an inner loop."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from analysis.inner import Inputs, Result, run
from analysis.models.sites import Scope
from analysis.spec import Loops

LOOP_SITES = ("q", "k", "v", "o", "inner_loss_before", "inner_loss_after", "update_norm", "inner")
_TRACED = ("inner_loss_before", "inner_loss_after")


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
        every example. Sites: q, k, v, o; inner_loss_before, inner_loss_after and update_norm ([B, H] or finer, as the
        trace gives them); `inner` holds the pair (Inputs, weights) for the effective linear-attention view.
        """
        q, k, v = self.site.group(q=inputs.q, k=inputs.k, v=inputs.v)
        inputs = dataclasses.replace(inputs, q=q, k=k, v=v)
        batched = {name: w.expand(q.shape[0], *w.shape) for name, w in weights.items()}
        self.site.keep("inner", (inputs, batched))
        options = dict(self.options)
        if self.site.wants(*_TRACED):
            options["trace"] = True
        result = run(self.loops[loop], inputs, batched, backend=self.backend, **options)
        for name in _TRACED:
            if self.site.wants(name):
                self.site.note(name, getattr(result.trace, name))
        if self.site.wants("update_norm"):
            self.site.note("update_norm", _update_norm(batched, result))
        return dataclasses.replace(result, outputs=self.site.note("o", result.outputs))


def _update_norm(initial: Mapping[str, Tensor], result: Result) -> Tensor:
    """||W_end - W_0|| / ||W_0|| over all fast weights of a head, [B, H]: how far the inner loop went, even if finite."""
    moved = [(result.state.weights[name] - w).float().flatten(2).square().sum(-1) for name, w in initial.items()]
    size = [w.float().flatten(2).square().sum(-1) for w in initial.values()]
    return (torch.stack(moved).sum(0) / torch.stack(size).sum(0)).sqrt()
