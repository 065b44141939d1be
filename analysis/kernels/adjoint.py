"""Adjoints of the parts of an inner loop, by hand: read-out, gradients, Newton-Schulz, update with norm.

Leading axes are free (batch, heads, perhaps chunks). Products take operands in the operands' type; everything else, and
every fast-weight gradient, is float32. Names: d_x is the derivative of the outer loss by x.
"""

from __future__ import annotations

import torch
from torch import Tensor

from analysis.kernels import feature_adjoints
from analysis.kernels.plan import Plan

Tensors = dict[str, Tensor]


def multiply(a: Tensor, b: Tensor, dtype: torch.dtype) -> Tensor:
    """Return a b in float32 from operands of `dtype`."""
    a, b = a.to(dtype), b.to(dtype)
    if a.device.type == "cuda" and dtype != torch.float32:
        lead = torch.broadcast_shapes(a.shape[:-2], b.shape[:-2])
        flat = [x.expand(*lead, *x.shape[-2:]).reshape(-1, *x.shape[-2:]) for x in (a, b)]
        return torch.bmm(flat[0], flat[1], out_dtype=torch.float32).view(*lead, a.shape[-2], b.shape[-1])
    return torch.matmul(a, b).float()


def read_adjoint(
    plan: Plan, x: Tensor, w: Tensors, d_out: Tensor, dtype: torch.dtype
) -> tuple[Tensor, Tensors]:
    """Return d_x and the gradients of every fast weight for out = f(x)."""
    if plan.network == "linear":
        return multiply(d_out, w["w_out"].mT, dtype), {"w_out": multiply(x.mT, d_out, dtype)}
    a, b = multiply(x, w["w_gate"], dtype), multiply(x, w["w_up"], dtype)
    found = feature_adjoints.read(a, b, multiply(d_out, w["w_out"].mT, dtype), dtype)
    d_w = {
        "w_out": multiply(found.h.mT, d_out, dtype),
        "w_gate": multiply(x.mT, found.d_a, dtype),
        "w_up": multiply(x.mT, found.d_b, dtype),
    }
    return multiply(found.d_a, w["w_gate"].mT, dtype) + multiply(found.d_b, w["w_up"].mT, dtype), d_w


def gradient_adjoint(
    plan: Plan, k: Tensor, v: Tensor, rates: Tensors, w: Tensors, d_grads: Tensors, dtype: torch.dtype
) -> tuple[Tensor, Tensor, Tensors, Tensors]:
    """Return d_k, d_v, d_rates and d_w for the gradients of one chunk (rates: the signed factor of every token)."""
    if plan.network == "linear":
        turned = multiply(v, d_grads["w_out"].mT, dtype)
        rate = rates["w_out"]
        d_v = multiply(k * rate, d_grads["w_out"], dtype)
        return turned * rate, d_v, {"w_out": (turned * k).sum(-1, keepdim=True)}, {}
    a, b = multiply(k, w["w_gate"], dtype), multiply(k, w["w_up"], dtype)
    d_h, others = multiply(v, d_grads["w_out"].mT, dtype), None
    if plan.moves_all:
        others = tuple(
            multiply(*pair, dtype)
            for pair in ((v, w["w_out"].mT), (k, d_grads["w_up"]), (k, d_grads["w_gate"]))
        )
    found = feature_adjoints.learn(a, b, d_h, rates, dtype, others)
    d_k = multiply(found.d_a, w["w_gate"].mT, dtype) + multiply(found.d_b, w["w_up"].mT, dtype)
    d_v = multiply(found.h, d_grads["w_out"], dtype)
    d_w = {"w_gate": multiply(k.mT, found.d_a, dtype), "w_up": multiply(k.mT, found.d_b, dtype)}
    if plan.moves_all:
        d_k += multiply(found.up, d_grads["w_up"].mT, dtype)
        d_k += multiply(found.gate, d_grads["w_gate"].mT, dtype)
        d_v += multiply(found.d_r, w["w_out"], dtype)
        d_w["w_out"] = multiply(found.d_r.mT, v, dtype)
    return d_k, d_v, found.d_rates, d_w


def transform_adjoint(plan: Plan, d: Tensor, d_change: Tensor, unit_dtype: torch.dtype) -> Tensor:
    """Return the derivative by D of <transform(D), d_change>; both [.., rows, cols]; products of `unit_dtype`."""
    if plan.transform == "identity":
        return d_change
    norm = d.norm(dim=(-2, -1), keepdim=True)
    x = d / (norm + plan.eps)
    d_x = d_change
    if plan.transform == "newton_schulz":
        is_tall = d.shape[-2] > d.shape[-1]
        size = d_x.norm(dim=(-2, -1), keepdim=True).clamp_min(torch.finfo(torch.float32).tiny)
        unit = d_x / size
        narrow, unit = (x.mT, unit.mT) if is_tall else (x, unit)
        unit = _newton_schulz_adjoint(plan, narrow.to(unit_dtype), unit, unit_dtype)
        d_x = (unit.mT if is_tall else unit) * size
    along = (d_x * d).sum((-2, -1), keepdim=True)
    return (d_x - x * (along / norm.clamp_min(torch.finfo(norm.dtype).tiny))) / (norm + plan.eps)


def _newton_schulz_adjoint(plan: Plan, x: Tensor, d_x: Tensor, dtype: torch.dtype) -> Tensor:
    """Walk the iterations X' = a X + B X, B = b A + c A A, A = X X^T back, with E = dB + dB^T in one go."""
    steps = []
    for a, b, c in plan.coefficients:
        gram = multiply(x, x.mT, dtype).to(dtype)
        polynomial = torch.add(b * gram.float(), multiply(gram, gram, dtype), alpha=c).to(dtype)
        steps.append((x, gram, polynomial, a, b, c))
        x = torch.add(multiply(polynomial, x, dtype), x, alpha=a).to(dtype)
    for x, gram, polynomial, a, b, c in reversed(steps):
        narrow = d_x.to(dtype)
        half = multiply(narrow, x.mT, dtype)
        both = half + half.mT
        turned = multiply(gram, both, dtype)
        towards = torch.add(b * both, turned + turned.mT, alpha=c)
        along = multiply(polynomial, narrow, dtype) + multiply(towards, x, dtype)
        d_x = torch.add(along, d_x, alpha=a)
    return d_x


def norm_adjoint(plan: Plan, moved: Tensor, target: Tensor, d_fast: Tensor) -> tuple[Tensor, Tensor]:
    """Return d_moved and d_target for fast = moved / (||moved|| + eps) * target, per column."""
    length = moved.norm(dim=-2, keepdim=True)
    scaled = length + plan.norm_eps
    along = (d_fast * moved).sum(-2, keepdim=True)
    back = along / (scaled * length.clamp_min(torch.finfo(length.dtype).tiny))
    return (d_fast - moved * back) * (target / scaled), along / scaled
