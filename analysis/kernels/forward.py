"""Running a layer: eagerly in the interpreter, and on the GPU through a CUDA graph that is captured at the first call.

A graph holds the launches, not the addresses: kernels find their inputs and the output through a table that one small
kernel fills before each replay, so a call copies no sequence and never captures twice for the same shapes.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass

import torch
from torch import Tensor

from analysis.kernels.arithmetic import write_table_kernel
from analysis.kernels.layer import Layer
from analysis.kernels.plan import Plan
from analysis.kernels.signature import Operands
from analysis.kernels.tiles import shared_memory_limit

MOST_LAYERS = 24
"""Layers whose buffers and graphs are kept; the least recently used one is dropped first."""


@dataclass(frozen=True)
class Outcome:
    """Outputs [B, H, T, V] in the operands' type, and the final float32 state by name, each [B, H, in, out] or None."""

    outputs: Tensor
    fast: dict[str, Tensor]
    main: dict[str, Tensor] | None
    momentum: dict[str, Tensor] | None
    target: dict[str, Tensor] | None


class Runner:
    """A layer with the graph of its launches."""

    def __init__(self, layer: Layer) -> None:
        self.layer = layer
        self.graph: torch.cuda.CUDAGraph | None = None

    def __call__(self, operands: Operands) -> Outcome:
        layer, sign = self.layer, self.layer.sign
        outputs = operands.q.new_empty(sign.batch, sign.heads, sign.tokens, sign.values)
        write_table_kernel[(1,)](layer.table, *operands.addresses(outputs), num_warps=1)
        on_gpu = sign.device.type == "cuda"
        if on_gpu and self.graph is not None and not torch.cuda.is_current_stream_capturing():
            self.graph.replay()
        else:
            layer.kept.clear()
            layer.launch()
            if on_gpu and not torch.cuda.is_current_stream_capturing():
                self._capture()
        return _outcome(layer, outputs)

    def _capture(self) -> None:
        """Record the launches for later calls; this call has already run them."""
        self.layer.kept.clear()
        torch.cuda.synchronize(self.layer.sign.device)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, capture_error_mode="thread_local"):
            self.layer.launch()
        self.graph = graph


_RUNNERS: OrderedDict[tuple[object, ...], Runner] = OrderedDict()


def runner(plan: Plan, operands: Operands, *, is_parallel: bool, keeps_states: bool = False) -> Runner:
    """Return the runner for a call's plan, signature, form and stream, made on first use.

    Raises:
        UnsupportedSpecError: no tile fits the device's shared memory.
    """
    sign = operands.signature()
    stream = torch.cuda.current_stream(sign.device).cuda_stream if sign.device.type == "cuda" else 0
    limit = shared_memory_limit(sign.device)
    key = (plan, sign, is_parallel, keeps_states, stream, limit)
    if key not in _RUNNERS:
        made = Runner(Layer(plan, sign, is_parallel=is_parallel, limit=limit, keeps_states=keeps_states))
        _RUNNERS[key] = made
        while len(_RUNNERS) > MOST_LAYERS:
            _RUNNERS.popitem(last=False)
    _RUNNERS.move_to_end(key)
    return _RUNNERS[key]


def forget() -> None:
    """Drop every kept layer, its buffers and its graph."""
    _RUNNERS.clear()


def _outcome(layer: Layer, outputs: Tensor) -> Outcome:
    plan, sign = layer.plan, layer.sign
    copies = {
        (id(group), part): getattr(group, part).clone()
        for group in layer.unique_groups(moving=True)
        for part in _parts(layer)
    }

    def named(part: str) -> dict[str, Tensor]:
        found = {}
        for name in plan.moving:
            group, where = layer.group(name)
            rows, cols = group.rows, group.cols
            matrix = copies[id(group), part][where]
            if part == "target":
                found[name] = matrix.view(sign.batch, sign.heads, 1, cols)
                continue
            if part == "carry" and group.turned:
                found[name] = matrix.view(sign.batch, sign.heads, cols, rows).transpose(2, 3)
            else:
                found[name] = matrix.view(sign.batch, sign.heads, rows, cols)
        return found

    parts = _parts(layer)
    return Outcome(
        outputs,
        named("fast"),
        named("main") if "main" in parts else None,
        named("carry") if "carry" in parts else None,
        named("target") if "target" in parts else None,
    )


def _parts(layer: Layer) -> list[str]:
    parts = ["fast"]
    if layer.plan.norm == "pre":
        parts.append("main")
    if layer.plan.norm is not None:
        parts.append("target")
    if layer.plan.momentum is not None and layer.updates:
        parts.append("carry")
    return parts
