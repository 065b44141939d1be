"""The choices of an inner loop that may have parameters: networks, losses, rates, momentum, transforms, weight norm."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from enum import Enum
from typing import Any, ClassVar

from analysis.errors import SpecError
from analysis.spec.enums import NormMode, Placement, Reduction, Schedule


def require_positive(owner: object, name: str, value: float) -> None:
    """Raise SpecError unless a field of `owner` is a positive finite number."""
    if (
        isinstance(value, bool)
        or not isinstance(value, (int, float))
        or not math.isfinite(value)
        or value <= 0
    ):
        raise SpecError(
            f"{type(owner).__name__}.{name} must be a positive finite number, received {value!r}; choose a value above 0."
        )


def require_kinds(owner: Any) -> None:
    """Raise SpecError for a field of a choice that should be an enum member or a truth value and is not."""
    for item in fields(owner):
        wanted, value = type(item.default), getattr(owner, item.name)
        if isinstance(item.default, Enum | bool) and not isinstance(value, wanted):
            members = [str(member) for member in wanted] if issubclass(wanted, Enum) else ["True", "False"]
            raise SpecError(
                f"{type(owner).__name__}.{item.name} must be one of {', '.join(members)}, received {value!r}; pass one of those."
            )


# --- networks -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Linear:
    """f(x) = x W: the single linear layer of Variant 3 onwards."""

    kind: ClassVar[str] = "linear"
    fast_weights: ClassVar[tuple[str, ...]] = ("w_out",)
    last: ClassVar[str] = "w_out"


@dataclass(frozen=True)
class SwiGLU:
    """f(x) = (silu(x W_gate) * (x W_up)) W_out: LaCT's inner network (section 5.3)."""

    kind: ClassVar[str] = "swiglu"
    fast_weights: ClassVar[tuple[str, ...]] = ("w_gate", "w_up", "w_out")
    last: ClassVar[str] = "w_out"


@dataclass(frozen=True)
class GLU:
    """f(x) = silu(x W_gate) * (x W_linear): ViTTT's inner network, whose last layer is the linear branch (section 5.4)."""

    kind: ClassVar[str] = "glu"
    fast_weights: ClassVar[tuple[str, ...]] = ("w_gate", "w_linear")
    last: ClassVar[str] = "w_linear"


@dataclass(frozen=True)
class DepthwiseConv3x3:
    """f(X) = depthwise 3x3 convolution with zero padding over a token grid: ViTTT's second branch (appendix G)."""

    kind: ClassVar[str] = "depthwise_conv3x3"
    fast_weights: ClassVar[tuple[str, ...]] = ("w_conv",)
    last: ClassVar[str] = "w_conv"


@dataclass(frozen=True)
class MLP:
    """f(x) = silu(... silu(x W_1) ... W_{depth-1}) W_out: a bias-free perceptron with `depth` layers."""

    depth: int = 2
    kind: ClassVar[str] = "mlp"
    last: ClassVar[str] = "w_out"

    def __post_init__(self) -> None:
        if isinstance(self.depth, bool) or not isinstance(self.depth, int) or self.depth < 2:
            raise SpecError(
                f"MLP.depth must be an integer of at least 2, received {self.depth!r}; use Linear() for one layer."
            )

    @property
    def fast_weights(self) -> tuple[str, ...]:
        """Names of the fast weights, input side first."""
        return (*(f"w_{layer}" for layer in range(1, self.depth)), "w_out")


Network = Linear | SwiGLU | GLU | DepthwiseConv3x3 | MLP


# --- losses -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Loss:
    scale: float = 1.0
    reduction: Reduction = Reduction.SUM

    def __post_init__(self) -> None:
        require_positive(self, "scale", self.scale)


@dataclass(frozen=True)
class DotProduct(_Loss):
    """L = -scale <f(k), v>, added or averaged over the chunk's tokens: the loss of every published checkpoint."""

    kind: ClassVar[str] = "dot_product"


@dataclass(frozen=True)
class SquaredError(_Loss):
    """L = scale ||f(k) - v||^2 / 2, added or averaged over the chunk's tokens (section 3)."""

    kind: ClassVar[str] = "squared_error"


Loss = DotProduct | SquaredError


# --- rates and momentum -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class PerTokenRate:
    """eta_t is an input for every token; `shared` says that one rate serves all fast weights instead of one each."""

    shared: bool = False
    placement: Placement = Placement.INSIDE_GRADIENT
    kind: ClassVar[str] = "per_token"


@dataclass(frozen=True)
class ConstantRate:
    """eta is the same number for every token and every fast weight (Variant 4; ViTTT uses 1.0)."""

    value: float = 1.0
    placement: Placement = Placement.INSIDE_GRADIENT
    kind: ClassVar[str] = "constant"

    def __post_init__(self) -> None:
        require_positive(self, "value", self.value)


Rate = PerTokenRate | ConstantRate


@dataclass(frozen=True)
class PerTokenMomentum:
    """alpha_c is the mean of a per-token input over chunk c: D_c = G_c + alpha_c D_{c-1} (Theorem 3, as published)."""

    kind: ClassVar[str] = "per_token"


@dataclass(frozen=True)
class ConstantMomentum:
    """alpha is one number for all chunks: D_c = G_c + alpha D_{c-1}."""

    value: float = 0.9
    kind: ClassVar[str] = "constant"

    def __post_init__(self) -> None:
        require_positive(self, "value", self.value)


Momentum = PerTokenMomentum | ConstantMomentum


# --- gradient transforms and weight norm --------------------------------------------------------------------------


@dataclass(frozen=True)
class Identity:
    """The accumulated gradient is used as it is."""

    kind: ClassVar[str] = "identity"
    linear: ClassVar[bool] = True


@dataclass(frozen=True)
class FrobeniusScaling:
    """D / (||D||_F + eps): what published LaCT-NVS does with zero orthogonalisation steps."""

    eps: float = 1e-7
    kind: ClassVar[str] = "frobenius_scaling"
    linear: ClassVar[bool] = False

    def __post_init__(self) -> None:
        require_positive(self, "eps", self.eps)


@dataclass(frozen=True)
class NewtonSchulz:
    """M(D) of section 5.3: scale by the Frobenius norm, then iterate towards an orthogonal matrix by a named schedule."""

    schedule: Schedule = Schedule.LACT_LM
    eps: float = 1e-7
    kind: ClassVar[str] = "newton_schulz"
    linear: ClassVar[bool] = False

    def __post_init__(self) -> None:
        require_positive(self, "eps", self.eps)


@dataclass(frozen=True)
class SoftClip:
    """g / (||g|| + 1) for every output column g: ViTTT's gradient clipping, odd but not linear."""

    kind: ClassVar[str] = "soft_clip"
    linear: ClassVar[bool] = False


Transform = Identity | FrobeniusScaling | NewtonSchulz | SoftClip


@dataclass(frozen=True)
class WeightNorm:
    """Bring every output column of a moving fast weight back to its initial l2 norm: w / (||w|| + eps) * ||w_initial||.

    `detach_target` keeps the initial norm out of the outer gradient (LaCT-NVS does, LaCT-LM does not).
    """

    mode: NormMode = NormMode.POST
    detach_target: bool = False
    eps: float = 1e-5
    kind: ClassVar[str] = "initial_norm"

    def __post_init__(self) -> None:
        require_positive(self, "eps", self.eps)
