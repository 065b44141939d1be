"""Launches of Newton-Schulz and of its adjoint for a batch of matrices of one shape."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import triton
from torch import Tensor

from analysis.kernels import newton_schulz_kernels as kernels
from analysis.kernels.arithmetic import TRITON_TYPES
from analysis.kernels.tiles import choose

MANY_TILES = 264
"""Above so many tiles of 128 x 128, two for each multiprocessor of an H200, the larger tile is the faster one."""


def unit_dtype(dtype: torch.dtype) -> torch.dtype:
    """Return the type of matrices of unit norm: float16 in place of bfloat16, eight times finer at the same speed."""
    return torch.float16 if dtype == torch.bfloat16 else dtype


class NewtonSchulz:
    """The iterations X <- B X with B = a I + b A + c A A and A = X X^T, once per triple of coefficients.

    Matrices are [short, long], short <= long; every operand has the type of X, every sum is float32.

    at_once: how many matrices iterate beside each other, which decides about tiles. limit: bytes of shared memory of a program.

    Raises:
        UnsupportedSpecError: no tile fits the device's shared memory.
    """

    def __init__(
        self,
        coefficients: Sequence[tuple[float, float, float]],
        shape: tuple[int, int],
        dtype: torch.dtype,
        at_once: int,
        limit: int,
    ) -> None:
        self.coefficients = coefficients
        self.short, self.long = shape
        few = "" if at_once * triton.cdiv(self.short, 128) ** 2 > MANY_TILES else ", few matrices"
        self.square = choose(f"symmetric{few}", self.short, self.short, self.long, dtype, limit)
        self.side = min(self.square.rows, self.square.cols)
        self.oblong = choose(f"iterate{few}", self.short, self.long, self.short, dtype, limit)

    def run(self, x: Tensor, spare: Tensor, gram: Tensor, polynomial: Tensor, count: int) -> Tensor:
        """Iterate the first `count` matrices of x; returns the buffer where they are then, x or spare."""
        for factors in self.coefficients:
            self._polynomial(x, gram, polynomial, factors, count)
            self._apply(polynomial, x, spare, count)
            x, spare = spare, x
        return x

    def adjoint(self, x: Tensor, d_x: Tensor) -> None:
        """Walk the iterations from x back: d_x, the derivative by the last X in float32, becomes that by the first.

        With E = d_X X^T + X d_X^T the derivative by X is B d_X + W X, where W = b E + c (A E + E A).
        x, d_x: contiguous, [matrices, short, long].
        """
        count, square, steps = len(x), (len(x), self.short, self.short), []
        for factors in self.coefficients:
            gram, polynomial = x.new_empty(square), x.new_empty(square)
            self._polynomial(x, gram, polynomial, factors, count)
            steps.append((x, gram, polynomial, factors))
            if len(steps) < len(self.coefficients):
                x = torch.empty_like(x)
                self._apply(polynomial, steps[-1][0], x, count)
        both, turned = x.new_empty(square), x.new_empty(square)
        narrow, spare = d_x.to(x.dtype, copy=True), torch.empty_like(x)
        for x, gram, polynomial, (_, b, c) in reversed(steps):
            self._both_ways(narrow, x, both, 1.0, None)
            self._both_ways(gram, both, turned, c, b)
            self._apply(polynomial, narrow, d_x if x is steps[0][0] else spare, count, turned, x)
            narrow, spare = spare, narrow

    def _polynomial(
        self, x: Tensor, gram: Tensor, polynomial: Tensor, factors: tuple[float, float, float], count: int
    ) -> None:
        """A = X X^T and B = a I + b A + c A A for factors a, b, c."""
        a, b, c = factors
        for source, out, depth, *weights in (
            (x, gram, self.long, 1.0, None, 0.0),
            (gram, polynomial, self.short, c, b, a),
        ):
            alpha, beta, diagonal = weights
            kernels.symmetric_kernel[self._upper(count)](
                source, out, self.short, depth, alpha, beta or 0.0, diagonal, **self._square(out, depth, beta)
            )  # fmt: skip

    def _both_ways(self, left: Tensor, right: Tensor, out: Tensor, alpha: float, beta: float | None) -> None:
        """out = alpha (L R^T + R L^T), + beta R unless that is None."""
        depth = left.shape[-1]
        kernels.both_ways_kernel[self._upper(len(left))](
            left, right, out, self.short, depth, alpha, beta or 0.0, **self._square(out, depth, beta)
        )

    def _apply(
        self, b: Tensor, x: Tensor, out: Tensor, count: int, w: Tensor | None = None, y: Tensor | None = None
    ) -> None:
        """out = B X, + W Y where they are given."""
        tile = self.oblong
        tiles = triton.cdiv(self.short, tile.rows) * triton.cdiv(self.long, tile.cols)
        kernels.apply_kernel[(count * tiles,)](
            b, x, w, y, out, self.short, self.long,
            TWICE=w is not None, DTYPE=TRITON_TYPES[out.dtype], ROWS=tile.rows, COLS=tile.cols, DEPTH=tile.depth,
            EVEN_ROWS=self.short % tile.rows == 0, EVEN_COLS=self.long % tile.cols == 0,
            EVEN_DEPTH=self.short % tile.depth == 0, num_warps=tile.warps, num_stages=tile.stages,
        )  # fmt: skip

    def _upper(self, count: int) -> tuple[int]:
        tiles = triton.cdiv(self.short, self.side)
        return (count * tiles * (tiles + 1) // 2,)

    def _square(self, out: Tensor, depth: int, beta: float | None) -> dict[str, Any]:
        tile = self.square
        return {
            "ADD": beta is not None, "DTYPE": TRITON_TYPES[out.dtype], "BLOCK": self.side, "DEPTH": tile.depth,
            "EVEN_ROWS": self.short % self.side == 0, "EVEN_DEPTH": depth % tile.depth == 0,
            "num_warps": tile.warps, "num_stages": tile.stages,
        }  # fmt: skip
