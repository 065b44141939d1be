"""Backend `recurrent`: closed-form gradients, one chunk after the other; runs every specification."""

from __future__ import annotations

import torch
from torch import Tensor

from analysis.inner.chunks import chunks
from analysis.inner.networks import gradients, value
from analysis.inner.types import FastWeights, Inputs, Result, State, Trace
from analysis.inner.updates import (
    apply_transform,
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
        state = _step(spec, state, inputs, dtype)
    return state


def _step(spec: InnerLoop, state: State, inputs: Inputs, dtype: torch.dtype | None) -> State:
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
    fast, main = dict(state.fast_weights), None if state.main is None else dict(state.main)
    for name in spec.moving:
        start = fast[name] if main is None else main[name]
        moved = start + sign(spec) * factors[name] * apply_transform(spec.transform, direction[name], dtype)
        if main is not None:
            main[name] = moved
        if spec.weight_norm is not None:
            assert state.target_norms is not None
            moved = renormalise(spec.weight_norm, moved, state.target_norms[name])
        fast[name] = moved
    kept = direction if spec.momentum is not None else None
    return State(fast, main, kept, state.target_norms)


def inner_loss(spec: InnerLoop, fast_weights: FastWeights, inputs: Inputs) -> Tensor:
    """Return the mean inner loss over the tokens, [B, H]."""
    prediction = value(spec.network, fast_weights, inputs.k, inputs.grid)
    return token_losses(spec.loss, prediction, inputs.v).mean(-1)


def relative_change(before: FastWeights, after: FastWeights, names: tuple[str, ...]) -> Tensor:
    """Return ||after - before|| / ||before|| over all named weights together, [B, H]."""
    if not names:
        some = next(iter(before.values()))
        return some.new_zeros(some.shape[:2])
    moved = sum((after[name] - before[name]).square().sum((-2, -1)) for name in names)
    size = sum(before[name].square().sum((-2, -1)) for name in names)
    assert isinstance(moved, Tensor) and isinstance(size, Tensor)
    return (moved / size.clamp_min(torch.finfo(size.dtype).tiny)).sqrt()


def run_recurrent(
    spec: InnerLoop,
    inputs: Inputs,
    weights: FastWeights,
    *,
    measure: bool = False,
    newton_schulz_dtype: torch.dtype | None = None,
) -> Result:
    """Run the inner loop chunk by chunk; every specification is supported."""
    state = initial_state(spec, weights)
    if inputs.update_tokens is not None:
        updating = inputs.tokens(0, inputs.update_tokens)
        following = update(spec, state, updating, newton_schulz_dtype)
        trace = _trace(spec, [(state, following, updating)]) if measure else None
        return Result(apply(spec, following, inputs), following, trace, "recurrent")
    outputs, history = [], []
    for chunk in chunks(spec, inputs.num_tokens):
        piece = inputs.tokens(chunk.start, chunk.stop)
        following = update(spec, state, piece, newton_schulz_dtype) if chunk.updates else state
        read_from = following if spec.order is Order.UPDATE_THEN_APPLY else state
        outputs.append(apply(spec, read_from, piece))
        if measure and chunk.updates:
            history.append((state, following, piece))
        state = following
    trace = _trace(spec, history) if history else None
    return Result(torch.cat(outputs, 2), state, trace, "recurrent")


def _trace(spec: InnerLoop, history: list[tuple[State, State, Inputs]]) -> Trace:
    with torch.no_grad():
        return Trace(
            before=torch.stack([inner_loss(spec, old.fast_weights, piece) for old, _, piece in history], -1),
            after=torch.stack([inner_loss(spec, new.fast_weights, piece) for _, new, piece in history], -1),
            update_norm=torch.stack(
                [relative_change(old.fast_weights, new.fast_weights, spec.moving) for old, new, _ in history],
                -1,
            ),
            tokens=tuple(piece.num_tokens for _, _, piece in history),
        )
