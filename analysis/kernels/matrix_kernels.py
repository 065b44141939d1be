"""Kernels over fast-weight matrices: momentum, scaling, update with norm, running sums.

Matrices lie in NS layout, [.., short, long] with short <= long (tall ones are stored transposed, "turned"), so that the
Gram matrix is on the smaller side. Every kernel takes a batch of matrices of one shape.
"""

from __future__ import annotations

import triton
import triton.language as tl

from analysis.kernels.arithmetic import address, narrow


@triton.jit
def momentum_kernel(
    grads, carry, alpha, squares, chunks, matrices, total_z, size: tl.constexpr, blocks: tl.constexpr, split_stride,
    SPLIT: tl.constexpr, MOMENTUM: tl.constexpr, FIRST: tl.constexpr, SQUARES: tl.constexpr,
    BLOCK: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """D_c = G_c + alpha_c D_{c-1} for the chunks in order, G_c being the sum of SPLIT parts; D replaces the first part.

    grads [SPLIT, chunks, matrices, size], carry [matrices, size], alpha [chunks, z]; squares [chunks, matrices, blocks]
    receives the sum of squares of every block of D.
    """
    matrix, block = tl.program_id(0) // blocks, tl.program_id(0) % blocks
    offset = block * BLOCK + tl.arange(0, BLOCK)
    mask = offset < size
    kept = carry + matrix.to(tl.int64) * size + offset
    d = tl.zeros((BLOCK,), tl.float32)
    if MOMENTUM and not FIRST:
        d = tl.load(kept, mask=mask, other=0.0)
    for chunk in tl.range(chunks, num_stages=STAGES):
        at = grads + (chunk * matrices + matrix).to(tl.int64) * size + offset
        g = tl.load(at, mask=mask, other=0.0)
        for split in tl.static_range(1, SPLIT):
            g += tl.load(at + split * split_stride, mask=mask, other=0.0)
        if MOMENTUM:  # noqa: SIM108 - known at compile time: without momentum there is no gate to load
            d = g + tl.load(alpha + chunk * total_z + matrix % total_z) * d
        else:
            d = g
        if MOMENTUM or SPLIT > 1:
            tl.store(at, d, mask=mask)
        if SQUARES:
            where = squares + (chunk * matrices + matrix) * blocks + block
            tl.store(where, tl.sum(d * d))
    if MOMENTUM:
        tl.store(kept, d, mask=mask)


@triton.jit
def gate_kernel(
    table, alpha, heads, total_z, m_b, m_h, m_t, stop, length, SLOT: tl.constexpr, BLOCK: tl.constexpr
):
    """alpha_c = mean over the chunk's tokens of the per-token gate; alpha [chunks, z]."""
    chunk, z = tl.program_id(0), tl.program_id(1)
    begin = chunk * length
    count = tl.minimum(length, stop - begin)
    base = (
        address(table, SLOT, tl.float32, 4) + (z // heads).to(tl.int64) * m_b + (z % heads).to(tl.int64) * m_h
    )
    total = tl.zeros((BLOCK,), tl.float32)
    for first in range(0, count, BLOCK):
        t = first + tl.arange(0, BLOCK)
        total += tl.load(base + (begin + t).to(tl.int64) * m_t, mask=t < count, other=0.0)
    tl.store(alpha + chunk * total_z + z, tl.sum(total) / count)


@triton.jit
def scale_kernel(
    d, squares, x, size: tl.constexpr, blocks: tl.constexpr, eps,
    DTYPE: tl.constexpr, BLOCK: tl.constexpr, BLOCKS: tl.constexpr,
):  # fmt: skip
    """X = D / (||D||_F + eps) in the operands' type; d and x [matrices, size], squares [matrices, blocks]."""
    matrix, block = tl.program_id(0) // blocks, tl.program_id(0) % blocks
    part = tl.arange(0, BLOCKS)
    norm = tl.sqrt(tl.sum(tl.load(squares + matrix * blocks + part, mask=part < blocks, other=0.0)))
    offset = block * BLOCK + tl.arange(0, BLOCK)
    at = matrix.to(tl.int64) * size + offset
    value = tl.load(d + at, mask=offset < size, other=0.0) / (norm + eps)
    tl.store(x + at, narrow(value, DTYPE), mask=offset < size)


@triton.jit
def initial_kernel(
    table, fast, operand, target, heads, rows: tl.constexpr, cols: tl.constexpr, w_b, w_h, w_i, w_o,
    SLOT: tl.constexpr, WEIGHT: tl.constexpr, DTYPE: tl.constexpr, ROWS: tl.constexpr, COLS: tl.constexpr,
):  # fmt: skip
    """Copy one initial fast weight into the float32 state and the operands, and take the l2 norm of its columns."""
    z = tl.program_id(1)
    j = tl.program_id(0) * COLS + tl.arange(0, COLS)
    source = address(table, SLOT, WEIGHT) + (z // heads).to(tl.int64) * w_b + (z % heads).to(tl.int64) * w_h
    total = tl.zeros((COLS,), tl.float32)
    for first in range(0, rows, ROWS):
        i = first + tl.arange(0, ROWS)
        mask = (i < rows)[:, None] & (j < cols)[None, :]
        w = tl.load(source + i[:, None] * w_i + j[None, :] * w_o, mask=mask, other=0.0).to(tl.float32)
        offsets = z.to(tl.int64) * rows * cols + i[:, None] * cols + j[None, :]
        tl.store(fast + offsets, w, mask=mask)
        tl.store(operand + offsets, narrow(w, DTYPE), mask=mask)
        total += tl.sum(w * w, 0)
    tl.store(target + z * cols + j, tl.sqrt(total), mask=j < cols)


@triton.jit
def update_kernel(
    fast, main, change, target, operand, rows: tl.constexpr, cols: tl.constexpr, step, eps,
    NORM: tl.constexpr, PRE: tl.constexpr, TURNED: tl.constexpr, DTYPE: tl.constexpr,
    ROWS: tl.constexpr, COLS: tl.constexpr,
):  # fmt: skip
    """W <- norm(W + step U): fast and main [matrices, rows, cols] in float32, operand the same in the operands' type.

    With NORM every column is brought to its target norm; with PRE the unnormalised sum stays in main, else in fast.
    """
    col_tiles = tl.cdiv(cols, COLS)
    matrix = (tl.program_id(0) // col_tiles).to(tl.int64)
    j = (tl.program_id(0) % col_tiles) * COLS + tl.arange(0, COLS)
    in_cols = j < cols
    base = matrix * rows * cols
    start = main if PRE else fast
    total = tl.zeros((COLS,), tl.float32)
    if NORM:
        for first in range(0, rows, ROWS):
            i = first + tl.arange(0, ROWS)
            mask = (i < rows)[:, None] & in_cols[None, :]
            offsets = base + i[:, None] * cols + j[None, :]
            turned = base + j[None, :] * rows + i[:, None] if TURNED else offsets
            w = tl.load(start + offsets, mask=mask, other=0.0)
            w += step * tl.load(change + turned, mask=mask, other=0.0).to(tl.float32)
            total += tl.sum(w * w, 0)
        goal = tl.load(target + matrix * cols + j, mask=in_cols, other=0.0)
        factor = goal / (tl.sqrt(total) + eps)
    for first in range(0, rows, ROWS):
        i = first + tl.arange(0, ROWS)
        mask = (i < rows)[:, None] & in_cols[None, :]
        offsets = base + i[:, None] * cols + j[None, :]
        turned = base + j[None, :] * rows + i[:, None] if TURNED else offsets
        w = tl.load(start + offsets, mask=mask, other=0.0)
        w += step * tl.load(change + turned, mask=mask, other=0.0).to(tl.float32)
        if PRE:
            tl.store(main + offsets, w, mask=mask)
        if NORM:
            w *= factor[None, :]
        tl.store(fast + offsets, w, mask=mask)
        tl.store(operand + offsets, narrow(w, DTYPE), mask=mask)


@triton.jit
def prefix_kernel(
    fast, change, operand, chunks, matrices, rows: tl.constexpr, cols: tl.constexpr, step,
    TURNED: tl.constexpr, DTYPE: tl.constexpr, BLOCK: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """W_{c+1} = W_c + step U_c for all chunks; fast [matrices, rows, cols] moves to the end, operand slots 1.. get each W."""
    size = rows * cols
    blocks = tl.cdiv(size, BLOCK)
    matrix = (tl.program_id(0) // blocks).to(tl.int64)
    offset = (tl.program_id(0) % blocks) * BLOCK + tl.arange(0, BLOCK)
    mask = offset < size
    turned = (offset % cols) * rows + offset // cols if TURNED else offset
    w = tl.load(fast + matrix * size + offset, mask=mask, other=0.0)
    for chunk in tl.range(chunks, num_stages=STAGES):
        at = (chunk * matrices + matrix) * size
        w += step * tl.load(change + at + turned, mask=mask, other=0.0).to(tl.float32)
        tl.store(operand + ((chunk + 1) * matrices + matrix) * size + offset, narrow(w, DTYPE), mask=mask)
    tl.store(fast + matrix * size + offset, w, mask=mask)
