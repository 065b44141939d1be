"""Fast weights of one shape as a batch: their buffers, and the launches that turn gradients into the next weights."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import triton
from torch import Tensor

from analysis.kernels import matrix_kernels as kernels
from analysis.kernels import signature as slots
from analysis.kernels.arithmetic import UPCAST
from analysis.kernels.plan import Plan
from analysis.kernels.signature import Signature
from analysis.kernels.tiles import choose, power_above

ELEMENTS = 256 if UPCAST.value else 1024
STAGES = 4
"""Chunks whose matrices are on their way while one is added to a running sum."""
SIDE = 16 if UPCAST.value else 32
MOST_ROWS = 32 if UPCAST.value else 512
"""Rows of an initial fast weight that one program takes at once."""
MANY_TILES = 264
"""Above so many tiles of 128 x 128, two for each multiprocessor of an H200, the larger tile is the faster one."""
TRITON_TYPES = {
    torch.float32: triton.language.float32,
    torch.bfloat16: triton.language.bfloat16,
    torch.float16: triton.language.float16,
}


def unit_dtype(dtype: torch.dtype) -> torch.dtype:
    """Return the type of matrices of unit norm: float16 in place of bfloat16, eight times finer at the same speed."""
    return torch.float16 if dtype == torch.bfloat16 else dtype


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
            tiles = sizes.shares * n * m * triton.cdiv(self.short, 128) ** 2
            few = "" if tiles > MANY_TILES else ", few matrices"
            self.square_tile = choose(f"symmetric{few}", self.short, self.short, self.long, sign.dtype, limit)
            self.iterate_tile = choose(f"iterate{few}", self.short, self.long, self.short, sign.dtype, limit)

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
        now, spare = self.x, self.x
        for a, b, c in self.plan.coefficients:
            spare = self.y if now is self.x else self.x
            self._symmetric(now, self.gram, self.long, 1.0, None, count)
            self._symmetric(self.gram, self.polynomial, self.short, c, b, count)
            self._iterate(now, spare, a, count)
            now = spare
        return now

    def _symmetric(
        self, x: Tensor, out: Tensor, depth: int, alpha: float, beta: float | None, count: int
    ) -> None:
        tile = self.square_tile
        side = min(tile.rows, tile.cols)
        tiles = triton.cdiv(self.short, side)
        kernels.symmetric_kernel[(count * tiles * (tiles + 1) // 2,)](
            x, out, self.short, depth, alpha, 0.0 if beta is None else beta,
            ADD=beta is not None, DTYPE=TRITON_TYPES[self.unit_dtype], BLOCK=side, DEPTH=tile.depth,
            EVEN_ROWS=self.short % side == 0, EVEN_DEPTH=depth % tile.depth == 0,
            num_warps=tile.warps, num_stages=tile.stages,
        )  # fmt: skip

    def _iterate(self, x: Tensor, out: Tensor, a: float, count: int) -> None:
        tile = self.iterate_tile
        tiles = triton.cdiv(self.short, tile.rows) * triton.cdiv(self.long, tile.cols)
        kernels.iterate_kernel[(count * tiles,)](
            x, self.polynomial, out, self.short, self.long, a,
            DTYPE=TRITON_TYPES[self.unit_dtype], ROWS=tile.rows, COLS=tile.cols, DEPTH=tile.depth,
            EVEN_ROWS=self.short % tile.rows == 0, EVEN_COLS=self.long % tile.cols == 0,
            EVEN_DEPTH=self.short % tile.depth == 0, num_warps=tile.warps, num_stages=tile.stages,
        )  # fmt: skip

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
