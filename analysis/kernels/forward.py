"""Running a layer: eagerly in the interpreter, and on the GPU through a CUDA graph that is captured at the first call.

A graph holds the launches, not the addresses: kernels find their inputs and the output through a table that one small
kernel fills before each replay, so a call copies no sequence and never captures twice for the same shapes. Shares of the
sequences are branches of the graph.
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
from analysis.kernels.shares import cut, steps_of
from analysis.kernels.signature import ROW, Operands, Signature
from analysis.kernels.tiles import shared_memory_limit

MOST_RUNNERS = 24
"""Shapes whose buffers and graphs are kept; the least recently used one is dropped first."""
MOST_SHARES = 4
"""How many shares of a call run beside each other."""


@dataclass(frozen=True)
class Outcome:
    """Outputs [B, H, T, V] in the operands' type, and the final state in float32 by part and name of the moving weight.

    Parts: 'fast' [B, H, in, out]; 'main', the unnormalised copy (pre-norm); 'carry', the momentum accumulator; 'target',
    the initial column norms [B, H, 1, out]. A part that the loop does not have is absent.
    """

    outputs: Tensor
    state: dict[str, dict[str, Tensor]]


class Runner:
    """The layers of a call's shares, the table they find their tensors through, and the graph of their launches."""

    def __init__(
        self, plan: Plan, sign: Signature, *, is_parallel: bool, limit: int, keeps_states: bool
    ) -> None:
        share, count = cut(plan, sign, 1 if keeps_states else MOST_SHARES)
        self.sign, self.sequences = sign, share.total_z
        self.steps = [step for pair in steps_of(plan, sign) for step in pair]
        self.table = torch.empty(count, ROW, dtype=torch.int64, device=sign.device)
        self.layers = [
            Layer(
                plan, share, row,
                is_parallel=is_parallel, limit=limit, shares=count, keeps_states=keeps_states,
            )
            for row in self.table
        ]  # fmt: skip
        on_gpu = sign.device.type == "cuda"
        self.streams = [torch.cuda.Stream(sign.device) for _ in self.layers[1:] if on_gpu]
        self.graph: torch.cuda.CUDAGraph | None = None

    def __call__(self, operands: Operands) -> Outcome:
        """Run the loop on these operands."""
        sign = self.sign
        outputs = operands.q.new_empty(sign.batch, sign.heads, sign.tokens, sign.values)
        self._point_at(operands, outputs)
        on_gpu = sign.device.type == "cuda"
        in_graph_of_caller = on_gpu and torch.cuda.is_current_stream_capturing()
        if self.graph is not None and not in_graph_of_caller:
            self.graph.replay()
        else:
            self._launch()
            if in_graph_of_caller:
                replay.keep_for_caller(self)
            elif on_gpu:
                self._capture().replay()
        return Outcome(outputs, self._state())

    def layer_with_states(self, operands: Operands) -> Layer:
        """Run the updates on these operands; return the only layer, whose `kept` has their states, for the caller to clear."""
        (layer,) = self.layers
        self._point_at(operands, operands.q)
        layer.launch()
        return layer

    def parallel_states(self) -> list[Tensor]:
        """Return copies of what all layers have as `Layer.parallel_states`, for all sequences."""
        return [
            torch.cat(parts, 1)
            for parts in zip(*(layer.parallel_states() for layer in self.layers), strict=True)
        ]

    def _point_at(self, operands: Operands, outputs: Tensor) -> None:
        write_table_kernel[(len(self.layers),)](
            self.table, self.sign.heads, self.sequences, *operands.addresses(outputs), *self.steps,
            ROW=ROW, num_warps=1,
        )  # fmt: skip

    def _launch(self) -> None:
        """Launch every share beside the others; one after the other where there are no streams."""
        first, *others = self.layers
        if not self.streams:
            for layer in self.layers:
                layer.launch()
            return
        caller = torch.cuda.current_stream(self.sign.device)
        for layer, stream in zip(others, self.streams, strict=True):
            stream.wait_stream(caller)
            with torch.cuda.stream(stream):
                layer.launch()
        first.launch()
        for stream in self.streams:
            caller.wait_stream(stream)

    def _capture(self) -> torch.cuda.CUDAGraph:
        """Record the launches; the eager run before has compiled them, and the replay after fills the graph's own copies."""
        device = self.sign.device
        torch.cuda.synchronize(device)
        graph = torch.cuda.CUDAGraph()
        # torch's own capture stream stays on the device of the process's first capture
        with torch.cuda.graph(graph, stream=torch.cuda.Stream(device), capture_error_mode="thread_local"):
            self._launch()
        self.graph = graph
        return graph

    def _state(self) -> dict[str, dict[str, Tensor]]:
        """Return copies of the final state, [B, H, in, out] by part and name."""
        layer, *_ = self.layers
        state: dict[str, dict[str, Tensor]] = {}
        for part in state_parts(layer.plan, layer.updates > 0):
            state[part] = {}
            for group in layer.unique_groups(moving=True):
                matrices = torch.cat([each.group_like(group).by_name(part) for each in self.layers], 1)
                state[part] |= {
                    name: matrix.unflatten(0, (self.sign.batch, self.sign.heads))
                    for name, matrix in zip(group.names, matrices, strict=True)
                }
            state[part] = {name: state[part][name] for name in layer.plan.moving}
        return state


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
            made = Runner(plan, sign, is_parallel=is_parallel, limit=limit, keeps_states=keeps_states)
        replay.remember(_RUNNERS, key, made, MOST_RUNNERS)
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
