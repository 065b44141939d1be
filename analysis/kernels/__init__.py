"""Fast implementations of inner loops for the GPU, in Triton; plain tensors and numbers in and out.

Nothing here needs Triton or a GPU at import: the kernels are defined when a call first reaches them.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from analysis.kernels.plan import Plan, plan_of, refusal
from analysis.kernels.tiles import INTERPRETED

__all__ = ["plan_of", "reason_against", "run"]

_TYPES = (torch.bfloat16, torch.float16, torch.float32)


def reason_against(spec: Any, tensors: Mapping[str, Tensor]) -> str | None:
    """Return why the kernels cannot run `spec` on these q, k, v, or None when they can."""
    if importlib.util.find_spec("triton") is None:
        return "triton is not installed; install it, or use another backend"
    device, dtypes = tensors["q"].device, {tensor.dtype for tensor in tensors.values()}
    if device.type != "cuda" and not INTERPRETED:
        return f"the tensors are on {device.type}: the kernels need a CUDA device (or TRITON_INTERPRET=1, for checking)"
    if len(dtypes) > 1 or not dtypes <= set(_TYPES):
        names = ", ".join(sorted(str(dtype).removeprefix("torch.") for dtype in dtypes))
        return f"q, k, v are {names}: the kernels need all three in one of bfloat16, float16, float32"
    return refusal(spec)


def run(
    plan: Plan,
    tensors: Mapping[str, Tensor],
    rates: Mapping[str, Tensor],
    momentum: Tensor | None,
    weights: Mapping[str, Tensor],
    update_tokens: int,
    *,
    is_parallel: bool,
) -> Any:
    """Run a plan; see `forward.Outcome`. Gradients flow to every tensor that asks for them.

    tensors: q, k [B, H, T, K] and v [B, H, T, V]. rates, momentum: [B, H, T, 1]. weights: [B, H, in, out].

    Raises:
        UnsupportedSpecError: the device has too little shared memory for any tile.
    """
    from analysis.kernels import differentiable

    return differentiable.run(plan, tensors, rates, momentum, weights, update_tokens, is_parallel=is_parallel)
