"""Adjoints of the hidden features of a gated network: one pass over the features instead of one for every operation."""

from __future__ import annotations

import triton
import triton.language as tl

from analysis.kernels.arithmetic import narrow, silu_parts


@triton.jit
def tile(total, width, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    """Return the rows of a program, the offsets of their features, and the masks of both."""
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    col = tl.arange(0, BLOCK)
    return (
        row,
        row[:, None] * width + col[None, :],
        row < total,
        (row < total)[:, None] & (col < width)[None, :],
    )


@triton.jit
def read_kernel(
    a, b, d_h, h, d_a, d_b, total, width, DTYPE: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr
):
    """h = silu(a) b, d_a = d_h b silu'(a), d_b = d_h silu(a); a, b, d_h [total, width] in float32."""
    _, at, _, mask = tile(total, width, ROWS, BLOCK)
    up, back = tl.load(b + at, mask=mask, other=0.0), tl.load(d_h + at, mask=mask, other=0.0)
    swish, slope = silu_parts(tl.load(a + at, mask=mask, other=0.0))
    tl.store(h + at, narrow(swish * up, DTYPE), mask=mask)
    tl.store(d_a + at, narrow(back * up * slope, DTYPE), mask=mask)
    tl.store(d_b + at, narrow(back * swish, DTYPE), mask=mask)


@triton.jit
def learn_kernel(
    a, b, d_h, r, d_u, d_g, rate_out, rate_up, rate_gate, h, up, gate, d_a, d_b, d_r, d_out, d_up, d_gate,
    total, width, DTYPE: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr, ALL: tl.constexpr,
):  # fmt: skip
    """The features of one chunk's gradients, and the derivatives by what they are made of.

    With s = silu(a): h = rate_out s b; with ALL also up = rate_up r s and gate = rate_gate r b s'. d_h, d_u, d_g are the
    derivatives by h, up and gate; d_a, d_b, d_r those by a, b and r = v W_out^T; d_out, d_up, d_gate those by the rates.
    """
    row, at, inside, mask = tile(total, width, ROWS, BLOCK)
    x, y = tl.load(a + at, mask=mask, other=0.0), tl.load(b + at, mask=mask, other=0.0)
    swish, slope = silu_parts(x)
    plain, back = swish * y, tl.load(d_h + at, mask=mask, other=0.0)
    factor = tl.load(rate_out + row, mask=inside, other=0.0)
    tl.store(h + at, narrow(factor[:, None] * plain, DTYPE), mask=mask)
    tl.store(d_out + row, tl.sum(back * plain, 1), mask=inside)
    back *= factor[:, None]
    to_a, to_b = back * y * slope, back * swish
    if ALL:
        sigmoid = 1.0 / (1.0 + tl.exp(-x))
        bend = sigmoid * (1.0 - sigmoid) * (2.0 + x * (1.0 - 2.0 * sigmoid))
        turned = tl.load(r + at, mask=mask, other=0.0)
        to_up, to_gate = tl.load(d_u + at, mask=mask, other=0.0), tl.load(d_g + at, mask=mask, other=0.0)
        tl.store(d_up + row, tl.sum(to_up * turned * swish, 1), mask=inside)
        tl.store(d_gate + row, tl.sum(to_gate * turned * y * slope, 1), mask=inside)
        factor_up = tl.load(rate_up + row, mask=inside, other=0.0)[:, None]
        factor_gate = tl.load(rate_gate + row, mask=inside, other=0.0)[:, None]
        tl.store(up + at, narrow(factor_up * turned * swish, DTYPE), mask=mask)
        tl.store(gate + at, narrow(factor_gate * turned * y * slope, DTYPE), mask=mask)
        to_up *= factor_up
        to_gate *= factor_gate
        tl.store(d_r + at, narrow(to_up * swish + to_gate * y * slope, DTYPE), mask=mask)
        to_a += turned * (to_up * slope + to_gate * y * bend)
        to_b += turned * to_gate * slope
    tl.store(d_a + at, narrow(to_a, DTYPE), mask=mask)
    tl.store(d_b + at, narrow(to_b, DTYPE), mask=mask)
