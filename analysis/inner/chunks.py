"""How a sequence falls into chunks, and whether tensors and specification fit together."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

from torch import Tensor

from analysis.errors import InputError
from analysis.inner.tensors import require_tensors
from analysis.inner.types import FastWeights, Inputs
from analysis.spec import MLP, DepthwiseConv3x3, InnerLoop, Order, SwiGLU, Tail


@dataclass(frozen=True)
class Chunk:
    """One chunk: token range start..stop and whether it updates the state."""

    start: int
    stop: int
    updates: bool


def num_chunks(spec: InnerLoop, num_tokens: int) -> int:
    """Return how many chunks `num_tokens` tokens make, a partial one included."""
    return 1 if spec.chunk is None else max(1, -(-num_tokens // spec.chunk))


def chunks(spec: InnerLoop, num_tokens: int) -> Iterator[Chunk]:
    """Yield the chunks of a sequence in order; the final one does not update under Tail.APPLY_ONLY."""
    size = num_tokens if spec.chunk is None else spec.chunk
    for start in range(0, num_tokens, max(size, 1)):
        stop = min(start + size, num_tokens)
        yield Chunk(start, stop, updates=stop < num_tokens or spec.tail is Tail.UPDATE)


def check(spec: InnerLoop, inputs: Inputs, weights: FastWeights) -> None:
    """Refuse tensors that do not fit the specification.

    Raises:
        InputError: no floating-point tensors of one device, wrong rank, disagreeing sizes, an empty axis, a missing rate,
            momentum or grid, or an impossible `update_tokens`.
    """
    require_tensors(spec, inputs, weights)
    _check_tokens(inputs)
    _check_weights(spec, inputs, weights)
    for name in spec.rate_names:
        if name not in inputs.rates:
            given = ", ".join(inputs.rates) or "none"
            raise InputError(
                f"inner loop needs per-token rates {', '.join(spec.rate_names)}, received {given}; add {name!r}."
            )
        _expect(f"rates[{name!r}]", inputs.rates[name], (*inputs.k.shape[:3], 1))
    if spec.needs_momentum_input:
        if inputs.momentum is None:
            raise InputError(
                "inner loop needs a per-token momentum [B, H, T, 1], received None; pass it or edit momentum."
            )
        _expect("momentum", inputs.momentum, (*inputs.k.shape[:3], 1))
    if inputs.update_tokens is not None:
        if spec.chunk is not None or spec.order is not Order.UPDATE_THEN_APPLY:
            raise InputError(
                "update_tokens needs chunk=None and order=update_then_apply, received "
                f"chunk={spec.chunk}, order={spec.order.value}; edit the loop or leave update_tokens out."
            )
        if type(inputs.update_tokens) is not int or not 1 <= inputs.update_tokens <= inputs.num_tokens:
            raise InputError(
                f"update_tokens must lie in 1..{inputs.num_tokens}, received {inputs.update_tokens}; pass a valid count."
            )


def _check_tokens(inputs: Inputs) -> None:
    for name in ("q", "k", "v"):
        tensor = getattr(inputs, name)
        if tensor.ndim != 4:
            raise InputError(
                f"{name} must be [batch, heads, tokens, width], received shape {tuple(tensor.shape)}; reshape it."
            )
    if inputs.num_tokens < 1:
        raise InputError("inner loop needs at least one token, received none; pass a longer sequence.")
    if 0 in (*inputs.q.shape, inputs.v.shape[3]):
        raise InputError(
            f"inner loop needs at least one example, head and channel, received q {tuple(inputs.q.shape)} and v "
            f"{tuple(inputs.v.shape)}; leave such a call out."
        )
    _expect("k", inputs.k, tuple(inputs.q.shape))
    _expect("v", inputs.v, (*inputs.q.shape[:3], inputs.v.shape[3]))


def require_weights(spec: InnerLoop, weights: FastWeights) -> None:
    """Raise InputError when a fast weight of the network is not among `weights`."""
    missing = [name for name in spec.network.fast_weights if name not in weights]
    if missing:
        raise InputError(
            f"{spec.network.kind} needs fast weights {', '.join(spec.network.fast_weights)}, received "
            f"{', '.join(weights) or 'none'}; add {', '.join(missing)}."
        )


def _check_weights(spec: InnerLoop, inputs: Inputs, weights: FastWeights) -> None:
    require_weights(spec, weights)
    batch, heads, _, width = inputs.k.shape
    for name in spec.network.fast_weights:
        if weights[name].ndim != 4 or tuple(weights[name].shape[:2]) != (batch, heads):
            raise InputError(
                f"fast weight {name} must be [batch={batch}, heads={heads}, in, out] to fit k, received shape "
                f"{tuple(weights[name].shape)}; check the order of axes."
            )
        if 0 in weights[name].shape:
            raise InputError(
                f"fast weight {name} must not be empty, received {tuple(weights[name].shape)}; widen it."
            )
    if isinstance(spec.network, DepthwiseConv3x3):
        _check_convolution(spec, inputs, weights["w_conv"])
        return
    first = spec.network.fast_weights[0]
    if weights[first].shape[2] != width:
        raise InputError(
            f"fast weight {first} must take inputs of width {width} (the key width), received {tuple(weights[first].shape)}; "
            "fast weights are [in, out]."
        )
    _check_hidden(spec, weights)
    if weights[spec.network.last].shape[3] != inputs.v.shape[3]:
        raise InputError(
            f"fast weight {spec.network.last} must give outputs of width {inputs.v.shape[3]} (the value width), received "
            f"{tuple(weights[spec.network.last].shape)}; fast weights are [in, out]."
        )


def _check_convolution(spec: InnerLoop, inputs: Inputs, kernel: Tensor) -> None:
    _expect("w_conv", kernel, (*inputs.k.shape[:2], 9, inputs.k.shape[3]))
    _expect("v", inputs.v, tuple(inputs.k.shape))
    grid = inputs.grid
    sides = grid if isinstance(grid, tuple) and len(grid) == 2 else (0, 0)
    if not all(type(side) is int and side > 0 for side in sides) or math.prod(sides) != inputs.num_tokens:
        raise InputError(
            f"the convolution needs grid=(height, width) with {inputs.num_tokens} cells, received {grid}; pass it."
        )
    if spec.chunk is not None and spec.chunk < inputs.num_tokens:
        raise InputError(
            f"the convolution needs the whole grid in one chunk, received chunk={spec.chunk} for {inputs.num_tokens} "
            "tokens; use chunk=None."
        )


def _check_hidden(spec: InnerLoop, weights: FastWeights) -> None:
    """Layers must hand over as many channels as the next one takes; gates must be as wide as what they multiply."""
    names = spec.network.fast_weights
    shapes = {name: tuple(weights[name].shape) for name in names}
    if isinstance(spec.network, MLP):
        wanted = {
            after: (*shapes[after][:2], shapes[name][3], shapes[after][3]) for name, after in pairwise(names)
        }
    elif isinstance(spec.network, SwiGLU):
        gate, out = shapes["w_gate"], shapes["w_out"]
        wanted = {"w_up": gate, "w_out": (*out[:2], gate[3], out[3])}
    else:
        wanted = dict.fromkeys(names[1:], shapes[names[0]])
    for name, shape in wanted.items():
        _expect(name, weights[name], shape)


def _expect(name: str, tensor: Tensor, shape: tuple[int, ...]) -> None:
    if tuple(tensor.shape) != shape:
        raise InputError(
            f"{name} must have shape {shape}, received {tuple(tensor.shape)}; check the order of axes."
        )
