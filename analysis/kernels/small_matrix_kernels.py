"""Newton-Schulz on matrices that fit one program: every iteration forward, and every adjoint backward, in one launch."""

from __future__ import annotations

import triton
import triton.language as tl

from analysis.kernels.arithmetic import narrow, product


@triton.jit
def matrix_tile(size_rows, size_cols, ROWS: tl.constexpr, COLS: tl.constexpr):
    """Return offsets and mask of a contiguous matrix in a padded tile."""
    row, col = tl.arange(0, ROWS), tl.arange(0, COLS)
    return row[:, None] * size_cols + col[None, :], (row[:, None] < size_rows) & (col[None, :] < size_cols)


@triton.jit
def gram_and_polynomial(x, b, c, ROWS: tl.constexpr, DTYPE: tl.constexpr):
    """Return A = X X^T and P = b A + c A A, rounded to the operands' type as stored intermediates would be."""
    empty = tl.zeros((ROWS, ROWS), tl.float32)
    gram = narrow(product(x, tl.trans(x), empty), DTYPE)
    polynomial = narrow(b * gram.to(tl.float32) + c * product(gram, gram, empty), DTYPE)
    return gram, polynomial


@triton.jit
def iterate_kernel(
    start, coefficients, kept, out, rows, cols,
    STEPS: tl.constexpr, ROWS: tl.constexpr, COLS: tl.constexpr, DTYPE: tl.constexpr,
):  # fmt: skip
    """X <- a X + P X, STEPS times; the X that each iteration starts from, but the first, is kept for the way back.

    start, out [N, rows, cols]; coefficients [STEPS, 3] float32; kept [STEPS - 1, N, rows, cols].
    """
    first, all_matrices = (
        tl.program_id(0).to(tl.int64) * rows * cols,
        tl.num_programs(0).to(tl.int64) * rows * cols,
    )
    offset, mask = matrix_tile(rows, cols, ROWS, COLS)
    x = tl.load(start + first + offset, mask=mask, other=0.0)
    for step in range(STEPS):
        if step > 0:
            tl.store(kept + (step - 1) * all_matrices + first + offset, x, mask=mask)
        a = tl.load(coefficients + 3 * step)
        b = tl.load(coefficients + 3 * step + 1)
        c = tl.load(coefficients + 3 * step + 2)
        _, polynomial = gram_and_polynomial(x, b, c, ROWS, DTYPE)
        x = narrow(product(polynomial, x, a * x.to(tl.float32)), DTYPE)
    tl.store(out + first + offset, x, mask=mask)


@triton.jit
def adjoint_kernel(
    start, coefficients, kept, upstream, out, rows, cols,
    STEPS: tl.constexpr, ROWS: tl.constexpr, COLS: tl.constexpr, DTYPE: tl.constexpr,
):  # fmt: skip
    """Walk the iterations back: with dP = dY X^T and E = dP + dP^T, dX = a dY + P dY + (b E + c (A E + E A)) X.

    Shapes as in `iterate_kernel`; upstream, out [N, rows, cols].
    """
    first, all_matrices = (
        tl.program_id(0).to(tl.int64) * rows * cols,
        tl.num_programs(0).to(tl.int64) * rows * cols,
    )
    offset, mask = matrix_tile(rows, cols, ROWS, COLS)
    empty = tl.zeros((ROWS, ROWS), tl.float32)
    dy = tl.load(upstream + first + offset, mask=mask, other=0.0)
    for back in range(STEPS):
        step = STEPS - 1 - back
        a = tl.load(coefficients + 3 * step)
        b = tl.load(coefficients + 3 * step + 1)
        c = tl.load(coefficients + 3 * step + 2)
        at = start + first
        if step > 0:
            at = kept + (step - 1) * all_matrices + first
        x = tl.load(at + offset, mask=mask, other=0.0)
        gram, polynomial = gram_and_polynomial(x, b, c, ROWS, DTYPE)
        half = product(dy, tl.trans(x), empty)
        both = half + tl.trans(half)
        turned = product(gram, narrow(both, DTYPE), empty)
        towards = narrow(b * both + c * (turned + tl.trans(turned)), DTYPE)
        along = product(polynomial, dy, a * dy.to(tl.float32))
        dy = narrow(product(towards, x, along), DTYPE)
    tl.store(out + first + offset, dy, mask=mask)
