"""The tokens of a sequence laid out by chunk, and per-chunk scalars, for the parallel backend."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from analysis.inner.chunks import chunks
from analysis.inner.types import FastWeights, Inputs
from analysis.inner.updates import inside_rates, momentum_gate, outside_rates
from analysis.spec import InnerLoop, QuerySource, Reduction


def by_chunk(tokens: Float[Tensor, "*batch T X"], size: int) -> Float[Tensor, "*batch N L X"]:
    """Cut the tokens into chunks of `size`, zeros behind the last token."""
    count = -(-tokens.shape[-2] // size)
    missing = count * size - tokens.shape[-2]
    # padding by nothing would copy the sequence
    padded = F.pad(tokens, (0, 0, 0, missing)) if missing else tokens
    return padded.reshape(*tokens.shape[:-2], count, size, tokens.shape[-1])


def by_token(chunked: Float[Tensor, "*batch N L X"], num_tokens: int) -> Float[Tensor, "*batch T X"]:
    """Undo `by_chunk`: join the chunks and drop the padding."""
    return chunked.flatten(-3, -2).narrow(-2, 0, num_tokens)


def evenly_spaced(chunked: Float[Tensor, "B H N L X"]) -> Float[Tensor, "B H N L X"]:
    """Copy what every product would have to copy for itself, and transposed, unless the chunks lie evenly spaced in memory."""
    return chunked.flatten(0, 2).view(chunked.shape)


@dataclass(frozen=True)
class ChunkedUpdates:
    """What the updates of all chunks are made of, and the tokens that are applied.

    Attributes:
        x: queries by chunk, or keys where those are applied.
        k, v: keys and values by chunk; values are zero on padding.
        weight: rate times the loss's token factor (scale, 1/tokens for a mean); zero on padding.
        decay: momentum gate of every chunk.
        factor: factor of every chunk's transformed step.
        sizes: tokens of every chunk.
        updates: how many leading chunks update.
        grid: height and width of the token grid.
    """

    x: Float[Tensor, "B H N L K"]
    k: Float[Tensor, "B H N L K"]
    v: Float[Tensor, "B H N L V"]
    weight: Float[Tensor, "B H N L 1"]
    decay: Float[Tensor, "B H N 1 1"]
    factor: Float[Tensor, "B H N 1 1"]
    sizes: tuple[int, ...]
    updates: int
    grid: tuple[int, int] | None

    @property
    def tensors(self) -> dict[str, Tensor]:
        """Every tensor by the name of its field."""
        return {name: getattr(self, name) for name in ("x", "k", "v", "weight", "decay", "factor")}

    def part(self, chunks: slice) -> ChunkedUpdates:
        """Return a run of chunks."""
        return ChunkedUpdates(
            **{name: tensor[:, :, chunks] for name, tensor in self.tensors.items()},
            sizes=self.sizes[chunks],
            updates=min(max(self.updates - chunks.start, 0), chunks.stop - chunks.start),
            grid=self.grid,
        )


def chunked_updates(spec: InnerLoop, inputs: Inputs) -> ChunkedUpdates:
    """Lay out keys, values, rates and gates of the updating tokens for a loop that moves its last layer only."""
    last = spec.network.last
    updating = inputs.tokens(0, inputs.num_update_tokens)
    pieces = list(chunks(spec, updating.num_tokens))
    sizes = tuple(piece.stop - piece.start for piece in pieces)
    ones = torch.ones_like(updating.k[..., :1])
    weight = by_chunk(ones * inside_rates(spec, updating)[last] * spec.loss.scale, sizes[0])
    if spec.loss.reduction is Reduction.MEAN:
        # filled on the device: a copy from the host could not be captured in a CUDA graph
        counts = weight.new_full((len(sizes), 1, 1), sizes[0])
        counts[-1] = sizes[-1]
        weight = weight / counts

    whole = updating.num_tokens // sizes[0]
    tails = [whole * sizes[0]] if whole < len(sizes) else []

    def each(of: Callable[[Inputs], Tensor | float]) -> Float[Tensor, "B H N 1 1"]:
        found = of(_chunks_last(spec, updating.tokens(0, whole * sizes[0]), whole))
        if not isinstance(found, Tensor):  # a constant, the same for every chunk
            return (ones[:, :, :1] * found).unsqueeze(2).expand(-1, -1, len(sizes), -1, -1)
        tail = [of(updating.tokens(start, updating.num_tokens)) * ones[:, :, :1] for start in tails]
        return torch.cat([found.movedim(-1, 2), *(one.unsqueeze(2) for one in tail)], 2)

    applied = inputs.k if spec.query is QuerySource.KEY else inputs.q
    return ChunkedUpdates(
        x=by_chunk(applied, applied.shape[2] if spec.chunk is None else sizes[0]),
        k=by_chunk(updating.k, sizes[0]),
        v=by_chunk(updating.v, sizes[0]),
        weight=weight,
        decay=each(lambda piece: momentum_gate(spec, piece)),
        factor=each(lambda piece: outside_rates(spec, piece)[last]),
        sizes=sizes,
        updates=sum(piece.updates for piece in pieces),
        grid=inputs.grid,
    )


def _chunks_last(spec: InnerLoop, inputs: Inputs, count: int) -> Inputs:
    """Move the chunks of all rates and gates that are read to a last axis, [B, H, L, 1, N]: formulas for one chunk ignore it."""

    def moved(x: Tensor) -> Tensor:
        return x.reshape(*x.shape[:2], count, -1, 1).movedim(2, -1)

    rates = {name: moved(inputs.rates[name]) for name in spec.rate_names}
    momentum = inputs.momentum if spec.needs_momentum_input else None
    return replace(inputs, rates=rates, momentum=None if momentum is None else moved(momentum))


def shared_over_chunks(weights: FastWeights) -> dict[str, Tensor]:
    """Give every weight a chunk axis of length one, [B, H, 1, in, out], so that products broadcast over chunks."""
    return {name: weight.unsqueeze(2) for name, weight in weights.items()}
