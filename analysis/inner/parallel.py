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
from analysis.inner.layout import ChunkedUpdates, by_token, chunked_updates, evenly_spaced, shared_over_chunks
from analysis.inner.networks import gradients, value
from analysis.inner.recurrent import joint_norm, run_recurrent
from analysis.inner.scans import affine_prefixes, decayed_sums, needs_graph, running_sums
from analysis.inner.types import FastWeights, Inputs, Result, State, Trace
from analysis.inner.updates import apply_transform, column_norms, renormalise, sign, token_losses
from analysis.spec import InnerLoop, NormMode, Order, ReducibilityClass, Tail, reducibility

WINDOW = 2**17
"""Numbers of the largest tensor of a window, tokens or states, for each thread of a processor: 512 kB in float32."""


class Carried(NamedTuple):
    """The moving weights between two windows: as applied, unnormalised (under weight norm), and their momentum."""

    fast: Float[Tensor, "B H I O"]
    main: Float[Tensor, "B H I O"] | None
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
        return _additive(spec, inputs, weights, measure, newton_schulz_dtype)
    updates = chunked_updates(spec, inputs)
    states, momentum, raw = _affine_states(spec, updates, weights)
    outputs = by_token(_read_out(spec, updates, weights, states), inputs.num_tokens)
    final = _final(spec, weights, states[:, :, updates.updates], None, momentum)
    trace = _trace(spec, updates, weights, states, raw) if measure and updates.updates else None
    return Result(outputs, final, trace, "parallel")


def _additive(
    spec: InnerLoop, inputs: Inputs, weights: FastWeights, measure: bool, dtype: torch.dtype | None
) -> Result:
    """Run an additive loop window by window, each on the state that the one before leaves behind."""
    start = weights[spec.network.last]
    carried = Carried(start, None if spec.weight_norm is None else start, None)
    windows = list(_windows(spec, inputs, start[0, 0].numel()))
    is_recorded = needs_graph(*windows[0].tensors.values(), *weights.values())
    outputs, room, traces, done = [], None, [], 0
    for window in windows:
        states, carried, transformed = _additive_states(spec, window, weights, carried, dtype)
        read = _read_out(spec, window, weights, states).flatten(2, 3)[:, :, : inputs.num_tokens - done]
        if is_recorded or len(windows) == 1:
            outputs.append(read)
        else:  # into its place at once, while the caches hold it
            room = read.new_empty(*inputs.q.shape[:3], read.shape[3]) if room is None else room
            room[:, :, done : done + read.shape[2]] = read
        done += read.shape[2]
        if measure and window.updates:
            raw = transformed * _each_step(spec, window.factor[:, :, : window.updates])
            traces.append(_trace(spec, window, weights, states, raw))
    if room is None:
        room = outputs[0] if len(outputs) == 1 else torch.cat(outputs, 2)
    trace = _joined(traces) if traces else None
    return Result(room, _final(spec, weights, *carried), trace, "parallel")


def _windows(spec: InnerLoop, inputs: Inputs, state_size: int) -> Iterator[ChunkedUpdates]:
    """Yield runs of whole chunks, then the tail, which padding would copy the sequence for; all at once off the processor.

    state_size: numbers of one sequence's state, of which a window holds one for every chunk.
    """
    on_processor = inputs.q.device.type == "cpu" and not torch.compiler.is_compiling()
    if not on_processor or spec.chunk is None or inputs.update_tokens is not None or inputs.grid is not None:
        yield chunked_updates(spec, inputs)
        return
    tokens = inputs.num_tokens
    whole = tokens - tokens % spec.chunk
    sequences, width = inputs.q.shape[0] * inputs.q.shape[1], max(inputs.k.shape[3], inputs.v.shape[3])
    of_chunk = sequences * max(spec.chunk * width, state_size)
    size = max(1, torch.get_num_threads() * WINDOW // of_chunk)
    if whole:
        updates = chunked_updates(
            spec if whole == tokens else spec.edit(tail=Tail.UPDATE), inputs.tokens(0, whole)
        )
        for first in range(0, len(updates.sizes), size):
            yield updates.part(slice(first, min(first + size, len(updates.sizes))))
    if whole < tokens:
        yield chunked_updates(spec, inputs.tokens(whole, tokens))


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
    updates: ChunkedUpdates,
    weights: FastWeights,
    carried: Carried,
    dtype: torch.dtype | None,
) -> tuple[Float[Tensor, "B H N1 I O"], Carried, Tensor]:
    """Return the last layer before chunk 0..N, what the next window starts from, and every raw step but for its factor."""
    last, live = spec.network.last, slice(0, updates.updates)
    if not updates.updates:
        return carried.fast.unsqueeze(2), carried, carried.fast.unsqueeze(2)[:, :, :0]
    shared = {**shared_over_chunks(weights), last: carried.fast.unsqueeze(2)}
    k, v, weight = updates.k[:, :, live], updates.v[:, :, live], updates.weight[:, :, live]
    k = evenly_spaced(k)
    # the upstream gradient is -v; the rates are smaller, so the sign goes to them
    direction = gradients(spec.network, shared, k, v, {last: -weight}, (last,), updates.grid)[last]
    direction = _each_step(spec, direction)
    if spec.momentum is not None:
        direction = decayed_sums(_each_step(spec, updates.decay[:, :, live]), direction, carried.momentum)
    transformed = apply_transform(spec.transform, direction, dtype)
    factor = sign(spec) * _each_step(spec, updates.factor[:, :, live])
    start = carried.fast if carried.main is None else carried.main
    sums = running_sums(transformed, factor, start)[:, :, :: spec.steps]
    # copies, since a view would keep the matrices of every chunk
    momentum = direction[:, :, -1].clone() if spec.momentum is not None else None
    final = sums[:, :, -1].clone()
    if spec.weight_norm is None:
        return sums, Carried(final, None, momentum), transformed
    assert spec.weight_norm.mode is NormMode.PRE
    applied = renormalise(spec.weight_norm, sums[:, :, 1:], _target_norms(spec, weights).unsqueeze(2))
    states = torch.cat([carried.fast.unsqueeze(2), applied], 2)
    return states, Carried(states[:, :, -1].clone(), final, momentum), transformed


def _each_step(spec: InnerLoop, by_chunk: Tensor) -> Tensor:
    """Repeat what belongs to a chunk for each of its inner steps."""
    return by_chunk if spec.steps == 1 else by_chunk.repeat_interleave(spec.steps, 2)


def _affine_states(
    spec: InnerLoop, updates: ChunkedUpdates, weights: FastWeights
) -> tuple[Float[Tensor, "B H N1 I O"], Tensor | None, Tensor]:
    """Return the last layer before chunk 0..N, the final momentum and every raw step, for the squared error.

    With A_c = phi^T eta phi and B_c = phi^T eta v: D_c = A_c W + alpha_c D - B_c and W' = W -/+ factor D_c, which is affine
    in the stacked (W, D). Networks with a gate or a kernel per channel have an A of their own for every output column.
    """
    network, live = spec.network, slice(0, updates.updates)
    shared, start = shared_over_chunks(weights), weights[network.last]
    if not updates.updates:
        return start.unsqueeze(2), None, start.unsqueeze(2)[:, :, :0]
    k, v, weight = updates.k[:, :, live], updates.v[:, :, live], updates.weight[:, :, live]
    decay, factor = updates.decay[:, :, live], sign(spec) * updates.factor[:, :, live]
    if linear_view.has_column_features(network):
        phi = linear_view.column_features(network, shared, k, updates.grid).transpose(2, 3)
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
    momentum = None if spec.momentum is None else stacked[:, :, -1, rows:]
    return every[:, :, :: spec.steps], momentum, every.diff(dim=2)


def _read_out(
    spec: InnerLoop, updates: ChunkedUpdates, weights: FastWeights, states: Tensor
) -> Float[Tensor, "B H N L V"]:
    """Apply to every chunk the state before or after its update; a chunk that does not update reads the last state."""
    first, count = int(spec.order is Order.UPDATE_THEN_APPLY), updates.x.shape[2]
    read = states[:, :, first : first + count]
    if read.shape[2] < count:
        read = torch.cat([read, states[:, :, -1:]], 2)
    shared = {**shared_over_chunks(weights), spec.network.last: read}
    return value(spec.network, shared, evenly_spaced(updates.x), updates.grid)


def _joined(traces: Sequence[Trace]) -> Trace:
    before, after, norm = (
        torch.cat([getattr(trace, name) for trace in traces], -1)
        for name in ("before", "after", "update_norm")
    )
    return Trace(before, after, norm, tuple(size for trace in traces for size in trace.tokens))


def _trace(
    spec: InnerLoop,
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
            losses = token_losses(spec.loss, value(spec.network, {**shared, last: at}, k, updates.grid), v)
            sides.append((losses * real).sum(-1) / counts)
        steps = joint_norm([raw]).unflatten(-1, (live, spec.steps)).sum(-1)  # type: ignore[no-untyped-call]
        return Trace(sides[0], sides[1], steps / joint_norm([states[:, :, :live]]), sizes)
