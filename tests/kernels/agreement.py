"""Random calls in the operands' type, the float64 truth beside them, and the error of every tensor by name."""

from __future__ import annotations

import dataclasses

import torch

from analysis.inner import Inputs, Result, run
from analysis.spec import Family, InnerLoop, ladder
from tests.inner.cases import draw, leaves

LIMITS = {torch.float32: 1e-4, torch.float16: 1e-2, torch.bfloat16: 1e-2}
LADDER = {key: loops["fast_weights"] for key, loops in ladder(Family.LACT_LM, chunk=8).items()}
TOKENS = 21
"""Two full chunks of eight and a tail of five."""


def case(spec: InnerLoop, dtype: torch.dtype, *, device: str = "cpu", requires_grad: bool = False, **sizes):
    """Return ((inputs, weights) in `dtype`, the same in float64); rates, gates and weights stay float32 and exact."""
    sizes = {"batch": 1, "heads": 1, "tokens": TOKENS, "width": 12, "hidden": 16, "values": 14} | sizes
    exact, weights = draw(spec, **sizes)

    def as_given(x, given):
        return None if x is None else x.detach().to(device, given)

    def build(kind, other):
        inputs = dataclasses.replace(
            exact,
            **{name: as_given(as_given(getattr(exact, name), dtype), kind) for name in ("q", "k", "v")},
            rates={name: as_given(as_given(r, torch.float32), other) for name, r in exact.rates.items()},
            momentum=as_given(as_given(exact.momentum, torch.float32), other),
        )
        fast = {name: as_given(as_given(w, torch.float32), other) for name, w in weights.items()}
        for tensor in leaves(inputs, fast).values():
            tensor.requires_grad_(requires_grad)
        return inputs, fast

    return build(dtype, torch.float32), build(torch.float64, torch.float64)


def named(spec: InnerLoop, result: Result) -> dict[str, torch.Tensor]:
    """Name every tensor of a result."""
    found = {"outputs": result.outputs}
    for part in ("fast_weights", "main", "momentum"):
        matrices = getattr(result.state, part) or {}
        found |= {f"{part} {name}": matrices[name] for name in spec.moving if name in matrices}
    return found


def error(measured: torch.Tensor, exact: torch.Tensor) -> float:
    """||measured - exact|| / ||exact||."""
    return ((measured.double() - exact).norm() / exact.norm().clamp_min(1e-30)).item()


def run_form(spec: InnerLoop, inputs: Inputs, fast: dict, is_parallel: bool | None) -> Result:
    """Run the triton backend in a given form; None leaves the choice to it."""
    from analysis.inner.backends import BACKENDS

    return BACKENDS["triton"].function(
        spec, inputs, fast, measure=False, newton_schulz_dtype=None, is_parallel=is_parallel
    )


def errors(
    spec: InnerLoop, dtype: torch.dtype, *, is_parallel: bool | None = None, **sizes
) -> dict[str, float]:
    """Return the error of outputs and state of the triton backend against the float64 reference."""
    (inputs, fast), (exact, exact_fast) = case(spec, dtype, **sizes)
    truth = named(spec, run(spec, exact, exact_fast, backend="reference"))
    got = named(spec, run_form(spec, inputs, fast, is_parallel))
    assert truth.keys() == got.keys()
    return {name: error(got[name], truth[name].detach()) for name in truth}


def plain_errors(spec: InnerLoop, dtype: torch.dtype, **sizes) -> dict[str, float]:
    """Return the same of torch's mixed precision: products in `dtype`, everything else in float32."""
    (inputs, fast), (exact, exact_fast) = case(spec, dtype, **sizes)
    truth = named(spec, run(spec, exact, exact_fast, backend="reference"))
    inputs = dataclasses.replace(inputs, **{name: getattr(inputs, name).float() for name in ("q", "k", "v")})
    with torch.autocast(inputs.q.device.type, dtype=dtype, enabled=dtype != torch.float32):
        plain = named(spec, run(spec, inputs, fast, backend="recurrent"))
    return {name: error(plain[name], truth[name].detach()) for name in truth}


def all_errors(
    spec: InnerLoop, dtype: torch.dtype, *, is_parallel: bool | None = None, **sizes
) -> tuple[dict[str, float], dict[str, float]]:
    """Return `errors`, and those of the outer gradients of a random linear function of outputs and state, by input."""
    given, truth = case(spec, dtype, requires_grad=True, **sizes)
    tensors, gradients = [], []
    for (inputs, fast), is_exact in ((given, False), (truth, True)):
        result = (
            run(spec, inputs, fast, backend="reference")
            if is_exact
            else run_form(spec, inputs, fast, is_parallel)
        )
        tensors.append(named(spec, result))
        draw_again = torch.Generator().manual_seed(5)
        total = torch.zeros((), dtype=torch.float64, device=inputs.q.device)
        for tensor in tensors[-1].values():
            weight = torch.randn(tensor.shape, generator=draw_again, dtype=torch.float64)
            total = total + (tensor.double() * weight.to(tensor.device)).sum()
        found = leaves(inputs, fast)
        by_leaf = torch.autograd.grad(total, list(found.values()), allow_unused=True)
        gradients.append(dict(zip(found, by_leaf, strict=True)))
    got, exact = gradients
    return (
        {name: error(tensors[0][name].detach(), tensors[1][name].detach()) for name in tensors[1]},
        {
            name: error(torch.zeros_like(exact[name]) if got[name] is None else got[name], exact[name])
            for name in exact
            if exact[name] is not None and exact[name].norm() > 0
        },
    )


def forms(spec: InnerLoop) -> tuple[bool, ...]:
    """Return the forms a loop has: recurrent, and parallel where all chunks can run at once."""
    from analysis.kernels import plan_of

    return (False, True) if plan_of(spec).is_additive else (False,)
