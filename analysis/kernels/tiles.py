"""Tile sizes of every kernel, chosen by shape and element size, and shrunk until they fit the device's shared memory."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace

import torch

from analysis.errors import UnsupportedSpecError

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
"""Whether Triton runs its kernels in its interpreter; Triton itself reads the variable when a kernel is defined."""

DTYPES = (torch.bfloat16, torch.float16, torch.float32)
"""Types in which operands may enter; accumulators and states are float32 throughout."""
SMALLEST = 16
SHARED_MEMORY_OF_THE_INTERPRETER = 227 * 1024


@dataclass(frozen=True)
class Tile:
    """Rows and columns of the output tile, depth of one step of the contraction, warps, and pipeline stages.

    `parts`: neighbouring column tiles that one program computes from the same row tile.
    """

    rows: int
    cols: int
    depth: int
    warps: int
    stages: int
    parts: int = 1

    def shared_bytes(self, element_size: int, left: int, right: int) -> int:
        """Bytes that the pipeline holds: `left` row tiles and `right` column tiles in every stage."""
        return self.stages * self.depth * element_size * (left * self.rows + right * self.parts * self.cols)


# Fastest of those tried on one H200 with bf16 operands and width 384 (NOTES.md); other shapes start from the same tiles.
PREFERRED: dict[str, Tile] = {
    "features": Tile(128, 64, 64, 4, 3),
    "features of all gradients": Tile(64, 64, 64, 4, 3),
    "outer": Tile(128, 128, 64, 4, 3),
    "outer of keys": Tile(128, 128, 32, 4, 4),
    "outer of rated keys": Tile(128, 128, 32, 8, 4, 3),
    "project": Tile(128, 128, 64, 4, 3),
    "project one chunk": Tile(128, 128, 64, 8, 3),
    "symmetric": Tile(128, 128, 64, 8, 3),
    "symmetric, few matrices": Tile(64, 64, 64, 4, 4),
    "iterate": Tile(128, 128, 64, 4, 3),
    "iterate, few matrices": Tile(64, 128, 64, 4, 3),
}
OPERANDS = {"features": (1, 2), "features of all gradients": (1, 2)}
"""How many row tiles and column tiles a stage holds, where it is not one of each."""


def shared_memory_limit(device: torch.device) -> int:
    """Bytes of shared memory one program may use on `device`; TTT_ANALYSIS_SHARED_MEMORY pretends a smaller limit."""
    if pretended := os.environ.get("TTT_ANALYSIS_SHARED_MEMORY"):
        return int(pretended)
    if device.type != "cuda":
        return SHARED_MEMORY_OF_THE_INTERPRETER
    return int(torch.cuda.get_device_properties(device).shared_memory_per_block_optin)


def unfitting_kernel(device: torch.device, dtype: torch.dtype) -> str | None:
    """Return the name of a kernel whose smallest tile exceeds the device's shared memory, or None."""
    least, limit = Tile(SMALLEST, SMALLEST, SMALLEST, 1, 1), shared_memory_limit(device)
    for kernel in PREFERRED:
        if least.shared_bytes(dtype.itemsize, *OPERANDS.get(kernel, (1, 1))) > limit:
            return kernel
    return None


def choose(kernel: str, rows: int, cols: int, depth: int, dtype: torch.dtype, limit: int) -> Tile:
    """Return the tile of `kernel` for a product [rows, depth] @ [depth, cols].

    Raises:
        UnsupportedSpecError: not even the smallest tile fits into `limit` bytes of shared memory.
    """
    size = dtype.itemsize
    tile = Tile(SMALLEST, SMALLEST, SMALLEST, 1, 1) if INTERPRETED else PREFERRED[kernel]
    if size == 4 and not INTERPRETED:
        tile = replace(tile, rows=min(tile.rows, 64), cols=min(tile.cols, 64), depth=32, warps=4)
    tile = replace(
        tile,
        rows=min(tile.rows, power_above(rows)),
        cols=min(tile.cols, power_above(cols)),
        depth=min(tile.depth, power_above(depth)),
    )
    if cols % (tile.cols * tile.parts) or rows % tile.rows:
        tile = replace(tile, parts=1)
    left, right = OPERANDS.get(kernel, (1, 1))
    while tile.shared_bytes(size, left, right) > limit:
        tile = _smaller(tile, kernel, limit)
    if tile.rows * tile.cols < 64 * 64 * 2:
        tile = replace(tile, warps=min(tile.warps, 4))
    return tile


def power_above(size: int) -> int:
    """Return the power of two that a tile needs to hold `size` rows or columns, no less than the smallest tile."""
    return max(SMALLEST, 1 << (size - 1).bit_length())


def _smaller(tile: Tile, kernel: str, limit: int) -> Tile:
    if tile.stages > 2:
        return replace(tile, stages=tile.stages - 1)
    if tile.parts > 1:
        return replace(tile, parts=1)
    if tile.depth > 32:
        return replace(tile, depth=tile.depth // 2)
    largest = max(tile.rows, tile.cols)
    if largest > SMALLEST:
        return replace(tile, rows=min(tile.rows, largest // 2), cols=min(tile.cols, largest // 2))
    if tile.stages > 1:
        return replace(tile, stages=1)
    raise UnsupportedSpecError(
        f"the triton backend needs more shared memory than the {limit} bytes of this device for its {kernel} kernel even with "
        f"its smallest tile; use backend='recurrent' or 'parallel'."
    )
