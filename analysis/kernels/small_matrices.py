"""The Newton-Schulz iteration of small matrices as one operation: one launch forward, one backward.

In a long sequence of short chunks the fifteen little products of every update, and the thirty of its adjoint, are most of
what a training step launches. One program holds a whole matrix of a small head, so nothing leaves the chip between them.
"""

from __future__ import annotations

import importlib.util
from typing import Any

import torch
from torch import Tensor

from analysis.kernels.tiles import INTERPRETED, power_above

MOST_ROWS, MOST_COLS = 64, 128
"""Largest matrix that one program holds without spilling most of it out of its registers."""
DTYPES = (torch.bfloat16, torch.float16)
"""Types that enter; float32 would take three products for each and spill."""

HAS_TRITON = importlib.util.find_spec("triton") is not None
Coefficients = tuple[tuple[float, float, float], ...]


def fits(x: Tensor) -> bool:
    """Whether one program can hold a matrix [N, rows, cols] of this type on this device."""
    can_run = HAS_TRITON and (x.is_cuda or INTERPRETED)
    return can_run and x.dtype in DTYPES and x.shape[-2] <= MOST_ROWS and x.shape[-1] <= MOST_COLS


def iterate(x: Tensor, coefficients: Coefficients) -> Tensor:
    """X <- a X + (b A + c A A) X with A = X X^T, once per triple; differentiable in X [N, rows, cols].

    Sums are float32, and every intermediate is rounded to the type of X.
    """
    moved: Tensor = _iterate(x, [value for triple in coefficients for value in triple])[0]
    return moved


@torch.library.custom_op("ttt_analysis::iterate", mutates_args=())
def _iterate(x: Tensor, coefficients: list[float]) -> tuple[Tensor, Tensor]:
    from analysis.kernels.small_matrix_kernels import iterate_kernel

    x = x.contiguous()
    out, steps = torch.empty_like(x), len(coefficients) // 3
    kept = x.new_empty(steps - 1, *x.shape)
    if x.numel():
        # Triton launches on the current device
        with torch.cuda.device_of(x):
            iterate_kernel[(len(x),)](
                x, _on_device(coefficients, x), kept, out, *_launch(x, steps), num_warps=4
            )
    return out, kept


@_iterate.register_fake
def _(x: Tensor, coefficients: list[float]) -> tuple[Tensor, Tensor]:
    return torch.empty_like(x), x.new_empty(len(coefficients) // 3 - 1, *x.shape)


@torch.library.custom_op("ttt_analysis::iterate_adjoint", mutates_args=())
def _adjoint(x: Tensor, kept: Tensor, upstream: Tensor, coefficients: list[float]) -> Tensor:
    from analysis.kernels.small_matrix_kernels import adjoint_kernel

    x, upstream = x.contiguous(), upstream.to(x.dtype).contiguous()
    out, steps = torch.empty_like(x), len(coefficients) // 3
    if x.numel():
        with torch.cuda.device_of(x):
            adjoint_kernel[(len(x),)](
                x, _on_device(coefficients, x), kept, upstream, out, *_launch(x, steps), num_warps=4
            )
    return out


@_adjoint.register_fake
def _(x: Tensor, kept: Tensor, upstream: Tensor, coefficients: list[float]) -> Tensor:
    return torch.empty_like(x)


def _keep(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    x, ctx.coefficients = inputs
    ctx.save_for_backward(x, output[1])
    ctx.set_materialize_grads(False)


def _backward(ctx: Any, upstream: Tensor | None, _: Tensor | None) -> tuple[Tensor | None, None]:
    x, kept = ctx.saved_tensors
    return None if upstream is None else _adjoint(x, kept, upstream, ctx.coefficients), None


torch.library.register_autograd("ttt_analysis::iterate", _backward, setup_context=_keep)


def _launch(x: Tensor, steps: int) -> tuple[Any, ...]:
    """Sizes and compile-time constants of a launch: the tile is padded to powers of two."""
    from analysis.kernels.arithmetic import TRITON_TYPES

    rows, cols = x.shape[-2:]
    return rows, cols, steps, power_above(rows), power_above(cols), TRITON_TYPES[x.dtype]


_TABLES: dict[tuple[torch.device, tuple[float, ...]], Tensor] = {}


def _on_device(coefficients: list[float], x: Tensor) -> Tensor:
    """The coefficients as a float32 table on the device, made once: a captured step may not copy from the host."""
    key = (x.device, tuple(coefficients))
    if key not in _TABLES:
        _TABLES[key] = torch.tensor(coefficients, dtype=torch.float32).to(x.device)
    return _TABLES[key]
