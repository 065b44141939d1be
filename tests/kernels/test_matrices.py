"""Newton-Schulz on many matrices goes through library products; they must be the iteration that the kernels compute."""

from __future__ import annotations

import pytest
import torch

from analysis.kernels import matrices
from analysis.kernels.forward import forget
from analysis.kernels.matrices import Group
from tests.kernels.agreement import LADDER, LIMITS, errors

ROOM = 3
"""Sixteen columns average rounding less than the hundreds of a real head do."""


@pytest.fixture
def by_library(monkeypatch):
    """Every number of matrices counts as many; the list of calls that the library answered."""
    calls = []
    iterate = Group._iterate_by_library
    monkeypatch.setattr(matrices, "MANY_TILES", 0)
    monkeypatch.setattr(
        Group, "_iterate_by_library", lambda self, *given: calls.append(given) or iterate(self, *given)
    )
    forget()
    yield calls
    forget()


@pytest.mark.parametrize("sizes", [{}, {"width": 20, "values": 9}, {"width": 9, "values": 20}])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_the_library_computes_the_iteration(by_library, dtype, sizes):
    found = errors(LADDER["v3"], dtype, is_parallel=True, **sizes)
    assert by_library and max(found.values()) < ROOM * LIMITS[dtype]


def test_another_polynomial_is_noticed(by_library, monkeypatch):
    multiply = torch.baddbmm
    monkeypatch.setattr(
        torch,
        "baddbmm",
        lambda x, a, b, beta=1, alpha=1, out=None: multiply(x, a, b, beta=0.5 * beta, alpha=alpha, out=out),
    )
    found = errors(LADDER["v3"], torch.bfloat16, is_parallel=True)
    assert by_library and max(found.values()) > 3 * ROOM * LIMITS[torch.bfloat16]


def test_float32_operands_keep_the_kernels(by_library):
    errors(LADDER["v3"], torch.float32, is_parallel=True)
    assert not by_library


def test_few_matrices_keep_the_kernels(by_library, monkeypatch):
    monkeypatch.setattr(matrices, "MANY_TILES", 264)
    errors(LADDER["v3"], torch.bfloat16, is_parallel=True)
    assert not by_library
