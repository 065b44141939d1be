"""Reordering by chunk, eight bytes at a time where places allow it: bit for bit what one number at a time gives."""

import pytest
import torch

from analysis.kernels import adjoint
from tests.kernels.agreement import LADDER, all_errors

SEQUENCES, CHUNKS, LENGTH = 2, 3, 5
TOKENS = CHUNKS * LENGTH


def layouts(width, dtype):
    """Yield [sequences, tokens, width] in several places of memory, with whether copies may be wide."""
    plain = torch.randn(SEQUENCES, TOKENS, width).to(dtype)
    per_wide = 8 // dtype.itemsize
    yield plain, width % per_wide == 0
    yield plain.transpose(0, 1).contiguous().transpose(0, 1), width % per_wide == 0
    flat = torch.randn(plain.numel() + 1).to(dtype)
    yield flat[1:].view_as(plain), per_wide == 1
    padded = torch.randn(SEQUENCES, TOKENS, width + 1).to(dtype)[..., :width]
    yield padded, width % per_wide == 0 and (width + 1) % per_wide == 0
    yield torch.randn(SEQUENCES, width, TOKENS).to(dtype).mT, False


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
@pytest.mark.parametrize("width", [4, 8, 33])
def test_reordering_by_chunk_and_back(width, dtype):
    for x, is_wide in layouts(width, dtype):
        assert (adjoint.wide(x).dtype == torch.int64) == is_wide
        right = x.unflatten(1, (CHUNKS, LENGTH)).transpose(0, 1).flatten(0, 1)
        found = adjoint.by_chunk(x, SEQUENCES, CHUNKS)
        assert found.dtype == dtype and torch.equal(found, right)
        into = torch.full_like(x, float("nan"))
        adjoint.place(found, into, adds=False)
        assert torch.equal(into, x)
        adjoint.place(found, into, adds=True)
        assert torch.equal(into, x + x)


def test_a_copy_into_another_type_rounds():
    x = torch.randn(SEQUENCES, TOKENS, 8)
    into = torch.empty_like(x, dtype=torch.bfloat16)
    adjoint.place(adjoint.by_chunk(x, SEQUENCES, CHUNKS), into, adds=False)
    assert torch.equal(into, x.bfloat16())


def test_a_wide_view_of_the_wrong_place_is_found(monkeypatch):
    monkeypatch.setattr(adjoint, "wide", lambda x: x.view(torch.int64).flip(-1))
    x = torch.randn(SEQUENCES, TOKENS, 8)
    assert not torch.equal(
        adjoint.by_chunk(x, SEQUENCES, CHUNKS),
        x.view(SEQUENCES, CHUNKS, LENGTH, 8).transpose(0, 1).flatten(0, 1),
    )


@pytest.mark.parametrize("key", ["v2", "v6"])
@pytest.mark.parametrize("sizes", [(3, 33, 1), (33, 3, 40)])
def test_gradients_at_widths_that_no_wide_copy_fits(key, sizes):
    width, hidden, values = sizes
    found = all_errors(
        LADDER[key], torch.float32, is_parallel=True, heads=2, width=width, hidden=hidden, values=values
    )
    assert max(found[0].values()) < 1e-4 and max(found[1].values()) < 2e-3
