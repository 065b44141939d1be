"""The shapes at which speed is measured, and random inputs of each."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor


@dataclass(frozen=True)
class Case:
    """One shape to measure; `form` is 'recurrent' or 'parallel', `passes` 'forward' or 'training'."""

    rung: str
    form: str
    tokens: int = 32768
    chunk: int = 2048
    width: int = 384
    heads: int = 4
    batch: int = 1
    dtype: str = "bfloat16"
    passes: str = "forward"


@dataclass(frozen=True)
class Tensors:
    """One input set: q, k, v [B, H, T, D] (tokens outside heads in memory), rates, gates and fast weights in float32."""

    q: Tensor
    k: Tensor
    v: Tensor
    rates: dict[str, Tensor]
    momentum: Tensor | None
    weights: dict[str, Tensor]

    def leaves(self) -> list[Tensor]:
        """Every tensor, in a fixed order."""
        return list(self.named().values())

    def named(self) -> dict[str, Tensor]:
        """Every tensor by a name of its own."""
        gates = {} if self.momentum is None else {"momentum": self.momentum}
        rates = {f"rate {name}": rate for name, rate in self.rates.items()}
        return {"q": self.q, "k": self.k, "v": self.v, **rates, **gates, **self.weights}

    def each(self, change: Callable[[Tensor], Tensor]) -> Tensors:
        """Return the set with every tensor changed."""
        return Tensors(
            change(self.q),
            change(self.k),
            change(self.v),
            {name: change(rate) for name, rate in self.rates.items()},
            None if self.momentum is None else change(self.momentum),
            {name: change(weight) for name, weight in self.weights.items()},
        )


def draw(spec: Any, case: Case, seed: int, device: str = "cuda") -> Tensors:
    """Return random inputs with the statistics of a LaCT layer: unit queries and keys, rates near 0.02."""
    generator = torch.Generator(device).manual_seed(seed)
    lead = (case.batch, case.heads, case.tokens)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, device=device)

    def tokens() -> Tensor:
        flat = normal(case.batch, case.tokens, case.heads, case.width)
        return flat.to(getattr(torch, case.dtype)).transpose(1, 2)

    def unit(x: Tensor) -> Tensor:
        return torch.nn.functional.normalize(x.float(), dim=-1).to(x.dtype)

    return Tensors(
        unit(tokens()),
        unit(tokens()),
        tokens(),
        {name: torch.nn.functional.softplus(normal(*lead, 1) - 4) for name in spec.rate_names},
        torch.sigmoid(normal(*lead, 1)) if spec.needs_momentum_input else None,
        {
            name: normal(case.batch, case.heads, case.width, case.width) / case.width**0.5
            for name in spec.network.fast_weights
        },
    )


def sweep(base: Case, **axes: Iterable[Any]) -> list[Case]:
    """Return a case for every value along each axis, the other axes at their base value."""
    return [replace(base, **{name: value}) for name, values in axes.items() for value in values]
