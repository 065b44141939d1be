"""A sequence fed in any pieces gives the outputs and the final state of one pass."""

import dataclasses

import pytest
import torch

from analysis.errors import InputError
from analysis.inner import run, streaming
from analysis.spec import PRESETS, Order, SquaredError, Tail, Trained
from tests.inner.cases import draw

BASE = PRESETS["lact_lm"].edit(chunk=16)
LOOPS = {
    "published": BASE,
    "updates at the end": BASE.edit(tail=Tail.UPDATE),
    "update first": BASE.edit(order=Order.UPDATE_THEN_APPLY, tail=Tail.UPDATE, steps=2),
    "prenorm": PRESETS["lact_lm_prenorm"].edit(chunk=16),
    "squared error": BASE.edit(loss=SquaredError(), trained=Trained.LAST, weight_norm=None),
    "one chunk": BASE.edit(chunk=None, tail=Tail.UPDATE, order=Order.UPDATE_THEN_APPLY),
}
SPLITS = [(40, 24), (16, 48), (63, 1), (1, 63), (16, 16, 16, 16), (1,) * 64, (7, 30, 27)]


def stream(spec, inputs, weights, split):
    state, ready, start = streaming.begin(spec, weights), [], 0
    for length in split:
        outputs, state = streaming.feed(spec, state, inputs.tokens(start, start + length))
        ready.append(outputs)
        start += length
    outputs, state = streaming.finish(spec, state)
    return torch.cat([*ready, outputs], 2), state


@pytest.mark.parametrize("split", SPLITS, ids=lambda split: f"{len(split)} pieces from {split[0]}")
@pytest.mark.parametrize("name", LOOPS)
def test_any_split_equals_one_pass(name, split):
    spec = LOOPS[name]
    inputs, weights = draw(spec, tokens=64)
    whole = run(spec, inputs, weights, "reference")
    outputs, state = stream(spec, inputs, weights, split)
    assert (outputs - whole.outputs).norm() / whole.outputs.norm() < 1e-10
    for kept in ("fast_weights", "momentum", "main"):
        for weight, expected in (getattr(whole.state, kept) or {}).items():
            assert torch.allclose(getattr(state, kept)[weight], expected, rtol=1e-10, atol=1e-10)


def test_dropping_the_momentum_between_pieces_is_caught():
    spec = LOOPS["updates at the end"]
    inputs, weights = draw(spec, tokens=64)
    whole = run(spec, inputs, weights, "reference")
    first, state = streaming.feed(spec, streaming.begin(spec, weights), inputs.tokens(0, 40))
    second, state = streaming.feed(spec, dataclasses.replace(state, momentum=None), inputs.tokens(40, 64))
    last, _ = streaming.finish(spec, state)
    assert (torch.cat([first, second, last], 2) - whole.outputs).norm() > 1e-3


def test_outputs_wait_for_their_chunk_when_the_update_comes_first():
    spec = LOOPS["update first"]
    inputs, weights = draw(spec, tokens=20)
    ready, state = streaming.feed(spec, streaming.begin(spec, weights), inputs)
    assert ready.shape[2] == 16
    assert streaming.finish(spec, state)[0].shape[2] == 4


def test_an_empty_stream_cannot_finish():
    spec = LOOPS["published"]
    _, weights = draw(spec)
    with pytest.raises(InputError, match="call feed first"):
        streaming.finish(spec, streaming.begin(spec, weights))
