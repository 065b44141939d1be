"""Ascent against negated values, several steps against a larger rate: when each holds, and what breaks it."""

from __future__ import annotations

import dataclasses
from functools import partial

from torch import Tensor

from analysis.spec import (
    MLP,
    PRESETS,
    ConstantMomentum,
    ConstantRate,
    Direction,
    DotProduct,
    Identity,
    InnerLoop,
    Linear,
    NewtonSchulz,
    PerTokenMomentum,
    SquaredError,
    Trained,
)
from analysis.theorems.architectures import M, chunk_pairs, last_layer_lact, read_states
from analysis.theorems.claims import Claim, Sides, Verdict
from analysis.theorems.draws import Problem, Sizes, draw
from analysis.theorems.formulas import phi, silu, spectral

ASCENT, STEPS = "ascent", "inner steps"
NUM_STEPS = 3


def _loops(sizes: Sizes) -> list[InnerLoop]:
    """Loops with each odd transform, momentum, weight norm and moving features among them."""
    return [
        InnerLoop(network=Linear(), chunk=sizes.chunk, momentum=PerTokenMomentum(), lr=ConstantRate(0.1)),
        PRESETS["lact_lm"].edit(chunk=sizes.chunk),
        PRESETS["lact_nvs_frobenius"],
        PRESETS["vittt_glu"],
        PRESETS["vittt_conv"],
    ]


def _negated(sizes: Sizes, seed: int, twin: bool) -> Sides:
    """Ascent on v against descent on -v, for every odd transform; the twin has the squared error."""
    reference, formula = {}, {}
    for number, loop in enumerate(_loops(sizes)):
        problem = draw(loop.edit(loss=SquaredError(scale=0.1)) if twin else loop, sizes, seed)
        up = problem.reference(problem.spec.edit(direction=Direction.ASCENT))
        negated = problem.reference(inputs=dataclasses.replace(problem.inputs, v=-problem.inputs.v))
        for name, one, two in (
            ("outputs", up.outputs, negated.outputs),
            *((n, up.state.fast_weights[n], negated.state.fast_weights[n]) for n in up.state.fast_weights),
        ):
            reference[f"{name} of loop {number}"], formula[f"{name} of loop {number}"] = one, two
    return Sides(reference, formula)


def _projected(problem: Problem, direction: Direction, values: Tensor) -> Tensor:
    """What the update adds to the outputs, for values that the projection and its activation gave."""
    edited = dataclasses.replace(problem.inputs, v=values)
    frozen = problem.reference(problem.spec.frozen(), edited).outputs
    return problem.reference(problem.spec.edit(direction=direction), edited).outputs - frozen


def _squared(sizes: Sizes, seed: int, twin: bool) -> Sides:
    loss = DotProduct() if twin else SquaredError(scale=0.5)
    spec = InnerLoop(chunk=sizes.chunk, trained=Trained.LAST, loss=loss, lr=ConstantRate(0.1))
    problem = draw(spec, sizes, seed)
    v = problem.inputs.v
    return Sides(
        {"update term": _projected(problem, Direction.ASCENT, v)},
        {"update term": _projected(problem, Direction.DESCENT, -v)},
    )


def _activated(sizes: Sizes, seed: int, twin: bool) -> Sides:
    """Values silu(u): the value projection can only negate u. The twin has no activation."""
    problem = draw(PRESETS["lact_lm"].edit(chunk=sizes.chunk), sizes, seed)
    u, activation = problem.inputs.v, (lambda x: x) if twin else silu
    return Sides(
        {"update term": _projected(problem, Direction.ASCENT, activation(u))},
        {"update term": _projected(problem, Direction.DESCENT, activation(-u))},
    )


def _steps_by_hand(sizes: Sizes, seed: int, twin: bool) -> Sides:
    """S_0 plus n times the sum of pairs; the twin counts one step too few."""
    problem = draw(last_layer_lact(sizes.chunk, transform=Identity(), steps=NUM_STEPS), sizes, seed)
    state, states = problem.start, []
    for pair in chunk_pairs(problem):
        state = state + (NUM_STEPS - int(twin)) * pair
        states.append(state)
    result = problem.reference()
    return Sides(
        {"outputs": result.outputs, "state": result.state.fast_weights["w_out"]},
        {"outputs": read_states(problem, states), "state": state},
        problem.leaves,
    )


def _orthogonal_steps_by_hand(sizes: Sizes, seed: int, twin: bool) -> Sides:
    """S_0 plus n times the sum of orthogonalised pairs; the twin puts n inside M, where it is lost."""
    problem = draw(last_layer_lact(sizes.chunk, steps=NUM_STEPS), sizes, seed)
    state, states = problem.start, []
    for pair in chunk_pairs(problem):
        state = state + (spectral(M, NUM_STEPS * pair) if twin else NUM_STEPS * spectral(M, pair))
        states.append(state)
    return Sides({"outputs": problem.reference().outputs}, {"outputs": read_states(problem, states)})


def _steps(edits: dict[str, object], sizes: Sizes, seed: int, twin: bool) -> Sides:
    """n steps against one step at n times the rate, on a loop outside the additive class; the twin drops the edits."""
    base = InnerLoop(network=MLP(2), chunk=sizes.chunk, trained=Trained.LAST, lr=ConstantRate(0.1))
    problem = draw(base if twin else base.edit(**edits), sizes, seed)
    one = problem.reference(problem.spec.edit(lr=ConstantRate(0.1 * NUM_STEPS))).outputs
    many = problem.reference(problem.spec.edit(steps=NUM_STEPS)).outputs
    first = phi(base.network, problem.weights, problem.inputs.q) @ problem.start
    return Sides({"update term": many - first}, {"update term": one - first})


def _not_otherwise(id: str, statement: str, assumptions: str, edits: dict[str, object], note: str) -> Claim:
    return Claim(
        id, STEPS, statement, assumptions, "section 5.2", partial(_steps, edits), Verdict.FALSE, note=note
    )


CLAIMS = (
    Claim(
        "ascent-is-negated-v",
        ASCENT,
        "Gradient ascent equals descent with v negated, outputs and states, under every odd transform.",
        "dot product; momentum, weight norm, orthogonalisation, clipping and moving features allowed",
        "sections 4.2 and 5.2",
        _negated,
        tolerance=1e-12,
    ),
    Claim(
        "ascent-with-squared-error",
        ASCENT,
        "Ascent equals descent with v negated also for the squared error.",
        "squared error; what the update adds to the outputs is compared",
        "section 5.2, beyond its assumption",
        _squared,
        Verdict.FALSE,
        note="the residual f(k) - v does not change sign with v; with the dot product it holds (the twin)",
    ),
    Claim(
        "ascent-with-silu-on-v",
        ASCENT,
        "A value projection that negates its output absorbs ascent exactly.",
        "LaCT's language-model loop with v = silu(u), as published",
        "section 5.2",
        _activated,
        Verdict.FALSE,
        note="silu is not odd: silu(u) + silu(-u) = u tanh(u/2); without it the sign is absorbed exactly (the twin)",
    ),
    Claim(
        "n-steps-are-n-rates",
        STEPS,
        "n inner steps equal one step at n times the rate.",
        "dot product, only the last layer moves, no momentum, no weight norm, no transform",
        "section 5.2, Theorem 1",
        _steps_by_hand,
    ),
    Claim(
        "n-orthogonalised-steps",
        STEPS,
        "With orthogonalisation n steps add the orthogonalised update n times: n times the step size, not the rate.",
        "dot product, only the last layer moves, no momentum, no weight norm",
        "our addition to section 5.2",
        _orthogonal_steps_by_hand,
    ),
    _not_otherwise(
        "n-steps-with-momentum",
        "n steps equal one step at n times the rate also with momentum.",
        "dot product, only the last layer moves, constant momentum",
        {"momentum": ConstantMomentum(0.6)},
        "each inner step also applies the momentum once more",
    ),
    _not_otherwise(
        "n-steps-with-moving-features",
        "n steps equal one step at n times the rate also when all fast weights move.",
        "dot product, perceptron of depth 2, all fast weights move",
        {"trained": Trained.ALL},
        "the second step sees other features",
    ),
    _not_otherwise(
        "n-steps-with-squared-error",
        "n steps equal one step at n times the rate also for the squared error.",
        "squared error, only the last layer moves",
        {"loss": SquaredError(scale=2.0)},
        "the second residual is smaller than the first",
    ),
    _not_otherwise(
        "n-steps-with-rate-inside-m",
        "n steps equal one step at n times the rate also with orthogonalisation.",
        "dot product, only the last layer moves, rate inside the gradient",
        {"transform": NewtonSchulz()},
        "M forgets the scale of its argument, so a larger rate does nothing",
    ),
)
