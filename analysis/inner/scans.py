"""Parallel prefix scans over chunks."""

from __future__ import annotations

import functools
from collections.abc import Callable
from itertools import accumulate

import torch
from jaxtyping import Float
from torch import Tensor
from torch.autograd import forward_ad

Elements = tuple[Tensor, ...]


def needs_graph(*tensors: Tensor) -> bool:
    """Whether autograd or a transform of torch.func follows what is computed from some tensors, and nothing may be in place."""
    is_recorded = torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors)
    if is_recorded or torch.compiler.is_compiling():
        return is_recorded
    is_wrapped = torch._C._functorch.is_functorch_wrapped_tensor
    return forward_ad._current_level >= 0 or any(is_wrapped(tensor) for tensor in tensors)


def associative_scan(
    combine: Callable[[Elements, Elements], Elements], elements: Elements, dim: int = -3
) -> Elements:
    """Return all prefixes e_0, e_1 o e_0, ... of an associative operation in ceil(log2 N) vectorised passes.

    `combine(earlier, later)` works elementwise along `dim`, whose length N all tensors share.
    """
    length = elements[0].shape[dim]
    offset = 1
    while offset < length:
        earlier = tuple(e.narrow(dim, 0, length - offset) for e in elements)
        later = tuple(e.narrow(dim, offset, length - offset) for e in elements)
        head = tuple(e.narrow(dim, 0, offset) for e in elements)
        elements = tuple(torch.cat([h, c], dim) for h, c in zip(head, combine(earlier, later), strict=True))
        offset *= 2
    return elements


def running_sums(
    values: Float[Tensor, "*batch N I O"],
    factor: Float[Tensor, "*batch N 1 1"],
    start: Float[Tensor, "*batch I O"],
) -> Float[Tensor, "*batch N1 I O"]:
    """S_j = start + factor_0 values_0 + ... + factor_{j-1} values_{j-1} for j = 0..N."""
    if values.device.type != "cpu" or torch.compiler.is_compiling():
        first = start.unsqueeze(-3)
        return torch.cat([first, first + (values * factor).cumsum(-3)], -3)
    # On a processor cumsum walks the strided axis element by element: whole matrices add up many times as fast.
    return _in_turn(start, values, factor, lambda last, value, scale: (last, value, scale))


def decayed_sums(
    decay: Float[Tensor, "*batch N 1 1"],
    values: Float[Tensor, "*batch N I O"],
    before: Float[Tensor, "*batch I O"] | None = None,
) -> Float[Tensor, "*batch N I O"]:
    """D_j = values_j + decay_j D_{j-1} for all j at once, D_{-1} being `before` or 0 (the momentum recurrence of Theorem 3)."""
    if values.device.type == "cpu" and not torch.compiler.is_compiling():
        # The scan reads and writes everything log2(N) times; a processor has no use for its parallelism.
        start = torch.zeros_like(values.select(-3, 0)) if before is None else before
        found = _in_turn(start, values, decay, lambda last, value, gate: (value, last, gate))
        return found.narrow(-3, 1, values.shape[-3])

    def combine(earlier: Elements, later: Elements) -> Elements:
        return later[0] * earlier[0], later[1] + later[0] * earlier[1]

    if before is not None:
        first = values.narrow(-3, 0, 1) + decay.narrow(-3, 0, 1) * before.unsqueeze(-3)
        values = torch.cat([first, values.narrow(-3, 1, values.shape[-3] - 1)], -3)
    return associative_scan(combine, (decay, values))[1]


def _in_turn(
    start: Float[Tensor, "*batch I O"],
    values: Float[Tensor, "*batch N I O"],
    factor: Float[Tensor, "*batch N 1 1"],
    terms: Callable[[Tensor, Tensor, Tensor], tuple[Tensor, Tensor, Tensor]],
) -> Float[Tensor, "*batch N1 I O"]:
    """X_0 = start, X_{j+1} = a + b c with (a, b, c) = terms(X_j, values_j, factor_j); in its place unless autograd records it."""
    each = zip(values.unbind(-3), factor.unbind(-3), strict=True)
    if needs_graph(start, values, factor):
        steps = accumulate(each, lambda last, step: torch.addcmul(*terms(last, *step)), initial=start)
        return torch.stack(list(steps), -3)
    dtype = functools.reduce(torch.promote_types, (start.dtype, values.dtype, factor.dtype))
    *batch, count, rows, columns = values.shape
    found = values.new_empty(*batch, count + 1, rows, columns, dtype=dtype)
    places = found.unbind(-3)
    places[0].copy_(start)
    for (value, scale), last, place in zip(each, places, places[1:], strict=False):
        torch.addcmul(*terms(last, value, scale), out=place)
    return found


def affine_prefixes(
    matrix: Float[Tensor, "*batch N S S"],
    offset: Float[Tensor, "*batch N S O"],
    start: Float[Tensor, "*batch S O"],
) -> Float[Tensor, "*batch N S O"]:
    """X_j = matrix_j X_{j-1} + offset_j for all j at once, with X_{-1} = start."""

    def combine(earlier: Elements, later: Elements) -> Elements:
        return later[0] @ earlier[0], later[0] @ earlier[1] + later[1]

    product, shift = associative_scan(combine, (matrix, offset))
    return product @ start.unsqueeze(-3) + shift
