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
from analysis.kernels.tiles import DTYPES, INTERPRETED, unfitting_kernel

__all__ = ["plan_of", "reason_against", "run"]


def reason_against(
    spec: Any,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    measure: bool = False,
    newton_schulz_dtype: torch.dtype | None = None,
) -> str | None:
    """Return why the kernels cannot run `spec` on these tensors with these options, or None when they can."""
    if importlib.util.find_spec("triton") is None:
        return "triton is not installed"
    if not q.is_cuda and not INTERPRETED:
        return f"the tensors are on {q.device.type} and the kernels need a CUDA device (TRITON_INTERPRET=1 checks them elsewhere)"
    dtypes = {operand_type(tensor) for tensor in (q, k, v)}
    if len(dtypes) > 1 or not dtypes <= set(DTYPES):
        names = ", ".join(sorted(str(dtype).removeprefix("torch.") for dtype in dtypes))
        return f"q, k, v are {names} and the kernels need all three in one of bfloat16, float16, float32"
    if newton_schulz_dtype not in (None, *dtypes):
        return f"newton_schulz_dtype={newton_schulz_dtype} differs from the operands' type"
    if measure:
        return "measure=True: the kernels keep no inner losses"
    kernel = unfitting_kernel(q.device, next(iter(dtypes)))
    if kernel is not None:
        return (
            f"its {kernel} kernel does not fit the shared memory of this device even with the smallest tile"
        )
    return refusal(spec)


def operand_type(tensor: Tensor) -> torch.dtype:
    """Return the type in which a tensor enters products: autocast's where it is on, else its own."""
    kind = tensor.device.type
    if torch.is_autocast_enabled(kind) and tensor.dtype in DTYPES:
        return torch.get_autocast_dtype(kind)
    return tensor.dtype


def run(
    plan: Plan,
    tokens: tuple[Tensor, Tensor, Tensor],
    rates: Mapping[str, Tensor],
    momentum: Tensor | None,
    weights: Mapping[str, Tensor],
    update_tokens: int,
    *,
    is_parallel: bool | None = None,
) -> Any:
    """Run a plan; see `forward.Outcome`. Gradients flow to every tensor that asks for them.

    tokens: q, k [B, H, T, K] and v [B, H, T, V]. rates, momentum: [B, H, T, 1]. weights: [B, H, in, out].
    is_parallel: all chunks at once or one after the other; None takes the parallel form where the loop has it.

    Raises:
        UnsupportedSpecError: the device has too little shared memory for any tile.
    """
    from analysis.kernels import differentiable

    q, k, v = (tensor.to(operand_type(tensor)) for tensor in tokens)
    form = plan.is_additive if is_parallel is None else is_parallel
    # Triton launches on the current device, which need not be that of the tensors; the backward pass finds it set
    with torch.cuda.device_of(q):
        return differentiable.run(plan, (q, k, v), rates, momentum, weights, update_tokens, is_parallel=form)
