"""Sums over chunks, and the layout they run over."""

from __future__ import annotations

import torch

from analysis.inner.layout import by_chunk, by_token
from analysis.inner.scans import running_sums


def test_running_sums_are_cumulative_sums_with_their_gradient():
    values = torch.randn(2, 3, 7, 4, 5, dtype=torch.float64, requires_grad=True)
    upstream = torch.randn_like(values)
    (found,) = torch.autograd.grad(running_sums(values), values, upstream)
    (expected,) = torch.autograd.grad(values.cumsum(2), values, upstream)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-13)
    torch.testing.assert_close(running_sums(values), values.cumsum(2), rtol=0, atol=1e-13)


def test_whole_chunks_are_not_copied_and_a_tail_is_padded_with_zeros():
    tokens = torch.randn(2, 12, 3)
    assert by_chunk(tokens, 4).data_ptr() == tokens.data_ptr()
    padded = by_chunk(tokens, 5)
    assert padded.shape == (2, 3, 5, 3) and not padded[:, -1, 2:].any()
    assert torch.equal(by_token(padded, 12), tokens)
