"""Kernels under autograd: the forward pass saves its inputs, the backward pass runs it again and walks back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from analysis.kernels import backward, forward, replay
from analysis.kernels.forward import Outcome, Runner
from analysis.kernels.plan import Plan
from analysis.kernels.signature import Operands, prepare


class _Loop(torch.autograd.Function):
    """A whole inner loop as one differentiable operation; its outputs are flat, as autograd needs them."""

    @staticmethod
    def forward(ctx: Any, plan: Plan, is_parallel: bool, update_tokens: int, *tensors: Tensor) -> Any:
        ctx.plan, ctx.is_parallel, ctx.update_tokens = plan, is_parallel, update_tokens
        ctx.save_for_backward(*tensors)
        runner, operands = _prepared(plan, tensors, update_tokens, is_parallel, keeps_states=not is_parallel)
        outcome = runner(operands)
        ctx.parts = tuple(outcome.state)
        return outcome.outputs, *(part[name] for part in outcome.state.values() for name in plan.moving)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, d_out: Tensor, *d_flat: Tensor) -> Any:
        saved = ctx.saved_tensors
        plan, is_parallel, update_tokens, parts = ctx.plan, ctx.is_parallel, ctx.update_tokens, ctx.parts

        def walk(tensors: Sequence[Tensor]) -> list[Tensor]:
            inputs, d_out, d_flat = tensors[: len(saved)], tensors[len(saved)], tensors[len(saved) + 1 :]
            return _walk_back(plan, is_parallel, update_tokens, parts, tuple(inputs), d_out, d_flat)

        key = (plan, is_parallel, update_tokens)
        return None, None, None, *replay.replayed(key, walk, [*saved, d_out, *d_flat])


def _walk_back(
    plan: Plan,
    is_parallel: bool,
    update_tokens: int,
    parts: tuple[str, ...],
    tensors: tuple[Tensor, ...],
    d_out: Tensor,
    d_flat: Sequence[Tensor],
) -> list[Tensor]:
    """Run the forward pass again and go back through it; returns the gradients of all inputs, in their types."""
    runner, operands = _prepared(plan, tensors, update_tokens, is_parallel, keeps_states=not is_parallel)
    runner(operands)
    each = iter(d_flat)
    d_state = {part: {name: next(each) for name in plan.moving} for part in parts}
    walk = backward.Walk(runner.layer, operands, d_out, d_state)
    found = backward.walk_parallel(walk) if is_parallel else backward.walk_recurrent(walk)
    rates = found.rates
    if len(set(plan.rates)) < len(rates):
        rates = [torch.stack(rates).sum(0)]
    momentum = [] if found.momentum is None else [found.momentum]
    gradients = [found.q, found.k, found.v, *rates, *momentum, *found.fast.values()]
    return [gradient.to(tensor.dtype) for gradient, tensor in zip(gradients, tensors, strict=True)]


def _prepared(
    plan: Plan, tensors: tuple[Tensor, ...], update_tokens: int, is_parallel: bool, *, keeps_states: bool
) -> tuple[Runner, Operands]:
    q, k, v, *rest = tensors
    rates = {name: rest.pop(0) for name in dict.fromkeys(plan.rates)}
    momentum = rest.pop(0) if plan.momentum == "per token" else None
    weights = dict(zip(plan.names, rest, strict=True))
    operands = prepare(plan, q, k, v, rates, momentum, weights, update_tokens)
    return forward.runner(plan, operands, is_parallel=is_parallel, keeps_states=keeps_states), operands


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
        runner, operands = _prepared(plan, tuple(flat), update_tokens, is_parallel, keeps_states=False)
        return runner(operands)
    outputs, *state = _Loop.apply(plan, is_parallel, update_tokens, *flat)
    each = iter(state)
    return Outcome(
        outputs, {part: {name: next(each) for name in plan.moving} for part in _parts(plan, update_tokens)}
    )


def _parts(plan: Plan, update_tokens: int) -> tuple[str, ...]:
    has_update = plan.tail_updates or (plan.chunk is not None and update_tokens > plan.chunk)
    return forward.state_parts(plan, has_update)
