"""Random scene parameters drawn on the CPU, so that a seed means the same scenes on every device."""

from __future__ import annotations

import numpy as np

from analysis.errors import DataError

SPLITS = ("train", "evaluation")


class Draws:
    """A table of uniform numbers [count, width], one row per scene, handed out column by column.

    Row i depends on seed, split and width alone, so a small set is a prefix of a large one; splits never share rows.
    """

    def __init__(self, count: int, width: int, split: str, seed: int):
        if split not in SPLITS:
            raise DataError(f"Expected a split among {', '.join(SPLITS)}, received {split!r}.")
        if count < 1:
            raise DataError(f"Expected at least one scene or image, received {count}.")
        self.table = np.random.default_rng([SPLITS.index(split), seed]).random((count, width))
        self._next = 0

    def uniform(self, low: float, high: float, *shape: int) -> np.ndarray:
        """Return float64 [count, *shape] in [low, high)."""
        size = int(np.prod(shape, dtype=int))
        columns = self.table[:, self._next : self._next + size]
        assert columns.shape[1] == size, "the table is narrower than what is drawn from it"
        self._next += size
        return low + (high - low) * columns.reshape(-1, *shape)

    def integers(self, options: int, *shape: int) -> np.ndarray:
        """Return int64 [count, *shape] in 0 .. options - 1."""
        return self.uniform(0, options, *shape).astype(np.int64)

    def order(self, options: int) -> np.ndarray:
        """Return a random order of 0 .. options - 1 in each row, int64 [count, options]."""
        return np.argsort(self.uniform(0, 1, options), axis=1, kind="stable")


def hsv_to_rgb(hue: np.ndarray, saturation: np.ndarray | float, value: np.ndarray | float) -> np.ndarray:
    """Return rgb [..., 3] of hue (period 1), saturation and value (0..1)."""
    hue, saturation, value = np.broadcast_arrays(hue, saturation, value)
    offsets = np.array([5.0, 3.0, 1.0])
    sector = (offsets + 6 * hue[..., None]) % 6
    drop = np.clip(np.minimum(sector, 4 - sector), 0, 1)
    return value[..., None] * (1 - saturation[..., None] * drop)
