"""Random tensors that fit a specification, with sizes that all differ."""

from __future__ import annotations

import torch

from analysis.inner.types import Inputs
from analysis.spec import GLU, MLP, DepthwiseConv3x3, InnerLoop, Linear


def _randn(*shape):
    return torch.randn(*shape, dtype=torch.float64)


def _shapes(spec: InnerLoop, width: int, hidden: int, values: int) -> dict[str, tuple[int, int]]:
    shapes = {
        "w_gate": (width, hidden),
        "w_up": (width, hidden),
        "w_out": (width if isinstance(spec.network, Linear) else hidden, values),
        "w_linear": (width, values),
        "w_conv": (9, width),
    }
    if isinstance(spec.network, MLP):
        shapes |= {
            name: (hidden if i else width, hidden) for i, name in enumerate(spec.network.fast_weights[:-1])
        }
    return {name: shapes[name] for name in spec.network.fast_weights}


def draw(
    spec: InnerLoop,
    *,
    batch=2,
    heads=3,
    tokens=35,
    width=5,
    hidden=7,
    values=4,
    seed=0,
    grid=None,
    requires_grad=False,
):
    """Return (inputs, weights) in float64 for a specification."""
    torch.manual_seed(seed)
    if isinstance(spec.network, DepthwiseConv3x3):
        grid = grid or (5, tokens // 5)
        values = width
    if isinstance(spec.network, GLU):
        hidden = values
    weights = {
        name: (_randn(batch, heads, *shape) / shape[0] ** 0.5).requires_grad_(requires_grad)
        for name, shape in _shapes(spec, width, hidden, values).items()
    }
    rates = {
        name: (0.1 + torch.rand(batch, heads, tokens, 1, dtype=torch.float64)) * 0.1
        for name in spec.rate_names
    }
    inputs = Inputs(
        q=_randn(batch, heads, tokens, width),
        k=_randn(batch, heads, tokens, width),
        v=_randn(batch, heads, tokens, values),
        rates=rates,
        momentum=torch.rand(batch, heads, tokens, 1, dtype=torch.float64)
        if spec.needs_momentum_input
        else None,
        grid=grid,
    )
    if requires_grad:
        for tensor in (inputs.q, inputs.k, inputs.v, *inputs.rates.values(), inputs.momentum):
            if tensor is not None:
                tensor.requires_grad_()
    return inputs, weights


def leaves(inputs: Inputs, weights: dict) -> dict[str, torch.Tensor]:
    """Name every tensor that gradients may reach."""
    found = {"q": inputs.q, "k": inputs.k, "v": inputs.v, "momentum": inputs.momentum}
    found |= {f"rate {name}": rate for name, rate in inputs.rates.items()} | weights
    return {name: tensor for name, tensor in found.items() if tensor is not None}
