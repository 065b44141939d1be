"""The parts of one inner optimiser step: upstream gradients, rates, momentum, gradient transforms, weight norm."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from jaxtyping import Float
from torch import Tensor

from analysis.inner.orthogonalise import newton_schulz, newton_schulz_together
from analysis.inner.types import Inputs
from analysis.spec import (
    ConstantMomentum,
    ConstantRate,
    Direction,
    DotProduct,
    FrobeniusScaling,
    Identity,
    InnerLoop,
    NewtonSchulz,
    Placement,
    Reduction,
    SoftClip,
    WeightNorm,
)
from analysis.spec.choices import Loss, Transform


def token_losses(
    loss: Loss, prediction: Float[Tensor, "*shape V"], v: Float[Tensor, "*shape V"]
) -> Float[Tensor, "*shape"]:
    """Inner loss of every token: -scale <f(k), v>, or scale ||f(k) - v||^2 / 2."""
    if isinstance(loss, DotProduct):
        return -loss.scale * (prediction * v).sum(-1)
    return loss.scale / 2 * (prediction - v).square().sum(-1)


def upstream_gradient(loss: Loss, prediction: Tensor | None, v: Tensor, num_tokens: int) -> Tensor:
    """dL_t/df(k_t): -v for the dot product (E.2), f(k) - v for the squared error, times scale and 1/tokens for a mean."""
    factor = loss.scale / (num_tokens if loss.reduction is Reduction.MEAN else 1)
    if isinstance(loss, DotProduct):
        return -factor * v
    assert prediction is not None
    return factor * (prediction - v)


def inside_rates(spec: InnerLoop, inputs: Inputs) -> dict[str, Tensor | float]:
    """Return the rate that multiplies each token inside the gradient, per moving fast weight (1 when it acts outside)."""
    if spec.lr.placement is Placement.OUTSIDE_TRANSFORM:
        return dict.fromkeys(spec.moving, 1.0)
    return {name: _rate(spec, inputs, name) for name in spec.moving}


def outside_rates(spec: InnerLoop, inputs: Inputs) -> dict[str, Tensor | float]:
    """Return the factor of each transformed step: step_size, times the chunk's mean rate when it acts outside (appendix H)."""
    if spec.lr.placement is Placement.INSIDE_GRADIENT:
        return dict.fromkeys(spec.moving, spec.step_size)
    found: dict[str, Tensor | float] = {}
    for name in spec.moving:
        rate = _rate(spec, inputs, name)
        found[name] = spec.step_size * (rate.mean(2, keepdim=True) if isinstance(rate, Tensor) else rate)
    return found


def _rate(spec: InnerLoop, inputs: Inputs, name: str) -> Tensor | float:
    if isinstance(spec.lr, ConstantRate):
        return spec.lr.value
    return inputs.rates["shared" if spec.lr.shared else name]


def momentum_gate(spec: InnerLoop, inputs: Inputs) -> Float[Tensor, "B H 1 1"] | float:
    """alpha_c: the mean of the per-token gates over the chunk, a constant, or 0 without momentum."""
    if spec.momentum is None:
        return 0.0
    if isinstance(spec.momentum, ConstantMomentum):
        return spec.momentum.value
    assert inputs.momentum is not None
    return inputs.momentum.mean(2, keepdim=True)


def sign(spec: InnerLoop) -> float:
    """-1 for descent, +1 for ascent: W <- W + sign * step."""
    return -1.0 if spec.direction is Direction.DESCENT else 1.0


def apply_transform(
    transform: Transform, gradient: Float[Tensor, "*batch I O"], dtype: torch.dtype | None = None
) -> Float[Tensor, "*batch I O"]:
    """Transform an accumulated gradient; `dtype` is the precision of the Newton-Schulz iteration."""
    if isinstance(transform, Identity):
        return gradient
    if isinstance(transform, SoftClip):
        clipped: Tensor = gradient / (column_norms(gradient) + 1)
        return clipped
    if isinstance(transform, FrobeniusScaling):
        scaled: Tensor = gradient / (
            torch.linalg.vector_norm(gradient, dim=(-2, -1), keepdim=True) + transform.eps
        )
        return scaled
    assert isinstance(transform, NewtonSchulz)
    return newton_schulz(transform, gradient, dtype)


def apply_transforms(
    transform: Transform, gradients: Mapping[str, Tensor], dtype: torch.dtype | None = None
) -> dict[str, Tensor]:
    """Transform the accumulated gradients of one step, by fast weight."""
    if isinstance(transform, NewtonSchulz) and len(gradients) > 1:
        return newton_schulz_together(transform, gradients, dtype)
    return {name: apply_transform(transform, gradient, dtype) for name, gradient in gradients.items()}


def column_norms(weight: Float[Tensor, "*batch I O"]) -> Float[Tensor, "*batch 1 O"]:
    """l2 norm of every output column over the input axis."""
    norms: Tensor = torch.linalg.vector_norm(weight, dim=-2, keepdim=True)
    return norms


def renormalise(norm: WeightNorm, weight: Tensor, target: Tensor) -> Tensor:
    """W / (||W|| + eps) * target per output column (appendix E.4, with the initial norm as published)."""
    scale = target / (column_norms(weight) + norm.eps)
    return weight * scale
