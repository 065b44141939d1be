"""What every kernel shares: addresses out of the table, masked tiles, and a matrix product that the interpreter gets right."""

from __future__ import annotations

import triton
import triton.language as tl

from analysis.kernels.tiles import INTERPRETED

UPCAST: tl.constexpr = tl.constexpr(INTERPRETED)
# The interpreter multiplies the bit patterns of bfloat16, so its operands are widened first; float32 operands take
# three tensor-core products on the device, which keeps float32 accuracy.
PRECISION: tl.constexpr = tl.constexpr("ieee" if INTERPRETED else "tf32x3")


@triton.jit
def product(a, b, accumulator):
    """Return accumulator + a b in float32."""
    if UPCAST:
        a = a.to(tl.float32)
        b = b.to(tl.float32)
    return tl.dot(a, b, accumulator, input_precision=PRECISION)


@triton.jit
def narrow(x, DTYPE: tl.constexpr):
    """Round float32 to the operands' type; the interpreter would cut bfloat16 off, so there it is rounded by hand."""
    if UPCAST and tl.bfloat16 == DTYPE:
        bits = x.to(tl.int32, bitcast=True)
        bits += 0x7FFF + ((bits >> 16) & 1)
        x = bits.to(tl.float32, bitcast=True)
    return x.to(DTYPE)


@triton.jit
def address(table, slot: tl.constexpr, dtype: tl.constexpr, ALIGNED: tl.constexpr = 16):
    """Return the pointer stored in a slot of the address table, a multiple of so many bytes."""
    return tl.multiple_of(tl.load(table + slot).to(tl.pointer_type(dtype)), ALIGNED)


@triton.jit
def load_tile(pointers, row_mask, col_mask, EVEN_ROWS: tl.constexpr, EVEN_COLS: tl.constexpr):
    """Load a tile, zeros outside the masks; an axis that is known to be even needs none."""
    if EVEN_ROWS:
        if EVEN_COLS:
            return tl.load(pointers)
        return tl.load(pointers, mask=col_mask[None, :], other=0.0)
    if EVEN_COLS:
        return tl.load(pointers, mask=row_mask[:, None], other=0.0)
    return tl.load(pointers, mask=row_mask[:, None] & col_mask[None, :], other=0.0)


@triton.jit
def contract(
    left, left_step, right, right_step, accumulator, depth, in_rows, in_cols,
    DEPTH: tl.constexpr, EVEN_ROWS: tl.constexpr, EVEN_COLS: tl.constexpr, EVEN_DEPTH: tl.constexpr,
):  # fmt: skip
    """Return accumulator + left right; `left` points at a column of rows, `right` at a row of columns, steps lead along depth."""
    for first in range(0, depth, DEPTH):
        deep = first + tl.arange(0, DEPTH)
        inside = deep < depth
        a = load_tile(left + deep[None, :] * left_step, in_rows, inside, EVEN_ROWS, EVEN_DEPTH)
        b = load_tile(right + deep[:, None] * right_step, inside, in_cols, EVEN_DEPTH, EVEN_COLS)
        accumulator = product(a, b, accumulator)
    return accumulator


@triton.jit
def silu_parts(x):
    """Return silu(x) and its derivative sigmoid(x) (1 + x (1 - sigmoid(x)))."""
    gate = 1.0 / (1.0 + tl.exp(-x))
    return x * gate, gate * (1.0 + x * (1.0 - gate))


@triton.jit(
    do_not_specialize=["q", "k", "v", "out", "momentum", "rate_0", "rate_1", "rate_2", "w_0", "w_1", "w_2"]
)
def write_table_kernel(
    table, offsets, q, k, v, out, momentum, rate_0, rate_1, rate_2, w_0, w_1, w_2, ROW: tl.constexpr
):
    """Write a row of eleven addresses for every share, in stream order: the call's, plus the offsets of the share."""
    row = table + tl.program_id(0) * ROW
    add = offsets + tl.program_id(0) * ROW
    tl.store(row + 0, q.to(tl.int64) + tl.load(add + 0))
    tl.store(row + 1, k.to(tl.int64) + tl.load(add + 1))
    tl.store(row + 2, v.to(tl.int64) + tl.load(add + 2))
    tl.store(row + 3, out.to(tl.int64) + tl.load(add + 3))
    tl.store(row + 4, momentum.to(tl.int64) + tl.load(add + 4))
    tl.store(row + 5, rate_0.to(tl.int64) + tl.load(add + 5))
    tl.store(row + 6, rate_1.to(tl.int64) + tl.load(add + 6))
    tl.store(row + 7, rate_2.to(tl.int64) + tl.load(add + 7))
    tl.store(row + 8, w_0.to(tl.int64) + tl.load(add + 8))
    tl.store(row + 9, w_1.to(tl.int64) + tl.load(add + 9))
    tl.store(row + 10, w_2.to(tl.int64) + tl.load(add + 10))
