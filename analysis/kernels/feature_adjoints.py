"""Launching the adjoints of hidden features: products in float32 in, operands of the next products out.

What comes from keys or queries is [sequences, tokens, planes * hidden]; what comes from values or outputs is
[chunks * sequences, tokens of a chunk, planes * hidden], chunks outermost, because the last layer may differ by chunk.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
import triton
from torch import Tensor

from analysis.kernels import feature_adjoint_kernels as kernels
from analysis.kernels.arithmetic import TRITON_TYPES

ROWS = 4
"""Rows of features that one program takes: a head of 384 is 1,536 numbers of each tensor."""
RATED = ("w_out", "w_up", "w_gate")
"""Fast weights in the order of the kernel's rates."""


@dataclass(frozen=True)
class Rates:
    """The factor that every token's gradient carries: `scale`, times the token's rate where there are rates.

    values, found: rates and the derivatives by them by fast weight, float32 views [sequences, tokens] of one stride, both
    empty without rates. adds: whether a derivative is added to what is in `found`, else it replaces that.
    """

    scale: float
    values: dict[str, Tensor] = field(default_factory=dict)
    found: dict[str, Tensor] = field(default_factory=dict)
    adds: bool = False


def read(from_x: Tensor, d_h: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Return h = silu(a) b, laid out as d_h, and [d_a | d_b], laid out as from_x = [a | b]."""
    h, d_from_x = torch.empty_like(d_h, dtype=dtype), torch.empty_like(from_x, dtype=dtype)
    total, tokens, length = _rows(from_x, d_h)
    kernels.read_kernel[(triton.cdiv(total, ROWS),)](
        from_x, d_h, h, d_from_x, total, tokens, length, d_h.shape[-1], **_constants(d_h.shape[-1], dtype)
    )
    return h, d_from_x


def learn(
    from_k: Tensor, from_v: Tensor, hidden: int, rates: Rates, dtype: torch.dtype
) -> tuple[Tensor, Tensor]:
    """Return the operands right, laid out as from_k, and left, laid out as from_v; see `kernels.learn_kernel`.

    from_k: [a | b], or [a | b | d_u | d_g] where the kernel parameters move too; from_v: d_h, or [d_h | r].
    The derivatives by the rates go to `rates.found`.
    """
    right, left = torch.empty_like(from_k, dtype=dtype), torch.empty_like(from_v, dtype=dtype)
    # a kernel wants an address even where it reads nothing
    unused = rates.values.get("w_out", from_k)
    values = [rates.values.get(name, unused) for name in RATED]
    found = [rates.found.get(name, unused) for name in RATED]
    total, tokens, length = _rows(from_k, from_v)
    kernels.learn_kernel[(triton.cdiv(total, ROWS),)](
        from_k, from_v, *values, right, left, *found, rates.scale, total, tokens, length, unused.stride(0), hidden,
        ALL=from_v.shape[-1] > hidden, RATED=bool(rates.values), ADDS=rates.adds, **_constants(hidden, dtype),
    )  # fmt: skip
    return right, left


def _rows(by_sequence: Tensor, by_chunk: Tensor) -> tuple[int, int, int]:
    """Rows of features, tokens of a sequence, and tokens of a chunk."""
    sequences, tokens, _ = by_sequence.shape
    return sequences * tokens, tokens, by_chunk.shape[1]


def _constants(width: int, dtype: torch.dtype) -> dict[str, Any]:
    return {
        "DTYPE": TRITON_TYPES[dtype],
        "ROWS": ROWS,
        "BLOCK": triton.next_power_of_2(width),
        "num_warps": 4,
    }
