"""An error table in place of one tolerance: every tensor, dtype, length and head against the float64 reference."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import torch
from torch import Tensor

from analysis.inner import run
from analysis.inner.types import Inputs
from analysis.spec import InnerLoop
from analysis.theorems.claims import relative_error
from analysis.theorems.draws import Problem, Sizes, draw

BUDGETS = {torch.float64: 1e-12, torch.float32: 1e-6, torch.bfloat16: 1e-2}
"""Relative error allowed at 64 tokens; it may grow with the square root of the length, as independent roundings do."""


def budget(dtype: torch.dtype, tokens: int) -> float:
    """Largest relative error that a tensor may show in this dtype at this length."""
    return BUDGETS[dtype] * max(1.0, tokens / 64) ** 0.5


def _cast(problem: Problem, dtype: torch.dtype) -> Problem:
    def leaf(x: Tensor) -> Tensor:
        return x.detach().to(dtype).requires_grad_()

    x = problem.inputs
    inputs = dataclasses.replace(
        x,
        q=leaf(x.q),
        k=leaf(x.k),
        v=leaf(x.v),
        rates={name: leaf(rate) for name, rate in x.rates.items()},
        momentum=None if x.momentum is None else leaf(x.momentum),
    )
    return Problem(problem.spec, inputs, {name: leaf(w) for name, w in problem.weights.items()})


def tensors(problem: Problem, backend: str, probe: Tensor) -> dict[str, Tensor]:
    """Outputs, final state and the gradients of <outputs, probe> with respect to every leaf, by name."""
    result = run(problem.spec, problem.inputs, problem.weights, backend)
    leaves = problem.leaves
    slopes = torch.autograd.grad(
        (result.outputs * probe.to(result.outputs.dtype)).sum(), list(leaves.values()), allow_unused=True
    )
    found = {"outputs": result.outputs} | {
        f"state {n}": result.state.fast_weights[n] for n in problem.spec.moving
    }
    return found | {f"gradient of {n}": s for n, s in zip(leaves, slopes, strict=True) if s is not None}


def compare(
    found: Mapping[str, Tensor], expected: Mapping[str, Tensor], dtype: torch.dtype, tokens: int
) -> list[dict[str, object]]:
    """Return one row per tensor and head: largest absolute and relative norm error, and whether it is within budget."""
    rows: list[dict[str, object]] = []
    for name, tensor in expected.items():
        for head in range(tensor.shape[1]):
            one, two = found[name][:, head].double(), tensor[:, head].double()
            relative = relative_error(one, two)
            rows.append(
                {
                    "tensor": name,
                    "head": head,
                    "dtype": str(dtype).removeprefix("torch."),
                    "tokens": tokens,
                    "largest absolute": float((one - two).detach().abs().max()),
                    "relative": relative,
                    "budget": budget(dtype, tokens),
                    "within": relative <= budget(dtype, tokens),
                }
            )
    return rows


def error_table(
    spec: InnerLoop,
    sizes: Sizes,
    dtypes: tuple[torch.dtype, ...] = (torch.float64, torch.float32, torch.bfloat16),
    backend: str = "recurrent",
    seed: int = 0,
    scale_head: tuple[int, float] | None = None,
) -> list[dict[str, object]]:
    """Run a loop in each dtype and set every tensor beside the float64 reference on the same (rounded) numbers.

    `scale_head=(head, factor)` multiplies the queries, keys and values of one head, so that it is seen that a large head does
    not spoil the others and that its own error is not hidden among them.
    """
    spec = spec.edit(chunk=sizes.chunk)
    problem = draw(spec, sizes, seed)
    if scale_head is not None:
        problem = _scaled(problem, *scale_head)
    generator = torch.Generator().manual_seed(seed + 1)
    probe = torch.randn(problem.inputs.v.shape, dtype=torch.float64, generator=generator)
    rows = []
    for dtype in dtypes:
        rounded = _cast(problem, dtype)
        expected = tensors(_cast(rounded, torch.float64), "reference", probe.to(dtype).double())
        rows += compare(tensors(rounded, backend, probe), expected, dtype, sizes.tokens)
    return rows


def _scaled(problem: Problem, head: int, factor: float) -> Problem:
    def larger(x: Tensor) -> Tensor:
        scale = torch.ones(x.shape[1], 1, 1, dtype=x.dtype)
        scale[head] = factor
        return (x * scale).detach()

    x: Inputs = problem.inputs
    inputs = dataclasses.replace(x, q=larger(x.q), k=larger(x.k), v=larger(x.v))
    return Problem(problem.spec, inputs, problem.weights)
