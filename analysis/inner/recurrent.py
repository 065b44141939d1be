"""Backend `recurrent`: closed-form gradients, one chunk after the other; runs every specification."""

from __future__ import annotations

from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor

from analysis.inner.chunks import chunks
from analysis.inner.networks import gradients, value
from analysis.inner.types import FastWeights, Inputs, Result, State, Trace
from analysis.inner.updates import (
    apply_transforms,
    column_norms,
    inside_rates,
    momentum_gate,
    outside_rates,
    renormalise,
    sign,
    token_losses,
    upstream_gradient,
)
from analysis.spec import DotProduct, InnerLoop, NormMode, Order, QuerySource


def initial_state(spec: InnerLoop, weights: FastWeights) -> State:
    """Return the state before the first chunk: the initial fast weights and, under weight norm, their column norms."""
    fast = {name: weights[name] for name in spec.network.fast_weights}
    if spec.weight_norm is None:
        return State(fast)
    norms = {name: column_norms(fast[name]) for name in spec.moving}
    if spec.weight_norm.detach_target:
        norms = {name: norm.detach() for name, norm in norms.items()}
    main = {name: fast[name] for name in spec.moving} if spec.weight_norm.mode is NormMode.PRE else None
    return State(fast, main=main, target_norms=norms)


def apply(spec: InnerLoop, state: State, inputs: Inputs) -> Tensor:
    """Return f(q), or f(k) when the query source is the key, at the state's fast weights."""
    x = inputs.k if spec.query is QuerySource.KEY else inputs.q
    return value(spec.network, state.fast_weights, x, inputs.grid)


def update(spec: InnerLoop, state: State, inputs: Inputs, dtype: torch.dtype | None = None) -> State:
    """Return the state after `spec.steps` optimiser steps on one chunk, the gradient taken anew at each step."""
    for _ in range(spec.steps if spec.moving else 0):
        state = _advance(spec, state, _steps(spec, state, inputs, dtype))
    return state


def update_and_size(
    spec: InnerLoop, state: State, inputs: Inputs, dtype: torch.dtype | None = None
) -> tuple[State, Float[Tensor, "B H"]]:
    """Return the updated state and the size of the update: summed norms of the raw steps over the norm of the weights.

    The steps are measured before weight norm, which keeps even an absurd step's result finite and of the usual size.
    """
    size = inputs.k.new_zeros(inputs.k.shape[:2])
    start = joint_norm([state.fast_weights[name] for name in spec.moving]) if spec.moving else size + 1
    for _ in range(spec.steps if spec.moving else 0):
        taken = _steps(spec, state, inputs, dtype)
        size = size + joint_norm([step for step, _ in taken.values()])
        state = _advance(spec, state, taken)
    # weights that start at zero have no size to compare with: infinite, as in the parallel form
    return state, size / start


def joint_norm(tensors: list[Tensor]) -> Float[Tensor, "B H"]:
    """l2 norm over the last two axes of all tensors together."""
    return torch.stack([tensor.square().sum((-2, -1)) for tensor in tensors]).sum(0).sqrt()


def _steps(
    spec: InnerLoop, state: State, inputs: Inputs, dtype: torch.dtype | None
) -> dict[str, tuple[Tensor, Tensor]]:
    """Return for every moving weight the signed step and the accumulator D it came from."""
    prediction = None
    if not isinstance(spec.loss, DotProduct):
        prediction = value(spec.network, state.fast_weights, inputs.k, inputs.grid)
    upstream = upstream_gradient(spec.loss, prediction, inputs.v, inputs.num_tokens)
    rates = inside_rates(spec, inputs)
    direction = gradients(
        spec.network, state.fast_weights, inputs.k, upstream, rates, spec.moving, inputs.grid
    )
    if spec.momentum is not None and state.momentum is not None:
        gate = momentum_gate(spec, inputs)
        direction = {name: grad + gate * state.momentum[name] for name, grad in direction.items()}
    factors = outside_rates(spec, inputs)
    transformed = apply_transforms(spec.transform, direction, dtype)
    return {
        name: (sign(spec) * factors[name] * transformed[name], accumulated)
        for name, accumulated in direction.items()
    }


def _advance(spec: InnerLoop, state: State, taken: dict[str, tuple[Tensor, Tensor]]) -> State:
    fast, main = dict(state.fast_weights), None if state.main is None else dict(state.main)
    for name, (step, _) in taken.items():
        moved = (fast[name] if main is None else main[name]) + step
        if main is not None:
            main[name] = moved
        if spec.weight_norm is not None:
            assert state.target_norms is not None
            moved = renormalise(spec.weight_norm, moved, state.target_norms[name])
        fast[name] = moved
    kept = (
        {name: accumulated for name, (_, accumulated) in taken.items()} if spec.momentum is not None else None
    )
    return State(fast, main, kept, state.target_norms)


def inner_loss(spec: InnerLoop, fast_weights: FastWeights, inputs: Inputs) -> Tensor:
    """Return the mean inner loss over the tokens, [B, H]."""
    prediction = value(spec.network, fast_weights, inputs.k, inputs.grid)
    return token_losses(spec.loss, prediction, inputs.v).mean(-1)


def run_recurrent(
    spec: InnerLoop,
    inputs: Inputs,
    weights: FastWeights,
    *,
    measure: bool = False,
    newton_schulz_dtype: torch.dtype | None = None,
    advance: Callable[..., State] = update,
    read: Callable[..., Tensor] = apply,
) -> Result:
    """Run the inner loop chunk by chunk; every specification is supported. `advance`, `read`: `update` and `apply`, compiled."""
    state = initial_state(spec, weights)
    outputs, history = [], []
    for chunk in chunks(spec, inputs.num_update_tokens):
        piece = inputs.tokens(chunk.start, chunk.stop)
        following = state
        if chunk.updates and measure:
            following, size = update_and_size(spec, state, piece, newton_schulz_dtype)
            history.append(_observe(spec, state, following, piece, size))
        elif chunk.updates:
            following = advance(spec, state, piece, newton_schulz_dtype)
        read_from = following if spec.order is Order.UPDATE_THEN_APPLY else state
        outputs.append(read(spec, read_from, piece if inputs.update_tokens is None else inputs))
        state = following
    trace = _trace(history) if history else None
    return Result(torch.cat(outputs, 2), state, trace, "recurrent")


@torch.no_grad()
def _observe(
    spec: InnerLoop, old: State, new: State, piece: Inputs, size: Tensor
) -> tuple[Tensor, Tensor, Tensor, int]:
    before, after = (inner_loss(spec, side.fast_weights, piece) for side in (old, new))
    return before, after, size.detach(), piece.num_tokens


def _trace(history: list[tuple[Tensor, Tensor, Tensor, int]]) -> Trace:
    before, after, size, tokens = zip(*history, strict=True)
    return Trace(torch.stack(before, -1), torch.stack(after, -1), torch.stack(size, -1), tokens)
