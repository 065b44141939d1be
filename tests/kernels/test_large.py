"""Offsets beyond 32 bits, in a file with holes instead of memory."""

import pytest
import torch

from analysis.kernels.layer import Layer
from analysis.spec import Identity
from tests.kernels.agreement import LADDER, LIMITS, errors
from tests.kernels.test_mutations import planted

PLANE = 2**30 + 64
"""Features in a plane, say 262,144 tokens of four heads of 1,025: the third plane starts beyond 32 bits."""


@pytest.fixture
def spread_layers(tmp_path, monkeypatch):
    """Layers whose planes of features lie so far apart, with room for what an offset that wraps around would reach."""
    layers, made = [], Layer.__init__

    def spread(self, *args, **options):
        made(self, *args, **options)
        planes, size = self.scratch.shape
        room = 2**31 + (planes - 1) * PLANE + size
        flat = torch.from_file(str(tmp_path / "planes"), shared=True, size=room, dtype=self.scratch.dtype)
        self.scratch = flat.as_strided((planes, size), (PLANE, 1), 2**31)
        layers.append(self)

    monkeypatch.setattr(Layer, "__init__", spread)
    return layers


def found(layers):
    """Return the largest error, and whether every plane of the layer was written."""
    worst = max(errors(LADDER["baseline"].edit(transform=Identity()), torch.bfloat16, heads=2).values())
    return worst, all(plane.any() for plane in layers[0].scratch)


def test_planes_of_features_beyond_32_bits(spread_layers):
    worst, is_written = found(spread_layers)
    assert worst < 3 * LIMITS[torch.bfloat16] and is_written


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("second = 2 * tl.cast(plane, tl.int64)", "second = 2 * plane"),
        ("(2 - problem) * tl.cast(plane, tl.int64)", "(2 - problem) * plane"),
    ],
)
def test_an_offset_of_32_bits_is_found(right, wrong, spread_layers, tmp_path, monkeypatch):
    monkeypatch.setattr("analysis.kernels.tokens.kernels", planted("token", right, wrong, tmp_path))
    worst, is_written = found(spread_layers)
    assert not is_written or not worst < 0.1
