"""Every preset, every rung and a grid of hand-made loops, on every backend that claims it, against autograd."""

import dataclasses
import itertools

import pytest
import torch

from analysis.errors import InputError, UnsupportedSpecError
from analysis.inner import BACKENDS, run
from analysis.inner.chunks import num_chunks
from analysis.spec import (
    GLU,
    MLP,
    PRESETS,
    ConstantMomentum,
    ConstantRate,
    DepthwiseConv3x3,
    Direction,
    DotProduct,
    Family,
    FrobeniusScaling,
    Identity,
    InnerLoop,
    Linear,
    Order,
    PerTokenMomentum,
    PerTokenRate,
    Placement,
    QuerySource,
    Reduction,
    SoftClip,
    SquaredError,
    SwiGLU,
    Tail,
    Trained,
    ladder,
    reducibility,
)
from tests.inner.cases import draw, leaves


def named_loops() -> dict[str, InnerLoop]:
    found = {
        name: spec.edit(chunk=8) if name.startswith("lact_lm") else spec for name, spec in PRESETS.items()
    }
    for family in Family:
        for key, loops in ladder(family, chunk=8).items():
            for loop, spec in loops.items():
                found[f"{family.value} {key} {loop}"] = spec
                if family is not Family.LACT_LM and loop != "conv":
                    found[f"{family.value} {key} {loop} in chunks"] = spec.edit(chunk=8)
    found["prenorm, last layer"] = PRESETS["lact_lm_prenorm"].edit(chunk=8, trained=Trained.LAST)
    found["frozen"] = PRESETS["lact_lm"].edit(chunk=8).frozen()
    found["ascent"] = PRESETS["lact_lm"].edit(chunk=8, direction=Direction.ASCENT)
    found["keys for queries"] = PRESETS["lact_lm"].edit(chunk=8, query=QuerySource.KEY)
    found["three steps"] = PRESETS["lact_lm"].edit(chunk=8, steps=3)
    found["frobenius in chunks"] = InnerLoop(chunk=8, trained=Trained.LAST, transform=FrobeniusScaling())
    conv = PRESETS["vittt_conv"].edit(steps=3, loss=SquaredError(scale=0.1))
    found["convolution, squared error, clipped"] = conv
    found["convolution, squared error"] = conv.edit(transform=Identity(), momentum=ConstantMomentum(0.5))
    found["convolution, three steps"] = PRESETS["vittt_conv"].edit(steps=3, transform=Identity())
    return found


def grid_loops() -> dict[str, InnerLoop]:
    networks = (Linear(), SwiGLU(), GLU(), MLP(3))
    momenta = (None, PerTokenMomentum(), ConstantMomentum(0.5))
    rates = (
        PerTokenRate(),
        PerTokenRate(shared=True, placement=Placement.OUTSIDE_TRANSFORM),
        ConstantRate(0.1),
    )
    losses = (DotProduct(), SquaredError(scale=0.3, reduction=Reduction.MEAN))
    found = {}
    for network, momentum, rate, loss, order in itertools.product(networks, momenta, rates, losses, Order):
        spec = InnerLoop(
            chunk=8,
            trained=Trained.LAST,
            network=network,
            momentum=momentum,
            lr=rate,
            loss=loss,
            order=order,
            steps=2 if order is Order.UPDATE_THEN_APPLY else 1,
            direction=Direction.ASCENT if momentum is None else Direction.DESCENT,
            tail=Tail.APPLY_ONLY if isinstance(rate, ConstantRate) else Tail.UPDATE,
            transform=SoftClip() if isinstance(network, MLP) else Identity(),
        )
        found[" ".join(str(part) for part in (network, momentum, rate, loss.kind, order.value))] = spec
    return found


LOOPS = named_loops() | grid_loops()


def worst_difference(spec, inputs, weights, backend):
    """Largest relative difference between a backend and autograd over outputs, state and outer gradients."""
    reference, other = (
        run(spec, inputs, weights, "reference"),
        run(spec, inputs, weights, backend, measure=True),
    )
    cotangent = torch.randn_like(reference.outputs)
    named = leaves(inputs, weights)
    pairs = [(reference.outputs, other.outputs)]
    pairs += [
        (reference.state.fast_weights[n], other.state.fast_weights[n]) for n in reference.state.fast_weights
    ]
    pairs += [(reference.state.momentum[n], other.state.momentum[n]) for n in reference.state.momentum or {}]
    slopes = [
        torch.autograd.grad((result.outputs * cotangent).sum(), list(named.values()), allow_unused=True)
        for result in (reference, other)
    ]
    for leaf, one, two in zip(named.values(), *slopes, strict=True):
        pairs.append(tuple(torch.zeros_like(leaf) if slope is None else slope for slope in (one, two)))
    return max(float((a - b).detach().norm() / (a.detach().norm() + 1e-9)) for a, b in pairs)


@pytest.mark.parametrize("name", LOOPS)
@pytest.mark.parametrize("backend", ["recurrent", "parallel"])
def test_backends_agree_with_autograd(name, backend):
    spec = LOOPS[name]
    inputs, weights = draw(spec, requires_grad=True)
    verdict = reducibility(spec, num_chunks(spec, inputs.num_tokens))
    claims = BACKENDS[backend].capability(spec, inputs).is_capable
    assert claims == (backend == "recurrent" or verdict.is_parallel)
    if not claims:
        with pytest.raises(UnsupportedSpecError, match=verdict.field):
            run(spec, inputs, weights, backend)
        return
    assert worst_difference(spec, inputs, weights, backend) < 1e-10


SIZES = [
    {"tokens": 1},
    {"tokens": 8},
    {"tokens": 9},
    {"tokens": 16},
    {"tokens": 23, "batch": 1, "heads": 1, "width": 3, "hidden": 11, "values": 2},
    {"tokens": 40, "heads": 5, "width": 6, "hidden": 3},
]


@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.parametrize(
    "name", ["lact_lm", "lact_lm v1 fast_weights", "lact_lm v2 fast_weights", "lact_lm v6 fast_weights"]
)
@pytest.mark.parametrize("backend", ["recurrent", "parallel"])
def test_awkward_sizes(name, size, backend):
    spec = LOOPS[name]
    inputs, weights = draw(spec, requires_grad=True, **size)
    if BACKENDS[backend].capability(spec, inputs).is_capable:
        assert worst_difference(spec, inputs, weights, backend) < 1e-10


@pytest.mark.parametrize("backend", ["reference", "recurrent", "parallel"])
@pytest.mark.parametrize("name", ["lact_nvs", "lact_nvs v6 fast_weights"])
def test_only_the_update_tokens_update(name, backend):
    spec = LOOPS[name]
    inputs, weights = draw(spec)
    whole = dataclasses.replace(inputs, update_tokens=20)
    updating = run(spec, inputs.tokens(0, 20), weights, "reference")
    seen = run(spec, whole, weights, backend)
    assert torch.allclose(seen.outputs[:, :, :20], updating.outputs, atol=1e-12)
    targets = dataclasses.replace(whole, v=torch.cat([inputs.v[:, :, :20], inputs.v[:, :, 20:] + 1], 2))
    assert torch.equal(run(spec, targets, weights, backend).outputs, seen.outputs)


@pytest.mark.parametrize(
    "breakage",
    [
        ("analysis.inner.recurrent.sign", lambda spec: 1.0),
        ("analysis.inner.recurrent.momentum_gate", lambda spec, inputs: 0.5),
        ("analysis.inner.recurrent.renormalise", lambda norm, weight, target: weight),
        ("analysis.inner.networks.silu_derivative", lambda x: torch.sigmoid(x)),
        ("analysis.inner.recurrent.outside_rates", lambda spec, inputs: dict.fromkeys(spec.moving, 1.01)),
    ],
    ids=lambda pair: pair[0].rsplit(".", 1)[1],
)
def test_a_broken_step_is_caught(breakage, monkeypatch):
    monkeypatch.setattr(*breakage)
    spec = LOOPS["lact_lm"]
    inputs, weights = draw(spec, requires_grad=True)
    assert worst_difference(spec, inputs, weights, "recurrent") > 1e-4


@pytest.mark.parametrize("name", ["lact_lm", "lact_lm v2 fast_weights", "keys for queries"])
def test_the_language_model_mask_is_block_shifted(name):
    spec = LOOPS[name].edit(chunk=16)
    inputs, weights = draw(spec, tokens=48)
    before = run(spec, inputs, weights).outputs
    k = inputs.k.clone()
    k[:, :, 20] += 1
    if spec.query is QuerySource.KEY:
        inputs = dataclasses.replace(inputs, q=k)
    after = run(spec, dataclasses.replace(inputs, k=k), weights).outputs
    moved = (before - after).abs().amax((0, 1, 3)) > 0
    expected = torch.arange(48) >= 32
    if spec.query is QuerySource.KEY:
        expected[20] = True
    assert torch.equal(moved, expected)


def test_auto_takes_the_parallel_form_where_there_is_one():
    inputs, weights = draw(LOOPS["lact_lm"])
    assert run(LOOPS["lact_lm"], inputs, weights).backend == "recurrent"
    inputs, weights = draw(LOOPS["lact_lm v2 fast_weights"])
    assert run(LOOPS["lact_lm v2 fast_weights"], inputs, weights).backend == "parallel"


@pytest.mark.parametrize("name", ["lact_lm v2 fast_weights", "lact_lm v6 fast_weights", "vittt_glu"])
def test_the_trace_is_the_same_on_both_backends(name):
    spec = LOOPS[name]
    inputs, weights = draw(spec)
    one, two = (
        run(spec, inputs, weights, backend, measure=True).trace for backend in ("recurrent", "parallel")
    )
    for field in ("before", "after", "update_norm"):
        assert torch.allclose(getattr(one, field), getattr(two, field), atol=1e-12)
    assert one.tokens == two.tokens
    assert torch.all(one.mean("after") < one.mean("before"))


def test_layout_mistakes_raise():
    spec = LOOPS["lact_lm"]
    inputs, weights = draw(spec)
    swapped = dataclasses.replace(
        inputs, **{name: getattr(inputs, name).transpose(1, 2) for name in ("q", "k", "v")}
    )
    with pytest.raises(InputError, match="check the order of axes"):
        run(spec, swapped, weights)
    with pytest.raises(InputError, match=r"\[in, out\]"):
        run(spec, inputs, {name: weight.transpose(2, 3) for name, weight in weights.items()})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"rates": {}}, "per-token rates"),
        ({"momentum": None}, "per-token momentum"),
        ({"update_tokens": 3}, "update_tokens needs chunk=None"),
    ],
)
def test_missing_inputs_are_named(change, message):
    spec = LOOPS["lact_lm"]
    inputs, weights = draw(spec)
    with pytest.raises(InputError, match=message):
        run(spec, dataclasses.replace(inputs, **change), weights)


def test_the_convolution_needs_its_whole_grid():
    spec = PRESETS["vittt_conv"]
    inputs, weights = draw(spec)
    assert isinstance(spec.network, DepthwiseConv3x3)
    with pytest.raises(InputError, match="grid="):
        run(spec, dataclasses.replace(inputs, grid=(2, 3)), weights)
    with pytest.raises(InputError, match="whole grid in one chunk"):
        run(spec.edit(chunk=5), inputs, weights)


def test_an_unknown_backend_names_the_nearest():
    spec = LOOPS["lact_lm"]
    inputs, weights = draw(spec)
    with pytest.raises(UnsupportedSpecError, match="did you mean 'parallel'"):
        run(spec, inputs, weights, "paralel")


def test_huge_steps_stay_finite_and_show_in_the_update_size():
    spec = LOOPS["lact_lm"].edit(step_size=1e6)
    inputs, weights = draw(spec)
    result, plain = (run(one, inputs, weights, measure=True) for one in (spec, LOOPS["lact_lm"]))
    assert torch.isfinite(result.outputs).all()
    assert (result.trace.update_norm > 1e4).all() and (plain.trace.update_norm < 1e2).all()


def test_gates_beyond_the_range_of_the_exponential_keep_finite_gradients():
    spec = InnerLoop(network=SwiGLU(), lr=ConstantRate(1e-9))
    inputs, weights = draw(spec)
    far = {**weights, "w_gate": (1e4 * weights["w_gate"]).detach().requires_grad_()}
    found = [
        torch.autograd.grad(run(spec, inputs, far, backend).outputs.sum(), far["w_gate"])[0]
        for backend in ("reference", "recurrent")
    ]
    assert torch.isfinite(found[0]).all() and (found[0] != 0).any()
    torch.testing.assert_close(*found)


def test_newton_schulz_in_bfloat16_is_near_the_full_precision():
    spec = LOOPS["lact_lm"]
    inputs, weights = draw(spec, width=8, hidden=8)
    exact = run(spec, inputs, weights).outputs
    rounded = run(spec, inputs, weights, newton_schulz_dtype=torch.bfloat16).outputs
    distance = (exact - rounded).norm() / exact.norm()
    assert 0 < distance < 0.3
