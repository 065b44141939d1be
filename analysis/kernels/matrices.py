"""Fast weights of one shape as a batch: their buffers, and the launches that turn gradients into the next weights."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import triton
from torch import Tensor

from analysis.kernels import matrix_kernels as kernels
from analysis.kernels import signature as slots
from analysis.kernels.arithmetic import TRITON_TYPES, UPCAST
from analysis.kernels.newton_schulz import NewtonSchulz, unit_dtype
from analysis.kernels.plan import Plan
from analysis.kernels.signature import Signature
from analysis.kernels.tiles import power_above

ELEMENTS = 256 if UPCAST.value else 1024
STAGES = 4
"""Chunks whose matrices are on their way while one is added to a running sum."""
SIDE = 16 if UPCAST.value else 32
MOST_ROWS = 32 if UPCAST.value else 512
"""Rows of an initial fast weight that one program takes at once."""


@dataclass(frozen=True)
class Sizes:
    """How many operand slots, chunks at once and gradient parts a group keeps room for, and how many groups run at once."""

    operand_slots: int
    chunks: int
    split: int
    shares: int


class Group:
    """Moving fast weights of one shape [rows, cols], `count` of them per batch and head.

    Buffers: fast, main, carry in float32 per matrix (carry in NS layout); target norms per column; operand
    [slots, matrices, rows, cols]; grads [split, chunks, matrices, size] in NS layout.
    """

    def __init__(self, plan: Plan, sign: Signature, names: tuple[str, ...], sizes: Sizes, limit: int) -> None:
        self.plan, self.names, self.sizes, self.limit = plan, names, sizes, limit
        self.total_z, self.dtype = sign.total_z, sign.dtype
        self.unit_dtype = unit_dtype(sign.dtype)
        self.rows, self.cols = sign.shape(names[0], plan.network)
        self.turned = self.rows > self.cols
        self.short, self.long = min(self.rows, self.cols), max(self.rows, self.cols)
        self.size, self.matrices = self.rows * self.cols, len(names) * sign.total_z
        self.blocks = triton.cdiv(self.size, ELEMENTS)
        self.is_moving = names[0] in plan.moving
        new = lambda *shape, dtype=torch.float32: torch.empty(shape, dtype=dtype, device=sign.device)  # noqa: E731
        m, slots_, n = self.matrices, sizes.operand_slots if self.is_moving else 1, sizes.chunks
        self.fast, self.target = new(m, self.rows, self.cols), new(m, self.cols)
        self.operand = new(slots_, m, self.rows, self.cols, dtype=sign.dtype)
        self.main = new(m, self.rows, self.cols) if plan.norm == "pre" and self.is_moving else None
        if not self.is_moving:
            return
        self.grads, self.carry = new(sizes.split, n, m, self.size), new(m, self.size)
        self.squares = new(n, m, self.blocks)
        if plan.transform != "identity":
            self.x = new(n, m, self.size, dtype=self.unit_dtype)
        if plan.transform == "newton_schulz":
            self.y = torch.empty_like(self.x)
            self.gram = new(n, m, self.short, self.short, dtype=self.unit_dtype)
            self.polynomial = torch.empty_like(self.gram)
            self.newton_schulz = NewtonSchulz(
                plan.coefficients, (self.short, self.long), self.unit_dtype, sizes.shares * n * m, limit
            )

    def initialise(self, table: Tensor, sign: Signature) -> None:
        """Take over the initial fast weights of this call."""
        for index, name in enumerate(self.names):
            at = self.plan.names.index(name)
            part = slice(index * self.total_z, (index + 1) * self.total_z)
            kernels.initial_kernel[(triton.cdiv(self.cols, SIDE // 2), self.total_z)](
                table, self.fast[part], self.operand[0, part], self.target[part],
                sign.heads, self.rows, self.cols, *sign.weights[at],
                SLOT=slots.WEIGHTS + at, WEIGHT=TRITON_TYPES[sign.weight_dtype], DTYPE=TRITON_TYPES[self.dtype],
                ROWS=min(power_above(self.rows), MOST_ROWS), COLS=SIDE // 2, num_warps=4,
            )  # fmt: skip
        if self.main is not None:
            self.main.copy_(self.fast)

    def accumulate(self, alpha: Tensor | None, chunks: int, is_first: bool) -> None:
        """Add the parts of the gradients and the momentum: D, in place of the first part."""
        kernels.momentum_kernel[(self.blocks * self.matrices,)](
            self.grads, self.carry, alpha, self.squares, chunks, self.matrices, self.total_z, self.size, self.blocks,
            self.grads.stride(0),
            SPLIT=self.sizes.split, MOMENTUM=alpha is not None, FIRST=is_first,
            SQUARES=self.plan.transform != "identity", BLOCK=ELEMENTS, STAGES=STAGES, num_warps=4,
        )  # fmt: skip

    def transform(self, chunks: int) -> Tensor:
        """Return the transformed D of the first `chunks` chunks, [chunks, matrices, size] in NS layout."""
        if self.plan.transform == "identity":
            return self.grads[0]
        count = chunks * self.matrices
        kernels.scale_kernel[(self.blocks * count,)](
            self.grads, self.squares, self.x, self.size, self.blocks, self.plan.eps,
            DTYPE=TRITON_TYPES[self.unit_dtype], BLOCK=ELEMENTS, BLOCKS=triton.next_power_of_2(self.blocks),
            num_warps=4,
        )  # fmt: skip
        if self.plan.transform != "newton_schulz":
            return self.x
        return self.newton_schulz.run(self.x, self.y, self.gram, self.polynomial, count)

    def update(self, change: Tensor, slot: int) -> None:
        """W <- norm(W + step U) for one chunk; the operands go to `slot`."""
        plan = self.plan
        kernels.update_kernel[(self.matrices * triton.cdiv(self.cols, SIDE),)](
            self.fast, self.fast if self.main is None else self.main, change, self.target, self.operand[slot],
            self.rows, self.cols, plan.step, plan.norm_eps,
            NORM=plan.norm is not None, PRE=plan.norm == "pre", TURNED=self.turned,
            DTYPE=TRITON_TYPES[self.dtype], ROWS=SIDE * 4, COLS=SIDE, num_warps=8,
        )  # fmt: skip

    def by_name(self, part: str) -> Tensor:
        """Return 'fast', 'main', 'carry' or 'target' as [names, sequences, in, out] (targets [names, sequences, 1, out])."""
        buffer: Tensor = getattr(self, part)
        if part == "target":
            shape: tuple[int, ...] = (1, self.cols)
        else:
            shape = (self.short, self.long) if part == "carry" else (self.rows, self.cols)
        matrices = buffer.view(len(self.names), self.total_z, *shape)
        return matrices.mT if part == "carry" and self.turned else matrices

    def running_sums(self, change: Tensor, chunks: int) -> None:
        """W after each of the chunks into operand slots 1.., the final one into `fast`."""
        block = ELEMENTS // 2
        kernels.prefix_kernel[(self.matrices * triton.cdiv(self.size, block),)](
            self.fast, change, self.operand, chunks, self.matrices, self.rows, self.cols, self.plan.step,
            TURNED=self.turned, DTYPE=TRITON_TYPES[self.dtype], BLOCK=block, STAGES=STAGES, num_warps=4,
        )  # fmt: skip
