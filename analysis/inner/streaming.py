"""Feeding a sequence in pieces: fast weights, momentum and the unfinished chunk travel in an explicit state.

Any split gives the outputs and the final state of one pass. A chunk updates only once it is known not to be the final one,
so the published rule that the final chunk never updates holds for streams too. With update-then-apply the outputs of a
chunk exist only when it is complete: `feed` returns what is ready, `finish` the rest.
"""

from __future__ import annotations

import dataclasses

import torch
from jaxtyping import Float
from torch import Tensor

from analysis.errors import InputError
from analysis.inner.chunks import check, require_weights
from analysis.inner.recurrent import apply, initial_state, update
from analysis.inner.tensors import require_one_dtype
from analysis.inner.types import FastWeights, Inputs, State
from analysis.spec import InnerLoop, Order, Tail


def begin(spec: InnerLoop, weights: FastWeights) -> State:
    """Return the state of an empty stream; raises InputError when a fast weight is missing."""
    require_weights(spec, weights)
    return initial_state(spec, weights)


def feed(
    spec: InnerLoop, state: State, piece: Inputs, newton_schulz_dtype: torch.dtype | None = None
) -> tuple[Float[Tensor, "B H R V"], State]:
    """Take in the next tokens and return the outputs that are ready, R of them (possibly none), with the new state.

    Raises:
        InputError: the pieces do not fit the loop, or the loop splits update and applied tokens.
    """
    if piece.update_tokens is not None:
        raise InputError(
            "a stream needs update_tokens=None, received a split; run the whole sequence at once instead."
        )
    check(spec, piece, state.fast_weights)
    require_one_dtype(spec, piece, state.fast_weights)
    pending = piece if state.pending is None else state.pending.followed_by(piece)
    fresh_from = 0 if state.pending is None else state.pending.num_tokens
    outputs = []
    while spec.chunk is not None and pending.num_tokens > spec.chunk:
        chunk, pending = pending.tokens(0, spec.chunk), pending.tokens(spec.chunk, pending.num_tokens)
        following = update(spec, state, chunk, newton_schulz_dtype)
        if spec.order is Order.APPLY_THEN_UPDATE:
            outputs.append(apply(spec, state, chunk.tokens(fresh_from, spec.chunk)))
        else:
            outputs.append(apply(spec, following, chunk))
        state, fresh_from = following, 0
    if spec.order is Order.APPLY_THEN_UPDATE:
        outputs.append(apply(spec, state, pending.tokens(fresh_from, pending.num_tokens)))
    ready = torch.cat(outputs, 2) if outputs else pending.v[:, :, :0]
    return ready, dataclasses.replace(state, pending=pending)


def finish(
    spec: InnerLoop, state: State, newton_schulz_dtype: torch.dtype | None = None
) -> tuple[Float[Tensor, "B H R V"], State]:
    """Close the stream: let the final chunk update if the loop's tail says so, and return the outputs still owed.

    Raises:
        InputError: nothing was fed.
    """
    if state.pending is None:
        raise InputError(
            "finish needs a stream with at least one token, received an empty one; call feed first."
        )
    pending = state.pending
    following = dataclasses.replace(state, pending=None)
    if spec.tail is Tail.UPDATE:
        following = update(spec, following, pending, newton_schulz_dtype)
    if spec.order is Order.APPLY_THEN_UPDATE:
        return pending.v[:, :, :0], following
    return apply(spec, following, pending), following
