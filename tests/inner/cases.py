"""Random tensors that fit a specification, with sizes that all differ."""

from __future__ import annotations

import torch

from analysis.inner.types import Inputs
from analysis.spec import GLU, MLP, DepthwiseConv3x3, InnerLoop, Linear


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
    randn = lambda *shape: torch.randn(*shape, dtype=torch.float64)  # noqa: E731
    shapes = {
        "w_gate": (width, hidden),
        "w_up": (width, hidden),
        "w_out": (width if isinstance(spec.network, Linear) else hidden, values),
        "w_linear": (width, values),
        "w_conv": (9, width),
    }
    if isinstance(spec.network, MLP):
        shapes |= {
            name: (width if i == 0 else hidden, hidden)
            for i, name in enumerate(spec.network.fast_weights[:-1])
        }
    weights = {
        name: (randn(batch, heads, *shapes[name]) / shapes[name][0] ** 0.5).requires_grad_(requires_grad)
        for name in spec.network.fast_weights
    }
    rates = {
        name: (0.1 + torch.rand(batch, heads, tokens, 1, dtype=torch.float64)) * 0.1
        for name in spec.rate_names
    }
    inputs = Inputs(
        q=randn(batch, heads, tokens, width),
        k=randn(batch, heads, tokens, width),
        v=randn(batch, heads, tokens, values),
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
