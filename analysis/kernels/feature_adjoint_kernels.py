"""Adjoints of the hidden features of a gated network: one pass over the features instead of one for every operation.

Tensors of keys or queries have rows in the order (sequence, token), those of values or outputs in the order (chunk,
sequence, token of the chunk), each as its product wants its batches. Several planes of `width` features lie side by side.
"""

from __future__ import annotations

import triton
import triton.language as tl

from analysis.kernels.arithmetic import narrow, silu_parts


@triton.jit
def tile(total, tokens, length, width, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    """Return the rows of a program in both orders, their sequence and token, features, and the masks of rows and tile."""
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    sequence, token = row // tokens, row % tokens
    by_chunk = (token // length * (total // tokens) + sequence) * length + token % length
    col = tl.arange(0, BLOCK)
    inside = row < total
    return (
        row.to(tl.int64),
        by_chunk.to(tl.int64),
        sequence,
        token,
        col,
        inside,
        inside[:, None] & (col < width)[None, :],
    )


@triton.jit
def read_kernel(
    from_x, d_h, h, d_from_x, total, tokens, length, width,
    DTYPE: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """h = silu(a) b, d_a = d_h b silu'(a), d_b = d_h silu(a); from_x = [a | b] and d_h in float32, d_from_x = [d_a | d_b]."""
    row, by_chunk, _, _, col, _, mask = tile(total, tokens, length, width, ROWS, BLOCK)
    wide, single = row[:, None] * 2 * width + col[None, :], by_chunk[:, None] * width + col[None, :]
    up, back = (
        tl.load(from_x + wide + width, mask=mask, other=0.0),
        tl.load(d_h + single, mask=mask, other=0.0),
    )
    swish, slope = silu_parts(tl.load(from_x + wide, mask=mask, other=0.0))
    tl.store(h + single, narrow(swish * up, DTYPE), mask=mask)
    tl.store(d_from_x + wide, narrow(back * up * slope, DTYPE), mask=mask)
    tl.store(d_from_x + wide + width, narrow(back * swish, DTYPE), mask=mask)


@triton.jit
def rate_of(rate, at, scale, inside, RATED: tl.constexpr):
    """Return the factor of every row: its rate times the scale, or the scale alone."""
    factor = tl.where(inside, scale, 0.0)
    if RATED:
        factor *= tl.load(rate + at, mask=inside, other=0.0)
    return factor


@triton.jit
def store_rate(d_rate, at, value, inside, RATED: tl.constexpr, ADDS: tl.constexpr):
    """Write the derivative by the rate of every row, or add it to what is there."""
    if RATED:
        if ADDS:
            value += tl.load(d_rate + at, mask=inside, other=0.0)
        tl.store(d_rate + at, value, mask=inside)


@triton.jit
def learn_kernel(
    from_k, from_v, rate_out, rate_up, rate_gate, right, left, d_out, d_up, d_gate,
    scale, total, tokens, length, rate_step, width,
    DTYPE: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr,
    ALL: tl.constexpr, RATED: tl.constexpr, ADDS: tl.constexpr,
):  # fmt: skip
    """The features of one chunk's gradients, and the derivatives by what they are made of.

    With s = silu(a): h = rate_out s b; with ALL also up = rate_up r s and gate = rate_gate r b s'. d_h, d_u, d_g are the
    derivatives by h, up and gate; d_a, d_b, d_r those by a, b and r = v W_out^T; d_out, d_up, d_gate those by the rates.
    In: from_k = [a | b], with ALL [a | b | d_u | d_g]; from_v = d_h, with ALL [d_h | r]; rates [sequences, rate_step].
    Out: right = [d_a | d_b], with ALL [d_a | d_b | up | gate]; left = h, with ALL [h | d_r].
    """
    row, by_chunk, sequence, token, col, inside, mask = tile(total, tokens, length, width, ROWS, BLOCK)
    at = sequence.to(tl.int64) * rate_step + token
    k_planes: tl.constexpr = 4 if ALL else 2
    v_planes: tl.constexpr = 2 if ALL else 1
    wide = row[:, None] * k_planes * width + col[None, :]
    deep = by_chunk[:, None] * v_planes * width + col[None, :]
    x, y = tl.load(from_k + wide, mask=mask, other=0.0), tl.load(from_k + wide + width, mask=mask, other=0.0)
    swish, slope = silu_parts(x)
    plain, back = swish * y, tl.load(from_v + deep, mask=mask, other=0.0)
    factor = rate_of(rate_out, at, scale, inside, RATED)
    tl.store(left + deep, narrow(factor[:, None] * plain, DTYPE), mask=mask)
    store_rate(d_out, at, scale * tl.sum(back * plain, 1), inside, RATED, ADDS)
    back *= factor[:, None]
    to_a, to_b = back * y * slope, back * swish
    if ALL:
        sigmoid = 1.0 / (1.0 + tl.exp(-x))
        bend = sigmoid * (1.0 - sigmoid) * (2.0 + x * (1.0 - 2.0 * sigmoid))
        turned = tl.load(from_v + deep + width, mask=mask, other=0.0)
        to_up = tl.load(from_k + wide + 2 * width, mask=mask, other=0.0)
        to_gate = tl.load(from_k + wide + 3 * width, mask=mask, other=0.0)
        store_rate(d_up, at, scale * tl.sum(to_up * turned * swish, 1), inside, RATED, ADDS)
        store_rate(d_gate, at, scale * tl.sum(to_gate * turned * y * slope, 1), inside, RATED, ADDS)
        factor_up = rate_of(rate_up, at, scale, inside, RATED)[:, None]
        factor_gate = rate_of(rate_gate, at, scale, inside, RATED)[:, None]
        tl.store(right + wide + 2 * width, narrow(factor_up * turned * swish, DTYPE), mask=mask)
        tl.store(right + wide + 3 * width, narrow(factor_gate * turned * y * slope, DTYPE), mask=mask)
        to_up *= factor_up
        to_gate *= factor_gate
        tl.store(left + deep + width, narrow(to_up * swish + to_gate * y * slope, DTYPE), mask=mask)
        to_a += turned * (to_up * slope + to_gate * y * bend)
        to_b += turned * to_gate * slope
    tl.store(right + wide, narrow(to_a, DTYPE), mask=mask)
    tl.store(right + wide + width, narrow(to_b, DTYPE), mask=mask)
