"""Plain linear attention by flash-linear-attention, where that package is installed: the yardstick of Variant 6.

Its recurrence is causal token by token, ours chunk by chunk, so it has a truth of its own: Variant 6 with chunks of one token,
each applied after its update.
"""

from __future__ import annotations

import importlib
import importlib.util
from dataclasses import asdict, replace
from typing import Any

import torch
from torch import Tensor

from analysis.errors import ParameterError
from analysis.kernels.bench import LIMITS, SETS, clock, first_call
from analysis.kernels.cases import Case, Tensors, draw
from analysis.records import Record
from analysis.spec import InnerLoop, Order, Tail
from analysis.speed.comparisons import truth
from analysis.speed.rows import timed

NAME = "flash-linear-attention"
CHECKED = 512
"""Tokens of the check, whose state at every token must fit."""


def is_installed() -> bool:
    """Whether the package is here."""
    return importlib.util.find_spec("fla") is not None


def _flash(spec: InnerLoop, tensors: Tensors) -> Tensor:
    function: Any = importlib.import_module("fla.ops.linear_attn").chunk_linear_attn
    q, k, v = (x.transpose(1, 2) for x in (tensors.q, tensors.k, tensors.v))
    outputs: Tensor = function(q, k, v, scale=1.0, initial_state=tensors.weights["w_out"], normalize=False)[0]
    return outputs.transpose(1, 2)


def flash_records(case: Case, spec: InnerLoop, command: str) -> list[Record]:
    """Check and time the package at a case's sizes.

    Raises:
        ParameterError: it computes something else than linear attention, causal by token.
    """
    causal = spec.edit(chunk=1, order=Order.UPDATE_THEN_APPLY, tail=Tail.UPDATE)
    tensors = draw(causal, replace(case, tokens=min(case.tokens, CHECKED)), seed=97)
    with torch.no_grad():
        exact, _ = truth(causal, tensors.each(lambda x: x.double()))
        found, first = first_call(lambda: _flash(spec, tensors))
        error = float((found.double() - exact).norm() / exact.norm())
    if not error <= LIMITS[case.dtype]:
        raise ParameterError(
            f"expected an error of at most {LIMITS[case.dtype]:g} from {NAME}, received {error:.1e}; compare without it."
        )
    with torch.no_grad():
        timing = asdict(
            clock(lambda tensors: _flash(spec, tensors), [draw(spec, case, seed) for seed in range(SETS)])
        )
    extra = {
        "errors": {"outputs": error},
        "first_ms": first,
        "note": "causal by token, not by chunk",
    }
    device = torch.cuda.get_device_name()
    return [timed(case, NAME, spec, timing, device=device, command=command, extra=extra)]
