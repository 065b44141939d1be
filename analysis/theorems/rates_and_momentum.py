"""What may be absorbed into the values: per-token rates (step 4 of section 6.1) and momentum (Theorem 3, step 5)."""

from __future__ import annotations

import dataclasses
from functools import partial

import torch
from torch import Tensor

from analysis.spec import (
    PRESETS,
    ConstantRate,
    DotProduct,
    Identity,
    InnerLoop,
    NewtonSchulz,
    PerTokenMomentum,
    PerTokenRate,
    Placement,
    SquaredError,
    Trained,
)
from analysis.theorems.claims import Claim, Sides, Verdict
from analysis.theorems.draws import Problem, Sizes, draw
from analysis.theorems.formulas import alphas, beta, chunk_means, outer, phi

RATES, MOMENTUM = "rates absorbed into v", "momentum as reweighting"


def _absorbed(problem: Problem, rate: Tensor) -> Sides:
    """The loop with its rates against the loop with rate 1 and values rate * v."""
    plain = problem.spec.edit(lr=ConstantRate(1.0))
    folded = dataclasses.replace(problem.inputs, v=problem.inputs.v * rate)
    one, two = problem.reference(), problem.reference(plain, folded)
    first = problem.reference(problem.spec.frozen()).outputs
    return Sides(
        {"update term": one.outputs - first, **one.state.fast_weights},
        {"update term": two.outputs - first, **two.state.fast_weights},
    )


def _shared(expect_shared: bool, sizes: Sizes, seed: int, twin: bool) -> Sides:
    """LaCT's whole loop with one rate per token for all fast weights, or with one for each."""
    spec = PRESETS["lact_lm"].edit(chunk=sizes.chunk, lr=PerTokenRate(shared=expect_shared is not twin))
    problem = draw(spec, sizes, seed)
    rates = problem.inputs.rates
    return _absorbed(problem, rates.get("shared", next(iter(rates.values()))))


def _squared(sizes: Sizes, seed: int, twin: bool) -> Sides:
    loss = DotProduct() if twin else SquaredError(scale=0.3)
    spec = InnerLoop(chunk=sizes.chunk, trained=Trained.LAST, loss=loss, lr=PerTokenRate())
    problem = draw(spec, sizes, seed)
    return _absorbed(problem, problem.inputs.rates["w_out"])


def _outside(sizes: Sizes, seed: int, twin: bool) -> Sides:
    """Appendix H's rate, outside the momentum, folded into v as the chunk's own rate; the twin has no momentum."""
    spec = InnerLoop(
        chunk=sizes.chunk,
        trained=Trained.LAST,
        lr=PerTokenRate(placement=Placement.OUTSIDE_TRANSFORM),
        momentum=None if twin else PerTokenMomentum(),
    )
    problem = draw(spec, sizes, seed)
    spans = problem.spans()
    means = chunk_means(problem, problem.inputs.rates["w_out"])
    per_token = [
        mean.expand(-1, -1, span.stop - span.start, -1) for span, mean in zip(spans, means, strict=True)
    ]
    return _absorbed(problem, torch.cat(per_token, 2))


def _relative_only(sizes: Sizes, seed: int, twin: bool) -> Sides:
    """All rates a hundred times larger, under orthogonalisation; the twin has no transform."""
    spec = InnerLoop(
        chunk=sizes.chunk,
        trained=Trained.LAST,
        lr=PerTokenRate(),
        momentum=PerTokenMomentum(),
        transform=Identity() if twin else NewtonSchulz(),
    )
    problem = draw(spec, sizes, seed)
    larger = {name: 100 * rate for name, rate in problem.inputs.rates.items()}
    return Sides(
        {"outputs": problem.reference().outputs},
        {"outputs": problem.reference(inputs=dataclasses.replace(problem.inputs, rates=larger)).outputs},
    )


def _momentum_problem(momentum: bool, placement: Placement, sizes: Sizes, seed: int) -> Problem:
    return draw(
        InnerLoop(
            chunk=sizes.chunk,
            trained=Trained.LAST,
            lr=PerTokenRate(placement=placement),
            momentum=PerTokenMomentum() if momentum else None,
        ),
        sizes,
        seed,
    )


def _reweighted(problem: Problem, weight_of: list[list[Tensor]]) -> Tensor:
    """What is added to phi(q) S_0 when the state of chunk t is S_0 + sum_i weight_of[t][i] phi(K_i)^T V_i."""
    keys, queries = (
        phi(problem.spec.network, problem.weights, x) for x in (problem.inputs.k, problem.inputs.q)
    )
    spans, pieces = problem.spans(), []
    for t, span in enumerate(spans):
        state = torch.zeros_like(problem.start)
        for i, weight in enumerate(weight_of[t]):
            state = state + outer(keys[:, :, spans[i]], problem.inputs.v[:, :, spans[i]] * weight)
        pieces.append(queries[:, :, span] @ state)
    return torch.cat(pieces, 2)


def _first(problem: Problem) -> Tensor:
    return phi(problem.spec.network, problem.weights, problem.inputs.q) @ problem.start


def _momentum_values(sizes: Sizes, seed: int, twin: bool) -> Sides:
    """v_eff_i(t) = eta_i v_i sum_{j=i..t} beta_i^j, rates inside; the twin stops the sum at j = i."""
    problem = _momentum_problem(True, Placement.INSIDE_GRADIENT, sizes, seed)
    alpha, rate, count = alphas(problem), problem.inputs.rates["w_out"], len(problem.spans())
    table = [
        [
            rate[:, :, problem.spans()[i]]
            * sum(beta(alpha, i, j) for j in range(i, i + 1 if twin else t + 1))
            for i in range(t + 1)
        ]
        for t in range(count)
    ]
    outputs = _first(problem) + _reweighted(problem, table)
    return Sides({"outputs": problem.reference().outputs}, {"outputs": outputs}, problem.leaves)


def _one_value_list(sizes: Sizes, seed: int, twin: bool) -> Sides:
    """The values of the last query used for all queries; the twin has no momentum."""
    problem = _momentum_problem(not twin, Placement.INSIDE_GRADIENT, sizes, seed)
    alpha, rate, count = alphas(problem), problem.inputs.rates["w_out"], len(problem.spans())
    final = [
        rate[:, :, problem.spans()[i]] * sum(beta(alpha, i, j) for j in range(i, count)) for i in range(count)
    ]
    added = _reweighted(problem, [list(final[: t + 1]) for t in range(count)])
    return Sides({"update term": problem.reference().outputs - _first(problem)}, {"update term": added})


def _rate_in_front(sizes: Sizes, seed: int, twin: bool) -> Sides:
    """Rates that vary and act outside: each pair's own rate in front of the sum; the twin has eta_j inside it."""
    problem = _momentum_problem(True, Placement.OUTSIDE_TRANSFORM, sizes, seed)
    alpha, count = alphas(problem), len(problem.spans())
    eta = chunk_means(problem, problem.inputs.rates["w_out"])
    table = [
        [
            torch.stack([eta[j if twin else i] * beta(alpha, i, j) for j in range(i, t + 1)]).sum(0)
            for i in range(t + 1)
        ]
        for t in range(count)
    ]
    expected = problem.reference().outputs - _first(problem)
    return Sides({"update term": expected}, {"update term": _reweighted(problem, table)})


CLAIMS = (
    Claim(
        "shared-rate-goes-into-v",
        RATES,
        "A per-token rate shared by all fast weights can be absorbed into v: rate 1 with values eta_t v_t.",
        "dot product, rate inside the gradient; LaCT's loop with momentum, orthogonalisation and norm, all weights moving",
        "step 4 of section 6.1",
        partial(_shared, True),
    ),
    Claim(
        "separate-rates-go-into-v",
        RATES,
        "LaCT's separate rates for its three fast weights can be absorbed into one v.",
        "the published loop, all weights moving",
        "step 4 of section 6.1, before step 1",
        partial(_shared, False),
        Verdict.FALSE,
        note="one v cannot carry three factors; exact once a single fast weight moves or the rate is shared (the twin)",
    ),
    Claim(
        "rate-with-squared-error",
        RATES,
        "A per-token rate can be absorbed into v also with the squared error.",
        "squared error, only the last layer moves",
        "step 4 of section 6.1, beyond its assumption",
        _squared,
        Verdict.FALSE,
        note="the rate also multiplies f(k) in the residual",
    ),
    Claim(
        "outside-rate-goes-into-v",
        RATES,
        "A rate outside the momentum (appendix H) can be absorbed into the values of its own chunk.",
        "dot product, only the last layer moves, momentum per chunk",
        "step 4 of section 6.1 with appendix H's placement",
        _outside,
        Verdict.FALSE,
        note="later rates multiply old pairs again through the momentum; exact without momentum (the twin)",
    ),
    Claim(
        "only-relative-rates-survive-m",
        RATES,
        "With orthogonalisation a common factor of all rates drops out, so that only relative rates within a chunk act.",
        "rates inside the gradient, all a hundred times larger",
        "our addition to step 4 of section 6.1",
        _relative_only,
        Verdict.APPROXIMATION,
        note="not an identity because of the 1e-7 added to the Frobenius norm",
    ),
    Claim(
        "momentum-reweights-v",
        MOMENTUM,
        "Momentum multiplies the value of pair i by sum_{j=i..t} beta_i^j and changes nothing else.",
        "dot product, only the last layer moves, momentum per chunk, rates inside the gradient",
        "Theorem 3, step 5 of section 6.1",
        _momentum_values,
    ),
    Claim(
        "momentum-gives-one-value-list",
        MOMENTUM,
        "One list of effective values serves all queries, as the notation v_eff_i suggests.",
        "dot product, only the last layer moves, momentum per chunk",
        "Theorem 3",
        _one_value_list,
        Verdict.FALSE,
        note="m_i depends on the query's time t: with momentum the values are a matrix over (t, i), appendix H's mask",
    ),
    Claim(
        "momentum-with-varying-rate-in-front",
        MOMENTUM,
        "With rates that vary over time and act outside, v_eff_i = eta_i g_i sum_j beta_i^j.",
        "dot product, only the last layer moves, rate of each chunk outside the momentum",
        "Theorem 3 with a token-dependent rate",
        _rate_in_front,
        Verdict.FALSE,
        note="eta_j belongs inside the sum over j, as appendices E.3 and H have it (the twin)",
    ),
)
