"""Sums over chunks, and the layout they run over."""

from __future__ import annotations

import itertools

import pytest
import torch

from analysis.inner.layout import by_chunk, by_token, evenly_spaced
from analysis.inner.scans import decayed_sums, running_sums


def drawn(*shape, requires_grad=True):
    return torch.randn(2, 3, *shape, dtype=torch.float64, requires_grad=requires_grad)


def test_running_sums_are_cumulative_sums_with_their_gradient():
    values, factor, start = given = drawn(7, 4, 5), drawn(7, 1, 1), drawn(4, 5)
    right = torch.cat([start.unsqueeze(2), values * factor], 2).cumsum(2)
    upstream = torch.randn_like(right)
    found = torch.autograd.grad(running_sums(*given), given, upstream)
    for one, other in zip(found, torch.autograd.grad(right, given, upstream), strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-13)
    torch.testing.assert_close(running_sums(*given), right, rtol=0, atol=1e-13)


@pytest.mark.parametrize("which", range(3))
def test_sums_in_place_are_those_that_autograd_records(which, monkeypatch):
    given = [drawn(7, 4, 5), drawn(7, 1, 1), drawn(4, 5)]
    given = [x if index == which else x.detach() for index, x in enumerate(given)]
    recorded = running_sums(*given)
    assert recorded.requires_grad
    with torch.no_grad():
        in_place = running_sums(*given)
        given[which] = given[which] + 1e-6
        changed = running_sums(*given)
        monkeypatch.setattr(torch.compiler, "is_compiling", lambda: True)
        torch.testing.assert_close(running_sums(*given), changed, rtol=0, atol=1e-12)
    assert torch.equal(in_place, recorded) and not torch.equal(in_place, changed)


def test_sums_have_the_wider_of_two_types():
    given = [drawn(7, 4, 5), drawn(7, 1, 1), drawn(4, 5)]
    values, factor, start = (x.detach().float() for x in given)
    with torch.no_grad():
        found = running_sums(values.bfloat16(), factor.bfloat16(), start)
    assert found.dtype == torch.float32 and torch.equal(found[:, :, 0], start)


@pytest.mark.parametrize("narrow", [*itertools.product([False, True], repeat=3)])
@pytest.mark.parametrize(
    "sums", [running_sums, lambda values, factor, start: decayed_sums(factor, values, start)]
)
def test_sums_in_place_have_the_type_that_autograd_records(sums, narrow):
    given = [drawn(7, 4, 5), drawn(7, 1, 1), drawn(4, 5)]
    given = [
        x.detach().to(torch.bfloat16 if is_narrow else torch.float32)
        for x, is_narrow in zip(given, narrow, strict=True)
    ]
    in_place = sums(*given)
    assert in_place.dtype == sums(*(x.requires_grad_() for x in given)).dtype
    assert (in_place.dtype == torch.bfloat16) == all(narrow)


def test_sums_under_transforms_of_torch_func():
    values, factor, start = (x.detach() for x in (drawn(7, 4, 5), drawn(7, 1, 1), drawn(4, 5)))
    expected = running_sums(values, factor, start)
    one_by_one = torch.func.vmap(lambda v, f, s: running_sums(v[None], f[None], s[None])[0])(
        values, factor, start
    )
    assert torch.equal(one_by_one, expected)
    primal, tangent = torch.func.jvp(lambda v: running_sums(v, factor, start), (values,), (values,))
    assert torch.equal(primal, expected)
    torch.testing.assert_close(tangent, expected - start.unsqueeze(2))


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


def test_only_chunks_that_are_unevenly_spaced_are_copied():
    side_by_side = torch.randn(2, 12, 3, 5).transpose(1, 2)
    for tokens, copies in (
        (side_by_side, True),
        (side_by_side[:1, :1], False),
        (torch.randn(2, 3, 12, 5), False),
    ):
        chunked = by_chunk(tokens, 4)
        found = evenly_spaced(chunked)
        assert torch.equal(found, chunked) and (found.data_ptr() != chunked.data_ptr()) == copies
