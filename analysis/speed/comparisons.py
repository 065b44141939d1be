"""What the kernels are compared with: float64 for truth, and for speed a straightforward torch.compile of the backends."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from analysis.inner import Inputs, run
from analysis.inner.compiled import allow_many_graphs
from analysis.inner.parallel import run_parallel
from analysis.inner.recurrent import apply, run_recurrent, update
from analysis.kernels.bench import Implementation
from analysis.kernels.cases import Case, Tensors
from analysis.spec import InnerLoop

COMPILED = "torch.compile"


def truth(spec: InnerLoop, tensors: Tensors) -> tuple[Tensor, Mapping[str, Tensor]]:
    """Return outputs and final fast weights of the recurrent closed form, which agrees with autograd to 1e-10."""
    result = run(spec, _inputs(tensors), tensors.weights, backend="recurrent")
    return result.outputs, result.state.fast_weights


def plain(spec: InnerLoop, tensors: Tensors) -> tuple[Tensor, Mapping[str, Tensor]]:
    """Return the same with products in the type of the operands and everything else in float32: torch's mixed precision."""
    kind, dtype = tensors.q.device.type, tensors.q.dtype
    with torch.autocast(kind, dtype=dtype, enabled=dtype != torch.float32):
        return truth(spec, tensors.each(lambda x: x.float()))


def compiled(case: Case) -> dict[str, Implementation]:
    """Return the form of a case through torch.compile, every tensor in the operands' type, as one would first write it."""
    dtype = getattr(torch, case.dtype)
    function = _recurrent if case.form == "recurrent" else _parallel
    return {COMPILED: lambda spec, tensors: function(spec, tensors.each(lambda x: x.to(dtype)))}


def _inputs(tensors: Tensors) -> Inputs:
    return Inputs(tensors.q, tensors.k, tensors.v, tensors.rates, tensors.momentum)


@functools.cache
def _compile(function: Callable[..., Any]) -> Callable[..., Any]:
    allow_many_graphs()
    return torch.compile(function, dynamic=False)


def _recurrent(spec: InnerLoop, tensors: Tensors) -> Tensor:
    inputs = _inputs(tensors)
    return run_recurrent(
        spec, inputs, tensors.weights, advance=_compile(update), read=_compile(apply)
    ).outputs


def _parallel(spec: InnerLoop, tensors: Tensors) -> Tensor:
    outputs: Tensor = _compile(_parallel_outputs)(spec, _inputs(tensors), tensors.weights)
    return outputs


def _parallel_outputs(spec: InnerLoop, inputs: Inputs, weights: Mapping[str, Tensor]) -> Tensor:
    return run_parallel(spec, inputs, weights).outputs
