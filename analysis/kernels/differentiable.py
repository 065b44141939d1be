"""Kernels under autograd: what is saved between the passes, and which way back a loop takes.

The recurrent form saves its inputs alone and runs its updates again. The parallel form saves its inputs and a few matrices
per chunk (`Layer.parallel_states`). Both are linear in tokens.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from analysis.kernels import backward, forward, replay
from analysis.kernels.forward import Outcome, Runner
from analysis.kernels.parallel_backward import ParallelWalk
from analysis.kernels.plan import Plan, chunks_of
from analysis.kernels.signature import Operands, prepare


class _Loop(torch.autograd.Function):
    """A whole inner loop as one differentiable operation; its outputs are flat, as autograd needs them."""

    @staticmethod
    def forward(ctx: Any, plan: Plan, is_parallel: bool, update_tokens: int, *tensors: Tensor) -> Any:
        ctx.plan, ctx.is_parallel, ctx.update_tokens = plan, is_parallel, update_tokens
        operands = _operands(plan, tensors, update_tokens)
        runner = forward.runner(plan, operands, is_parallel=is_parallel)
        outcome = runner(operands)
        states = runner.parallel_states() if is_parallel else []
        ctx.save_for_backward(*tensors, *states)
        ctx.parts, ctx.count = tuple(outcome.state), len(tensors)
        return outcome.outputs, *(part[name] for part in outcome.state.values() for name in plan.moving)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, d_out: Tensor, *d_flat: Tensor) -> Any:
        plan, count, parts = ctx.plan, ctx.count, ctx.parts
        tensors, states = ctx.saved_tensors[:count], ctx.saved_tensors[count:]

        def walk(given: Sequence[Tensor]) -> tuple[list[Tensor], Runner | None]:
            each = iter(given[count + 1 :])
            d_state = {part: {name: next(each) for name in plan.moving} for part in parts}
            return _walk_back(
                plan, ctx.update_tokens, tuple(given[:count]), given[count], d_state, list(each)
            )

        key = (plan, ctx.is_parallel, ctx.update_tokens)
        found = replay.replayed(key, walk, [*tensors, d_out, *d_flat, *states])
        return None, None, None, *found


def _walk_back(
    plan: Plan,
    update_tokens: int,
    tensors: tuple[Tensor, ...],
    d_out: Tensor,
    d_state: dict[str, dict[str, Tensor]],
    states: Sequence[Tensor],
) -> tuple[list[Tensor], Runner | None]:
    """Go back through a loop, the parallel form if there are states.

    Returns all inputs' gradients in their types, and the runner whose buffers the launches use, if there is one.
    """
    operands = _operands(plan, tensors, update_tokens)
    if states:
        runner = None
        found = ParallelWalk(plan, operands, d_out, d_state, states).run()
    else:
        runner = forward.runner(plan, operands, is_parallel=False, keeps_states=True)
        layer = runner.layer_with_states(operands)
        found = backward.RecurrentWalk(layer, operands, d_out, d_state).run()
        layer.kept.clear()
    rates = found.rates
    if len(set(plan.rates)) < len(rates):
        rates = [torch.stack(rates).sum(0)]
    momentum = [] if found.momentum is None else [found.momentum]
    weights = [backward.part(found.weights, name) for name in plan.names]
    gradients = [found.q, found.k, found.v, *rates, *momentum, *weights]
    return [
        gradient.reshape(tensor.shape).to(tensor.dtype)
        for gradient, tensor in zip(gradients, tensors, strict=True)
    ], runner


def _operands(plan: Plan, tensors: tuple[Tensor, ...], update_tokens: int) -> Operands:
    """Return the tensors of a call, which stand in the order of `run`, as operands."""
    q, k, v, *rest = tensors
    rates = {name: rest.pop(0) for name in dict.fromkeys(plan.rates)}
    momentum = rest.pop(0) if plan.momentum == "per token" else None
    weights = dict(zip(plan.names, rest, strict=True))
    return prepare(plan, q, k, v, rates, momentum, weights, update_tokens)


def run(
    plan: Plan,
    tokens: tuple[Tensor, Tensor, Tensor],
    rates: Mapping[str, Tensor],
    momentum: Tensor | None,
    weights: Mapping[str, Tensor],
    update_tokens: int,
    *,
    is_parallel: bool,
) -> Outcome:
    """Run a plan; see `analysis.kernels.run`."""
    flat = [*tokens]
    flat += [rates[name] for name in dict.fromkeys(plan.rates)]
    if plan.momentum == "per token":
        assert momentum is not None
        flat.append(momentum)
    flat += [weights[name] for name in plan.names]
    if not (torch.is_grad_enabled() and any(tensor.requires_grad for tensor in flat)):
        operands = _operands(plan, tuple(flat), update_tokens)
        return forward.runner(plan, operands, is_parallel=is_parallel)(operands)
    outputs, *state = _Loop.apply(plan, is_parallel, update_tokens, *flat)
    each = iter(state)
    return Outcome(
        outputs, {part: {name: next(each) for name in plan.moving} for part in _parts(plan, update_tokens)}
    )


def _parts(plan: Plan, update_tokens: int) -> tuple[str, ...]:
    return forward.state_parts(plan, chunks_of(plan, update_tokens).updates > 0)
