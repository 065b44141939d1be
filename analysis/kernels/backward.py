"""Outer gradients of a whole inner loop: the adjoint of every event, last event first.

The forward pass is run again to have its states; nothing but the inputs is saved between the passes.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from analysis.kernels import adjoint
from analysis.kernels.adjoint import Tensors
from analysis.kernels.layer import READ_TOKENS, Layer
from analysis.kernels.matrices import Group, unit_dtype
from analysis.kernels.signature import Operands


@dataclass
class Gradients:
    """Derivatives of the outer loss by every input of a call, and by the state while the walk goes back."""

    q: Tensor
    k: Tensor
    v: Tensor
    rates: list[Tensor]
    momentum: Tensor | None
    fast: Tensors
    main: Tensors
    carry: Tensors
    target: Tensors = field(default_factory=dict)


class Walk:
    """The way back through one call of a layer whose states have just been computed."""

    def __init__(self, layer: Layer, operands: Operands, d_out: Tensor, d_state: dict[str, Tensors]) -> None:
        self.layer, self.operands, self.d_out = layer, operands, d_out
        self.plan, self.sign = layer.plan, layer.sign
        self.dtype = layer.sign.dtype
        new = lambda like: torch.zeros(like.shape, dtype=torch.float32, device=like.device)  # noqa: E731
        plan = layer.plan
        start = lambda part, names: {  # noqa: E731
            name: new(operands.weights[name])
            if name not in d_state.get(part, {})
            else d_state[part][name].float().clone()
            for name in names
        }
        self.found = Gradients(
            q=new(operands.q),
            k=new(operands.k),
            v=new(operands.v),
            rates=[new(rate) for rate in operands.rates],
            momentum=None if operands.momentum is None else new(operands.momentum),
            fast=start("fast", plan.names),
            main=start("main", plan.moving) if plan.norm == "pre" else {},
            carry=start("carry", plan.moving),
            target=dict(d_state.get("target", {})),
        )

    # --- pieces of tokens -----------------------------------------------------------------------------------------

    def tokens(self, tensor: Tensor, start: int, stop: int, chunks: int) -> Tensor:
        """Return tokens start..stop, with a chunk axis of that many chunks (none for zero)."""
        piece = tensor[:, :, start:stop]
        return piece.unflatten(2, (chunks, -1)) if chunks else piece

    def factors(self, start: int, stop: int, chunks: int) -> tuple[Tensors, float]:
        """Return the signed rate of every token by fast weight, and the factor that it holds besides the rate."""
        factor = -self.plan.scale
        if self.plan.is_mean:
            factor /= (stop - start) / max(1, chunks)
        if not self.operands.rates:
            one = torch.full((1, 1, 1, 1), factor, device=self.sign.device)
            return dict.fromkeys(self.plan.moving, one.unsqueeze(2) if chunks else one), factor
        rates = {
            name: self.tokens(rate, start, stop, chunks) * factor
            for name, rate in zip(self.plan.moving, self.operands.rates, strict=True)
        }
        return rates, factor

    def read(self, start: int, stop: int, chunks: int, weights: Tensors) -> Tensors:
        """Take in the adjoint of a read-out; return the gradients of the weights it read."""
        x, d_out = (self.tokens(tensor, start, stop, chunks) for tensor in (self.operands.q, self.d_out))
        d_x, d_w = adjoint.read_adjoint(self.plan, x, weights, d_out, self.dtype)
        into = self.found.k if self.plan.reads_keys else self.found.q
        self.tokens(into, start, stop, chunks).add_(d_x)
        return d_w

    def gradients(self, start: int, stop: int, chunks: int, weights: Tensors, d_grads: Tensors) -> Tensors:
        """Take in the adjoint of the chunks' gradients; return the gradients of the weights they were taken at."""
        k, v = (self.tokens(tensor, start, stop, chunks) for tensor in (self.operands.k, self.operands.v))
        rates, factor = self.factors(start, stop, chunks)
        d_k, d_v, d_rates, d_w = adjoint.gradient_adjoint(
            self.plan, k, v, rates, weights, d_grads, self.dtype
        )
        self.tokens(self.found.k, start, stop, chunks).add_(d_k)
        self.tokens(self.found.v, start, stop, chunks).add_(d_v)
        for name, into in zip(self.plan.moving, self.found.rates, strict=False):
            self.tokens(into, start, stop, chunks).add_(d_rates[name], alpha=factor)
        return d_w

    def gate(self, chunk: int, d_alpha: Tensor) -> None:
        """Spread the derivative by a chunk's momentum gate over its tokens."""
        if self.found.momentum is not None:
            start = chunk * self.layer.length
            stop = min(start + self.layer.length, self.sign.update_tokens)
            self.found.momentum[:, :, start:stop] += d_alpha / (stop - start)

    def alpha(self, chunk: int) -> Tensor:
        """Return a chunk's momentum gate, [B, H, 1, 1]."""
        assert self.layer.alpha is not None
        return self.layer.alpha[chunk].view(self.sign.batch, self.sign.heads, 1, 1)

    def span(self, chunk: int) -> tuple[int, int]:
        """Return first and last token (exclusive) of an updating chunk."""
        start = chunk * self.layer.length
        return start, min(start + self.layer.length, self.sign.update_tokens)

    def finish(self) -> Gradients:
        """Hand the derivatives by target norms and unnormalised copies on to the initial weights."""
        found, weights = self.found, self.operands.weights
        for name in self.plan.moving:
            if name in found.main:
                found.fast[name] = found.fast[name] + found.main[name]
            if self.plan.norm is not None and not self.plan.detach_target:
                initial = weights[name].float()
                length = initial.norm(dim=-2, keepdim=True)
                direction = initial / length.clamp_min(torch.finfo(length.dtype).tiny)
                found.fast[name] = found.fast[name] + direction * found.target[name]
        return found


# --- one chunk after the other --------------------------------------------------------------------------------------


def walk_recurrent(walk: Walk) -> Gradients:
    """Go back through updates and read-outs of the recurrent form."""
    layer, plan = walk.layer, walk.plan
    state = layer.updates * plan.steps
    for chunk in range(layer.chunks - 1, -1, -1):
        updates = chunk < layer.updates
        if plan.inclusive:
            _read_back(walk, chunk, state)
        if updates:
            for _ in range(plan.steps):
                state -= 1
                _update_back(walk, chunk, state)
        if not plan.inclusive:
            _read_back(walk, chunk, state)
    return walk.finish()


def _weights_at(walk: Walk, state: int) -> Tensors:
    layer, found = walk.layer, dict(walk.operands.weights)
    for group in layer.unique_groups(moving=True):
        lead = (len(group.names), walk.sign.batch, walk.sign.heads)
        is_kept = state < len(layer.kept)
        fast = (
            layer.kept_matrices(state, group, "fast") if is_kept else group.fast.view(*lead, group.rows, -1)
        )
        found |= dict(zip(group.names, fast.to(walk.dtype), strict=True))
    return {name: weight.to(walk.dtype) for name, weight in found.items()}


def _read_back(walk: Walk, chunk: int, state: int) -> None:
    weights, whole = _weights_at(walk, state), walk.plan.chunk is None
    spans = [walk.span(chunk)]
    if whole:
        total = walk.sign.tokens
        spans = [(first, min(first + READ_TOKENS, total)) for first in range(0, total, READ_TOKENS)]
    for start, stop in spans:
        for name, gradient in walk.read(start, stop, 0, weights).items():
            walk.found.fast[name] += gradient


def _update_back(walk: Walk, chunk: int, state: int) -> None:
    plan, found = walk.plan, walk.found
    d_grads: Tensors = {}
    d_alpha: Tensor | float = 0.0
    for group in walk.layer.unique_groups(moving=True):
        d_moved = _moved_back(walk, group, state)
        d = walk.layer.kept_matrices(state, group, "d")
        carry = torch.stack([found.carry[name] for name in group.names])
        d_d = adjoint.transform_adjoint(plan, d, plan.step * d_moved, unit_dtype(walk.dtype)) + carry
        d_grads |= dict(zip(group.names, d_d, strict=True))
        if plan.momentum is not None and state > 0:
            previous = walk.layer.kept_matrices(state - 1, group, "d")
            d_alpha = d_alpha + (d_d * previous).sum((0, -2, -1)).unsqueeze(-1).unsqueeze(-1)
            found.carry |= dict(zip(group.names, walk.alpha(chunk) * d_d, strict=True))
        else:
            found.carry |= dict(zip(group.names, torch.zeros_like(d_d), strict=True))
    if isinstance(d_alpha, Tensor):
        walk.gate(chunk, d_alpha)
    start, stop = walk.span(chunk)
    for name, gradient in walk.gradients(start, stop, 0, _weights_at(walk, state), d_grads).items():
        found.fast[name] += gradient


def _moved_back(walk: Walk, group: Group, state: int) -> Tensor:
    """Return the derivative by W + step U of one group, [names, B, H, in, out]; what is left of it stays in `found`."""
    plan, found, names = walk.plan, walk.found, group.names
    d_moved = torch.stack([found.fast[name] for name in names])
    if plan.norm is not None:
        base = walk.layer.kept_matrices(state, group, "main" if plan.norm == "pre" else "fast")
        change = walk.layer.kept_matrices(state, group, "change")
        target = group.target.view(*base.shape[:3], 1, -1)
        d_moved, d_target = adjoint.norm_adjoint(plan, base + plan.step * change.float(), target, d_moved)
        for name, each in zip(names, d_target, strict=True):
            found.target[name] = found.target[name] + each
    if plan.norm == "pre":
        d_moved = d_moved + torch.stack([found.main[name] for name in names])
        found.main |= dict(zip(names, d_moved, strict=True))
        found.fast |= dict(zip(names, torch.zeros_like(d_moved), strict=True))
    else:
        found.fast |= dict(zip(names, d_moved.clone(), strict=True))
    return d_moved


# --- all chunks at once ---------------------------------------------------------------------------------------------


def walk_parallel(walk: Walk) -> Gradients:
    """Go back through the parallel form: read-outs, running sum of weights, transform, momentum scan, gradients."""
    layer, plan, found = walk.layer, walk.plan, walk.found
    group, _ = layer.group("w_out")
    batch, heads = walk.sign.batch, walk.sign.heads
    d_states = torch.zeros(layer.updates + 1, *found.fast["w_out"].shape, device=walk.sign.device)
    d_states[-1] += found.fast["w_out"]
    found.fast["w_out"] = torch.zeros_like(found.fast["w_out"])
    for first, count, start, stop in _segments(walk, layer.chunks):
        # counted on the device: a list would be copied there, which a captured pass may not do
        slots = torch.arange(first, first + count, device=d_states.device)
        slots = (slots + (1 if plan.inclusive else 0)).clamp(max=layer.updates)
        states = group.operand[slots].view(count, batch, heads, group.rows, group.cols).movedim(0, 2)
        d_w = walk.read(start, stop, count, _frozen(walk) | {"w_out": states})
        d_states.index_add_(0, slots, d_w.pop("w_out").movedim(2, 0))
        _add_frozen(walk, d_w)
    d_sums = d_states.flip(0).cumsum(0).flip(0)
    found.fast["w_out"] = d_sums[0]
    if not layer.updates:
        return walk.finish()
    d = group.grads[0, : layer.updates].view(layer.updates, batch, heads, group.short, group.long)
    d = d.mT if group.turned else d
    d_grads = adjoint.transform_adjoint(plan, d, plan.step * d_sums[1:], unit_dtype(walk.dtype)).contiguous()
    d_grads[-1] += found.carry["w_out"]
    if plan.momentum is not None:
        for chunk in range(layer.updates - 1, 0, -1):
            walk.gate(chunk, (d_grads[chunk] * d[chunk - 1]).sum((-2, -1), keepdim=True))
            d_grads[chunk - 1] += walk.alpha(chunk) * d_grads[chunk]
    for first, count, start, stop in _segments(walk, layer.updates):
        piece = {"w_out": d_grads[first : first + count].movedim(0, 2)}
        _add_frozen(walk, walk.gradients(start, stop, count, _frozen(walk), piece))
    return walk.finish()


def _segments(walk: Walk, chunks: int) -> list[tuple[int, int, int, int]]:
    """Cut the first `chunks` chunks into runs (first, count, start, stop) of full chunks, a shorter last one by itself."""
    layer = walk.layer
    full = min(chunks, walk.sign.update_tokens // layer.length)
    together = max(1, READ_TOKENS // layer.length)
    runs = []
    for first in range(0, full, together):
        count = min(together, full - first)
        runs.append((first, count, first * layer.length, (first + count) * layer.length))
    if full < chunks:
        runs.append((full, 1, full * layer.length, walk.sign.update_tokens))
    return runs


def _frozen(walk: Walk) -> Tensors:
    names = [name for name in walk.plan.names if name not in walk.plan.moving]
    return {name: walk.operands.weights[name].to(walk.dtype).unsqueeze(2) for name in names}


def _add_frozen(walk: Walk, d_w: Tensors) -> None:
    for name, gradient in d_w.items():
        walk.found.fast[name] += gradient.sum(2)
