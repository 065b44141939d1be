"""The backward pass as a CUDA graph: thousands of small launches that a processor could not issue as fast as they run.

The first call of a shape runs eagerly; a shape that comes back is captured on copies of its inputs, and from then on a call
copies its tensors in, replays, and copies the gradients out. Both copies are linear in tokens.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import TypeVar

import torch
from torch import Tensor

T = TypeVar("T")
Pass = Callable[[Sequence[Tensor]], tuple[list[Tensor], object]]
"""Goes back through a loop; returns the gradients, and what owns the buffers its launches use besides its inputs, or None."""
MOST_GRAPHS = 4
"""Captured backward passes that are kept, each with its copies; the least recently used one is dropped first."""
MOST_SEEN = 64
"""Shapes that came once and are remembered, so that passing shapes push out no graph."""


class Replay:
    """One backward pass on tensors of fixed shapes."""

    def __init__(self) -> None:
        self.graph: torch.cuda.CUDAGraph | None = None
        self.inputs: list[Tensor] = []
        self.outputs: list[Tensor] = []
        self.owner: object = None
        """Kept as long as the graph: its buffers lie outside the graph's memory."""

    def capture(self, walk: Pass, tensors: Sequence[Tensor]) -> None:
        """Record `walk` on copies of `tensors`."""
        device = tensors[0].device
        self.inputs = [tensor.detach().clone() for tensor in tensors]
        torch.cuda.synchronize(device)
        stream = torch.cuda.Stream(device)
        with torch.cuda.stream(stream):
            # what a stream needs once, its layer among it, must not be made inside the capture
            walk(self.inputs)
        stream.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=stream, capture_error_mode="thread_local"):
            self.outputs, self.owner = walk(self.inputs)
        self.graph = graph

    def __call__(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        """Return the gradients for these tensors."""
        assert self.graph is not None
        for kept, tensor in zip(self.inputs, tensors, strict=True):
            kept.copy_(tensor)
        self.graph.replay()
        return [output.clone() for output in self.outputs]


_REPLAYS: OrderedDict[tuple[object, ...], Replay] = OrderedDict()
_SEEN: OrderedDict[tuple[object, ...], None] = OrderedDict()
_IN_GRAPHS_OF_CALLERS: set[object] = set()


def keep_for_caller(owner: object) -> None:
    """Keep buffers that a graph of the caller launches on: nobody here knows how long that graph lives."""
    _IN_GRAPHS_OF_CALLERS.add(owner)


def replayed(key: tuple[object, ...], walk: Pass, tensors: Sequence[Tensor]) -> list[Tensor]:
    """Return `walk(tensors)`, from the second call of a key and a set of shapes on by replaying its launches.

    Off the GPU, and inside a capture of the caller, the pass runs as it is.
    """
    device = tensors[0].device
    if device.type != "cuda":
        return walk(tensors)[0]
    if torch.cuda.is_current_stream_capturing():
        gradients, owner = walk(tensors)
        if owner is not None:
            keep_for_caller(owner)
        return gradients
    stream = torch.cuda.current_stream(device).cuda_stream
    shapes = tuple((tuple(t.shape), t.stride(), t.dtype) for t in tensors)
    key = (*key, device, stream, shapes, torch.get_float32_matmul_precision())
    if key not in _REPLAYS:
        if key not in _SEEN:
            remember(_SEEN, key, None, MOST_SEEN)
            return walk(tensors)[0]
        made = Replay()
        made.capture(walk, tensors)
        remember(_REPLAYS, key, made, MOST_GRAPHS)
    _REPLAYS.move_to_end(key)
    return _REPLAYS[key](tensors)


def remember(kept: OrderedDict[tuple[object, ...], T], key: tuple[object, ...], value: T, most: int) -> None:
    """Keep a value as the most recent one; the least recent ones beyond `most` are dropped."""
    kept[key] = value
    while len(kept) > most:
        kept.popitem(last=False)


def forget() -> None:
    """Drop every captured backward pass and its copies, and what was kept for graphs of callers."""
    _REPLAYS.clear()
    _SEEN.clear()
    _IN_GRAPHS_OF_CALLERS.clear()
