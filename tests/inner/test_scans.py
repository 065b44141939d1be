"""Sums over chunks, and the layout they run over."""

from __future__ import annotations

import pytest
import torch

from analysis.inner.layout import by_chunk, by_token
from analysis.inner.scans import decayed_sums, running_sums


def test_running_sums_are_cumulative_sums_with_their_gradient():
    values = torch.randn(2, 3, 7, 4, 5, dtype=torch.float64, requires_grad=True)
    start = torch.randn(2, 3, 4, 5, dtype=torch.float64, requires_grad=True)
    right = torch.cat([start.unsqueeze(2), values], 2).cumsum(2)
    upstream = torch.randn_like(right)
    found = torch.autograd.grad(running_sums(values, start), (values, start), upstream)
    for one, other in zip(found, torch.autograd.grad(right, (values, start), upstream), strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-13)
    torch.testing.assert_close(running_sums(values, start), right, rtol=0, atol=1e-13)


@pytest.mark.parametrize("count", [1, 2, 5, 8])
@pytest.mark.parametrize("has_before", [False, True])
def test_both_ways_of_decayed_sums_are_the_recurrence(count, has_before, monkeypatch):
    values = torch.randn(2, 3, count, 4, 5, dtype=torch.float64)
    decay = torch.rand(2, 3, count, 1, 1, dtype=torch.float64)
    before = torch.randn(2, 3, 4, 5, dtype=torch.float64) if has_before else None
    in_turn = decayed_sums(decay, values, before)
    monkeypatch.setattr(torch.compiler, "is_compiling", lambda: True)
    torch.testing.assert_close(decayed_sums(decay, values, before), in_turn, rtol=0, atol=1e-12)
    last = torch.zeros_like(values[:, :, 0]) if before is None else before
    for chunk in range(count):
        last = values[:, :, chunk] + decay[:, :, chunk] * last
        torch.testing.assert_close(in_turn[:, :, chunk], last, rtol=0, atol=1e-12)


def test_whole_chunks_are_not_copied_and_a_tail_is_padded_with_zeros():
    tokens = torch.randn(2, 12, 3)
    assert by_chunk(tokens, 4).data_ptr() == tokens.data_ptr()
    padded = by_chunk(tokens, 5)
    assert padded.shape == (2, 3, 5, 3) and not padded[:, -1, 2:].any()
    assert torch.equal(by_token(padded, 12), tokens)
