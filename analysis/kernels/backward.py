"""Outer gradients of a whole inner loop: the adjoint of every event, last event first.

The recurrent form runs its updates again to have their states. The parallel form is handed what it needs of them (see
`Layer.parallel_states`), so nothing of it runs twice. Hidden features exist for `tokens_at_once` tokens at a time.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import Tensor

from analysis.kernels import adjoint
from analysis.kernels.adjoint import Tensors
from analysis.kernels.feature_adjoints import Rates
from analysis.kernels.layer import Layer
from analysis.kernels.matrices import Group
from analysis.kernels.plan import Plan, chunks_of, tokens_at_once
from analysis.kernels.signature import Operands


class Piece(NamedTuple):
    """Tokens start..stop of every sequence: `chunks` chunks, or a part of one; a chunk has `length` tokens."""

    start: int
    stop: int
    chunks: int
    length: int


def part(weights: Tensors, name: str) -> Tensor:
    """Return where a fast weight lies in buffers 'w_in', both branches side by side, and 'w_out'."""
    if name == "w_out":
        return weights["w_out"]
    return weights["w_in"].chunk(2, -1)[("w_gate", "w_up").index(name)]


@dataclass
class Gradients:
    """Derivatives of the outer loss by every input of a call, batch and heads in one axis.

    weights: by the fast weights as the walk goes back, in float32, the two branches side by side in 'w_in'.
    """

    q: Tensor
    k: Tensor
    v: Tensor
    rates: list[Tensor]
    momentum: Tensor | None
    weights: Tensors
    target: Tensors = field(default_factory=dict)
    main: Tensors = field(default_factory=dict)


class Walk:
    """The way back through one call whose states are known."""

    def __init__(self, plan: Plan, operands: Operands, d_out: Tensor, d_state: dict[str, Tensors]) -> None:
        self.plan, self.operands, self.d_state = plan, operands, d_state
        self.sign = sign = operands.signature()
        self.dtype, self.chunks = sign.dtype, chunks_of(plan, sign.update_tokens)
        self.at_once = tokens_at_once(sign.total_z)
        self.tokens = {
            name: tensor.flatten(0, 1)
            for name, tensor in (("q", operands.q), ("k", operands.k), ("v", operands.v), ("out", d_out))
        }
        self.rates = {
            name: rate.reshape(sign.total_z, -1).contiguous()
            for name, rate in zip(plan.moving, operands.rates, strict=False)
        }
        self.weights = self._buffers(self.dtype)
        for name, weight in operands.weights.items():
            part(self.weights, name).copy_(weight.flatten(0, 1))
        self.adds = plan.reads_keys or plan.steps > 1
        """Whether tokens get derivatives from several events, which meet in float32; else each is written once."""
        updated = min(self.chunks.updates * self.chunks.length, sign.update_tokens)
        read = sign.tokens if plan.chunk is None else sign.update_tokens
        learned = torch.float32 if self.adds else self.dtype
        self.found = Gradients(
            q=self._tokens_like("q", self.dtype, 0 if plan.reads_keys else read),
            k=self._tokens_like("k", learned, 0 if self.adds else updated),
            v=self._tokens_like("v", learned, 0 if self.adds else updated),
            rates=[self._zeros(sign.total_z, sign.tokens) for _ in self.rates],
            momentum=None if operands.momentum is None else self._zeros(sign.total_z, sign.tokens),
            weights=self._buffers(torch.float32),
        )
        for name in plan.names:
            start = d_state["fast"].get(name)
            into = part(self.found.weights, name)
            _ = into.zero_() if start is None else into.copy_(start.flatten(0, 1))
        self.d_alpha = self._zeros(self.chunks.count, sign.total_z)

    def _zeros(self, *shape: int) -> Tensor:
        return torch.zeros(shape, device=self.sign.device)

    def _tokens_like(self, name: str, dtype: torch.dtype, written: int) -> Tensor:
        """Return room for a derivative by tokens, zero from token `written` on."""
        found = torch.empty(self.tokens[name].shape, dtype=dtype, device=self.sign.device)
        found[:, written:].zero_()
        return found

    def _buffers(self, dtype: torch.dtype) -> Tensors:
        """Return room for all fast weights, [sequences, in, out], both branches in one."""
        sign, network = self.sign, self.plan.network
        shapes = {"w_out": sign.shape("w_out", network)}
        if network == "swiglu":
            shapes["w_in"] = (sign.width, 2 * sign.hidden)
        return {
            name: torch.empty(sign.total_z, *shape, dtype=dtype, device=sign.device)
            for name, shape in shapes.items()
        }

    def stacked(self, tensors: Tensors, group: Group) -> Tensor:
        """Return a group's fast weights of [B, H, ..] tensors as [names, sequences, ..] in float32."""
        return torch.stack([tensors[name].flatten(0, 1).float() for name in group.names])

    # --- pieces of tokens -----------------------------------------------------------------------------------------

    def span(self, chunk: int) -> tuple[int, int]:
        """Return first and last token (exclusive) of an updating chunk."""
        start = chunk * self.chunks.length
        return start, min(start + self.chunks.length, self.sign.update_tokens)

    def cut(self, start: int, stop: int) -> Iterator[Piece]:
        """Cut one chunk into pieces whose features may exist at once."""
        for first in range(start, stop, self.at_once):
            yield Piece(first, min(first + self.at_once, stop), 1, stop - start)

    def _taken(self, name: str, piece: Piece, chunks: int = 1) -> Tensor:
        tokens = self.tokens[name][:, piece.start : piece.stop]
        return adjoint.by_chunk(tokens, self.sign.total_z, chunks)

    def read(self, piece: Piece, weights: Tensors, d_weights: Tensors) -> None:
        """Take in the adjoint of a read-out; adds to the gradients of the weights it read."""
        into = self.found.k if self.plan.reads_keys else self.found.q
        adjoint.read_adjoint(
            self.plan, self._taken("q", piece), self._taken("out", piece, piece.chunks),
            weights, into[:, piece.start : piece.stop], d_weights, adds=self.plan.reads_keys,
        )  # fmt: skip

    def learn(self, piece: Piece, weights: Tensors, d_grads: Tensors) -> None:
        """Take in the adjoint of the chunks' gradients; adds to the gradients of the weights they were taken at."""
        span = slice(piece.start, piece.stop)
        scale = -self.plan.scale / (piece.length if self.plan.is_mean else 1)
        rates = Rates(
            scale,
            {name: rate[:, span] for name, rate in self.rates.items()},
            {name: rate[:, span] for name, rate in zip(self.rates, self.found.rates, strict=True)},
            self.adds,
        )
        tokens = self._taken("k", piece), self._taken("v", piece, piece.chunks)
        found = self.found.k[:, span], self.found.v[:, span]
        adjoint.gradient_adjoint(self.plan, tokens, rates, weights, d_grads, found, self.found.weights)

    def finish(self) -> Gradients:
        """Hand the derivatives by gates on to tokens, by target norms and unnormalised copies to the initial weights."""
        found, plan = self.found, self.plan
        if found.momentum is not None and self.chunks.updates:
            self._spread_gates(found.momentum)
        for name in plan.moving:
            into = part(found.weights, name)
            if name in found.main:
                into += found.main[name]
            if plan.norm is not None and not plan.detach_target:
                initial = self.operands.weights[name].flatten(0, 1).float()
                length = torch.linalg.vector_norm(initial, dim=-2, keepdim=True)
                into += initial / length.clamp_min(torch.finfo(length.dtype).tiny) * found.target[name]
        return found

    def _spread_gates(self, momentum: Tensor) -> None:
        """A chunk's gate is the mean over its tokens, so each token gets an equal part."""
        last = self.chunks.updates - 1
        start, stop = self.span(last)
        if last:
            full = momentum[:, :start].unflatten(1, (last, -1))
            full.copy_((self.d_alpha[:last] / self.chunks.length).mT.unsqueeze(-1))
        momentum[:, start:stop] = (self.d_alpha[last] / (stop - start)).unsqueeze(-1)


# --- one chunk after the other --------------------------------------------------------------------------------------


class RecurrentWalk(Walk):
    """The way back through updates and read-outs in turn; `layer.kept` holds the states."""

    def __init__(self, layer: Layer, operands: Operands, d_out: Tensor, d_state: dict[str, Tensors]) -> None:
        super().__init__(layer.plan, operands, d_out, d_state)
        self.layer = layer
        each = {
            part: {group: self.stacked(d_state[part], group) for group in layer.unique_groups(moving=True)}
            for part in ("main", "carry", "target")
            if part in d_state
        }
        self.main, self.target = each.get("main", {}), each.get("target", {})
        self.carry: dict[Group, Tensor] = each.get("carry", {})
        self.state = -1

    def run(self) -> Gradients:
        """Return the gradients of all inputs."""
        layer, plan = self.layer, self.plan
        state = layer.updates * plan.steps
        for chunk in range(layer.chunks - 1, -1, -1):
            if plan.inclusive:
                self._read_back(chunk, state)
            if chunk < layer.updates:
                for _ in range(plan.steps):
                    state -= 1
                    self._update_back(chunk, state)
            if not plan.inclusive:
                self._read_back(chunk, state)
        for group in layer.unique_groups(moving=True):
            for each, into in ((self.main, self.found.main), (self.target, self.found.target)):
                if group in each:
                    into |= dict(zip(group.names, each[group], strict=True))
        return self.finish()

    def _weights_at(self, state: int) -> Tensors:
        """Return the operands of a state; those of the state before are overwritten."""
        if state == self.state:
            return self.weights
        self.state = state
        for group in self.layer.unique_groups(moving=True):
            is_kept = state < len(self.layer.kept)
            fast = (
                self.layer.kept_matrices(state, group, "fast")
                if is_kept
                else group.fast.unflatten(0, (len(group.names), -1))
            )
            for name, each in zip(group.names, fast, strict=True):
                part(self.weights, name).copy_(each)
        return self.weights

    def _read_back(self, chunk: int, state: int) -> None:
        start, stop = (0, self.sign.tokens) if self.plan.chunk is None else self.span(chunk)
        for piece in self.cut(start, stop):
            self.read(piece, self._weights_at(state), self.found.weights)

    def _update_back(self, chunk: int, state: int) -> None:
        plan = self.plan
        d_grads: Tensors = {}
        for group in self.layer.unique_groups(moving=True):
            change = plan.step * self._moved_back(group, state)
            d = self.layer.kept_matrices(state, group, "d")
            d_d = adjoint.transform_adjoint(plan, d, change, self.dtype)
            if group in self.carry:
                d_d += self.carry.pop(group)
            if plan.momentum is not None and state > 0:
                assert self.layer.alpha is not None
                before = self.layer.kept_matrices(state - 1, group, "d")
                self.d_alpha[chunk] += (d_d * before).sum((0, -2, -1))
                self.carry[group] = self.layer.alpha[chunk].view(-1, 1, 1) * d_d
            d_grads |= dict(zip(group.names, d_d.to(self.dtype), strict=True))
        for piece in self.cut(*self.span(chunk)):
            self.learn(piece, self._weights_at(state), d_grads)

    def _moved_back(self, group: Group, state: int) -> Tensor:
        """Return the derivative by W + step U of one group, [names, sequences, in, out]; what is left of it is kept."""
        plan, fast = self.plan, [part(self.found.weights, name) for name in group.names]
        d_moved = torch.stack(fast)
        if plan.norm is None:
            return d_moved
        base = self.layer.kept_matrices(state, group, "main" if plan.norm == "pre" else "fast")
        moved = torch.add(base, self.layer.kept_matrices(state, group, "change"), alpha=plan.step)
        target = group.target.view(len(group.names), self.sign.total_z, 1, -1)
        d_moved, d_target = adjoint.norm_adjoint(plan, moved, target, d_moved)
        self.target[group] = self.target[group] + d_target
        if plan.norm == "pre":
            d_moved += self.main[group]
            self.main[group] = d_moved
        for into, each in zip(fast, d_moved, strict=True):
            _ = into.zero_() if plan.norm == "pre" else into.copy_(each)
        return d_moved
