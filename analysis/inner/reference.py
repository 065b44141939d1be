"""Backend `reference`: the inner loop read off the page, its gradients taken by autograd.

It shares no formula with the other backends: networks, losses, transforms and the order of events are written anew here, so
that agreement means something. It is slow and meant for checking.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from analysis.inner.types import FastWeights, Inputs, Result, State
from analysis.spec import (
    GLU,
    ConstantMomentum,
    ConstantRate,
    DepthwiseConv3x3,
    Direction,
    DotProduct,
    FrobeniusScaling,
    Identity,
    InnerLoop,
    Linear,
    NewtonSchulz,
    NormMode,
    Order,
    Placement,
    QuerySource,
    Reduction,
    SoftClip,
    SwiGLU,
    Tail,
)


def _f(spec: InnerLoop, w: dict[str, Tensor], x: Tensor, grid: tuple[int, int] | None) -> Tensor:
    def linear(a: Tensor, weight: Tensor) -> Tensor:
        return torch.einsum("bhti,bhio->bhto", a, weight)

    def swish(a: Tensor) -> Tensor:
        # without an exponential, whose gradient would overflow where a loop blows up
        return a * (1 + torch.tanh(a / 2)) / 2

    if isinstance(spec.network, Linear):
        return linear(x, w["w_out"])
    if isinstance(spec.network, SwiGLU):
        return linear(swish(linear(x, w["w_gate"])) * linear(x, w["w_up"]), w["w_out"])
    if isinstance(spec.network, GLU):
        return swish(linear(x, w["w_gate"])) * linear(x, w["w_linear"])
    if isinstance(spec.network, DepthwiseConv3x3):
        assert grid is not None
        b, h, t, d = x.shape
        image = x.permute(0, 1, 3, 2).reshape(1, b * h * d, *grid)
        kernels = w["w_conv"].permute(0, 1, 3, 2).reshape(b * h * d, 1, 3, 3)
        return F.conv2d(image, kernels, padding=1, groups=b * h * d).view(b, h, d, t).permute(0, 1, 3, 2)
    for name in spec.network.fast_weights[:-1]:
        x = swish(linear(x, w[name]))
    return linear(x, w["w_out"])


def _losses(spec: InnerLoop, prediction: Tensor, v: Tensor) -> Tensor:
    if isinstance(spec.loss, DotProduct):
        each = -torch.einsum("bhtv,bhtv->bht", prediction, v)
    else:
        each = 0.5 * torch.einsum("bhtv,bhtv->bht", prediction - v, prediction - v)
    each = each * spec.loss.scale
    return each / each.shape[-1] if spec.loss.reduction is Reduction.MEAN else each


def _transform(spec: InnerLoop, g: Tensor) -> Tensor:
    kind = spec.transform
    if isinstance(kind, Identity):
        return g
    if isinstance(kind, SoftClip):
        return g / (torch.sqrt((g * g).sum(-2, keepdim=True)) + 1)
    frobenius = torch.sqrt((g * g).sum((-2, -1), keepdim=True))
    x = g / (frobenius + kind.eps)
    if isinstance(kind, FrobeniusScaling):
        return x
    assert isinstance(kind, NewtonSchulz)
    for a, b, c in kind.schedule.coefficients:
        # The odd polynomial a s + b s^3 + c s^5 of the singular values, with the Gram matrix on the right.
        right = x.mT @ x
        x = x @ (a * torch.eye(x.shape[-1], dtype=x.dtype, device=x.device) + b * right + c * right @ right)
    return x


def _step(
    spec: InnerLoop,
    w: dict[str, Tensor],
    kept: dict[str, Tensor],
    goal: dict[str, Tensor],
    main: dict[str, Tensor],
    x: Inputs,
) -> None:
    losses = _losses(spec, _f(spec, w, x.k, x.grid), x.v)
    slopes = {}
    for name in spec.moving:
        if isinstance(spec.lr, ConstantRate):
            rate = torch.full_like(losses, spec.lr.value)
        else:
            rate = x.rates["shared" if spec.lr.shared else name].squeeze(-1)
        outside = spec.lr.placement is Placement.OUTSIDE_TRANSFORM
        weighted = losses if outside else rate * losses
        (slopes[name],) = torch.autograd.grad(weighted.sum(), w[name], create_graph=True)
        if spec.momentum is not None:
            fixed = isinstance(spec.momentum, ConstantMomentum)
            alpha = spec.momentum.value if fixed else x.momentum.mean((2, 3))[..., None, None]  # type: ignore[union-attr]
            slopes[name] = slopes[name] + alpha * kept.get(name, 0.0)
            kept[name] = slopes[name]
        slopes[name] = spec.step_size * _transform(spec, slopes[name])
        if outside:
            slopes[name] = slopes[name] * rate.mean(2)[..., None, None]
    for name, slope in slopes.items():
        base = main.get(name, w[name])
        moved = base - slope if spec.direction is Direction.DESCENT else base + slope
        if name in main:
            main[name] = moved
        if spec.weight_norm is not None:
            length = torch.linalg.vector_norm(moved, dim=2, keepdim=True)
            moved = moved * (goal[name] / (length + spec.weight_norm.eps))
        w[name] = moved


def run_reference(spec: InnerLoop, inputs: Inputs, weights: FastWeights) -> Result:
    """Run the inner loop as written: autograd through the loss of each chunk; outer gradients flow through everything."""
    with torch.enable_grad():
        w = {
            name: weights[name] if weights[name].requires_grad else weights[name].detach().requires_grad_()
            for name in spec.network.fast_weights
        }
        goal = {name: torch.linalg.vector_norm(w[name], dim=2, keepdim=True) for name in spec.moving}
        if spec.weight_norm is not None and spec.weight_norm.detach_target:
            goal = {name: norm.detach() for name, norm in goal.items()}
        prenorm = spec.weight_norm is not None and spec.weight_norm.mode is NormMode.PRE
        main = {name: w[name] for name in spec.moving} if prenorm else {}
        kept: dict[str, Tensor] = {}
        total = inputs.q.shape[2]
        size = spec.chunk or total
        outputs = []
        for first in range(0, total, size):
            piece = inputs.tokens(first, min(first + size, total))
            read = piece.k if spec.query is QuerySource.KEY else piece.q
            if spec.order is Order.APPLY_THEN_UPDATE:
                outputs.append(_f(spec, w, read, inputs.grid))
            if not (first + size >= total and spec.tail is Tail.APPLY_ONLY):
                lesson = piece if inputs.update_tokens is None else inputs.tokens(0, inputs.update_tokens)
                for _ in range(spec.steps):
                    _step(spec, w, kept, goal, main, lesson)
            if spec.order is Order.UPDATE_THEN_APPLY:
                outputs.append(_f(spec, w, read, inputs.grid))
        state = State(w, main or None, kept or None, goal if spec.weight_norm is not None else None)
        return Result(torch.cat(outputs, 2), state, None, "reference")
