"""The Newton-Schulz iteration with its backward written out, and several gradients orthogonalised in one go.

With A = X X^T and P = b A + c A A one iteration is Y = a X + P X. Since A and P are symmetric,

    dP = dY X^T    dA = b dP + c (dP A + A dP)    dX = a dY + P dY + (dA + dA^T) X.

Each product takes its sum along (`baddbmm`), so an iteration is three kernels forward and six backward. That matters: in
a long sequence these little matrices are most of what a training step launches.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.autograd.function import once_differentiable

from analysis.inner.scans import needs_graph
from analysis.spec import NewtonSchulz

Coefficients = tuple[tuple[float, float, float], ...]
IN_CACHE = 2**16
"""Numbers of the matrices that one thread of a processor iterates at a time: three such stacks in float32 fit an L2 cache."""


def _step(x: Tensor, a: float, b: float, c: float) -> tuple[Tensor, Tensor, Tensor]:
    """Return A = X X^T, b A + c A A, and a X + (b A + c A A) X."""
    gram = torch.bmm(x, x.mT)
    poly = torch.baddbmm(gram, gram, gram, beta=b, alpha=c)
    return gram, poly, torch.baddbmm(x, poly, x, beta=a)


class _Iterations(torch.autograd.Function):
    """X <- a X + (b A + c A A) X with A = X X^T, once per triple; X is [N, rows, columns]."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, coefficients: Coefficients) -> Tensor:
        kept = []
        # autocast would round at every product; the caller has chosen the precision already
        with torch.autocast(x.device.type, enabled=False):
            for a, b, c in coefficients:
                gram, poly, moved = _step(x, a, b, c)
                kept += [x, gram, poly]
                x = moved
        ctx.save_for_backward(*kept)
        ctx.coefficients = coefficients
        return x

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor, None]:
        kept = ctx.saved_tensors
        for index in reversed(range(len(ctx.coefficients))):
            a, b, c = ctx.coefficients[index]
            x, gram, poly = kept[3 * index : 3 * index + 3]
            to_poly = torch.bmm(upstream, x.mT)
            to_gram = torch.baddbmm(to_poly, to_poly, gram, beta=b, alpha=c)
            to_gram = torch.baddbmm(to_gram, gram, to_poly, alpha=c)
            direct = torch.baddbmm(upstream, poly, upstream, beta=a)
            upstream = torch.baddbmm(direct, to_gram + to_gram.mT, x)
        return upstream, None


def _evaluate(x: Tensor, coefficients: Coefficients) -> Tensor:
    """Run all iterations on a processor where no backward pass follows, on as many matrices at a time as its caches hold."""
    found, size = x.new_empty(x.shape), max(1, x.shape[1] * x.shape[2])
    count = max(1, torch.get_num_threads() * IN_CACHE // size)
    with torch.autocast(x.device.type, enabled=False):
        for first in range(0, len(x), count):
            piece, place = x[first : first + count], found[first : first + count]
            for a, b, c in coefficients:
                *_, piece = _step(piece, a, b, c)
            place.copy_(piece)
    return found


def _iterate(x: Tensor, coefficients: Coefficients) -> Tensor:
    """Run all iterations: on a GPU one launch for matrices that fit one program, library products for the others."""
    from analysis.kernels import small_matrices

    if x.is_cuda and small_matrices.fits(x):
        return small_matrices.iterate(x, coefficients)
    if x.device.type == "cpu" and not needs_graph(x) and not torch.compiler.is_compiling():
        return _evaluate(x, coefficients)
    moved: Tensor = _Iterations.apply(x, coefficients)  # type: ignore[no-untyped-call]
    return moved


def newton_schulz(
    transform: NewtonSchulz, gradient: Float[Tensor, "*batch I O"], dtype: torch.dtype | None = None
) -> Float[Tensor, "*batch I O"]:
    """M(G) of section 5.3: X = G / (||G||_F + eps), then X <- a X + (b A + c A A) X with A = X X^T on the smaller side.

    dtype: precision of the iteration; None takes that of autocast where it is on, else that of the gradient.
    """
    x = gradient if dtype is None else gradient.to(dtype)
    x = x / (torch.linalg.vector_norm(x, dim=(-2, -1), keepdim=True) + transform.eps)
    if dtype is None and torch.is_autocast_enabled(x.device.type) and x.dtype != torch.float64:
        x = x.to(torch.get_autocast_dtype(x.device.type))
    is_tall = x.shape[-2] > x.shape[-1]
    x = x.mT if is_tall else x
    flat = x.reshape(-1, *x.shape[-2:])
    moved = _iterate(flat, transform.schedule.coefficients).reshape(x.shape)
    return (moved.mT if is_tall else moved).to(gradient.dtype)


def newton_schulz_together(
    transform: NewtonSchulz, gradients: Mapping[str, Tensor], dtype: torch.dtype | None = None
) -> dict[str, Tensor]:
    """M of every gradient, those of equal shape (up to a transpose, M(G^T) = M(G)^T) stacked into one iteration."""
    groups: dict[tuple[tuple[int, ...], torch.dtype], list[str]] = {}
    for name, gradient in gradients.items():
        groups.setdefault((tuple(_wide(gradient).shape), gradient.dtype), []).append(name)
    found = {}
    for names in groups.values():
        moved = newton_schulz(transform, torch.stack([_wide(gradients[name]) for name in names]), dtype)
        for name, one in zip(names, moved.unbind(), strict=True):
            found[name] = one if _is_wide(gradients[name]) else one.mT
    return {name: found[name] for name in gradients}


def _is_wide(matrix: Tensor) -> bool:
    return matrix.shape[-2] <= matrix.shape[-1]


def _wide(matrix: Tensor) -> Tensor:
    return matrix if _is_wide(matrix) else matrix.mT
