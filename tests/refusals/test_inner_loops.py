"""Tensors and specifications that do not fit: every backend refuses them with the same sentence."""

from __future__ import annotations

import dataclasses

import pytest
import torch

from analysis.errors import InputError, SpecError, UnsupportedSpecError
from analysis.inner import run
from analysis.inner.streaming import begin, feed
from analysis.spec import (
    GLU,
    MLP,
    ConstantRate,
    DepthwiseConv3x3,
    DotProduct,
    InnerLoop,
    PerTokenRate,
    SwiGLU,
    Trained,
    WeightNorm,
    from_dict,
    reducibility,
)
from tests.inner.cases import draw

LOOP = InnerLoop(network=SwiGLU(), trained=Trained.LAST, chunk=8, lr=PerTokenRate())
BACKENDS = ("reference", "recurrent", "parallel", "effective")


def changed(name, make):
    """Return a case whose tensor `name` (an input, a rate or a fast weight) went through `make`."""
    inputs, weights = draw(LOOP)
    if name in weights:
        return inputs, {**weights, name: make(weights[name])}
    if name == "rate":
        return dataclasses.replace(inputs, rates={"w_out": make(inputs.rates["w_out"])}), weights
    return dataclasses.replace(inputs, **{name: make(getattr(inputs, name))}), weights


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(
    ("name", "make", "sentence"),
    [
        ("q", lambda t: None, "q must be a tensor, received NoneType"),
        ("k", lambda t: t.numpy(), "k must be a tensor, received ndarray"),
        ("v", lambda t: t.long(), r"v must be one of .* received torch\.int64"),
        ("v", lambda t: t > 0, r"received torch\.bool"),
        ("q", lambda t: t.to(torch.complex64), r"received torch\.complex64"),
        ("q", lambda t: t.to(torch.float8_e4m3fn), "float8"),
        ("k", lambda t: t.float(), r"type of q, torch\.float64, received torch\.float32"),
        ("k", lambda t: t.to("meta"), "device of q"),
        ("rate", lambda t: t.float(), "rates"),
        ("rate", lambda t: 0.1, "rates.* must be a tensor, received float"),
        ("w_out", lambda t: t.float(), "fast weight w_out must have the type"),
        ("w_up", lambda t: 3.0, "w_up must be a tensor"),
        ("w_up", lambda t: t[..., :-1], "w_up must have shape"),
        ("w_out", lambda t: t[:, :, :-1], "w_out must have shape"),
        ("w_up", lambda t: t[:, :, :-1], "w_up must have shape"),
        ("q", lambda t: t.transpose(1, 2), "k must have shape"),
        ("rates", lambda t: None, "rates must be of type Mapping"),
        ("update_tokens", lambda t: 1.5, "update_tokens"),
    ],
)
def test_every_backend_refuses_what_does_not_fit(backend, name, make, sentence):
    inputs, weights = changed(name, make)
    with pytest.raises(InputError, match=sentence):
        run(LOOP, inputs, weights, backend)


@pytest.mark.parametrize("sizes", [{"batch": 0}, {"heads": 0}, {"width": 0}, {"values": 0}, {"hidden": 0}])
def test_an_empty_axis_is_refused(sizes):
    torch.manual_seed(0)
    inputs, weights = draw(LOOP)
    axis = {"batch": 0, "heads": 1, "width": 3, "values": 3, "hidden": 3}[next(iter(sizes))]
    if "hidden" in sizes:
        weights = {**weights, "w_gate": weights["w_gate"][..., :0]}
    elif "values" in sizes:
        inputs = dataclasses.replace(inputs, v=inputs.v[..., :0])
    else:
        cut = {name: getattr(inputs, name).narrow(axis, 0, 0) for name in ("q", "k", "v")}
        inputs = dataclasses.replace(inputs, **cut)
    with pytest.raises(InputError):
        run(LOOP, inputs, weights)


@pytest.mark.parametrize("update_tokens", [-1, 0, 36, 1.5, "3", True])
def test_impossible_update_tokens_are_refused(update_tokens):
    inputs, weights = draw(LOOP)
    inputs = dataclasses.replace(inputs, update_tokens=update_tokens)
    with pytest.raises(InputError, match="update_tokens must lie in"):
        run(LOOP.edit(chunk=None), inputs, weights)


@pytest.mark.parametrize("grid", [None, 35, (5, 6), (-5, -7), (5.0, 7.0), (5, 7, 1)])
def test_an_impossible_grid_is_refused(grid):
    loop = InnerLoop(network=DepthwiseConv3x3())
    inputs, weights = draw(loop)
    with pytest.raises(InputError, match="grid"):
        run(loop, dataclasses.replace(inputs, grid=grid), weights)


@pytest.mark.parametrize(("network", "name"), [(GLU(), "w_linear"), (MLP(depth=3), "w_2")])
def test_layers_of_different_widths_are_refused(network, name):
    loop = InnerLoop(network=network)
    inputs, weights = draw(loop)
    with pytest.raises(InputError, match=name):
        run(loop, inputs, {**weights, name: weights[name][:, :, :-1]})


def test_things_that_are_no_loop_no_inputs_and_no_weights_are_refused():
    inputs, weights = draw(LOOP)
    for arguments in ((None, inputs, weights), (LOOP, {"q": inputs.q}, weights), (LOOP, inputs, [1])):
        with pytest.raises(InputError, match="must be of type"):
            run(*arguments)
    for backend in (None, 3):
        with pytest.raises(UnsupportedSpecError, match="backend must be"):
            run(LOOP, inputs, weights, backend)
    for dtype in ("bf16", torch.int8):
        with pytest.raises(InputError, match="newton_schulz_dtype"):
            run(LOOP, inputs, weights, newton_schulz_dtype=dtype)


def test_mixed_types_are_left_to_an_autocast():
    inputs, weights = draw(LOOP)
    inputs = dataclasses.replace(
        inputs,
        **{name: getattr(inputs, name).bfloat16() for name in ("q", "k", "v")},
        rates={name: rate.float() for name, rate in inputs.rates.items()},
    )
    weights = {name: weight.float() for name, weight in weights.items()}
    with pytest.raises(InputError, match="type of q"):
        run(LOOP, inputs, weights)
    with torch.autocast("cpu", torch.bfloat16):
        assert run(LOOP, inputs, weights).outputs.isfinite().all()


def test_a_stream_refuses_missing_weights_and_another_type():
    inputs, weights = draw(LOOP)
    with pytest.raises(InputError, match="add w_up"):
        begin(LOOP, {name: weight for name, weight in weights.items() if name != "w_up"})
    with pytest.raises(InputError, match="type of q"):
        feed(LOOP, begin(LOOP, {name: weight.float() for name, weight in weights.items()}), inputs)


@pytest.mark.parametrize(
    "field",
    [
        {"lr": ConstantRate(placement="inside_gradient")},
        {"lr": PerTokenRate(shared="yes")},
        {"loss": DotProduct(reduction="mean")},
        {"weight_norm": WeightNorm(mode="post")},
    ],
)
def test_text_in_place_of_a_choice_is_not_taken_for_another_choice(field):
    with pytest.raises(SpecError, match="must be one of"):
        LOOP.edit(**field)


def test_mappings_and_counts_of_chunks_are_checked():
    for data in (None, [1], "x"):
        with pytest.raises(SpecError, match="mapping"):
            from_dict(data)
    for count in (0, -1, 1.5, True):
        with pytest.raises(SpecError, match="num_chunks"):
            reducibility(LOOP, count)
