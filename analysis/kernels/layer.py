"""One inner loop on one shape: its buffers, and the order of launches in the recurrent and the parallel form."""

from __future__ import annotations

import torch
from torch import Tensor

from analysis.kernels import matrix_kernels
from analysis.kernels import signature as slots
from analysis.kernels.arithmetic import UPCAST
from analysis.kernels.lanes import Lanes
from analysis.kernels.matrices import Group, Sizes
from analysis.kernels.plan import Plan, chunks_of, tokens_at_once
from analysis.kernels.signature import Signature
from analysis.kernels.tokens import Source, Span, TokenLaunches

MOST_CHUNKS = 65_535
"""How many chunks one launch takes: the third axis of a grid ends there."""
RING = 4
"""Operand copies of the moving weights in the recurrent form, so that read-outs may trail the updates."""
SPLIT_RECURRENT, SPLIT_PARALLEL = 2, 1


class Layer:
    """Buffers and launches of one (plan, signature, form); `launch` may be called eagerly or captured in a graph.

    table: the addresses of this layer's tensors, which the launches read. shares: how many layers like this one run at once.
    keeps_states: `kept` receives what the adjoint of every update needs, and nothing is read out: the backward pass runs
    the updates of the recurrent form again for their states alone.
    """

    def __init__(
        self,
        plan: Plan,
        sign: Signature,
        table: Tensor,
        *,
        is_parallel: bool,
        limit: int,
        shares: int,
        keeps_states: bool,
    ) -> None:
        self.plan, self.sign, self.table, self.is_parallel = plan, sign, table, is_parallel
        chunks = chunks_of(plan, sign.update_tokens)
        self.length, self.chunks, self.updates = chunks.length, chunks.count, chunks.updates
        ring = self.updates + 1 if is_parallel else RING
        split = SPLIT_PARALLEL if is_parallel else SPLIT_RECURRENT
        sizes = Sizes(ring, max(1, self.updates) if is_parallel else 1, split, shares)
        self.ring = ring
        self.groups = _groups(plan, sign, sizes, limit)
        self.tokens = TokenLaunches(plan, sign, limit, shares)
        new = lambda *shape, dtype: torch.empty(shape, dtype=dtype, device=sign.device)  # noqa: E731
        self.alpha = None if plan.momentum is None else new(self.chunks, sign.total_z, dtype=torch.float32)
        self.tokens_at_once = tokens_at_once(sign.total_z * shares)
        together = max(1, self.tokens_at_once // self.length) if is_parallel else 1
        self.at_once = min(together, self.chunks, MOST_CHUNKS)
        self.scratch = self.read_scratch = new(1, 1, dtype=sign.dtype)
        if plan.network == "swiglu":
            planes = 3 if plan.moves_all else 1
            self.scratch = new(
                planes, self.at_once * sign.total_z * self.length * sign.hidden, dtype=sign.dtype
            )
            if not keeps_states:
                read = self.at_once * sign.total_z * self._read_length() * sign.hidden
                self.read_scratch = new(1, read, dtype=sign.dtype)
        self.lanes = Lanes(sign.device, enabled=not is_parallel)
        self.kept: list[dict[Group, dict[str, Tensor]]] = []
        self.keeps_states = keeps_states

    def _read_length(self) -> int:
        return self.length if self.plan.chunk is not None else min(self.sign.tokens, self.tokens_at_once)

    def group(self, name: str) -> tuple[Group, slice]:
        """Return the group that holds a fast weight, and where its matrices lie in it."""
        group = self.groups[name]
        at = group.names.index(name) * self.sign.total_z
        return group, slice(at, at + self.sign.total_z)

    def unique_groups(self, *, moving: bool) -> list[Group]:
        """Return the moving groups, or all of them, each once."""
        found = list(dict.fromkeys(self.groups.values()))
        return [group for group in found if group.is_moving or not moving]

    def group_like(self, other: Group) -> Group:
        """Return the group that holds what a group of another share holds."""
        return self.groups[other.names[0]]

    def launch(self) -> None:
        """Run the whole loop on the addresses that are in the table."""
        for group in self.unique_groups(moving=False):
            group.initialise(self.table, self.sign)
        self._gates()
        if self.is_parallel:
            self._parallel()
        else:
            self._recurrent()

    def _gates(self) -> None:
        if self.alpha is None:
            return
        if self.plan.momentum != "per token":
            self.alpha.fill_(float(self.plan.momentum or 0.0))
            return
        matrix_kernels.gate_kernel[(self.chunks, self.sign.total_z)](
            self.table, self.alpha, self.sign.heads, self.sign.total_z, *self.sign.momentum,
            self.sign.update_tokens, self.length, SLOT=slots.MOMENTUM, BLOCK=16 if UPCAST.value else 1024, num_warps=4,
        )  # fmt: skip

    def _operands(self, slot: int) -> dict[str, Source]:
        """Return the operand copy of every fast weight, the moving ones from a slot."""
        found = {}
        for name in self.plan.names:
            group, part = self.group(name)
            found[name] = Source(group.operand[slot if group.is_moving else 0, part])
        return found

    def _recurrent(self) -> None:
        state = 0
        for chunk in range(self.chunks):
            updates = chunk < self.updates
            if not self.plan.inclusive:
                self._read_chunk(chunk, state)
            if updates:
                for _ in range(self.plan.steps):
                    self._update(chunk, state, is_first=state == 0)
                    state += 1
            if self.plan.inclusive:
                self._read_chunk(chunk, state)
        self.lanes.join()

    def _keep(self, group: Group, change: Tensor) -> None:
        """Copy what the adjoint of one update needs: the weights before it, D, and the transformed D."""
        self.kept[-1][group] = {
            "fast": group.fast.clone(),
            "d": group.grads[0, 0].clone(),
            "change": change[0].clone(),
            **({} if group.main is None else {"main": group.main.clone()}),
        }

    def kept_matrices(self, update: int, group: Group, part: str) -> Tensor:
        """Return what was kept of a group's fast weights at one update, [names, sequences, in, out]."""
        is_turned = group.turned and part in ("d", "change")
        shape = (group.cols, group.rows) if is_turned else (group.rows, group.cols)
        matrices = self.kept[update][group][part].view(-1, self.sign.total_z, *shape)
        return matrices.mT if is_turned else matrices

    def parallel_states(self) -> list[Tensor]:
        """Return what the adjoint of the parallel form needs of the launch before; the next one overwrites it.

        The last layer's operands [updates + 1, sequences, in, out]; where the plan reshapes, every chunk's D in float32, the
        same shape less one; with momentum the gates [chunks, sequences]. Linear in chunks.
        """
        group, _ = self.group("w_out")
        states = [group.operand]
        if self.plan.reshapes and self.updates:
            d = group.grads[0].unflatten(-1, (group.short, group.long))
            states.append(d.mT if group.turned else d)
        return states if self.alpha is None else [*states, self.alpha]

    def _update(self, chunk: int, state: int, *, is_first: bool) -> None:
        span = Span(chunk * self.length, self.sign.update_tokens, self.length, 1)
        operands = self._operands(state % self.ring)
        self._gradients(span, operands, 0)
        alpha = None if self.alpha is None else self.alpha[chunk:]
        self.lanes.before_write((state + 1) % self.ring)
        if self.keeps_states:
            self.kept.append({})
        for group in self.unique_groups(moving=True):
            group.accumulate(alpha, 1, is_first)
            change = group.transform(1)
            if self.keeps_states:
                self._keep(group, change)
            group.update(change, (state + 1) % self.ring)

    def _gradients(self, span: Span, operands: dict[str, Source], first_chunk: int) -> None:
        if self.plan.network == "swiglu":
            kind = "all" if self.plan.moves_all else "last"
            self.tokens.features(self.table, self.scratch, span, operands, kind=kind)
        last, part = self.group("w_out")
        out = last.grads[:, first_chunk:, part]
        other = self.groups[self.plan.names[0]].grads[:, first_chunk:] if self.plan.moves_all else out
        self.tokens.outer(self.table, self.scratch, span, out, other, self.groups)

    def _read_chunk(self, chunk: int, state: int) -> None:
        if self.keeps_states:
            return
        slot = state % self.ring
        with self.lanes.side(slot):
            if self.plan.chunk is None:
                self._read_all(slot)
            else:
                span = Span(chunk * self.length, self.sign.update_tokens, self.length, 1)
                self._read(span, self._operands(slot), 0)

    def _read_all(self, slot: int) -> None:
        length = self._read_length()
        for start in range(0, self.sign.tokens, length):
            self._read(Span(start, self.sign.tokens, length, 1), self._operands(slot), 0)

    def _read(self, span: Span, operands: dict[str, Source], last_slot: int) -> None:
        scratch = None
        if self.plan.network == "swiglu":
            scratch = self.read_scratch
            self.tokens.features(self.table, scratch, span, operands, kind="read")
        self.tokens.project(self.table, scratch, span, operands["w_out"], last_slot)

    def _parallel(self) -> None:
        last, _ = self.group("w_out")
        stop, length = self.sign.update_tokens, self.length
        is_linear = self.plan.network == "linear"
        at_once = MOST_CHUNKS if is_linear else self.at_once
        for first in range(0, self.updates, at_once):
            count = min(at_once, self.updates - first)
            self._gradients(Span(first * length, stop, length, count), self._operands(0), first)
        if self.updates:
            if self.plan.reshapes:
                last.accumulate(self.alpha, self.updates, True)
            last.running_sums(last.transform(self.updates), self.updates)
        if self.plan.chunk is None:
            self._read_all(self.updates if self.plan.inclusive else 0)
            return
        offset = 1 if self.plan.inclusive else 0
        for first in range(0, self.chunks, at_once):
            count = min(at_once, self.chunks - first)
            slot = min(first + offset, self.updates)
            operands = self._operands(slot) | {"w_out": Source(last.operand[slot], last.operand.stride(0))}
            self._read(Span(first * length, stop, length, count), operands, self.updates - slot)


def _groups(plan: Plan, sign: Signature, sizes: Sizes, limit: int) -> dict[str, Group]:
    """Return the group of every fast weight: one per shape and mobility."""
    kinds: dict[tuple[tuple[int, int], bool], list[str]] = {}
    for name in plan.names:
        kinds.setdefault((sign.shape(name, plan.network), name in plan.moving), []).append(name)
    made = {}
    for names in kinds.values():
        group = Group(plan, sign, tuple(names), sizes, limit)
        made.update(dict.fromkeys(names, group))
    return made
