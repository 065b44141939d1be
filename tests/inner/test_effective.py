"""The linear-attention view of every kind of loop against autograd, its maps, masks and the paper's variant."""

import dataclasses

import pytest
import torch

from analysis.errors import InputError, UnsupportedSpecError
from analysis.inner import run
from analysis.inner.attention_map import (
    attention_map,
    coefficients,
    evaluate_inside_momentum,
    mask_text,
    momentum_weights,
    visible,
)
from analysis.inner.effective import effective, evaluate, states
from analysis.spec import (
    GLU,
    MLP,
    PRESETS,
    ConstantMomentum,
    ConstantRate,
    DotProduct,
    FrobeniusScaling,
    Identity,
    InnerLoop,
    Linear,
    NewtonSchulz,
    NormMode,
    Order,
    PerTokenMomentum,
    PerTokenRate,
    Placement,
    SoftClip,
    SquaredError,
    SwiGLU,
    Tail,
    Trained,
    WeightNorm,
)
from tests.inner.cases import draw, leaves

LOOPS = {
    name: spec.edit(chunk=8) if name.startswith("lact_lm") else spec for name, spec in PRESETS.items()
} | {
    "linear, momentum, outside rates": InnerLoop(
        network=Linear(),
        chunk=8,
        momentum=PerTokenMomentum(),
        lr=PerTokenRate(shared=True, placement=Placement.OUTSIDE_TRANSFORM),
    ),
    "mlp, squared error, three steps": InnerLoop(
        network=MLP(3), chunk=8, loss=SquaredError(scale=0.01), steps=3, momentum=ConstantMomentum(0.5)
    ),
    "glu in chunks, clipped, momentum": InnerLoop(
        network=GLU(), chunk=8, transform=SoftClip(), momentum=PerTokenMomentum(), lr=PerTokenRate()
    ),
    "post-norm, two steps, last chunk idle": InnerLoop(
        chunk=8,
        steps=2,
        momentum=PerTokenMomentum(),
        lr=PerTokenRate(),
        transform=NewtonSchulz(),
        weight_norm=WeightNorm(NormMode.POST),
        order=Order.APPLY_THEN_UPDATE,
        tail=Tail.APPLY_ONLY,
    ),
    "pre-norm, last layer": InnerLoop(
        chunk=8, trained=Trained.LAST, lr=PerTokenRate(), weight_norm=WeightNorm(NormMode.PRE), step_size=0.5
    ),
    "convolution, three clipped steps": PRESETS["vittt_conv"].edit(
        steps=3, loss=SquaredError(scale=0.1), momentum=ConstantMomentum(0.5)
    ),
    "convolution, orthogonalised": PRESETS["vittt_conv"].edit(transform=NewtonSchulz()),
    "frozen": PRESETS["lact_lm"].edit(chunk=8).frozen(),
}


def relative(found, expected):
    return float((found - expected).detach().norm() / (expected.detach().norm() + 1e-300))


@pytest.mark.parametrize("name", LOOPS)
def test_the_view_evaluates_to_what_autograd_gives(name):
    inputs, weights = draw(LOOPS[name], requires_grad=True, tokens=35)
    reference = run(LOOPS[name], inputs, weights, "reference")
    found = run(LOOPS[name], inputs, weights, "effective")
    assert relative(found.outputs, reference.outputs) < 1e-10
    for weight, expected in reference.state.fast_weights.items():
        assert relative(found.state.fast_weights[weight], expected) < 1e-10
    probe, named = torch.randn_like(reference.outputs), leaves(inputs, weights)
    for one, two in zip(
        *(
            torch.autograd.grad((result.outputs * probe).sum(), list(named.values()), allow_unused=True)
            for result in (reference, found)
        ),
        strict=True,
    ):
        if one is not None and two is not None:
            assert torch.allclose(one, two, rtol=1e-8, atol=1e-9)


@pytest.mark.parametrize("name", LOOPS)
def test_the_view_alone_decides_the_outputs(name):
    inputs, weights = draw(LOOPS[name])
    view = effective(LOOPS[name], inputs, weights)
    if view.steps:
        broken = dataclasses.replace(view, v_eff=view.v_eff * 1.001)
        assert relative(evaluate(broken), evaluate(view)) > 1e-6
    assert relative(evaluate(dataclasses.replace(view, s_0=view.s_0 * 1.001)), evaluate(view)) > 1e-6


def test_input_views_update_and_all_tokens_read():
    spec = PRESETS["lact_nvs"]
    inputs, weights = draw(spec)
    inputs = dataclasses.replace(inputs, update_tokens=20)
    view = effective(spec, inputs, weights)
    assert relative(evaluate(view), run(spec, inputs, weights, "reference").outputs) < 1e-10
    assert visible(view)[:, :20].all() and not visible(view)[:, 20:].any()
    assert "first 20 tokens" in mask_text(spec, inputs)


@pytest.mark.parametrize(
    ("order", "sees_itself", "words"),
    [(Order.UPDATE_THEN_APPLY, True, "block-causal"), (Order.APPLY_THEN_UPDATE, False, "block-shifted")],
)
def test_the_mask_is_the_one_that_the_outputs_obey(order, sees_itself, words):
    spec = InnerLoop(network=Linear(), chunk=16, order=order)
    inputs, weights = draw(spec, tokens=48)
    moved_k = inputs.k.clone()
    moved_k[:, :, 20] += 1
    moved = run(spec, dataclasses.replace(inputs, k=moved_k), weights).outputs
    changed = (moved != run(spec, inputs, weights).outputs).any(-1).flatten(0, 1).any(0)
    assert torch.equal(changed, visible(effective(spec, inputs, weights))[:, 20])
    assert bool(changed[16:32].all()) is sees_itself and changed[32:].all() and not changed[:16].any()
    assert words in mask_text(spec, inputs)


@pytest.mark.parametrize(
    "spec",
    [
        InnerLoop(network=SwiGLU(), chunk=8, momentum=PerTokenMomentum(), lr=PerTokenRate()),
        InnerLoop(
            network=GLU(),
            chunk=8,
            order=Order.APPLY_THEN_UPDATE,
            loss=SquaredError(scale=0.01),
            momentum=ConstantMomentum(0.5),
        ),
        InnerLoop(network=MLP(2), chunk=8, transform=FrobeniusScaling()),
    ],
)
def test_the_map_times_the_values_is_the_output(spec):
    inputs, weights = draw(spec)
    view = effective(spec, inputs, weights)
    shared, heads = spec.edit(), range(3)
    outputs = torch.stack([attention_map(view, head) @ view.v_eff[:, head] for head in heads], 1)
    outputs = outputs + view.q_eff @ view.s_0
    if view.output_gate is not None:
        outputs = outputs * view.output_gate
    assert relative(outputs, run(shared, inputs, weights, "reference").outputs) < 1e-10
    assert (attention_map(view, 1)[:, ~visible(view)] == 0).all()


def test_the_map_of_a_channel_is_exact_under_clipping_and_norm():
    spec = InnerLoop(
        chunk=8, transform=SoftClip(), momentum=ConstantMomentum(0.5), weight_norm=WeightNorm(NormMode.POST)
    )
    inputs, weights = draw(spec)
    view = effective(spec, inputs, weights)
    _, start = coefficients(view)
    seen = torch.tensor([count for span, count in view.reads for _ in range(span[1] - span[0])])
    for channel in range(view.v_eff.shape[-1]):
        weighted = attention_map(view, 2, channel) @ view.v_eff[:, 2, :, channel, None]
        first = (view.q_eff[:, 2] @ view.s_0[:, 2, :, channel, None]) * start[:, 2, seen, channel, None]
        assert relative((weighted + first)[..., 0], evaluate(view)[:, 2, :, channel]) < 1e-10


def test_the_map_of_the_convolution_is_exact_per_channel():
    spec = PRESETS["vittt_conv"]
    inputs, weights = draw(spec)
    view = effective(spec, inputs, weights)
    for channel in range(view.v_eff.shape[-1]):
        weighted = attention_map(view, 0, channel) @ view.v_eff[:, 0, :, channel, None]
        first = view.q_eff[:, 0, :, channel] @ view.s_0[:, 0, :, channel, None]
        assert relative((weighted + first)[..., 0], evaluate(view)[:, 0, :, channel]) < 1e-10


def test_momentum_weights_are_the_mask_of_appendix_h():
    spec = InnerLoop(
        network=Linear(),
        chunk=8,
        momentum=PerTokenMomentum(),
        lr=PerTokenRate(shared=True, placement=Placement.OUTSIDE_TRANSFORM),
    )
    inputs, weights = draw(spec)
    mask = momentum_weights(effective(spec, inputs, weights))[0, 0]
    pieces = [slice(start, start + 8) for start in range(0, 35, 8)]
    alpha = [float(inputs.momentum[0, 0, piece].mean()) for piece in pieces]
    eta = [float(inputs.rates["shared"][0, 0, piece].mean()) for piece in pieces]
    for t in range(5):
        for i in range(5):
            expected = 0.0
            for j in range(i, t + 1):
                product = eta[j]
                for s in range(i + 1, j + 1):
                    product *= alpha[s]
                expected += product
            assert float(mask[t + 1, i]) == pytest.approx(expected, abs=1e-13)


def test_the_transform_inside_the_momentum_sum_is_exact_only_without_momentum():
    spec = InnerLoop(chunk=8, trained=Trained.LAST, lr=PerTokenRate(), transform=NewtonSchulz())
    for momentum, low, high in ((None, 0.0, 1e-10), (ConstantMomentum(0.9), 0.05, 10.0)):
        run_spec = spec.edit(momentum=momentum)
        inputs, weights = draw(run_spec)
        view = effective(run_spec, inputs, weights)
        assert low <= relative(evaluate_inside_momentum(view), evaluate(view)) <= high


def test_single_precision_is_good_to_1e_5():
    for name in ("lact_nvs", "lact_lm", "vittt_glu", "vittt_conv"):
        inputs, weights = draw(LOOPS[name])
        single = dataclasses.replace(
            inputs,
            q=inputs.q.float(),
            k=inputs.k.float(),
            v=inputs.v.float(),
            rates={key: rate.float() for key, rate in inputs.rates.items()},
            momentum=None if inputs.momentum is None else inputs.momentum.float(),
        )
        single_weights = {key: weight.float() for key, weight in weights.items()}
        found = run(LOOPS[name], single, single_weights, "effective").outputs
        assert relative(found, run(LOOPS[name], single, single_weights, "recurrent").outputs) < 1e-5, name


def test_refusals_name_the_field():
    inputs, weights = draw(LOOPS["lact_lm"])
    view = effective(LOOPS["lact_lm"], inputs, weights)
    with pytest.raises(UnsupportedSpecError, match="weight_norm"):
        evaluate_inside_momentum(view)
    with pytest.raises(UnsupportedSpecError, match="newton_schulz_dtype"):
        run(LOOPS["lact_lm"], inputs, weights, "effective", newton_schulz_dtype=torch.bfloat16)
    with pytest.raises(InputError, match=r"head must lie in 0\.\.2"):
        attention_map(view, 3)


def test_a_state_per_inner_step():
    spec = InnerLoop(network=Linear(), chunk=8, steps=2, loss=DotProduct(), lr=ConstantRate(0.1))
    inputs, weights = draw(spec)
    view = effective(spec.edit(transform=Identity()), inputs, weights)
    assert len(states(view)) == 11 and view.v_eff.shape[2] == 2 * 35
