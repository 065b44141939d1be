"""The adjoints of hidden features against autograd, and with one fault planted at a time."""

import pytest
import torch

from analysis.kernels import feature_adjoints
from tests.kernels.agreement import error
from tests.kernels.test_mutations import planted

SHAPES = [(2, 6, 12), (2, 9, 33)]
"""Sequences, tokens, features."""
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


def by_chunk(x, chunks):
    """[sequences, chunks * tokens, width] with the chunks outermost, [chunks * sequences, tokens, width]."""
    return x.unflatten(1, (chunks, -1)).transpose(0, 1).flatten(0, 1).contiguous()


def errors(shape, moves_all, *, chunks=1, adds=False, rated=True):
    """Errors of features, their derivatives and those by rates; the tokens of a shape come in `chunks` chunks."""
    tensors, rates = draw(shape, rates=RATES if moves_all else RATES[:1])
    scale, before = 0.5, 3.0 if adds else 0.0
    if not rated:
        rates = {name: torch.ones_like(rate) for name, rate in rates.items()}
    forward, back = exact_learn(tensors, {name: scale * rate for name, rate in rates.items()}, moves_all)
    a, b, d_h, r, d_u, d_g = (x.float() for x in tensors)
    # rates of a sequence lie in a longer one, as those of a piece do
    values = {name: torch.cat([rate, rate], 1)[..., 0].float() for name, rate in rates.items()}
    found = {name: torch.full_like(rate, before) for name, rate in values.items()}
    views = (
        [{name: x[:, : shape[1]] for name, x in each.items()} for each in (values, found)] if rated else []
    )
    from_k = torch.cat([a, b, d_u, d_g] if moves_all else [a, b], -1)
    from_v = by_chunk(torch.cat([d_h, r], -1) if moves_all else d_h, chunks)
    given = feature_adjoints.Rates(scale, *views, adds=adds)
    right, left = feature_adjoints.learn(from_k, from_v, shape[-1], given, torch.float32)
    d_a, d_b, *sides = right.split(shape[-1], -1)
    h, *d_r = left.split(shape[-1], -1)
    pairs = [(h, by_chunk(forward[0], chunks)), (d_a, back[0]), (d_b, back[1])]
    pairs += [(side, exact) for side, exact in zip(sides, forward[1:], strict=False)]
    pairs += [(each, by_chunk(back[5], chunks)) for each in d_r]
    for name, exact in zip(rates if rated else (), back[2:5], strict=False):
        pairs.append((found[name][:, : shape[1]], scale * exact[..., 0] + before))
        pairs.append((found[name][:, shape[1] :], torch.full_like(exact[..., 0], before)))
    return [error(measured, exact.detach()) for measured, exact in pairs]


@pytest.mark.parametrize("chunks", [1, 3])
@pytest.mark.parametrize("shape", SHAPES)
def test_read_outs(shape, chunks):
    (a, b, d_h, *_), _ = draw(shape)
    from_x = torch.cat([a, b], -1).float()
    h, d_from_x = feature_adjoints.read(from_x, by_chunk(d_h, chunks).float(), torch.float32)
    exact_h, d_a, d_b = exact_read(a, b, d_h)
    assert error(h, by_chunk(exact_h, chunks)) < 1e-6
    assert error(d_from_x, torch.cat([d_a, d_b], -1)) < 1e-6
    assert chunks == 1 or error(h, exact_h.view_as(h)) > 1e-2


@pytest.mark.parametrize("moves_all", [False, True])
@pytest.mark.parametrize("shape", SHAPES)
def test_gradients_of_a_chunk(shape, moves_all):
    assert max(errors(shape, moves_all)) < 1e-5


@pytest.mark.parametrize("options", [{"chunks": 3}, {"adds": True}, {"rated": False}])
def test_chunks_at_once_added_derivatives_and_no_rates(options):
    assert max(errors(SHAPES[1], False, **options)) < 1e-5


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("(2.0 + x *", "(1.0 + x *"),
        ("scale * tl.sum(back * plain, 1)", "tl.sum(back * plain, 1)"),
        ("to_a, to_b = back * y * slope, back * swish", "to_a, to_b = back * y, back * swish"),
        ("to_up * swish + to_gate * y * slope", "to_up * swish"),
        ("to_b += turned * to_gate * slope", "to_b += turned * to_gate"),
        ("factor_gate * turned * y * slope", "factor_up * turned * y * slope"),
        ("sequence.to(tl.int64) * rate_step", "sequence.to(tl.int64) * tokens"),
        ("token // length * (total // tokens) + sequence", "sequence * (tokens // length) + token // length"),
        ("value += tl.load", "value += 0 * tl.load"),
    ],
)
def test_a_planted_fault_is_found(right, wrong, tmp_path, monkeypatch):
    monkeypatch.setattr(feature_adjoints, "kernels", planted("feature_adjoint", right, wrong, tmp_path))
    assert max(errors(SHAPES[0], True, chunks=3, adds=True)) > 1e-2
