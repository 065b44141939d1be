"""Backend `compiled`: the recurrent form with one chunk's update and read-out fused by torch.compile.

Every chunk and every layer of one shape reuses the same compiled code, so compiling costs seconds, not a graph of the whole
sequence. Worth it for training runs; a single evaluation is over before it is compiled.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch

from analysis.errors import UnsupportedSpecError
from analysis.inner.recurrent import apply, run_recurrent, update
from analysis.inner.types import FastWeights, Inputs, Result
from analysis.spec import InnerLoop


def allow_many_graphs() -> None:
    """Let torch.compile hold a graph for any loop and shape of a process and fail beyond, where it would turn to eager code."""
    torch._dynamo.config.recompile_limit = 1024
    torch._dynamo.config.accumulated_recompile_limit = 8192
    torch._dynamo.config.fail_on_recompile_limit_hit = True


@functools.cache
def _compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    return torch.compile(function, dynamic=False)


def run_compiled(
    spec: InnerLoop,
    inputs: Inputs,
    weights: FastWeights,
    *,
    measure: bool = False,
    newton_schulz_dtype: torch.dtype | None = None,
) -> Result:
    """Run the inner loop chunk by chunk in compiled code.

    Raises:
        UnsupportedSpecError: inner losses were asked for; they are read once, by the recurrent backend.
    """
    if measure:
        raise UnsupportedSpecError(
            "the compiled backend needs measure=False, received True; use 'recurrent'."
        )
    allow_many_graphs()
    result = run_recurrent(
        spec,
        inputs,
        weights,
        newton_schulz_dtype=newton_schulz_dtype,
        advance=_compiled(update),
        read=_compiled(apply),
    )
    return Result(result.outputs, result.state, None, "compiled")
