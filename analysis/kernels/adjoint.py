"""Adjoints of the parts of an inner loop, by hand: read-out, gradients, transform, update with norm.

Products take operands in the operands' type and accumulate in float32; every fast-weight gradient is float32. Names: d_x is
the derivative of the outer loss by x. `w_in` is [W_gate | W_up], so that both branches are one product. Tokens that meet
`w_in` are [sequences, tokens, width]; what meets the last layer is [chunks * sequences, tokens of a chunk, width], chunks
outermost, because every chunk may have a last layer of its own.
"""

from __future__ import annotations

import torch
from torch import Tensor

from analysis.kernels import feature_adjoints
from analysis.kernels.feature_adjoints import Rates
from analysis.kernels.newton_schulz import NewtonSchulz, unit_dtype
from analysis.kernels.plan import Plan
from analysis.kernels.tiles import shared_memory_limit

Tensors = dict[str, Tensor]


def product(a: Tensor, b: Tensor, out: Tensor, *, beta: float = 0.0) -> Tensor:
    """out <- beta out + a b, all [n, rows, cols]; a and b of one type, out of the same or float32; returns out.

    With beta zero, what `out` held does not matter. Sums are taken in float32 and rounded once to the type of `out`.
    """
    # given a place for the result, autocast leaves the operands alone
    if out.dtype == a.dtype:
        return torch.baddbmm(out, a, b, beta=beta, out=out)
    if out.is_cuda:
        return torch.baddbmm(out, a, b, out.dtype, beta=beta, out=out)
    return torch.baddbmm(out, a.float(), b.float(), beta=beta, out=out)


def float_product(a: Tensor, b: Tensor) -> Tensor:
    """Return a b in float32."""
    return product(a, b, torch.empty(*a.shape[:-1], b.shape[-1], dtype=torch.float32, device=a.device))


def by_chunk(x: Tensor, sequences: int, chunks: int) -> Tensor:
    """Reorder [sequences, chunks * tokens, width] to [chunks * sequences, tokens, width], without a copy for one chunk."""
    if chunks == 1:
        return x
    turned = wide(x).unflatten(1, (chunks, -1)).transpose(0, 1)
    return turned.reshape(chunks * sequences, -1, turned.shape[-1]).view(x.dtype)


def wide(x: Tensor) -> Tensor:
    """View numbers as wider ones where their places allow it: a copy goes number by number, whatever their size."""
    per_wide = 8 // x.element_size()
    places = (x.shape[-1], x.storage_offset(), *x.stride()[:-1])
    is_possible = x.stride(-1) == 1 and x.data_ptr() % 8 == 0 and all(at % per_wide == 0 for at in places)
    return x.view(torch.int64) if is_possible else x


def write(a: Tensor, b: Tensor, into: Tensor, *, adds: bool) -> None:
    """Write a b, or add it, into [sequences, tokens, width]; a may be ordered by chunk."""
    if a.shape[0] == into.shape[0]:
        product(a, b, into, beta=float(adds))
        return
    made = product(a, b, torch.empty(*a.shape[:-1], b.shape[-1], dtype=into.dtype, device=a.device))
    place(made, into, adds=adds)


def place(made: Tensor, into: Tensor, *, adds: bool) -> None:
    """Copy, or add, what is ordered by chunk into [sequences, tokens, width]."""
    sequences, chunks = into.shape[0], made.shape[0] // into.shape[0]
    made = made.unflatten(0, (chunks, sequences)).transpose(0, 1)
    into = into.unflatten(1, (chunks, -1))
    if adds:
        into.add_(made)
    elif made.dtype == into.dtype and (source := wide(made)).dtype == (target := wide(into)).dtype:
        target.copy_(source)
    else:
        into.copy_(made)


def read_adjoint(
    plan: Plan, x: Tensor, d_out: Tensor, w: Tensors, d_x: Tensor, d_w: Tensors, *, adds: bool
) -> None:
    """Adjoint of out = f(x): writes d_x (or adds to it), and adds to the gradients d_w of the weights.

    x, d_x: [sequences, tokens, width]; d_out and the last layer ordered by chunk.
    """
    if plan.network == "linear":
        write(d_out, w["w_out"].mT, d_x, adds=adds)
        x = by_chunk(x, x.shape[0], d_out.shape[0] // x.shape[0])
        product(x.mT, d_out, d_w["w_out"], beta=1.0)
        return
    from_x, d_h = float_product(x, w["w_in"]), float_product(d_out, w["w_out"].mT)
    h, d_from_x = feature_adjoints.read(from_x, d_h, x.dtype)
    product(d_from_x, w["w_in"].mT, d_x, beta=float(adds))
    product(x.mT, d_from_x, d_w["w_in"], beta=1.0)
    product(h.mT, d_out, d_w["w_out"], beta=1.0)


def gradient_adjoint(
    plan: Plan,
    tokens: tuple[Tensor, Tensor],
    rates: Rates,
    w: Tensors,
    d_grads: Tensors,
    found: tuple[Tensor, Tensor],
    d_w: Tensors,
) -> None:
    """Adjoint of the gradients of chunks: writes d_k, d_v and the derivatives by rates, and adds to d_w.

    tokens: k [sequences, tokens, width] and v, ordered by chunk as d_grads["w_out"] is. found: d_k and d_v, both
    [sequences, tokens, width]. d_grads: derivatives by the gradients, in the operands' type.
    """
    if plan.network == "linear":
        _linear_gradient_adjoint(tokens, rates, d_grads["w_out"], found)
        return
    (k, v), (d_k, d_v), w_in, hidden = tokens, found, w["w_in"], w["w_out"].shape[-2]
    from_out = d_grads["w_out"]
    if plan.moves_all:
        w_in = torch.cat([w_in, d_grads["w_up"], d_grads["w_gate"]], -1)
        from_out = torch.cat([from_out, w["w_out"]], -2)
    right, left = feature_adjoints.learn(
        float_product(k, w_in), float_product(v, from_out.mT), hidden, rates, k.dtype
    )
    product(right, w_in.mT, d_k, beta=float(rates.adds))
    write(left, from_out, d_v, adds=rates.adds)
    product(k.mT, right[..., : 2 * hidden], d_w["w_in"], beta=1.0)
    if plan.moves_all:
        product(left[..., hidden:].mT, v, d_w["w_out"], beta=1.0)


def _linear_gradient_adjoint(
    tokens: tuple[Tensor, Tensor], rates: Rates, d_grad: Tensor, found: tuple[Tensor, Tensor]
) -> None:
    """Adjoint of G = sum of rate k v^T over the tokens of every chunk."""
    (k, v), (d_k, d_v) = tokens, found
    sequences, chunks = k.shape[0], v.shape[0] // k.shape[0]
    turned = float_product(v, d_grad.mT)
    if rates.values:
        rate = by_chunk(rates.values["w_out"].unsqueeze(-1), sequences, chunks) * rates.scale
        k = by_chunk(k, sequences, chunks)
        d_rate = (turned * k).sum(-1, keepdim=True) * rates.scale
        place(d_rate, rates.found["w_out"].unsqueeze(-1), adds=rates.adds)
        place(turned * rate, d_k, adds=rates.adds)
        write((k * rate).to(v.dtype), d_grad, d_v, adds=rates.adds)
    else:
        place(turned * rates.scale, d_k, adds=rates.adds)
        write((by_chunk(k, sequences, chunks) * rates.scale).to(v.dtype), d_grad, d_v, adds=rates.adds)


def transform_adjoint(plan: Plan, d: Tensor, d_change: Tensor, dtype: torch.dtype) -> Tensor:
    """Return the derivative by D of <transform(D), d_change>; both [.., rows, cols]; dtype: of the layer's operands.

    For X = D / s with s = ||D|| + eps that is (d_X - X <d_X, X> s / ||D||) / s.
    """
    if plan.transform == "identity":
        return d_change
    norm = torch.linalg.vector_norm(d, dim=(-2, -1), keepdim=True)
    scale = norm + plan.eps
    tiny = torch.finfo(torch.float32).tiny
    d_x, factor = d_change, scale.reciprocal()
    if plan.transform == "newton_schulz":
        is_tall = d.shape[-2] > d.shape[-1]
        size = torch.linalg.vector_norm(d_change, dim=(-2, -1), keepdim=True).clamp_min(tiny)
        low, change = (d.mT, d_change.mT) if is_tall else (d, d_change)
        x = torch.div(low, scale, out=torch.empty(low.shape, dtype=unit_dtype(dtype), device=d.device))
        unit = torch.div(change, size, out=torch.empty(low.shape, dtype=torch.float32, device=d.device))
        matrices = x.flatten(0, -3)
        limit = shared_memory_limit(d.device)
        iterations = NewtonSchulz(plan.coefficients, low.shape[-2:], x.dtype, len(matrices), limit)
        iterations.adjoint(matrices, unit.flatten(0, -3))
        d_x, factor = (unit.mT if is_tall else unit), size / scale
    along = (d_x * d).sum((-2, -1), keepdim=True) * factor
    return torch.addcmul(d_x * factor, d, along / (norm.clamp_min(tiny) * scale), value=-1.0)


def norm_adjoint(plan: Plan, moved: Tensor, target: Tensor, d_fast: Tensor) -> tuple[Tensor, Tensor]:
    """Return d_moved and d_target for fast = moved / (||moved|| + eps) * target, per column."""
    length = torch.linalg.vector_norm(moved, dim=-2, keepdim=True)
    scaled = length + plan.norm_eps
    d_target = (d_fast * moved).sum(-2, keepdim=True) / scaled
    factor = target / scaled
    back = d_target * factor / length.clamp_min(torch.finfo(length.dtype).tiny)
    return torch.addcmul(d_fast * factor, moved, back, value=-1.0), d_target
