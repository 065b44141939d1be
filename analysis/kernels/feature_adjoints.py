"""Launching the adjoints of hidden features: contiguous float32 in, operands of the next products out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import torch
import triton
from torch import Tensor

from analysis.kernels import feature_adjoint_kernels as kernels
from analysis.kernels.matrices import TRITON_TYPES

ROWS = 4
"""Rows of features that one program takes: a head of 384 is 1,536 numbers of each tensor."""


class Read(NamedTuple):
    """Features of a read-out in the operands' type, and the derivatives by both branches."""

    h: Tensor
    d_a: Tensor
    d_b: Tensor


class Learned(NamedTuple):
    """Features of a gradient and derivatives; what belongs to moving kernel parameters is empty where only W_out moves.

    h, up, gate: right sides of the gradients by W_out, W_up, W_gate. d_a, d_b, d_r: derivatives by both branches and by
    r = v W_out^T. d_rates: derivatives by the rates, [.., tokens, 1] in float32.
    """

    h: Tensor
    up: Tensor
    gate: Tensor
    d_a: Tensor
    d_b: Tensor
    d_r: Tensor
    d_rates: dict[str, Tensor]


def read(a: Tensor, b: Tensor, d_h: Tensor, dtype: torch.dtype) -> Read:
    """Return the adjoint of h = silu(a) b; a, b, d_h [.., tokens, hidden]."""
    found = Read(*(torch.empty(a.shape, dtype=dtype, device=a.device) for _ in range(3)))
    kernels.read_kernel[_programs(a)](*_flat(a, b, d_h), *found, *_sizes(a, dtype), num_warps=4)
    return found


def learn(
    a: Tensor,
    b: Tensor,
    d_h: Tensor,
    rates: Mapping[str, Tensor],
    dtype: torch.dtype,
    others: tuple[Tensor, Tensor, Tensor] | None = None,
) -> Learned:
    """Return the adjoint of the features of one chunk's gradients; see `kernels.learn_kernel`.

    rates: the signed factor of every token by fast weight, [.., tokens, 1] or what expands to it. others: r and the
    derivatives by up and gate where the kernel parameters move too.
    """
    moves_all = others is not None
    rate = {name: _column(rates[name], a) for name in rates}
    names = ("w_out", "w_up", "w_gate") if moves_all else ("w_out",)
    d_rates = {name: torch.empty(*a.shape[:-1], 1, device=a.device) for name in names}
    new = [torch.empty(a.shape, dtype=dtype, device=a.device) for _ in range(6 if moves_all else 3)]
    nothing = new[0][..., :0]
    h, d_a, d_b, up, gate, d_r = new if moves_all else [*new, nothing, nothing, nothing]
    unused = rate["w_out"]
    kernels.learn_kernel[_programs(a)](
        *_flat(a, b, d_h, *(others or (a, a, a))),
        *(rate.get(name, unused) for name in ("w_out", "w_up", "w_gate")),
        h, up, gate, d_a, d_b, d_r, *(d_rates.get(name, d_rates["w_out"]) for name in ("w_out", "w_up", "w_gate")),
        *_sizes(a, dtype), ALL=moves_all, num_warps=4,
    )  # fmt: skip
    return Learned(h, up, gate, d_a, d_b, d_r, d_rates)


def _flat(*tensors: Tensor) -> list[Tensor]:
    return [tensor.contiguous() for tensor in tensors]


def _column(rate: Tensor, like: Tensor) -> Tensor:
    """One float32 number for every token of `like`."""
    return rate.float().expand(*like.shape[:-1], 1).contiguous()


def _programs(a: Tensor) -> tuple[int]:
    return (triton.cdiv(a.numel() // a.shape[-1], ROWS),)


def _sizes(a: Tensor, dtype: torch.dtype) -> tuple[int, int, object, int, int]:
    width = a.shape[-1]
    return a.numel() // width, width, TRITON_TYPES[dtype], ROWS, triton.next_power_of_2(width)
