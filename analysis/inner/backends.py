"""The backends by name, what each can run and why not, and `run`, the one entrance to an inner loop."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch

from analysis.errors import InputError, UnsupportedSpecError, closest
from analysis.inner.chunks import check, num_chunks
from analysis.inner.compiled import run_compiled
from analysis.inner.effective import run_effective
from analysis.inner.parallel import run_parallel
from analysis.inner.recurrent import run_recurrent
from analysis.inner.reference import run_reference
from analysis.inner.tensors import DTYPES, require_one_dtype
from analysis.inner.types import FastWeights, Inputs, Result, State
from analysis.spec import InnerLoop, ReducibilityClass, reducibility


@dataclass(frozen=True)
class Capability:
    """Whether a backend runs a specification on given inputs, and the reason in one sentence."""

    is_capable: bool
    reason: str


@dataclass(frozen=True)
class Backend:
    """A way to run inner loops: its name, its capability check, and its function."""

    name: str
    capability: Callable[[InnerLoop, Inputs], Capability]
    function: Callable[..., Result]


def _always(spec: InnerLoop, inputs: Inputs) -> Capability:
    return Capability(True, "runs every specification chunk by chunk")


def _reducible(spec: InnerLoop, inputs: Inputs) -> Capability:
    verdict = reducibility(spec, num_chunks(spec, inputs.num_update_tokens))
    return Capability(verdict.is_parallel, verdict.reason)


def _extracted(spec: InnerLoop, inputs: Inputs) -> Capability:
    return Capability(
        True, "extracts q_eff, k_eff, v_eff and S_0 chunk by chunk, then evaluates linear attention"
    )


def _run_reference(
    spec: InnerLoop, inputs: Inputs, weights: FastWeights, *, measure: bool, newton_schulz_dtype: object
) -> Result:
    if measure or newton_schulz_dtype is not None:
        raise UnsupportedSpecError(
            "the reference backend needs measure=False and newton_schulz_dtype=None, received others; use 'recurrent'."
        )
    return run_reference(spec, inputs, weights)


def _fused(spec: InnerLoop, inputs: Inputs) -> Capability:
    from analysis import kernels

    reason = kernels.reason_against(spec, inputs.q, inputs.k, inputs.v)
    return Capability(reason is None, reason or "runs as fused Triton kernels")


def _run_triton(
    spec: InnerLoop,
    inputs: Inputs,
    weights: FastWeights,
    *,
    measure: bool,
    newton_schulz_dtype: torch.dtype | None,
    is_parallel: bool | None = None,
) -> Result:
    from analysis import kernels

    reason = kernels.reason_against(
        spec, inputs.q, inputs.k, inputs.v, measure=measure, newton_schulz_dtype=newton_schulz_dtype
    )
    if reason is not None:
        raise UnsupportedSpecError(f"the triton backend cannot run this call: {reason}; use another backend.")
    done = kernels.run(
        kernels.plan_of(spec),
        (inputs.q, inputs.k, inputs.v),
        inputs.rates,
        inputs.momentum,
        weights,
        inputs.num_update_tokens,
        is_parallel=is_parallel,
    )
    fast = {name: done.state["fast"].get(name, weights[name]) for name in spec.network.fast_weights}
    state = State(
        fast, done.state.get("main"), done.state.get("carry"), done.state.get("target"), pending=None
    )
    return Result(done.outputs, state, None, "triton")


BACKENDS: dict[str, Backend] = {
    "reference": Backend("reference", _always, _run_reference),
    "recurrent": Backend("recurrent", _always, run_recurrent),
    "compiled": Backend("compiled", _always, run_compiled),
    "parallel": Backend("parallel", _reducible, run_parallel),
    "effective": Backend("effective", _extracted, run_effective),
    "triton": Backend("triton", _fused, _run_triton),
}


def choose(
    spec: InnerLoop, inputs: Inputs, *, measure: bool = False, newton_schulz_dtype: torch.dtype | None = None
) -> str:
    """Return the backend that `auto` stands for: triton on a CUDA device where it can, else parallel or recurrent.

    The scan of an affine loop multiplies matrices log2(N) times as often as the recurrence: on a processor that takes longer.
    """
    if inputs.q.is_cuda:
        from analysis import kernels

        reason = kernels.reason_against(
            spec, inputs.q, inputs.k, inputs.v, measure=measure, newton_schulz_dtype=newton_schulz_dtype
        )
        if reason is None:
            return "triton"
    verdict = reducibility(spec, num_chunks(spec, inputs.num_update_tokens))
    scan_costs = verdict.kind is ReducibilityClass.AFFINE and inputs.q.device.type == "cpu"
    return "parallel" if verdict.is_parallel and not scan_costs else "recurrent"


def run(
    spec: InnerLoop,
    inputs: Inputs,
    weights: FastWeights,
    backend: str = "auto",
    *,
    measure: bool = False,
    newton_schulz_dtype: torch.dtype | None = None,
) -> Result:
    """Run an inner loop; the result names the backend that ran.

    Args:
        spec: what to run.
        inputs: queries, keys, values and the per-token tensors the specification asks for.
        weights: initial fast weights by name, [B, H, in, out].
        backend: 'auto', or a name in BACKENDS.
        measure: also return inner losses and update sizes per chunk.
        newton_schulz_dtype: precision of the orthogonalisation (published code: torch.bfloat16); None keeps that of the inputs.

    Raises:
        UnsupportedSpecError: unknown backend, or one that cannot run this specification.
        InputError: tensors that do not fit the specification.
    """
    if backend != "auto" and backend not in BACKENDS:
        near = closest(str(backend), BACKENDS)
        raise UnsupportedSpecError(
            f"backend must be 'auto' or one of {', '.join(BACKENDS)}, received {backend!r}{near}."
        )
    check(spec, inputs, weights)
    if newton_schulz_dtype not in (None, *DTYPES):
        raise InputError(
            f"newton_schulz_dtype must be None or a floating-point torch.dtype, received {newton_schulz_dtype!r}; pass one."
        )
    name = backend
    if backend == "auto":
        name = choose(spec, inputs, measure=measure, newton_schulz_dtype=newton_schulz_dtype)
    if name != "triton":  # the kernels convert on their own
        require_one_dtype(spec, inputs, weights)
    return BACKENDS[name].function(
        spec, inputs, weights, measure=measure, newton_schulz_dtype=newton_schulz_dtype
    )
