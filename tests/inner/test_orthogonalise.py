"""The Newton-Schulz iteration: its written-out backward against autograd, and gradients orthogonalised together."""

from __future__ import annotations

import pytest
import torch

from analysis.inner import orthogonalise
from analysis.inner.orthogonalise import newton_schulz, newton_schulz_together
from analysis.spec import NewtonSchulz, Schedule

SHAPES = [(2, 3, 4, 6), (2, 3, 6, 4), (5, 5)]


def plainly(transform, gradient):
    x = gradient / (gradient.norm(dim=(-2, -1), keepdim=True) + transform.eps)
    if x.shape[-2] > x.shape[-1]:
        return plainly(transform, gradient.mT).mT
    for a, b, c in transform.schedule.coefficients:
        gram = x @ x.mT
        x = a * x + (b * gram + c * gram @ gram) @ x
    return x


@pytest.mark.parametrize("schedule", list(Schedule))
@pytest.mark.parametrize("shape", SHAPES)
def test_value_and_gradient_are_those_of_the_plain_iteration(shape, schedule):
    generator = torch.Generator().manual_seed(0)
    transform = NewtonSchulz(schedule)
    gradient, upstream = (torch.randn(shape, generator=generator, dtype=torch.float64) for _ in range(2))
    gradient.requires_grad_()
    results = [newton_schulz(transform, gradient), plainly(transform, gradient)]
    slopes = [torch.autograd.grad(result, gradient, upstream)[0] for result in results]
    torch.testing.assert_close(results[0], results[1], rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(slopes[0], slopes[1], rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("shape", [(5, 4, 6), (5, 6, 4), (5, 4, 4)])
@pytest.mark.parametrize("held", [1, 2, 5, 9])
def test_few_matrices_at_a_time_are_those_that_autograd_records(shape, held, monkeypatch):
    monkeypatch.setattr(torch, "get_num_threads", lambda: 1)
    monkeypatch.setattr(orthogonalise, "IN_CACHE", 24 * held)
    gradient = torch.randn(shape, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    recorded = newton_schulz(NewtonSchulz(), gradient.clone().requires_grad_()).detach()
    torch.testing.assert_close(newton_schulz(NewtonSchulz(), gradient), recorded, rtol=1e-12, atol=1e-12)
    other = newton_schulz(NewtonSchulz(), gradient.flip(0))
    assert (other - recorded).norm() / recorded.norm() > 1e-2


def test_no_matrices_stay_none():
    assert newton_schulz(NewtonSchulz(), torch.zeros(0, 4, 6)).shape == (0, 4, 6)


def test_together_is_one_by_one_for_wide_tall_and_odd_shapes():
    generator = torch.Generator().manual_seed(1)
    shapes = {"w_gate": (2, 2, 4, 6), "w_up": (2, 2, 4, 6), "w_out": (2, 2, 6, 4), "w_other": (2, 2, 5, 5)}
    gradients = {
        name: torch.randn(shape, generator=generator, dtype=torch.float64) for name, shape in shapes.items()
    }
    together = newton_schulz_together(NewtonSchulz(), gradients)
    assert list(together) == list(shapes)
    for name, gradient in gradients.items():
        torch.testing.assert_close(
            together[name], newton_schulz(NewtonSchulz(), gradient), rtol=1e-12, atol=1e-12
        )


def test_precision_follows_the_request_or_autocast_and_the_result_keeps_the_gradients_type():
    gradient = torch.randn(3, 8, 8, generator=torch.Generator().manual_seed(2))
    exact = newton_schulz(NewtonSchulz(), gradient)
    asked = newton_schulz(NewtonSchulz(), gradient, torch.bfloat16)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        cast = newton_schulz(NewtonSchulz(), gradient)
    for rounded in (asked, cast):
        assert rounded.dtype == gradient.dtype
        assert 1e-5 < float((rounded - exact).norm() / exact.norm()) < 0.1
