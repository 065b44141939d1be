"""The products of Newton-Schulz and of its adjoint, for a batch of matrices [.., rows, cols] with rows <= cols.

An iteration is A = X X^T, B = a I + b A + c A A, X' = B X. Products that are symmetric compute the tiles on and above the
diagonal alone and store each of them twice.
"""

from __future__ import annotations

import triton
import triton.language as tl

from analysis.kernels.arithmetic import contract, narrow


@triton.jit
def upper_tile(rows: tl.constexpr, BLOCK: tl.constexpr):
    """Return the matrix of a program, the rows and columns of its tile, and whether that lies above the diagonal.

    Programs count the tiles on and above the diagonal.
    """
    tiles: tl.constexpr = (rows + BLOCK - 1) // BLOCK
    upper: tl.constexpr = tiles * (tiles + 1) // 2
    place = tl.program_id(0) % upper
    row, begin = 0 * place, 0 * place
    # no while loop: Triton 3.6 fails to compile one that it can see never runs
    for each in tl.static_range(1, tiles):
        first = each * tiles - each * (each - 1) // 2
        row = tl.where(place >= first, each, row)
        begin = tl.where(place >= first, first, begin)
    col = place - begin + row
    matrix, each = (tl.program_id(0) // upper).to(tl.int64), tl.arange(0, BLOCK)
    return matrix, row * BLOCK + each, col * BLOCK + each, row != col


@triton.jit
def store_symmetric(
    out, accumulator, base, beta, i, j, rows: tl.constexpr, is_mirrored, ADD: tl.constexpr, DTYPE: tl.constexpr
):  # fmt: skip
    """Store accumulator (+ beta S with ADD, S [rows, rows] at `base`) at tile (i, j), and at (j, i) where that is another."""
    mask = (i < rows)[:, None] & (j < rows)[None, :]
    if ADD:
        linear = tl.load(base + i[:, None] * rows + j[None, :], mask=mask, other=0.0)
        accumulator += beta * linear.to(tl.float32)
    result = narrow(accumulator, DTYPE)
    tl.store(out + i[:, None] * rows + j[None, :], result, mask=mask)
    if is_mirrored:
        tl.store(out + j[None, :] * rows + i[:, None], result, mask=mask)


@triton.jit
def symmetric_kernel(
    x, out, rows: tl.constexpr, depth: tl.constexpr, alpha, beta, diagonal,
    ADD: tl.constexpr, DTYPE: tl.constexpr, BLOCK: tl.constexpr, DEPTH: tl.constexpr,
    EVEN_ROWS: tl.constexpr, EVEN_DEPTH: tl.constexpr,
):  # fmt: skip
    """out = alpha X X^T (with ADD, X being square and symmetric, + beta X + diagonal I); X [matrices, rows, depth]."""
    matrix, i, j, is_mirrored = upper_tile(rows, BLOCK)
    base = x + matrix * rows * depth
    accumulator = alpha * contract(
        base + i[:, None] * depth, 1, base + j[None, :] * depth, 1, tl.zeros((BLOCK, BLOCK), tl.float32), depth,
        i < rows, j < rows, DEPTH, EVEN_ROWS, EVEN_ROWS, EVEN_DEPTH,
    )  # fmt: skip
    if ADD:
        accumulator += tl.where(i[:, None] == j[None, :], diagonal, 0.0)
    into = out + matrix * rows * rows
    store_symmetric(into, accumulator, base, beta, i, j, rows, is_mirrored, ADD, DTYPE)


@triton.jit
def both_ways_kernel(
    left, right, out, rows: tl.constexpr, depth: tl.constexpr, alpha, beta,
    ADD: tl.constexpr, DTYPE: tl.constexpr, BLOCK: tl.constexpr, DEPTH: tl.constexpr,
    EVEN_ROWS: tl.constexpr, EVEN_DEPTH: tl.constexpr,
):  # fmt: skip
    """out = alpha (L R^T + R L^T) (+ beta R with ADD, R being square and symmetric); L and R [matrices, rows, depth]."""
    matrix, i, j, is_mirrored = upper_tile(rows, BLOCK)
    in_rows, in_cols = i < rows, j < rows
    first, second = left + matrix * rows * depth, right + matrix * rows * depth
    accumulator = contract(
        first + i[:, None] * depth, 1, second + j[None, :] * depth, 1, tl.zeros((BLOCK, BLOCK), tl.float32), depth,
        in_rows, in_cols, DEPTH, EVEN_ROWS, EVEN_ROWS, EVEN_DEPTH,
    )  # fmt: skip
    accumulator = contract(
        second + i[:, None] * depth, 1, first + j[None, :] * depth, 1, accumulator, depth,
        in_rows, in_cols, DEPTH, EVEN_ROWS, EVEN_ROWS, EVEN_DEPTH,
    )  # fmt: skip
    into = out + matrix * rows * rows
    store_symmetric(into, alpha * accumulator, second, beta, i, j, rows, is_mirrored, ADD, DTYPE)


@triton.jit
def apply_kernel(
    b, x, w, y, out, rows: tl.constexpr, cols: tl.constexpr,
    TWICE: tl.constexpr, DTYPE: tl.constexpr, ROWS: tl.constexpr, COLS: tl.constexpr, DEPTH: tl.constexpr,
    EVEN_ROWS: tl.constexpr, EVEN_COLS: tl.constexpr, EVEN_DEPTH: tl.constexpr,
):  # fmt: skip
    """out = B X (+ W Y if TWICE); X, Y and out [matrices, rows, cols], B and W [matrices, rows, rows]."""
    col_tiles = tl.cdiv(cols, COLS)
    tiles = tl.cdiv(rows, ROWS) * col_tiles
    tile = tl.program_id(0) % tiles
    matrix = (tl.program_id(0) // tiles).to(tl.int64)
    i = (tile // col_tiles) * ROWS + tl.arange(0, ROWS)
    j = (tile % col_tiles) * COLS + tl.arange(0, COLS)
    in_rows, in_cols = i < rows, j < cols
    left, right = matrix * rows * rows + i[:, None] * rows, matrix * rows * cols + j[None, :]
    accumulator = contract(
        b + left, 1, x + right, cols, tl.zeros((ROWS, COLS), tl.float32), rows,
        in_rows, in_cols, DEPTH, EVEN_ROWS, EVEN_COLS, EVEN_DEPTH,
    )  # fmt: skip
    if TWICE:
        accumulator = contract(
            w + left, 1, y + right, cols, accumulator, rows, in_rows, in_cols, DEPTH, EVEN_ROWS, EVEN_COLS, EVEN_DEPTH
        )  # fmt: skip
    tl.store(
        out + right + i[:, None] * cols, narrow(accumulator, DTYPE), mask=in_rows[:, None] & in_cols[None, :]
    )
