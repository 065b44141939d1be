"""Launches of the token kernels for a layer: gradients of chunks, and read-out of chunks."""

from __future__ import annotations

from dataclasses import dataclass, replace

import triton
from torch import Tensor

from analysis.kernels import signature as slots
from analysis.kernels import token_kernels as kernels
from analysis.kernels.arithmetic import TRITON_TYPES
from analysis.kernels.matrices import Group
from analysis.kernels.plan import Plan
from analysis.kernels.signature import Signature
from analysis.kernels.tiles import Tile, choose

PROGRAMS = 528
"""Programs of all shares together that take projections tile after tile: four for each multiprocessor of an H200."""


@dataclass(frozen=True)
class Span:
    """`chunks` chunks of `length` tokens from token `start`, none beyond `stop`; only the last may be shorter."""

    start: int
    stop: int
    length: int
    chunks: int

    def is_even(self, step: int) -> bool:
        """Whether every chunk is full and a multiple of `step`."""
        return self.stop - self.start >= self.chunks * self.length and self.length % step == 0


@dataclass(frozen=True)
class Source:
    """An operand matrix per chunk: the tensor, and elements from one chunk's to the next's."""

    tensor: Tensor
    chunk_stride: int = 0


class TokenLaunches:
    """The token kernels of one layer; scratch planes and weights are handed in."""

    def __init__(self, plan: Plan, sign: Signature, limit: int, shares: int) -> None:
        self.plan, self.sign, self.limit = plan, sign, limit
        self.programs = max(1, PROGRAMS // (shares * sign.total_z))
        self.slots = {
            name: slots.RATES + 3 - len(plan.rates) + index
            for index, name in enumerate(plan.moving if plan.rates else ())
        }

    def _tile(self, kernel: str, rows: int, cols: int, depth: int) -> Tile:
        return choose(kernel, rows, cols, depth, self.sign.dtype, self.limit)

    def features(
        self, table: Tensor, scratch: Tensor, span: Span, weights: dict[str, Source], *, kind: str
    ) -> None:
        """Hidden features into scratch; kind 'read' of the queries, 'last' of the keys with rate, 'all' with gradients."""
        sign, plan, full = self.sign, self.plan, kind == "all"
        tile = self._tile(
            "features of all gradients" if full else "features", span.length, sign.hidden, sign.width
        )
        tiles = triton.cdiv(span.length, tile.rows) * triton.cdiv(sign.hidden, tile.cols)
        x_slot, strides = (slots.Q, sign.q) if kind == "read" else (slots.K, sign.k)
        kernels.features_kernel[(tiles, sign.total_z, span.chunks)](
            table, weights["w_gate"].tensor, weights["w_up"].tensor, weights["w_out"].tensor, scratch,
            sign.heads, sign.total_z, *strides, *sign.v, *sign.rate,
            span.start, span.stop, span.length, sign.width, sign.hidden, sign.values,
            weights["w_gate"].chunk_stride, scratch.stride(0), -plan.scale,
            X=x_slot, V=slots.V, RATE_GATE=self.slots.get("w_gate", -1), RATE_UP=self.slots.get("w_up", -1),
            RATE_OUT=self.slots.get("w_out", -1), RATED=kind != "read", MEAN=plan.is_mean, FULL=full,
            DTYPE=TRITON_TYPES[sign.dtype], ROWS=tile.rows, COLS=tile.cols, DEPTH=tile.depth,
            EVEN_T=span.is_even(tile.rows), EVEN_X=sign.width % tile.depth == 0,
            EVEN_H=sign.hidden % tile.cols == 0, EVEN_V=sign.values % tile.depth == 0,
            num_warps=tile.warps, num_stages=tile.stages,
        )  # fmt: skip

    def outer(
        self, table: Tensor, scratch: Tensor, span: Span, out: Tensor, other: Tensor, groups: dict[str, Group]
    ) -> None:
        """Gradients of the span's chunks into `out` (last layer) and `other` (gate and up), [split, chunks, ..]."""
        sign, plan = self.sign, self.plan
        kind = "linear" if plan.network == "linear" else "all" if plan.moves_all else "last"
        rows = sign.width if kind == "linear" else max(sign.hidden, sign.width if kind == "all" else 0)
        cols = max(sign.values, sign.hidden if kind == "all" else 0)
        rate = self.slots.get("w_out", -1) if kind == "linear" else -1
        kernel = "outer" if kind != "linear" else "outer of keys" if rate < 0 else "outer of rated keys"
        tile = self._tile(kernel, rows, cols, span.length)
        widths = (sign.width, sign.hidden, sign.values)
        if any(width % (tile.cols * tile.parts) for width in widths):
            tile = replace(tile, parts=1)
        split = out.shape[0]
        col_tiles = triton.cdiv(cols, tile.cols * tile.parts)
        tiles = triton.cdiv(rows, tile.rows) * col_tiles
        kernels.outer_kernel[(tiles, sign.total_z * (3 if kind == "all" else 1), span.chunks * split)](
            table, scratch, out, other,
            sign.heads, sign.total_z, *sign.k, *sign.v, *sign.rate,
            span.start, span.stop, span.length, sign.width, sign.hidden, sign.values,
            scratch.stride(0), col_tiles, -plan.scale,
            out.stride(0), out.stride(1), other.stride(0), other.stride(1),
            K=slots.K, V=slots.V, RATE=rate, MEAN=plan.is_mean,
            KIND=kind, SPLIT=split, OUT_TURNED=groups["w_out"].turned,
            OTHER_TURNED=groups["w_gate"].turned if kind == "all" else False, DTYPE=TRITON_TYPES[sign.dtype],
            ROWS=tile.rows, COLS=tile.cols, PARTS=tile.parts, DEPTH=tile.depth, EVEN_T=span.is_even(split * tile.depth),
            EVEN=all(width % side == 0 for width in widths for side in (tile.rows, tile.cols * tile.parts)),
            num_warps=tile.warps, num_stages=tile.stages,
        )  # fmt: skip

    def project(
        self, table: Tensor, scratch: Tensor | None, span: Span, weights: Source, last_slot: int
    ) -> None:
        """Outputs of the span's tokens: scratch (or the queries) times the last layer, slot chunk but at most last_slot."""
        sign = self.sign
        width = sign.width if scratch is None else sign.hidden
        kernel = "project" if span.chunks > 1 else "project one chunk"
        tile = self._tile(kernel, span.length, sign.values, width)
        tiles = triton.cdiv(span.length, tile.rows) * triton.cdiv(sign.values, tile.cols) * span.chunks
        kernels.project_kernel[(min(tiles, self.programs), sign.total_z)](
            table, table if scratch is None else scratch, weights.tensor, sign.heads, sign.total_z, *sign.q,
            span.start, span.stop, span.length, span.chunks, width, sign.values, sign.tokens,
            weights.chunk_stride, last_slot,
            X=slots.Q if scratch is None else -1, OUT=slots.OUT, DTYPE=TRITON_TYPES[sign.dtype],
            ROWS=tile.rows, COLS=tile.cols, DEPTH=tile.depth, STAGES=tile.stages, EVEN_T=span.is_even(tile.rows),
            EVEN_X=width % tile.depth == 0, EVEN_V=sign.values % tile.cols == 0, num_warps=tile.warps,
        )  # fmt: skip
