"""What the kernels must know of an inner loop, as plain numbers and names, and why they cannot run some loops."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

NETWORKS = ("swiglu", "linear")
TRANSFORMS = ("identity", "frobenius_scaling", "newton_schulz")
ROWS_AT_ONCE = 65_536
"""Tokens of all sequences together whose hidden features exist at once: 50 MB in bf16 at width 384, what an L2 cache holds."""
LEAST_AT_ONCE = 512
"""Tokens of every sequence that are worth a launch, however many sequences there are."""


@dataclass(frozen=True)
class Plan:
    """An inner loop without its tensors.

    Attributes:
        network: 'swiglu' or 'linear'.
        names, moving: all fast weights, and those that move.
        chunk, steps, inclusive, tail_updates, reads_keys: the order of events.
        step: signed factor of every transformed step.
        scale, is_mean: factor of the negative dot-product loss (a constant rate included), and whether it is a mean.
        rates: names of the per-token rates, in the order of `moving`, or empty; is_shared: one rate for all.
        momentum: None, a constant, or 'per token'.
        transform, coefficients, eps: what happens to the accumulated gradient.
        norm, norm_eps, detach_target: weight norm ('post', 'pre' or None).
    """

    network: str
    names: tuple[str, ...]
    moving: tuple[str, ...]
    chunk: int | None
    steps: int
    inclusive: bool
    tail_updates: bool
    reads_keys: bool
    step: float
    scale: float
    is_mean: bool
    rates: tuple[str, ...]
    momentum: float | str | None
    transform: str
    coefficients: tuple[tuple[float, float, float], ...]
    eps: float
    norm: str | None
    norm_eps: float
    detach_target: bool

    @property
    def moves_all(self) -> bool:
        """Whether the kernel parameters move with the last layer."""
        return len(self.moving) > 1

    @property
    def reshapes(self) -> bool:
        """Whether momentum or a transform stands between the gradients and the updates."""
        return self.momentum is not None or self.transform != "identity"

    @property
    def is_additive(self) -> bool:
        """Whether all chunks can run at once: only the last layer moves, one step, no norm between the chunks."""
        return not self.moves_all and self.norm is None and self.steps == 1


@dataclass(frozen=True)
class Chunks:
    """How the tokens of a call are cut: tokens of a chunk, chunks, and how many of them update."""

    length: int
    count: int
    updates: int


def chunks_of(plan: Plan, tokens: int) -> Chunks:
    """Cut `tokens` updating tokens as the plan asks; without a chunk size there is one chunk."""
    length = min(plan.chunk or tokens, tokens)
    count = -(-tokens // length)
    return Chunks(length, count, count if plan.tail_updates else count - 1)


def tokens_at_once(sequences: int) -> int:
    """Return how many tokens of each of so many sequences have hidden features at once."""
    return max(LEAST_AT_ONCE, ROWS_AT_ONCE // sequences)


def refusal(spec: Any) -> str | None:
    """Return why the kernels cannot run a specification, naming the field, or None when they can."""
    if spec.network.kind not in NETWORKS:
        return f"network={spec.network.kind}: the kernels cover {' and '.join(NETWORKS)}"
    if spec.loss.kind != "dot_product":
        return f"loss={spec.loss.kind}: the kernels cover the dot product"
    if spec.lr.placement.value != "inside_gradient":
        return f"lr.placement={spec.lr.placement.value}: the kernels carry rates inside the gradient"
    if spec.transform.kind not in TRANSFORMS:
        return f"transform={spec.transform.kind}: the kernels cover {', '.join(TRANSFORMS)}"
    if not spec.moving:
        return "trained=none: nothing moves, so there is no update to fuse"
    return None


def plan_of(spec: Any) -> Plan:
    """Read a specification that `refusal` has passed."""
    per_token = spec.lr.kind == "per_token"
    shared = per_token and spec.lr.shared
    rates = (("shared",) * len(spec.moving) if shared else spec.moving) if per_token else ()
    transform, norm = spec.transform, spec.weight_norm
    schedule = getattr(transform, "schedule", None)
    momentum = None if spec.momentum is None else getattr(spec.momentum, "value", "per token")
    return Plan(
        network=spec.network.kind,
        names=spec.network.fast_weights,
        moving=spec.moving,
        chunk=spec.chunk,
        steps=spec.steps,
        inclusive=spec.order.value == "update_then_apply",
        tail_updates=spec.tail.value == "update",
        reads_keys=spec.query.value == "key",
        step=spec.step_size * (1.0 if spec.direction.value == "ascent" else -1.0),
        scale=spec.loss.scale * (1.0 if per_token else spec.lr.value),
        is_mean=spec.loss.reduction.value == "mean",
        rates=rates,
        momentum=momentum,
        transform=transform.kind,
        coefficients=() if schedule is None else schedule.coefficients,
        eps=getattr(transform, "eps", 0.0),
        norm=None if norm is None else norm.mode.value,
        norm_eps=0.0 if norm is None else norm.eps,
        detach_target=norm is not None and norm.detach_target,
    )
