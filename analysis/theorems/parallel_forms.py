"""Appendix H and beyond: the accumulation mask, prefix scans for momentum, the affine scan of the squared error."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TypeVar

import torch
from torch import Tensor

from analysis.inner import run
from analysis.spec import (
    GLU,
    MLP,
    ConstantMomentum,
    ConstantRate,
    InnerLoop,
    Linear,
    NewtonSchulz,
    Order,
    PerTokenMomentum,
    PerTokenRate,
    Placement,
    SquaredError,
    Tail,
    Trained,
)
from analysis.theorems.claims import Claim, Sides
from analysis.theorems.draws import Problem, Sizes, draw
from analysis.theorems.formulas import alphas, beta, chunk_means, outer, phi

GROUP = "parallel forms"
Element = TypeVar("Element")


def _momentum_loop(sizes: Sizes, order: Order, placement: Placement) -> InnerLoop:
    return InnerLoop(
        chunk=sizes.chunk,
        trained=Trained.LAST,
        lr=PerTokenRate(placement=placement),
        momentum=PerTokenMomentum(),
        order=order,
    )


def mask(alpha: list[Tensor], eta: list[Tensor], strict: bool) -> Tensor:
    """C[t, i] = sum_{j=i..t} eta_j beta_i^j for i <= t, [B, H, N, N]; strict is the same one row later."""
    count, zero = len(alpha), torch.zeros_like(alpha[0])
    rows = []
    for t in range(count):
        last = t - 1 if strict else t
        row = [sum((eta[j] * beta(alpha, i, j) for j in range(i, last + 1)), zero) for i in range(count)]
        rows.append(torch.cat(row, -1))
    return torch.cat(rows, -2)


def _masked(order: Order, placement: Placement, sizes: Sizes, seed: int, twin: bool) -> Sides:
    """O = Phi(Q) W_0 + ((Phi(Q) Phi(K)^T) * C expanded over tokens) V; the twin forgets the rates or shifts the mask."""
    problem = draw(_momentum_loop(sizes, order, placement), sizes, seed)
    x, eta = problem.inputs, chunk_means(problem, problem.inputs.rates["w_out"])
    values, strict = x.v, order is Order.APPLY_THEN_UPDATE
    if placement is Placement.INSIDE_GRADIENT:
        values, eta = x.v * x.rates["w_out"], [torch.ones_like(each) for each in eta]
    block = mask(alphas(problem), eta, strict is not twin)
    owner = torch.tensor([c for c, span in enumerate(problem.spans()) for _ in range(span.stop - span.start)])
    queries, keys = (phi(problem.spec.network, problem.weights, each) for each in (x.q, x.k))
    scores = (queries @ keys.mT) * block[:, :, owner][:, :, :, owner]
    outputs = queries @ problem.start + scores @ values
    return Sides({"outputs": problem.reference().outputs}, {"outputs": outputs}, problem.leaves)


def tree_prefixes(combine: Callable[[Element, Element], Element], elements: list[Element]) -> list[Element]:
    """All prefixes of an associative operation by halving: each half on its own, then the left total into the right."""
    if len(elements) == 1:
        return elements
    middle = len(elements) // 2
    left, right = tree_prefixes(combine, elements[:middle]), tree_prefixes(combine, elements[middle:])
    return left + [combine(left[-1], each) for each in right]


Step = tuple[Tensor, Tensor, Tensor, Tensor]


def chained(first: Step, second: Step) -> Step:
    """Compose two segments (a, p, D, U): momentum left over, its effect on the weights, accumulator, change of weights.

    After a segment the accumulator is D + a D_before and the weights are W + U + p D_before.
    """
    a1, p1, d1, u1 = first
    a2, p2, d2, u2 = second
    return a2 * a1, p1 + p2 * a1, d2 + a2 * d1, u1 + u2 + p2 * d1


def _segments(problem: Problem) -> list[Step]:
    keys, x = phi(problem.spec.network, problem.weights, problem.inputs.k), problem.inputs
    eta = chunk_means(problem, x.rates["w_out"])
    pairs = [outer(keys[:, :, span], x.v[:, :, span]) for span in problem.spans()]
    return [
        (alpha, rate * alpha, pair, rate * pair)
        for alpha, rate, pair in zip(alphas(problem), eta, pairs, strict=True)
    ]


def _scanned(sizes: Sizes, seed: int, twin: bool) -> Sides:
    """The recurrence of appendix H by a tree of associative compositions; the twin forgets p2 a1."""
    loop = _momentum_loop(sizes, Order.UPDATE_THEN_APPLY, Placement.OUTSIDE_TRANSFORM)
    problem = draw(loop, sizes, seed)

    def forgetful(first: Step, second: Step) -> Step:
        a, p, d, u = chained(first, second)
        return a, p, d, u - second[1] * first[2]

    prefixes = tree_prefixes(forgetful if twin else chained, _segments(problem))
    queries = phi(problem.spec.network, problem.weights, problem.inputs.q)
    outputs = torch.cat(
        [
            queries[:, :, span] @ (problem.start + change)
            for span, (_, _, _, change) in zip(problem.spans(), prefixes, strict=True)
        ],
        2,
    )
    result = problem.reference()
    return Sides(
        {"outputs": result.outputs, "state": result.state.fast_weights["w_out"]},
        {"outputs": outputs, "state": problem.start + prefixes[-1][3]},
        problem.leaves,
    )


def _associative(sizes: Sizes, seed: int, twin: bool) -> Sides:
    loop = _momentum_loop(sizes, Order.UPDATE_THEN_APPLY, Placement.OUTSIDE_TRANSFORM)
    a, b, c = _segments(draw(loop, sizes, seed))[:3]
    rule = (lambda x, y: tuple(p + 2 * q * p for p, q in zip(x, y, strict=True))) if twin else chained
    left, right = rule(rule(a, b), c), rule(a, rule(b, c))
    names = ("momentum left", "effect on weights", "accumulator", "change")
    return Sides(dict(zip(names, left, strict=True)), dict(zip(names, right, strict=True)))


def _affine(sizes: Sizes, seed: int, twin: bool) -> Sides:
    """Squared error: W' = (I - eta K^T K) W + eta K^T V, composed as (matrix, offset) by the same tree."""
    spec = InnerLoop(
        network=MLP(2),
        loss=SquaredError(),
        chunk=sizes.chunk,
        trained=Trained.LAST,
        lr=PerTokenRate(),
        order=Order.APPLY_THEN_UPDATE,
    )
    problem = draw(spec, sizes, seed)
    x, keys = problem.inputs, phi(spec.network, problem.weights, problem.inputs.k)
    eye = torch.eye(keys.shape[-1], dtype=keys.dtype)
    maps = []
    for span in problem.spans():
        weighted = keys[:, :, span] * x.rates["w_out"][:, :, span]
        maps.append((eye - outer(weighted, keys[:, :, span]), outer(weighted, x.v[:, :, span])))

    def after(first: tuple[Tensor, Tensor], second: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        order = (first[0] @ second[0]) if twin else (second[0] @ first[0])
        return order, second[0] @ first[1] + second[1]

    states = [problem.start, *(a @ problem.start + b for a, b in tree_prefixes(after, maps))]
    queries = phi(spec.network, problem.weights, x.q)
    outputs = torch.cat([queries[:, :, s] @ w for s, w in zip(problem.spans(), states[:-1], strict=True)], 2)
    result = problem.reference()
    return Sides(
        {"outputs": result.outputs, "state": result.state.fast_weights["w_out"]},
        {"outputs": outputs, "state": states[-1]},
        problem.leaves,
    )


_LOOPS = (
    InnerLoop(network=Linear(), lr=PerTokenRate(), momentum=PerTokenMomentum(), tail=Tail.APPLY_ONLY),
    InnerLoop(transform=NewtonSchulz(), lr=PerTokenRate(), momentum=PerTokenMomentum()),
    InnerLoop(network=GLU(), loss=SquaredError(scale=0.1), momentum=ConstantMomentum(0.5), steps=2),
    InnerLoop(network=MLP(3), lr=ConstantRate(0.1), order=Order.APPLY_THEN_UPDATE, steps=2),
)


def _backend(sizes: Sizes, seed: int, twin: bool) -> Sides:
    """The parallel backend against the reference on one loop of each reducible class; the twin runs another order."""
    reference, formula = {}, {}
    for number, loop in enumerate(_LOOPS):
        problem = draw(loop.edit(chunk=sizes.chunk, trained=Trained.LAST), sizes, seed)
        other = next(order for order in Order if order is not loop.order) if twin else loop.order
        found = run(problem.spec.edit(order=other), problem.inputs, problem.weights, "parallel")
        result = problem.reference()
        for name, one, two in (
            ("outputs", result.outputs, found.outputs),
            (
                "state",
                result.state.fast_weights[loop.network.last],
                found.state.fast_weights[loop.network.last],
            ),
        ):
            reference[f"{name} {number}"], formula[f"{name} {number}"] = one, two
    return Sides(reference, formula)


_STATIC = "dot product, only the last layer moves, no weight norm, no transform; momentum per chunk, incomplete last chunk"

CLAIMS = (
    Claim(
        "mask-rates-outside",
        GROUP,
        "One masked product gives all outputs: the mask C folds the chunks' rates into the momentum decay.",
        f"{_STATIC}; rate outside the gradient; update then apply",
        "appendix H.1",
        partial(_masked, Order.UPDATE_THEN_APPLY, Placement.OUTSIDE_TRANSFORM),
    ),
    Claim(
        "mask-rates-inside",
        GROUP,
        "The same with the rates on the values and C from momentum alone, as published LaCT has its rates.",
        f"{_STATIC}; rate inside the gradient, per token",
        "appendix H.1, for the published placement",
        partial(_masked, Order.UPDATE_THEN_APPLY, Placement.INSIDE_GRADIENT),
    ),
    Claim(
        "mask-apply-first",
        GROUP,
        "When outputs precede the chunk's own update, the same mask one chunk later (strictly lower) is exact.",
        f"{_STATIC}; apply then update (LaCT's language model)",
        "appendix H.1, for the other order",
        partial(_masked, Order.APPLY_THEN_UPDATE, Placement.INSIDE_GRADIENT),
    ),
    Claim(
        "prefix-scan",
        GROUP,
        "The recurrence with momentum and rates can be evaluated by a tree of compositions over chunks.",
        _STATIC,
        "section 6.2",
        _scanned,
    ),
    Claim(
        "update-is-associative",
        GROUP,
        "Composing segments (momentum left, effect on weights, accumulator, change) is associative.",
        _STATIC,
        "section 6.2",
        _associative,
    ),
    Claim(
        "squared-error-scan",
        GROUP,
        "With the squared error the state map is affine, W' = (I - eta K^T K) W + eta K^T V, and scans just as well.",
        "squared error, only the last layer moves, no transform; apply then update",
        "our addition to section 6.2",
        _affine,
    ),
    Claim(
        "parallel-backend",
        GROUP,
        "The parallel backend of this suite equals the inner loop on every reducible class.",
        "one loop of each class, both orders, one and two steps",
        "section 6.2, appendix H",
        _backend,
    ),
)
