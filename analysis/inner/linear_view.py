"""An inner network whose last layer alone moves, seen as f(x) = gate(x) * (features(x) W).

SwiGLU and MLP have features and no gate; GLU has the input as its features and a gate on the output (appendix F); the
depthwise convolution is linear in the patches of each channel (appendix G), so each output column has features of its own.
"""

from __future__ import annotations

import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from analysis.inner.networks import Grid, patches
from analysis.inner.types import FastWeights
from analysis.spec import GLU, MLP, DepthwiseConv3x3, SwiGLU
from analysis.spec.choices import Network


def features(
    network: Network, weights: FastWeights, x: Float[Tensor, "*batch T K"]
) -> Float[Tensor, "*batch T D"]:
    """phi(x; Theta): what multiplies the last layer (Theorem 1); the input itself for Linear and GLU."""
    assert not isinstance(network, DepthwiseConv3x3), "the convolution has features per column"
    if isinstance(network, SwiGLU):
        return F.silu(x @ weights["w_gate"]) * (x @ weights["w_up"])
    if isinstance(network, MLP):
        for name in network.fast_weights[:-1]:
            x = F.silu(x @ weights[name])
    return x


def output_gate(network: Network, weights: FastWeights, x: Float[Tensor, "*batch T K"]) -> Tensor | None:
    """The factor on the last layer's output: silu(x W_gate) for GLU (appendix F), None for every other network."""
    return F.silu(x @ weights["w_gate"]) if isinstance(network, GLU) else None


def has_column_features(network: Network) -> bool:
    """Whether every output column of the last layer sees features of its own (GLU, convolution)."""
    return isinstance(network, (GLU, DepthwiseConv3x3))


def column_features(
    network: Network, weights: FastWeights, x: Float[Tensor, "*batch T K"], grid: Grid = None
) -> Float[Tensor, "*batch O T I"]:
    """Features with the gate folded in, one set per output column, so that f(x)_o = column_features_o(x) W[:, o]."""
    if isinstance(network, DepthwiseConv3x3):
        return patches(x, grid).transpose(-3, -2)
    gate = output_gate(network, weights, x)
    assert gate is not None
    return gate.transpose(-2, -1).unsqueeze(-1) * x.unsqueeze(-3)
