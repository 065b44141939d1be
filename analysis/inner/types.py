"""Inputs, state and result of an inner loop, and the legend of axes used in this package.

Axes: B batch, H heads, T tokens, N chunks, L tokens per chunk, K key width, V value width, D hidden features.
Row vectors; every fast weight is [B, H, in, out]. The depthwise convolution's `w_conv` is [B, H, 9, D], its rows being the
nine offsets in row-major order, so that "per output column" means "per channel kernel".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
from jaxtyping import Float
from torch import Tensor

FastWeights = Mapping[str, Tensor]


@dataclass(frozen=True)
class Inputs:
    """What one layer hands to its inner loop; which of the optional tensors are needed follows from the specification.

    Attributes:
        q, k: queries and keys.
        v: values.
        rates: per-token learning rates by fast-weight name (or under 'shared').
        momentum: per-token momentum gates, averaged over each chunk.
        update_tokens: only the first so many tokens update, all are applied (LaCT-NVS: input views, then targets).
        grid: height and width of the token grid, for the depthwise convolution.
    """

    q: Float[Tensor, "B H T K"]
    k: Float[Tensor, "B H T K"]
    v: Float[Tensor, "B H T V"]
    rates: Mapping[str, Float[Tensor, "B H T 1"]] = field(default_factory=dict)
    momentum: Float[Tensor, "B H T 1"] | None = None
    update_tokens: int | None = None
    grid: tuple[int, int] | None = None

    @property
    def num_tokens(self) -> int:
        """T, the number of tokens that are applied."""
        return self.q.shape[2]

    @property
    def num_update_tokens(self) -> int:
        """How many leading tokens take part in updates."""
        return self.num_tokens if self.update_tokens is None else self.update_tokens

    def tokens(self, start: int, stop: int) -> Inputs:
        """Return the tokens start..stop of every tensor."""
        return Inputs(
            q=self.q[:, :, start:stop],
            k=self.k[:, :, start:stop],
            v=self.v[:, :, start:stop],
            rates={name: rate[:, :, start:stop] for name, rate in self.rates.items()},
            momentum=None if self.momentum is None else self.momentum[:, :, start:stop],
            grid=self.grid,
        )

    def followed_by(self, other: Inputs) -> Inputs:
        """Return these tokens with those of `other` behind them."""
        return Inputs(
            q=torch.cat([self.q, other.q], 2),
            k=torch.cat([self.k, other.k], 2),
            v=torch.cat([self.v, other.v], 2),
            rates={name: torch.cat([rate, other.rates[name]], 2) for name, rate in self.rates.items()},
            momentum=None
            if self.momentum is None or other.momentum is None
            else torch.cat([self.momentum, other.momentum], 2),
            grid=self.grid,
        )


@dataclass(frozen=True)
class State:
    """Everything an inner loop carries from one chunk to the next.

    Attributes:
        fast_weights: the weights that are applied, by name.
        main: the unnormalised copy of the moving weights (pre-norm only).
        momentum: the accumulator D of each moving weight (with momentum only, after the first update).
        target_norms: initial l2 norm of every output column of the moving weights (with weight norm only).
        pending: the tokens of an unfinished chunk (streaming only).
    """

    fast_weights: dict[str, Tensor]
    main: dict[str, Tensor] | None = None
    momentum: dict[str, Tensor] | None = None
    target_norms: dict[str, Tensor] | None = None
    pending: Inputs | None = None


@dataclass(frozen=True)
class Trace:
    """What the inner optimisation did in each chunk that updated, the mean taken over the chunk's tokens.

    Attributes:
        before, after: inner loss at the weights before and after the chunk's update.
        update_norm: summed l2 norms of the raw steps (before weight norm) over the norm the moving weights had.
        tokens: how many tokens each chunk holds.
    """

    before: Float[Tensor, "B H N"]
    after: Float[Tensor, "B H N"]
    update_norm: Float[Tensor, "B H N"]
    tokens: tuple[int, ...]

    def mean(self, which: str) -> Tensor:
        """Return the token-weighted mean over chunks of 'before', 'after' or 'update_norm', as [B, H]."""
        values: Tensor = getattr(self, which)
        share = torch.tensor(self.tokens, dtype=values.dtype, device=values.device)
        return (values * share).sum(-1) / share.sum()


@dataclass(frozen=True)
class Result:
    """Outputs [B, H, T, V], the final state, the trace when it was asked for, and the backend that ran."""

    outputs: Float[Tensor, "B H T V"]
    state: State
    trace: Trace | None = None
    backend: str = ""
