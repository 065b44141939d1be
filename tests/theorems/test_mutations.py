"""Faults planted on purpose in the backends: the reference shares nothing with them, so each must show."""

import dataclasses

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from analysis.errors import InputError
from analysis.inner import effective as effective_module
from analysis.inner import parallel, run, streaming
from analysis.spec import (
    ConstantMomentum,
    InnerLoop,
    Linear,
    NewtonSchulz,
    Order,
    PerTokenMomentum,
    PerTokenRate,
    SquaredError,
    SwiGLU,
    Tail,
    Trained,
    WeightNorm,
)
from analysis.theorems import Sizes, draw
from analysis.theorems.claims import relative_error

UNEVEN = Sizes(chunks=4, chunk=8, width=8, hidden=7, values=5, heads=3, batch=2, extra=3)


def worst(spec, sizes, backend, seed=0):
    problem = draw(spec.edit(chunk=sizes.chunk), sizes, seed)
    expected = problem.reference()
    found = run(problem.spec, problem.inputs, problem.weights, backend)
    pairs = [(found.outputs, expected.outputs)]
    pairs += [(found.state.fast_weights[n], expected.state.fast_weights[n]) for n in problem.spec.moving]
    return max(relative_error(one, two) for one, two in pairs)


LAST = InnerLoop(trained=Trained.LAST, lr=PerTokenRate(), momentum=PerTokenMomentum())


def test_a_cumulative_sum_over_heads_instead_of_chunks_is_caught(monkeypatch):
    assert worst(LAST, UNEVEN, "parallel") < 1e-10
    right = parallel.running_sums
    monkeypatch.setattr(parallel, "running_sums", lambda values, *rest: right(values.cumsum(1), *rest))
    assert worst(LAST, UNEVEN, "parallel") > 1e-2


def test_a_scan_that_forgets_the_decay_is_caught(monkeypatch):
    monkeypatch.setattr(parallel, "decayed_sums", lambda decay, values, before: values.cumsum(2))
    assert worst(LAST, UNEVEN, "parallel") > 1e-2


def test_a_wrong_sign_in_the_effective_values_is_caught(monkeypatch):
    assert worst(LAST, UNEVEN, "effective") < 1e-10
    monkeypatch.setattr(effective_module, "sign", lambda spec: 1.0)
    assert worst(LAST, UNEVEN, "effective") > 1e-2


@pytest.mark.parametrize("backend", ["reference", "recurrent", "parallel", "effective"])
def test_tokens_and_heads_swapped_raise(backend):
    problem = draw(LAST.edit(chunk=8), UNEVEN, 0)
    x = problem.inputs
    swapped = dataclasses.replace(x, **{name: getattr(x, name).transpose(1, 2) for name in ("q", "k", "v")})
    with pytest.raises(InputError, match=r"\[batch|must have shape|must be"):
        run(problem.spec, swapped, problem.weights, backend)
    with pytest.raises(InputError, match="must have shape"):
        run(problem.spec, dataclasses.replace(x, k=x.k.transpose(1, 2)), problem.weights, backend)


STREAMS = {
    "lact": InnerLoop(
        network=SwiGLU(),
        chunk=16,
        lr=PerTokenRate(),
        momentum=PerTokenMomentum(),
        transform=NewtonSchulz(),
        weight_norm=WeightNorm(),
        order=Order.APPLY_THEN_UPDATE,
        tail=Tail.APPLY_ONLY,
    ),
    "update first": LAST.edit(chunk=16, steps=2),
    "delta rule in chunks": InnerLoop(
        network=Linear(),
        chunk=16,
        loss=SquaredError(scale=0.1),
        lr=PerTokenRate(),
        momentum=ConstantMomentum(0.5),
    ),
}
WHOLE = Sizes(chunks=4, chunk=16, width=5, hidden=7, values=3, heads=2, batch=2)


def streamed(spec, problem, cuts):
    state, outputs = streaming.begin(spec, problem.weights), []
    for first, stop in zip([0, *cuts], [*cuts, problem.inputs.num_tokens], strict=True):
        ready, state = streaming.feed(spec, state, problem.inputs.tokens(first, stop))
        outputs.append(ready)
    ready, state = streaming.finish(spec, state)
    return torch.cat([*outputs, ready], 2), state


def hand_over_error(spec, cuts, seed=0):
    problem = draw(spec, WHOLE, seed)
    expected = problem.reference()
    outputs, state = streamed(spec, problem, cuts)
    pairs = [(outputs, expected.outputs)]
    pairs += [(state.fast_weights[n], expected.state.fast_weights[n]) for n in spec.moving]
    pairs += [(state.momentum[n], expected.state.momentum[n]) for n in expected.state.momentum or {}]
    return max(relative_error(one, two) for one, two in pairs)


@pytest.mark.parametrize("name", STREAMS)
@pytest.mark.parametrize("cuts", [(40,), (16,), (63,), (1,)], ids=["40+24", "16+48", "63+1", "1+63"])
def test_the_state_is_handed_over_at_any_split(name, cuts):
    assert hand_over_error(STREAMS[name], cuts) < 1e-10


@pytest.mark.parametrize("name", STREAMS)
@settings(max_examples=5, deadline=None, derandomize=True)
@given(cuts=st.lists(st.integers(1, 63), min_size=1, max_size=4, unique=True).map(sorted))
def test_the_state_is_handed_over_at_many_splits(name, cuts):
    assert hand_over_error(STREAMS[name], cuts) < 1e-10


def test_a_momentum_lost_at_the_hand_over_is_caught(monkeypatch):
    original = streaming.feed

    def forgetful(spec, state, piece):
        ready, after = original(spec, state, piece)
        lost = {name: torch.zeros_like(kept) for name, kept in (after.momentum or {}).items()}
        return ready, dataclasses.replace(after, momentum=lost or None)

    monkeypatch.setattr(streaming, "feed", forgetful)
    assert hand_over_error(STREAMS["lact"], (20, 40)) > 1e-3
