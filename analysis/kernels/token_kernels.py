"""Kernels over tokens: hidden features of a SwiGLU (with the factors of its gradients), outer products, projections.

Tokens are addressed by (z, chunk, position): z counts batch and heads together, a chunk starts at start + chunk * length
and holds at most `length` tokens before `stop`. Scratch planes are [plane, chunk, z, length, width], contiguous.
"""

from __future__ import annotations

import triton
import triton.language as tl

from analysis.kernels.arithmetic import address, contract, load_tile, narrow, product, silu_parts


@triton.jit
def token_rate(table, SLOT: tl.constexpr, z, heads, token, rate_b, rate_h, rate_t, mask, factor):
    """Return factor times the per-token rate in a slot of the table; a negative slot means a rate of one."""
    if SLOT < 0:
        return tl.where(mask, factor, 0.0)
    base = address(table, SLOT, tl.float32, 4)
    offset = (z // heads).to(tl.int64) * rate_b + (z % heads).to(tl.int64) * rate_h
    return tl.load(base + offset + token * rate_t, mask=mask, other=0.0) * factor


@triton.jit
def loss_factor(scale, count, MEAN: tl.constexpr):
    """Return the loss's factor of one token: its scale, over the chunk's tokens for a mean."""
    if MEAN:
        return scale / count
    return scale


@triton.jit
def gate_and_up(
    x, w_gate, w_up, step: tl.constexpr, a, b, width: tl.constexpr, in_chunk, in_hidden,
    DEPTH: tl.constexpr, EVEN_T: tl.constexpr, EVEN_X: tl.constexpr, EVEN_H: tl.constexpr,
):  # fmt: skip
    """Return a + x W_gate and b + x W_up, every tile of x loaded once; pointers as in `contract`."""
    for first in range(0, width, DEPTH):
        deep = first + tl.arange(0, DEPTH)
        inside = deep < width
        tokens = load_tile(x + deep[None, :], in_chunk, inside, EVEN_T, EVEN_X)
        offsets = deep[:, None] * step
        a = product(tokens, load_tile(w_gate + offsets, inside, in_hidden, EVEN_X, EVEN_H), a)
        b = product(tokens, load_tile(w_up + offsets, inside, in_hidden, EVEN_X, EVEN_H), b)
    return a, b


@triton.jit
def store_factors(into, plane, mask, a, b, r, up, gate, DTYPE: tl.constexpr):
    """Store u = up r silu(a) and g = gate r b silu'(a), what multiplies x in the gradients of W_up and W_gate."""
    swish, slope = silu_parts(a)
    tl.store(into + plane, narrow(up[:, None] * r * swish, DTYPE), mask=mask)
    # twice a plane may be beyond 32 bits where one is not
    second = 2 * tl.cast(plane, tl.int64)
    tl.store(into + second, narrow(gate[:, None] * r * b * slope, DTYPE), mask=mask)


@triton.jit
def features_kernel(
    table, w_gate, w_up, w_out, scratch,
    heads, total_z, x_b, x_h, x_t, v_b, v_h, v_t, rate_b, rate_h, rate_t,
    start, stop, length, width: tl.constexpr, hidden: tl.constexpr, values: tl.constexpr, w_chunk, plane, scale,
    X: tl.constexpr, V: tl.constexpr, RATE_GATE: tl.constexpr, RATE_UP: tl.constexpr, RATE_OUT: tl.constexpr,
    RATED: tl.constexpr, MEAN: tl.constexpr, FULL: tl.constexpr, DTYPE: tl.constexpr,
    ROWS: tl.constexpr, COLS: tl.constexpr, DEPTH: tl.constexpr,
    EVEN_T: tl.constexpr, EVEN_X: tl.constexpr, EVEN_H: tl.constexpr, EVEN_V: tl.constexpr,
):  # fmt: skip
    """h = silu(x W_gate) * (x W_up), times its rate if RATED; FULL also stores `store_factors` with r = v W_out^T."""
    col_tiles = tl.cdiv(hidden, COLS)
    z, chunk = tl.program_id(1), tl.program_id(2)
    count = tl.minimum(length, stop - start - chunk * length)
    position = (tl.program_id(0) // col_tiles) * ROWS + tl.arange(0, ROWS)
    unit = (tl.program_id(0) % col_tiles) * COLS + tl.arange(0, COLS)
    in_chunk, in_hidden = position < count, unit < hidden
    token = (start + chunk * length + position).to(tl.int64)
    batch, head = (z // heads).to(tl.int64), (z % heads).to(tl.int64)
    x = address(table, X, DTYPE) + batch * x_b + head * x_h + token[:, None] * x_t
    at = chunk * w_chunk + z.to(tl.int64) * width * hidden + unit[None, :]
    zero = tl.zeros((ROWS, COLS), tl.float32)
    a, b = gate_and_up(
        x, w_gate + at, w_up + at, hidden, zero, zero, width, in_chunk, in_hidden, DEPTH, EVEN_T, EVEN_X, EVEN_H
    )  # fmt: skip
    h = silu_parts(a)[0] * b
    factor = loss_factor(scale, count, MEAN)
    if RATED:
        h *= token_rate(table, RATE_OUT, z, heads, token, rate_b, rate_h, rate_t, in_chunk, factor)[:, None]
    into = (
        scratch + ((chunk * total_z + z).to(tl.int64) * length + position[:, None]) * hidden + unit[None, :]
    )
    mask = in_chunk[:, None] & in_hidden[None, :]
    tl.store(into, narrow(h, DTYPE), mask=mask)
    if FULL:
        v = address(table, V, DTYPE) + batch * v_b + head * v_h + token[:, None] * v_t
        w = w_out + chunk * w_chunk + z.to(tl.int64) * hidden * values + unit[None, :] * values
        r = contract(v, 1, w, 1, zero, values, in_chunk, in_hidden, DEPTH, EVEN_T, EVEN_H, EVEN_V)
        up = token_rate(table, RATE_UP, z, heads, token, rate_b, rate_h, rate_t, in_chunk, factor)
        gate = token_rate(table, RATE_GATE, z, heads, token, rate_b, rate_h, rate_t, in_chunk, factor)
        store_factors(into, plane, mask, a, b, r, up, gate, DTYPE)


@triton.jit
def weighted_outer(
    table, left, left_t, right, right_t, begin, first_token, last_token, z, heads, rate_b, rate_h, rate_t,
    i, j, in_rows, in_cols, zero,
    RATE: tl.constexpr, DTYPE: tl.constexpr, COLS: tl.constexpr, PARTS: tl.constexpr, DEPTH: tl.constexpr,
    EVEN_T: tl.constexpr, EVEN: tl.constexpr,
):  # fmt: skip
    """Return the sums over tokens of left_t^T right_t for PARTS neighbouring column tiles (three tiles, unused ones zero).

    The left side is loaded once for all parts, and takes its rate where RATE is a slot.
    """
    first_part, second_part, third_part = zero, zero, zero
    for first in range(first_token, last_token, DEPTH):
        t = (first + tl.arange(0, DEPTH)).to(tl.int64)
        inside = t < last_token
        a = load_tile(left + t[None, :] * left_t + i[:, None], in_rows, inside, EVEN, EVEN_T)
        if RATE >= 0:
            each = token_rate(table, RATE, z, heads, begin + t, rate_b, rate_h, rate_t, inside, 1.0)
            a = narrow(a.to(tl.float32) * each[None, :], DTYPE)
        b = right + t[:, None] * right_t + j[None, :]
        first_part = product(a, load_tile(b, inside, in_cols, EVEN_T, EVEN), first_part)
        if PARTS > 1:
            second_part = product(a, load_tile(b + COLS, inside, in_cols, EVEN_T, EVEN), second_part)
        if PARTS > 2:
            third_part = product(a, load_tile(b + 2 * COLS, inside, in_cols, EVEN_T, EVEN), third_part)
    return first_part, second_part, third_part


@triton.jit
def store_gradient(into, part, i, j, rows, cols, turned):
    """Store one tile of a gradient, transposed where the matrix is turned."""
    offsets = tl.where(turned, j[None, :] * rows + i[:, None], i[:, None] * cols + j[None, :])
    tl.store(into + offsets, part, mask=(i < rows)[:, None] & (j < cols)[None, :])


@triton.jit
def outer_kernel(
    table, scratch, out, out_other,
    heads, total_z, k_b, k_h, k_t, v_b, v_h, v_t, rate_b, rate_h, rate_t,
    start, stop, length, width: tl.constexpr, hidden: tl.constexpr, values: tl.constexpr, plane, col_tiles, scale,
    out_split, out_chunk, other_split, other_chunk,
    K: tl.constexpr, V: tl.constexpr, RATE: tl.constexpr, MEAN: tl.constexpr,
    KIND: tl.constexpr, SPLIT: tl.constexpr, OUT_TURNED: tl.constexpr, OTHER_TURNED: tl.constexpr,
    DTYPE: tl.constexpr, ROWS: tl.constexpr, COLS: tl.constexpr, PARTS: tl.constexpr, DEPTH: tl.constexpr,
    EVEN_T: tl.constexpr, EVEN: tl.constexpr,
):  # fmt: skip
    """Gradients of one chunk as outer products over its tokens, the tokens cut into SPLIT parts that are added later.
    KIND 'linear': (rate k)^T v. 'last': h^T v from scratch. 'all': axis 1 counts gate, up, last; k^T g, k^T u go to `other`.
    """
    problem, z = tl.program_id(1) // total_z, tl.program_id(1) % total_z
    chunk, split = tl.program_id(2) // SPLIT, tl.program_id(2) % SPLIT
    batch, head = (z // heads).to(tl.int64), (z % heads).to(tl.int64)
    begin = start + chunk * length
    count = tl.minimum(length, stop - begin)
    keys = address(table, K, DTYPE) + batch * k_b + head * k_h + begin.to(tl.int64) * k_t
    targets = address(table, V, DTYPE) + batch * v_b + head * v_h + begin.to(tl.int64) * v_t
    left, left_t, rows, right, right_t, cols = keys, k_t, width, targets, v_t, values
    if KIND != "linear":
        hiddens = scratch + (chunk * total_z + z).to(tl.int64) * length * hidden
        left, left_t, rows = hiddens, hidden, hidden
    into = out + split.to(tl.int64) * out_split + chunk.to(tl.int64) * out_chunk
    into += z.to(tl.int64) * rows * cols
    turned = OUT_TURNED
    if KIND == "all":  # noqa: SIM102 - one condition is known at compile time, the other is not
        if problem < 2:
            left, left_t, rows = keys, k_t, width
            right, right_t, cols = hiddens + (2 - problem) * tl.cast(plane, tl.int64), hidden, hidden
            into = out_other + split.to(tl.int64) * other_split + chunk.to(tl.int64) * other_chunk
            into += (problem * total_z + z).to(tl.int64) * width * hidden
    if KIND == "all" and OUT_TURNED != OTHER_TURNED:
        turned = (problem < 2) == OTHER_TURNED
    i = (tl.program_id(0) // col_tiles) * ROWS + tl.arange(0, ROWS)
    j = (tl.program_id(0) % col_tiles) * COLS * PARTS + tl.arange(0, COLS)
    part = tl.cdiv(length, SPLIT * DEPTH) * DEPTH
    first_part, second_part, third_part = weighted_outer(
        table, left, left_t, right, right_t, begin, split * part, tl.minimum(count, (split + 1) * part),
        z, heads, rate_b, rate_h, rate_t, i, j, i < rows, j < cols,
        tl.zeros((ROWS, COLS), tl.float32), RATE, DTYPE, COLS, PARTS, DEPTH, EVEN_T, EVEN,
    )  # fmt: skip
    factor = loss_factor(scale, count, MEAN) if KIND == "linear" else 1.0
    store_gradient(into, first_part * factor, i, j, rows, cols, turned)
    if PARTS > 1:
        store_gradient(into, second_part * factor, i, j + COLS, rows, cols, turned)
    if PARTS > 2:
        store_gradient(into, third_part * factor, i, j + 2 * COLS, rows, cols, turned)


@triton.jit
def project_kernel(
    table, scratch, weights,
    heads, total_z, x_b, x_h, x_t, start, stop, length, chunks,
    width: tl.constexpr, values: tl.constexpr, num_tokens, w_chunk, w_last,
    X: tl.constexpr, OUT: tl.constexpr, DTYPE: tl.constexpr,
    ROWS: tl.constexpr, COLS: tl.constexpr, DEPTH: tl.constexpr, STAGES: tl.constexpr,
    EVEN_T: tl.constexpr, EVEN_X: tl.constexpr, EVEN_V: tl.constexpr,
):  # fmt: skip
    """out = x W for every token of the chunks, each chunk with weights of its own (the last one from chunk w_last on).

    x comes from the table (X a slot) or from scratch [chunk, z, length, width] (X negative). A program takes tile after tile,
    and loads the first operands of one while it stores another.
    """
    z, col_tiles = tl.program_id(1), tl.cdiv(values, COLS)
    tiles = tl.cdiv(length, ROWS) * col_tiles
    x_of_z = scratch
    if X >= 0:
        x_of_z = address(table, X, DTYPE) + (z // heads).to(tl.int64) * x_b + (z % heads).to(tl.int64) * x_h
    out_of_z = address(table, OUT, DTYPE) + z.to(tl.int64) * num_tokens * values
    for tile in tl.range(
        tl.program_id(0), tiles * chunks, tl.num_programs(0), flatten=True, num_stages=STAGES
    ):
        chunk, place = tile // tiles, tile % tiles
        position = (place // col_tiles) * ROWS + tl.arange(0, ROWS)
        j = (place % col_tiles) * COLS + tl.arange(0, COLS)
        in_chunk, in_values = position < tl.minimum(length, stop - start - chunk * length), j < values
        token = (start + chunk * length + position).to(tl.int64)
        if X >= 0:
            x = x_of_z + token[:, None] * x_t
        else:
            x = x_of_z + ((chunk * total_z + z).to(tl.int64) * length + position[:, None]) * width
        w = (
            weights
            + tl.minimum(chunk, w_last).to(tl.int64) * w_chunk
            + z.to(tl.int64) * width * values
            + j[None, :]
        )
        result = contract(
            x, 1, w, values, tl.zeros((ROWS, COLS), tl.float32), width, in_chunk, in_values,
            DEPTH, EVEN_T, EVEN_V, EVEN_X,
        )  # fmt: skip
        out = out_of_z + token[:, None] * values + j[None, :]
        tl.store(out, narrow(result, DTYPE), mask=in_chunk[:, None] & in_values[None, :])
