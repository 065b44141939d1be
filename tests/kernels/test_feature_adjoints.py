"""The adjoints of hidden features against autograd, and with one fault planted at a time."""

import pytest
import torch

from analysis.kernels import feature_adjoints
from tests.kernels.agreement import error
from tests.kernels.test_mutations import planted

SHAPES = [(1, 2, 5, 12), (2, 1, 9, 33)]
RATES = ("w_out", "w_up", "w_gate")


def draw(shape, *, rates=RATES):
    generator = torch.Generator().manual_seed(3)
    normal = lambda *size: torch.randn(*size, generator=generator, dtype=torch.float64)  # noqa: E731
    return [normal(*shape) for _ in range(6)], {name: normal(*shape[:-1], 1) for name in rates}


def exact_read(a, b, d_h):
    a, b = a.requires_grad_(), b.requires_grad_()
    h = torch.nn.functional.silu(a) * b
    return [h.detach(), *torch.autograd.grad(h, (a, b), d_h)]


def exact_learn(tensors, rates, moves_all):
    a, b, d_h, r, d_u, d_g = (x.clone().requires_grad_() for x in tensors)
    rate = {name: x.clone().requires_grad_() for name, x in rates.items()}
    sigmoid = torch.sigmoid(a)
    slope = sigmoid * (1 + a * (1 - sigmoid))
    h = rate["w_out"] * a * sigmoid * b
    total, leaves = (h * d_h.detach()).sum(), [a, b, rate["w_out"]]
    up, gate = rate.get("w_up", 0) * r * a * sigmoid, rate.get("w_gate", 0) * r * b * slope
    if moves_all:
        total = total + (up * d_u.detach()).sum() + (gate * d_g.detach()).sum()
        leaves += [rate["w_up"], rate["w_gate"], r]
    return [h, up, gate], torch.autograd.grad(total, leaves)


def errors(shape, moves_all):
    tensors, rates = draw(shape, rates=RATES if moves_all else RATES[:1])
    forward, back = exact_learn(tensors, rates, moves_all)
    a, b, d_h, *others = (x.float() for x in tensors)
    single = {name: rate.float() for name, rate in rates.items()}
    found = feature_adjoints.learn(a, b, d_h, single, torch.float32, tuple(others) if moves_all else None)
    pairs = [
        (found.h, forward[0]),
        (found.d_a, back[0]),
        (found.d_b, back[1]),
        (found.d_rates["w_out"], back[2]),
    ]
    if moves_all:
        pairs += [(found.up, forward[1]), (found.gate, forward[2]), (found.d_rates["w_up"], back[3])]
        pairs += [(found.d_rates["w_gate"], back[4]), (found.d_r, back[5])]
    return [error(measured, exact.detach()) for measured, exact in pairs]


@pytest.mark.parametrize("shape", SHAPES)
def test_read_outs(shape):
    (a, b, d_h, *_), _ = draw(shape)
    found = feature_adjoints.read(a.float(), b.float(), d_h.float(), torch.float32)
    assert max(error(x, y) for x, y in zip(found, exact_read(a, b, d_h), strict=True)) < 1e-6


@pytest.mark.parametrize("moves_all", [False, True])
@pytest.mark.parametrize("shape", SHAPES)
def test_gradients_of_a_chunk(shape, moves_all):
    assert max(errors(shape, moves_all)) < 1e-5


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("(2.0 + x *", "(1.0 + x *"),
        ("tl.sum(back * plain, 1)", "tl.sum(back, 1)"),
        ("to_a, to_b = back * y * slope, back * swish", "to_a, to_b = back * y, back * swish"),
        ("to_up * swish + to_gate * y * slope", "to_up * swish"),
        ("to_b += turned * to_gate * slope", "to_b += turned * to_gate"),
        ("factor_gate * turned * y * slope", "factor_up * turned * y * slope"),
    ],
)
def test_a_planted_fault_is_found(right, wrong, tmp_path, monkeypatch):
    monkeypatch.setattr(feature_adjoints, "kernels", planted("feature_adjoint", right, wrong, tmp_path))
    assert max(errors(SHAPES[0], True)) > 1e-2
