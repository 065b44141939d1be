"""The inner networks: values f(x), and the closed-form gradient of each fast weight for a given upstream gradient."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from analysis.inner.types import FastWeights
from analysis.spec import GLU, MLP, DepthwiseConv3x3, Linear, SwiGLU
from analysis.spec.choices import Network

Rates = Mapping[str, Tensor | float]
Grid = tuple[int, int] | None


def silu_derivative(x: Tensor) -> Tensor:
    """silu'(x) = sigmoid(x) (1 + x (1 - sigmoid(x)))."""
    gate = torch.sigmoid(x)
    return gate * (1 + x * (1 - gate))


def patches(x: Float[Tensor, "*batch T D"], grid: Grid) -> Float[Tensor, "*batch T D 9"]:
    """Return the zero-padded 3x3 neighbourhood of every grid cell and channel, offsets in row-major order."""
    assert grid is not None
    image = x.transpose(-2, -1).reshape(1, -1, *grid)
    columns = F.unfold(image, kernel_size=3, padding=1)
    return columns.view(*x.shape[:-2], x.shape[-1], 9, x.shape[-2]).movedim(-1, -3)


def value(
    network: Network, weights: FastWeights, x: Float[Tensor, "*batch T K"], grid: Grid = None
) -> Float[Tensor, "*batch T V"]:
    """f(x) of an inner network at the given fast weights (sections 5.3 and 5.4, appendix G)."""
    if isinstance(network, Linear):
        return _product(x, weights["w_out"])
    if isinstance(network, SwiGLU):
        return (F.silu(_product(x, weights["w_gate"])) * _product(x, weights["w_up"])) @ weights["w_out"]
    if isinstance(network, GLU):
        return F.silu(_product(x, weights["w_gate"])) * _product(x, weights["w_linear"])
    if isinstance(network, MLP):
        for name in network.fast_weights[:-1]:
            x = F.silu(_product(x, weights[name]))
        return _product(x, weights["w_out"])
    assert isinstance(network, DepthwiseConv3x3)
    return torch.einsum("...tdn,...nd->...td", patches(x, grid), weights["w_conv"])


def gradients(
    network: Network,
    weights: FastWeights,
    x: Float[Tensor, "*batch T K"],
    upstream: Float[Tensor, "*batch T V"],
    rates: Rates,
    names: Iterable[str],
    grid: Grid = None,
) -> dict[str, Tensor]:
    """Return sum_t rates_w,t dL_t/dw for each weight named, given upstream_t = dL_t/df(x_t), by the chain rule."""
    wanted = set(names)
    if isinstance(network, Linear):
        return {"w_out": _outer(x, upstream, rates["w_out"])}
    if isinstance(network, DepthwiseConv3x3):
        return {"w_conv": torch.einsum("...tdn,...td->...nd", patches(x, grid), upstream * rates["w_conv"])}
    if isinstance(network, SwiGLU):
        return _swiglu(weights, x, upstream, rates, wanted)
    if isinstance(network, GLU):
        return _glu(weights, x, upstream, rates, wanted)
    return _mlp(network, weights, x, upstream, rates, wanted)


def _product(x: Tensor, weight: Tensor) -> Tensor:
    """x @ weight; a weight that all chunks share multiplies their tokens in one go, rather than being copied for each."""
    if x.ndim == 5 and weight.ndim == 5 and weight.shape[2] == 1:
        return (x.flatten(2, 3) @ weight.squeeze(2)).unflatten(2, x.shape[2:4])  # type: ignore[no-untyped-call]
    return x @ weight


def _outer(x: Tensor, upstream: Tensor, rate: Tensor | float) -> Tensor:
    return x.transpose(-2, -1) @ (upstream * rate)


def _swiglu(
    weights: FastWeights, x: Tensor, upstream: Tensor, rates: Rates, wanted: set[str]
) -> dict[str, Tensor]:
    gate, up = _product(x, weights["w_gate"]), _product(x, weights["w_up"])
    found: dict[str, Tensor] = {}
    if "w_out" in wanted:
        found["w_out"] = _outer(F.silu(gate) * up, upstream, rates["w_out"])
    if wanted - {"w_out"}:
        hidden = upstream @ weights["w_out"].transpose(-2, -1)
        if "w_up" in wanted:
            found["w_up"] = _outer(x, hidden * F.silu(gate), rates["w_up"])
        if "w_gate" in wanted:
            found["w_gate"] = _outer(x, hidden * up * silu_derivative(gate), rates["w_gate"])
    return found


def _glu(
    weights: FastWeights, x: Tensor, upstream: Tensor, rates: Rates, wanted: set[str]
) -> dict[str, Tensor]:
    gate = _product(x, weights["w_gate"])
    found = {}
    if "w_linear" in wanted:
        found["w_linear"] = _outer(x, upstream * F.silu(gate), rates["w_linear"])
    if "w_gate" in wanted:
        found["w_gate"] = _outer(
            x, upstream * _product(x, weights["w_linear"]) * silu_derivative(gate), rates["w_gate"]
        )
    return found


def _mlp(
    network: MLP, weights: FastWeights, x: Tensor, upstream: Tensor, rates: Rates, wanted: set[str]
) -> dict[str, Tensor]:
    inputs, before = [x], []
    for name in network.fast_weights[:-1]:
        before.append(_product(inputs[-1], weights[name]))
        inputs.append(F.silu(before[-1]))
    found = {"w_out": _outer(inputs[-1], upstream, rates["w_out"])} if "w_out" in wanted else {}
    signal = upstream
    following = "w_out"
    for layer in range(len(before) - 1, -1, -1):
        if not wanted - set(found):
            break
        name = network.fast_weights[layer]
        signal = (signal @ weights[following].transpose(-2, -1)) * silu_derivative(before[layer])
        if name in wanted:
            found[name] = _outer(inputs[layer], signal, rates[name])
        following = name
    return found
