"""Running a layer: eagerly in the interpreter, and on the GPU through a CUDA graph that is captured at the first call.

A graph holds the launches, not the addresses: kernels find their inputs and the output through a table that one small
kernel fills before each replay, so a call copies no sequence and never captures twice for the same shapes.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass

import torch
from torch import Tensor

from analysis.kernels import replay
from analysis.kernels.arithmetic import write_table_kernel
from analysis.kernels.layer import Layer
from analysis.kernels.plan import Plan
from analysis.kernels.signature import Operands
from analysis.kernels.tiles import shared_memory_limit

MOST_LAYERS = 24
"""Layers whose buffers and graphs are kept; the least recently used one is dropped first."""


@dataclass(frozen=True)
class Outcome:
    """Outputs [B, H, T, V] in the operands' type, and the final state in float32 by part and name of the moving weight.

    Parts: 'fast' [B, H, in, out]; 'main', the unnormalised copy (pre-norm); 'carry', the momentum accumulator; 'target',
    the initial column norms [B, H, 1, out]. A part that the loop does not have is absent.
    """

    outputs: Tensor
    state: dict[str, dict[str, Tensor]]


class Runner:
    """A layer with the graph of its launches."""

    def __init__(self, layer: Layer) -> None:
        self.layer = layer
        self.graph: torch.cuda.CUDAGraph | None = None

    def __call__(self, operands: Operands) -> Outcome:
        """Run the layer on these operands."""
        layer, sign = self.layer, self.layer.sign
        outputs = operands.q.new_empty(sign.batch, sign.heads, sign.tokens, sign.values)
        write_table_kernel[(1,)](layer.table, *operands.addresses(outputs), num_warps=1)
        on_gpu = sign.device.type == "cuda"
        in_graph_of_caller = on_gpu and torch.cuda.is_current_stream_capturing()
        if self.graph is not None and not in_graph_of_caller:
            self.graph.replay()
        else:
            layer.launch()
            if in_graph_of_caller:
                replay.keep_for_caller(layer)
            elif on_gpu:
                self._capture().replay()
        return _outcome(layer, outputs)

    def _capture(self) -> torch.cuda.CUDAGraph:
        """Record the launches; the eager run before has compiled them, and the replay after fills the graph's own copies."""
        device = self.layer.sign.device
        torch.cuda.synchronize(device)
        graph = torch.cuda.CUDAGraph()
        # torch's own capture stream stays on the device of the process's first capture
        with torch.cuda.graph(graph, stream=torch.cuda.Stream(device), capture_error_mode="thread_local"):
            self.layer.launch()
        self.graph = graph
        return graph


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
        # buffers made in inference mode could not be written outside of it
        with torch.inference_mode(False):
            made = Runner(Layer(plan, sign, is_parallel=is_parallel, limit=limit, keeps_states=keeps_states))
        _RUNNERS[key] = made
        while len(_RUNNERS) > MOST_LAYERS:
            _RUNNERS.popitem(last=False)
    _RUNNERS.move_to_end(key)
    return _RUNNERS[key]


def forget() -> None:
    """Drop every kept layer, its buffers and its graphs."""
    _RUNNERS.clear()
    replay.forget()


def state_parts(plan: Plan, has_update: bool) -> tuple[str, ...]:
    """Return the parts of the state that a loop has, in a fixed order."""
    present = {
        "fast": True,
        "main": plan.norm == "pre",
        "carry": plan.momentum is not None and has_update,
        "target": plan.norm is not None,
    }
    return tuple(part for part, is_there in present.items() if is_there)


def _outcome(layer: Layer, outputs: Tensor) -> Outcome:
    lead = (layer.sign.batch, layer.sign.heads)
    state: dict[str, dict[str, Tensor]] = {}
    for part in state_parts(layer.plan, layer.updates > 0):
        copies = {group: getattr(group, part).clone() for group in layer.unique_groups(moving=True)}
        state[part] = {}
        for name in layer.plan.moving:
            group, where = layer.group(name)
            matrix = copies[group][where]
            if part == "target":
                state[part][name] = matrix.view(*lead, 1, group.cols)
            elif part == "carry" and group.turned:
                state[part][name] = matrix.view(*lead, group.cols, group.rows).mT
            else:
                state[part][name] = matrix.view(*lead, group.rows, group.cols)
    return Outcome(outputs, state)
