"""Elementary pieces of the formula side of the claims, written from the paper; the reference uses none of them."""

from __future__ import annotations

import torch
from torch import Tensor

from analysis.spec import MLP, ConstantMomentum, NewtonSchulz, SwiGLU
from analysis.theorems.draws import Problem


def silu(x: Tensor) -> Tensor:
    """x * sigmoid(x)."""
    return x * torch.sigmoid(x)


def silu_slope(x: Tensor) -> Tensor:
    """The derivative of silu, from the product rule: s(x) + x s(x) s(-x)."""
    return torch.sigmoid(x) + x * torch.sigmoid(x) * torch.sigmoid(-x)


def phi(network: object, weights: dict[str, Tensor], x: Tensor) -> Tensor:
    """What multiplies the last layer: SwiGLU's gated product, a perceptron's last hidden layer, or x itself."""
    if isinstance(network, SwiGLU):
        return silu(x @ weights["w_gate"]) * (x @ weights["w_up"])
    if isinstance(network, MLP):
        for name in network.fast_weights[:-1]:
            x = silu(x @ weights[name])
    return x


def outer(keys: Tensor, values: Tensor) -> Tensor:
    """Sum over tokens of k^T v."""
    return torch.einsum("bhti,bhto->bhio", keys, values)


def chunk_means(problem: Problem, per_token: Tensor) -> list[Tensor]:
    """Mean of a [B, H, T, 1] tensor over every chunk, each [B, H, 1, 1]."""
    return [per_token[:, :, span].mean(2, keepdim=True) for span in problem.spans()]


def alphas(problem: Problem) -> list[Tensor]:
    """Momentum factor of every chunk (0 without momentum), each [B, H, 1, 1]."""
    like = problem.inputs.v[:, :, :1, :1]
    if problem.inputs.momentum is not None:
        return chunk_means(problem, problem.inputs.momentum)
    value = problem.spec.momentum.value if isinstance(problem.spec.momentum, ConstantMomentum) else 0.0
    return [torch.full_like(like, value) for _ in problem.spans()]


def beta(alpha: list[Tensor], i: int, j: int) -> Tensor:
    """Cumulative momentum coefficient of Theorem 3: the product of alpha_s over i < s <= j, 1 for i = j."""
    product = torch.ones_like(alpha[0])
    for s in range(i + 1, j + 1):
        product = product * alpha[s]
    return product


def spectral(transform: NewtonSchulz, matrix: Tensor) -> Tensor:
    """M(D) by singular values: U p(s / (||s|| + eps)) V^T, with p the composed odd polynomials of the schedule."""
    left, singular, right = torch.linalg.svd(matrix, full_matrices=False)
    return torch.einsum("...ir,...r,...ro->...io", left, _polynomial(transform, singular), right)


def _polynomial(transform: NewtonSchulz, singular: Tensor) -> Tensor:
    s = singular / (singular.square().sum(-1, keepdim=True).sqrt() + transform.eps)
    for a, b, c in transform.schedule.coefficients:
        s = a * s + b * s**3 + c * s**5
    return s


def spectral_factor(transform: NewtonSchulz, matrix: Tensor) -> Tensor:
    """R with M(D) = D R: V (p(s) / s) V^T on the value side, zero where D has no such direction."""
    _, singular, right = torch.linalg.svd(matrix, full_matrices=False)
    ratio = _polynomial(transform, singular) / singular
    return torch.einsum("...ri,...r,...ro->...io", right, ratio, right)


def to_initial_norms(weight: Tensor, initial: Tensor, eps: float = 1e-5) -> Tensor:
    """Bring every output column of `weight` to the length it has in `initial` (appendix E.4 as published)."""
    length = (weight * weight).sum(-2, keepdim=True).sqrt() + eps
    return weight * (initial * initial).sum(-2, keepdim=True).sqrt() / length
