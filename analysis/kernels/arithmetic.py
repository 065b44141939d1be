"""What every kernel shares: addresses out of the table, masked tiles, and a matrix product that the interpreter gets right."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from analysis.kernels.tiles import INTERPRETED

TRITON_TYPES = {torch.float32: tl.float32, torch.bfloat16: tl.bfloat16, torch.float16: tl.float16}
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
    left, left_step: tl.constexpr, right, right_step: tl.constexpr, accumulator, depth: tl.constexpr, in_rows, in_cols,
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


@triton.jit
def write_address(row, slot: tl.constexpr, start, batch, head, step_b, step_h):
    """Store where a share's part of a tensor starts: bytes from `start` by batch entry and by head."""
    tl.store(row + slot, start.to(tl.int64) + batch * step_b + head * step_h)


@triton.jit(
    do_not_specialize=[
        "heads", "sequences", "q", "k", "v", "out", "momentum", "rate_0", "rate_1", "rate_2", "w_0", "w_1", "w_2",
        "q_b", "q_h", "k_b", "k_h", "v_b", "v_h", "out_b", "out_h", "momentum_b", "momentum_h", "rate_0_b", "rate_0_h",
        "rate_1_b", "rate_1_h", "rate_2_b", "rate_2_h", "w_0_b", "w_0_h", "w_1_b", "w_1_h", "w_2_b", "w_2_h",
    ]
)  # fmt: skip
def write_table_kernel(
    table, heads, sequences, q, k, v, out, momentum, rate_0, rate_1, rate_2, w_0, w_1, w_2,
    q_b, q_h, k_b, k_h, v_b, v_h, out_b, out_h, momentum_b, momentum_h, rate_0_b, rate_0_h,
    rate_1_b, rate_1_h, rate_2_b, rate_2_h, w_0_b, w_0_h, w_1_b, w_1_h, w_2_b, w_2_h, ROW: tl.constexpr,
):  # fmt: skip
    """Write a row of eleven addresses for every share of `sequences` sequences, in stream order."""
    first = tl.program_id(0) * sequences
    batch, head = (first // heads).to(tl.int64), (first % heads).to(tl.int64)
    row = table + tl.program_id(0) * ROW
    write_address(row, 0, q, batch, head, q_b, q_h)
    write_address(row, 1, k, batch, head, k_b, k_h)
    write_address(row, 2, v, batch, head, v_b, v_h)
    write_address(row, 3, out, batch, head, out_b, out_h)
    write_address(row, 4, momentum, batch, head, momentum_b, momentum_h)
    write_address(row, 5, rate_0, batch, head, rate_0_b, rate_0_h)
    write_address(row, 6, rate_1, batch, head, rate_1_b, rate_1_h)
    write_address(row, 7, rate_2, batch, head, rate_2_b, rate_2_h)
    write_address(row, 8, w_0, batch, head, w_0_b, w_0_h)
    write_address(row, 9, w_1, batch, head, w_1_b, w_1_h)
    write_address(row, 10, w_2, batch, head, w_2_b, w_2_h)
