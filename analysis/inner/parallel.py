"""Backend `parallel`: all chunks at once, for every reducible specification (section 6.2, appendix H).

Additive classes: per-chunk gradients as one batched product, momentum by a scan, the transform on every chunk, weights by a
running sum, read-out as one batched product. Affine class: a scan over (matrix, offset). Several inner steps are so many
virtual chunks with the same tokens. A single update has nothing to scan and is the closed form itself.

On a processor the additive classes run in windows of chunks, one after the other: products over more tokens than its caches
hold take longer than their parts.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from analysis.errors import UnsupportedSpecError
from analysis.inner import linear_view
from analysis.inner.chunks import num_chunks
from analysis.inner.layout import ChunkedUpdates, by_chunk, by_token, chunked_updates, shared_over_chunks
from analysis.inner.networks import gradients, value
from analysis.inner.recurrent import joint_norm, run_recurrent
from analysis.inner.scans import affine_prefixes, decayed_sums, running_sums
from analysis.inner.types import FastWeights, Inputs, Result, State, Trace
from analysis.inner.updates import apply_transform, column_norms, renormalise, sign, token_losses
from analysis.spec import InnerLoop, NormMode, Order, QuerySource, ReducibilityClass, Tail, reducibility

WINDOW = 2**18
"""Numbers of one tensor of tokens, over all sequences, that a window on a processor holds: a megabyte in float32."""


class Carried(NamedTuple):
    """The moving weights between two windows: as applied, unnormalised, and their momentum."""

    fast: Float[Tensor, "B H I O"]
    main: Float[Tensor, "B H I O"]
    momentum: Float[Tensor, "B H I O"] | None


def run_parallel(
    spec: InnerLoop,
    inputs: Inputs,
    weights: FastWeights,
    *,
    measure: bool = False,
    newton_schulz_dtype: torch.dtype | None = None,
) -> Result:
    """Run all chunks at once.

    Raises:
        UnsupportedSpecError: the specification is sequential; the message names the field and the appendix.
    """
    verdict = reducibility(spec, num_chunks(spec, inputs.num_update_tokens))
    if not verdict.is_parallel:
        raise UnsupportedSpecError(
            f"the parallel backend needs a reducible inner loop, received one whose {verdict.field} makes it sequential: "
            f"{verdict.reason}."
        )
    if verdict.kind is ReducibilityClass.SINGLE_UPDATE or not spec.moving:
        single = run_recurrent(
            spec, inputs, weights, measure=measure, newton_schulz_dtype=newton_schulz_dtype
        )
        return Result(single.outputs, single.state, single.trace, "parallel")
    if verdict.kind is not ReducibilityClass.AFFINE:
        return _in_windows(spec, inputs, weights, measure, newton_schulz_dtype)
    updates = chunked_updates(spec, inputs)
    states, momentum, raw = _affine_states(spec, inputs, updates, weights)
    outputs = _read_out(spec, inputs, weights, states)
    final = _final(spec, weights, states[:, :, updates.updates], None, momentum)
    trace = _trace(spec, inputs, updates, weights, states, raw) if measure and updates.updates else None
    return Result(outputs, final, trace, "parallel")


def _in_windows(
    spec: InnerLoop, inputs: Inputs, weights: FastWeights, measure: bool, dtype: torch.dtype | None
) -> Result:
    """Run an additive loop window by window, each on the state that the one before leaves behind."""
    last = spec.network.last
    carried = Carried(weights[last], weights[last], None)
    outputs, traces = [], []
    for piece, is_final in _windows(spec, inputs):
        local = spec if is_final else spec.edit(tail=Tail.UPDATE)
        updates = chunked_updates(local, piece)
        states, following, raw = _additive_states(local, piece, updates, weights, carried, dtype)
        outputs.append(_read_out(local, piece, weights, states))
        if measure and updates.updates:
            traces.append(_trace(local, piece, updates, weights, states, raw))
        carried = following
    main = None if spec.weight_norm is None else carried.main
    return Result(
        outputs[0] if len(outputs) == 1 else torch.cat(outputs, 2),
        _final(spec, weights, carried.fast, main, carried.momentum),
        _joined(traces) if traces else None,
        "parallel",
    )


def _windows(spec: InnerLoop, inputs: Inputs) -> Iterator[tuple[Inputs, bool]]:
    """Yield runs of whole chunks, and whether each is the final one; everything at once off the processor."""
    on_processor = inputs.q.device.type == "cpu" and not torch.compiler.is_compiling()
    if not on_processor or spec.chunk is None or inputs.update_tokens is not None or inputs.grid is not None:
        yield inputs, True
        return
    numbers = inputs.q.shape[0] * inputs.q.shape[1] * spec.chunk * max(inputs.k.shape[3], inputs.v.shape[3])
    tokens = spec.chunk * max(1, WINDOW // numbers)
    for start in range(0, inputs.num_tokens, tokens):
        stop = min(start + tokens, inputs.num_tokens)
        yield inputs.tokens(start, stop), stop == inputs.num_tokens


def _final(
    spec: InnerLoop, weights: FastWeights, fast: Tensor, main: Tensor | None, momentum: Tensor | None
) -> State:
    return State(
        {**{name: weights[name] for name in spec.network.fast_weights}, spec.network.last: fast},
        main=_named(spec, main),
        momentum=_named(spec, momentum),
        target_norms=None if spec.weight_norm is None else _named(spec, _target_norms(spec, weights)),
    )


def _named(spec: InnerLoop, tensor: Tensor | None) -> dict[str, Tensor] | None:
    return None if tensor is None else {spec.network.last: tensor}


def _target_norms(spec: InnerLoop, weights: FastWeights) -> Tensor:
    norms = column_norms(weights[spec.network.last])
    return norms.detach() if spec.weight_norm is not None and spec.weight_norm.detach_target else norms


def _additive_states(
    spec: InnerLoop,
    inputs: Inputs,
    updates: ChunkedUpdates,
    weights: FastWeights,
    carried: Carried,
    dtype: torch.dtype | None,
) -> tuple[Float[Tensor, "B H N1 I O"], Carried, Tensor]:
    """Return the last layer before chunk 0..N, what the next window starts from, and every raw step."""
    last, live = spec.network.last, slice(0, updates.updates)
    if not updates.updates:
        return carried.fast.unsqueeze(2), carried, carried.fast.unsqueeze(2)[:, :, :0]
    shared = {**shared_over_chunks(weights), last: carried.fast.unsqueeze(2)}
    upstream = -updates.v[:, :, live]
    rates = {last: updates.weight[:, :, live]}
    gradient = gradients(spec.network, shared, updates.k[:, :, live], upstream, rates, (last,), inputs.grid)[
        last
    ]
    direction = _each_step(spec, gradient)
    if spec.momentum is not None:
        direction = decayed_sums(_each_step(spec, updates.decay[:, :, live]), direction, carried.momentum)
    factor = _each_step(spec, updates.factor[:, :, live])
    increments = apply_transform(spec.transform, direction, dtype) * factor
    sums = running_sums(sign(spec) * increments, carried.main)[:, :, :: spec.steps]
    momentum = direction[:, :, -1] if spec.momentum is not None else None
    if spec.weight_norm is None:
        return sums, Carried(sums[:, :, -1], sums[:, :, -1], momentum), increments
    assert spec.weight_norm.mode is NormMode.PRE
    applied = renormalise(spec.weight_norm, sums[:, :, 1:], _target_norms(spec, weights).unsqueeze(2))
    states = torch.cat([carried.fast.unsqueeze(2), applied], 2)
    return states, Carried(states[:, :, -1], sums[:, :, -1], momentum), increments


def _each_step(spec: InnerLoop, by_chunk: Tensor) -> Tensor:
    """Repeat what belongs to a chunk for each of its inner steps."""
    return by_chunk if spec.steps == 1 else by_chunk.repeat_interleave(spec.steps, 2)


def _affine_states(
    spec: InnerLoop, inputs: Inputs, updates: ChunkedUpdates, weights: FastWeights
) -> tuple[Float[Tensor, "B H N1 I O"], Tensor | None, Tensor]:
    """Return the last layer before chunk 0..N, the final momentum and every raw step, for the squared error.

    With A_c = phi^T eta phi and B_c = phi^T eta v: D_c = A_c W + alpha_c D - B_c and W' = W -/+ factor D_c, which is affine
    in the stacked (W, D). Networks with a gate or a kernel per channel have an A of their own for every output column.
    """
    network, live = spec.network, slice(0, updates.updates)
    shared, start = shared_over_chunks(weights), weights[network.last]
    k, v, weight = updates.k[:, :, live], updates.v[:, :, live], updates.weight[:, :, live]
    decay, factor = updates.decay[:, :, live], sign(spec) * updates.factor[:, :, live]
    if linear_view.has_column_features(network):
        phi = linear_view.column_features(network, shared, k, inputs.grid).transpose(2, 3)
        v, weight = v.movedim(-1, 2).unsqueeze(-1), weight.unsqueeze(2)
        decay, factor, start = decay.unsqueeze(2), factor.unsqueeze(2), start.transpose(2, 3).unsqueeze(-1)
    else:
        phi = linear_view.features(network, shared, k)
    weighted = (phi * weight).transpose(-2, -1)
    a, b = weighted @ phi, weighted @ v
    eye = torch.eye(a.shape[-1], dtype=a.dtype, device=a.device)
    if spec.momentum is None:
        matrix, offset, first = eye + factor * a, -factor * b, start
    else:
        keep = (decay * eye).expand_as(a)
        matrix = torch.cat([torch.cat([eye + factor * a, factor * keep], -1), torch.cat([a, keep], -1)], -2)
        offset, first = torch.cat([-factor * b, -b], -2), torch.cat([start, torch.zeros_like(start)], -2)
    matrix, offset = matrix.repeat_interleave(spec.steps, -3), offset.repeat_interleave(spec.steps, -3)
    stacked = affine_prefixes(matrix, offset, first)
    stacked = torch.cat([first.unsqueeze(-3), stacked], -3).narrow(-3, 0, updates.updates * spec.steps + 1)
    if linear_view.has_column_features(network):
        stacked = stacked.squeeze(-1).movedim(2, -1)
    rows = weights[network.last].shape[2]
    every = stacked[:, :, :, :rows]
    has_momentum = spec.momentum is not None and updates.updates > 0
    return every[:, :, :: spec.steps], stacked[:, :, -1, rows:] if has_momentum else None, every.diff(dim=2)


def _read_out(spec: InnerLoop, inputs: Inputs, weights: FastWeights, states: Tensor) -> Tensor:
    """Apply to every chunk the state before or after its update; a chunk that does not update reads the last state."""
    x = inputs.k if spec.query is QuerySource.KEY else inputs.q
    if inputs.update_tokens is not None:
        return value(spec.network, {**weights, spec.network.last: states[:, :, -1]}, x, inputs.grid)
    size = inputs.num_tokens if spec.chunk is None else min(spec.chunk, inputs.num_tokens)
    chunked = by_chunk(x, size)
    first = 1 if spec.order is Order.UPDATE_THEN_APPLY else 0
    read = states[:, :, first : first + chunked.shape[2]]
    if read.shape[2] < chunked.shape[2]:
        read = torch.cat([read, states[:, :, -1:]], 2)
    shared = {**shared_over_chunks(weights), spec.network.last: read}
    return by_token(value(spec.network, shared, chunked, inputs.grid), inputs.num_tokens)


def _joined(traces: Sequence[Trace]) -> Trace:
    before, after, norm = (
        torch.cat([getattr(trace, name) for trace in traces], -1)
        for name in ("before", "after", "update_norm")
    )
    return Trace(before, after, norm, tuple(size for trace in traces for size in trace.tokens))


def _trace(
    spec: InnerLoop,
    inputs: Inputs,
    updates: ChunkedUpdates,
    weights: FastWeights,
    states: Tensor,
    raw: Tensor,
) -> Trace:
    live, last, shared = updates.updates, spec.network.last, shared_over_chunks(weights)
    sizes = updates.sizes[:live]
    counts = torch.tensor(sizes, dtype=states.dtype, device=states.device)
    real = torch.arange(updates.k.shape[3], device=states.device) < counts.unsqueeze(-1)
    with torch.no_grad():
        k, v = updates.k[:, :, :live], updates.v[:, :, :live]
        sides = []
        for at in (states[:, :, :live], states[:, :, 1 : live + 1]):
            losses = token_losses(spec.loss, value(spec.network, {**shared, last: at}, k, inputs.grid), v)
            sides.append((losses * real).sum(-1) / counts)
        steps = joint_norm([raw]).unflatten(-1, (live, spec.steps)).sum(-1)  # type: ignore[no-untyped-call]
        return Trace(sides[0], sides[1], steps / joint_norm([states[:, :, :live]]), sizes)
