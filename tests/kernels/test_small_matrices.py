"""Newton-Schulz of small matrices in one launch, against the products written out, with its gradient."""

import sys

import pytest
import torch

from analysis.inner.orthogonalise import _Iterations
from analysis.kernels import small_matrices
from analysis.spec import Schedule
from tests.kernels.agreement import LIMITS, error
from tests.kernels.test_mutations import planted

COEFFICIENTS = Schedule.LACT_LM.coefficients
NARROW = list(small_matrices.DTYPES)
SHAPES = [(3, 16, 16), (2, 9, 21), (1, 33, 64), (0, 16, 16)]


def both(shape, dtype, device, iterate=small_matrices.iterate):
    draw = torch.Generator().manual_seed(7)
    matrix = torch.randn(shape, generator=draw, dtype=torch.float64)
    matrix = (matrix / matrix.norm(dim=(-2, -1), keepdim=True).clamp_min(1e-9)).to(dtype)
    weight = torch.randn(shape, generator=draw, dtype=torch.float64).to(dtype)
    found = []
    for kind, run in ((dtype, iterate), (torch.float64, _Iterations.apply)):
        x = matrix.to(device, kind).requires_grad_()
        y = run(x, COEFFICIENTS)
        (gradient,) = torch.autograd.grad(y, x, weight.to(device, kind))
        found.append((y.detach(), gradient))
    return [error(measured, exact) for measured, exact in zip(*found, strict=True)]


@pytest.mark.parametrize("dtype", NARROW)
@pytest.mark.parametrize("shape", SHAPES)
def test_values_and_gradients(shape, dtype):
    value, gradient = both(shape, dtype, "cpu")
    assert value < 3 * LIMITS[dtype] and gradient < 5 * LIMITS[dtype]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("a * x.to(tl.float32)", "x.to(tl.float32)"),
        ("half + tl.trans(half)", "half + half"),
        ("a * dy.to(tl.float32)", "dy.to(tl.float32)"),
        ("all_matrices + first\n        x =", "0 + first\n        x ="),
    ],
)
def test_a_planted_fault_is_caught(old, new, tmp_path, monkeypatch):
    module = planted("small_matrix", old, new, tmp_path)
    monkeypatch.setitem(sys.modules, "analysis.kernels.small_matrix_kernels", module)
    assert max(both((2, 9, 21), torch.float16, "cpu")) > 0.1


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", NARROW)
@pytest.mark.parametrize("shape", [(384, 64, 64), (37, 64, 128), (5, 48, 100), (3, 20, 20)])
def test_on_the_gpu(shape, dtype):
    value, gradient = both(shape, dtype, "cuda")
    assert value < 3 * LIMITS[dtype] and gradient < 5 * LIMITS[dtype]


@pytest.mark.gpu
def test_compiled_and_captured():
    x = torch.nn.functional.normalize(torch.randn(8, 64, 64, device="cuda").flatten(1)).view(8, 64, 64).half()
    expected = small_matrices.iterate(x, COEFFICIENTS)
    compiled = torch.compile(lambda y: small_matrices.iterate(2 * y / 2, COEFFICIENTS))
    assert torch.allclose(compiled(x), expected, atol=1e-2)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = small_matrices.iterate(x, COEFFICIENTS)
    graph.replay()
    assert torch.equal(captured, expected)


def test_what_does_not_fit():
    assert not small_matrices.fits(torch.zeros(1, 65, 65))
    assert not small_matrices.fits(torch.zeros(1, 8, 8, dtype=torch.float64))
