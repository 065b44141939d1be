"""Random problems in float64 on which claims are checked: sizes that all differ, seeded tensors, leaves for gradients."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from analysis.inner.reference import run_reference
from analysis.inner.types import Inputs, Result
from analysis.spec import GLU, MLP, DepthwiseConv3x3, InnerLoop, Linear


@dataclass(frozen=True, order=True)
class Sizes:
    """Axis sizes of one draw; `chunks` chunks of `chunk` tokens, and `extra` tokens in a last, incomplete chunk."""

    chunks: int = 4
    chunk: int = 6
    width: int = 5
    hidden: int = 7
    values: int = 3
    heads: int = 2
    batch: int = 2
    extra: int = 0

    @property
    def tokens(self) -> int:
        """Number of tokens in all."""
        return self.chunks * self.chunk + self.extra

    def __str__(self) -> str:
        """Say the sizes in words, axes of length one left out."""
        named = {
            "batch": self.batch,
            "heads": self.heads,
            "chunks": self.chunks,
            "tokens per chunk": self.chunk,
            "extra tokens": self.extra,
            "key width": self.width,
            "hidden": self.hidden,
            "value width": self.values,
        }
        return ", ".join(f"{name} {size}" for name, size in named.items() if size > 1) or "all sizes 1"


DRAWS = (
    Sizes(),
    Sizes(chunks=3, chunk=5, width=4, hidden=6, values=7, heads=3, batch=1, extra=2),
    Sizes(chunks=5, chunk=3, width=6, hidden=4, values=5, heads=1, batch=2, extra=1),
)


def small_sizes() -> Iterator[Sizes]:
    """Yield sizes from the smallest on: fewer tokens first, then narrower."""
    grid = [
        Sizes(chunks=chunks, chunk=chunk, width=width, hidden=hidden, values=values, heads=1, batch=1)
        for chunks in (1, 2, 3)
        for chunk in (1, 2, 3)
        for width in (1, 2)
        for hidden in (1, 2)
        for values in (1, 2)
    ]
    yield from sorted(grid, key=lambda s: (s.tokens, s.width + s.hidden + s.values, s))


@dataclass(frozen=True)
class Problem:
    """A specification with inputs and initial fast weights that fit it, every tensor a leaf for gradients."""

    spec: InnerLoop
    inputs: Inputs
    weights: dict[str, Tensor]

    @property
    def start(self) -> Tensor:
        """S_0, the initial last layer."""
        return self.weights[self.spec.network.last]

    @property
    def leaves(self) -> dict[str, Tensor]:
        """Every tensor that outer gradients may reach, by name."""
        x = self.inputs
        found = {"q": x.q, "k": x.k, "v": x.v}
        found |= {f"rate of {name}": rate for name, rate in x.rates.items()}
        return found | ({} if x.momentum is None else {"momentum": x.momentum}) | self.weights

    def spans(self) -> list[slice]:
        """Return the token ranges of the chunks."""
        total = self.inputs.q.shape[2]
        size = self.spec.chunk or total
        return [slice(start, min(start + size, total)) for start in range(0, total, size)]

    def reference(self, spec: InnerLoop | None = None, inputs: Inputs | None = None) -> Result:
        """Run the autograd reference, on this problem or with another specification or inputs."""
        return run_reference(spec or self.spec, inputs or self.inputs, self.weights)


def draw(spec: InnerLoop, sizes: Sizes, seed: int) -> Problem:
    """Draw normal q, k, v and weights (variance 1/in), rates in 0.02..0.12 and momentum gates in 0..1, all float64."""
    generator = torch.Generator().manual_seed(seed)
    batch, heads, tokens = sizes.batch, sizes.heads, sizes.tokens
    grid = None
    if isinstance(spec.network, DepthwiseConv3x3):
        grid, tokens = (sizes.chunks, sizes.chunk), sizes.chunks * sizes.chunk
    shapes = _weight_shapes(spec, sizes)

    def normal(*shape: int) -> Tensor:
        return torch.randn(batch, heads, *shape, dtype=torch.float64, generator=generator)

    def uniform() -> Tensor:
        return torch.rand(batch, heads, tokens, 1, dtype=torch.float64, generator=generator)

    weights = {name: normal(*shape) / shape[0] ** 0.5 for name, shape in shapes.items()}
    values = shapes[spec.network.last][1]
    inputs = Inputs(
        q=normal(tokens, sizes.width),
        k=normal(tokens, sizes.width),
        v=normal(tokens, values),
        rates={name: 0.02 + 0.1 * uniform() for name in spec.rate_names},
        momentum=uniform() if spec.needs_momentum_input else None,
        grid=grid,
    )
    problem = Problem(spec, inputs, weights)
    for leaf in problem.leaves.values():
        leaf.requires_grad_()
    return problem


def _weight_shapes(spec: InnerLoop, sizes: Sizes) -> dict[str, tuple[int, int]]:
    width, hidden, values = sizes.width, sizes.hidden, sizes.values
    if isinstance(spec.network, Linear):
        return {"w_out": (width, values)}
    if isinstance(spec.network, GLU):
        return {"w_gate": (width, values), "w_linear": (width, values)}
    if isinstance(spec.network, DepthwiseConv3x3):
        return {"w_conv": (9, width)}
    shapes = {name: (width, hidden) for name in spec.network.fast_weights[:-1]}
    if isinstance(spec.network, MLP):
        shapes |= {name: (hidden, hidden) for name in spec.network.fast_weights[1:-1]}
    return shapes | {"w_out": (hidden, values)}
