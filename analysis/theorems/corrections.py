"""Where the paper's wording goes too far: M inside sums, the two non-reducible cases of appendix I, and what pre-norm allows."""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor

from analysis.spec import (
    ConstantRate,
    InnerLoop,
    NormMode,
    PerTokenMomentum,
    PerTokenRate,
    Placement,
    Trained,
    WeightNorm,
)
from analysis.theorems.architectures import LACT, M, chunk_pairs, compare_change, last_layer_lact
from analysis.theorems.claims import Claim, Sides, Verdict
from analysis.theorems.draws import Problem, Sizes, draw
from analysis.theorems.formulas import alphas, beta, chunk_means, outer, phi, spectral, to_initial_norms

NON_REDUCIBLE = "non-reducible cases"


def inside_states(problem: Problem) -> list[Tensor]:
    """S_t = S_0 + sum_{i<=t} M(phi(K_i)^T eta V_i sum_{j=i..t} beta_i^j): the printed form, one M per chunk."""
    pairs, alpha, states = chunk_pairs(problem), alphas(problem), []
    for t in range(len(pairs)):
        terms = (
            spectral(M, pairs[i] * sum(beta(alpha, i, j) for j in range(i, t + 1))) for i in range(t + 1)
        )
        states.append(problem.start + sum(terms))
    return states


def _inside(sizes: Sizes, seed: int, twin: bool) -> Sides:
    momentum = None if twin else PerTokenMomentum()
    problem = draw(last_layer_lact(sizes.chunk, momentum=momentum), sizes, seed)
    return compare_change(problem, inside_states(problem))


def _inside_per_token(sizes: Sizes, seed: int, twin: bool) -> Sides:
    """Without momentum, one M for every token's outer product; the twin has chunks of one token."""
    problem = draw(last_layer_lact(1 if twin else sizes.chunk), sizes, seed)
    x, keys = problem.inputs, phi(problem.spec.network, problem.weights, problem.inputs.k)
    products = torch.einsum("bhti,bhto->bhtio", keys, x.v * x.rates["w_out"])
    state, states = problem.start, []
    for span in problem.spans():
        state = state + spectral(M, products[:, :, span]).sum(2)
        states.append(state)
    return compare_change(problem, states)


def _rate_inside_m(sizes: Sizes, seed: int, twin: bool) -> Sides:
    """E.1 has the rate outside M; the printed result has it inside, where a scale of its argument is lost."""
    rate = PerTokenRate(placement=Placement.OUTSIDE_TRANSFORM)
    problem = draw(last_layer_lact(sizes.chunk, lr=rate), sizes, seed)
    x, keys = problem.inputs, phi(problem.spec.network, problem.weights, problem.inputs.k)
    state, states = problem.start, []
    for span, eta in zip(problem.spans(), chunk_means(problem, x.rates["w_out"]), strict=True):
        pair = outer(keys[:, :, span], x.v[:, :, span])
        state = state + (eta * spectral(M, pair) if twin else spectral(M, eta * pair))
        states.append(state)
    return compare_change(problem, states)


def _summed_states(problem: Problem) -> list[Tensor]:
    """S_0 + sum of phi(K_i)^T eta V_i with the initial features throughout: what a parallel form would add up."""
    eta = problem.spec.lr.value if isinstance(problem.spec.lr, ConstantRate) else 1.0
    keys, state, states = phi(problem.spec.network, problem.weights, problem.inputs.k), problem.start, []
    for span in problem.spans():
        state = state + eta * outer(keys[:, :, span], problem.inputs.v[:, :, span])
        states.append(state)
    return states


def _moving_kernel(sizes: Sizes, seed: int, twin: bool) -> Sides:
    """I.1: features frozen at their start against features that move; the twin moves the last layer alone."""
    trained = Trained.LAST if twin else Trained.ALL
    spec = InnerLoop(chunk=sizes.chunk, trained=trained, lr=ConstantRate(0.02))
    problem = draw(spec, sizes, seed)
    return compare_change(problem, _summed_states(problem))


def _post_norm(sizes: Sizes, seed: int, twin: bool) -> Sides:
    """I.2: the norm of the sum against the nested norm; the twin accumulates beside the normalised copy (pre-norm)."""
    mode = NormMode.PRE if twin else NormMode.POST
    spec = InnerLoop(
        chunk=sizes.chunk, trained=Trained.LAST, lr=ConstantRate(0.1), weight_norm=WeightNorm(mode)
    )
    problem = draw(spec, sizes, seed)
    sums = _summed_states(problem)
    return compare_change(problem, [to_initial_norms(state, problem.start) for state in sums])


def _pre_norm(sizes: Sizes, seed: int, twin: bool) -> Sides:
    """The accumulating copy is a plain sum that no gradient reads; the twin is post-norm."""
    mode = NormMode.POST if twin else NormMode.PRE
    spec = last_layer_lact(sizes.chunk, momentum=PerTokenMomentum(), weight_norm=WeightNorm(mode))
    problem = draw(spec, sizes, seed)
    state, states, kept = problem.start, [], torch.zeros_like(problem.start)
    for pair, alpha in zip(chunk_pairs(problem), alphas(problem), strict=True):
        kept = pair + alpha * kept
        state = state + spectral(M, kept)
        states.append(to_initial_norms(state, problem.start))
    return compare_change(problem, states)


def _norm_of_sum(sizes: Sizes, seed: int, twin: bool) -> Sides:
    """Norm(A + B) against Norm(A) + Norm(B), on states; the twin leaves the norm away."""
    a, b = (draw(InnerLoop(), sizes, seed + offset).start for offset in (0, 1000))
    norm = (lambda x: x) if twin else partial(to_initial_norms, initial=torch.ones_like(a))
    return Sides({"sum": norm(a + b)}, {"sum": norm(a) + norm(b)})


_CASES = {"moving kernel": _moving_kernel, "post-norm": _post_norm, "M inside the momentum sum": _inside}


def growth(
    chunk_counts: tuple[int, ...] = (1, 2, 4, 8, 16), seeds: int = 3
) -> list[dict[str, float | str | int]]:
    """Return how far each failing form is off with the number of chunks: rows of case, chunks, error (mean over seeds)."""
    rows: list[dict[str, float | str | int]] = []
    for case, check in _CASES.items():
        for chunks in chunk_counts:
            errors = [
                max(check(Sizes(chunks=chunks), seed, False).errors().values()) for seed in range(seeds)
            ]
            rows.append({"case": case, "chunks": chunks, "relative error": sum(errors) / seeds})
    return rows


_LAST = "only the last layer moves, rates inside the gradient, no weight norm"

CLAIMS = (
    Claim(
        "lact-m-inside-momentum",
        LACT,
        "The orthogonaliser may be moved through the momentum sum: S_t = S_0 + sum_i M(phi(k_i)^T m_i).",
        f"{_LAST}; momentum per chunk",
        "section 5.3, equation of appendix E.3",
        _inside,
        Verdict.FALSE,
        note="M is not additive, and it forgets the scale of its argument, so m_i's momentum weights vanish; "
        "without momentum the form is exact (the twin)",
    ),
    Claim(
        "lact-m-per-token",
        LACT,
        "M acts on each token's outer product before accumulation.",
        f"{_LAST}; no momentum, several tokens per chunk",
        "appendix E.3, last sentence",
        _inside_per_token,
        Verdict.FALSE,
        note="holds with one token per chunk (the twin): LaCT orthogonalises the sum over a chunk",
    ),
    Claim(
        "lact-rate-inside-m",
        LACT,
        "The rate of W - eta M(D) may be written inside M, as part of m_i.",
        "only the last layer moves, rate outside M as in E.1, no momentum, no weight norm",
        "appendix E.1 against E.3",
        _rate_inside_m,
        Verdict.FALSE,
        note="M(eta D) = M(D) up to 1e-7, so the rate would vanish; eta outside M is exact (the twin)",
    ),
    Claim(
        "moving-kernel-is-a-sum",
        NON_REDUCIBLE,
        "With moving features the state is still S_0 plus a sum of pairs that can be computed in parallel.",
        "SwiGLU, all fast weights move, constant rate, update then apply",
        "appendix I.1 (denied there)",
        _moving_kernel,
        Verdict.FALSE,
        note="the paper says so; already one chunk differs at read-out; frozen features mend it (the twin)",
    ),
    Claim(
        "post-norm-is-norm-of-sum",
        NON_REDUCIBLE,
        "The nested post-norm may be replaced by one norm of the plain sum.",
        "only the last layer moves, post-norm, constant rate",
        "appendix I.2 (denied there)",
        _post_norm,
        Verdict.FALSE,
        note="the paper says so; needs two chunks to fail; pre-norm mends it (the twin)",
    ),
    Claim(
        "norm-is-additive",
        NON_REDUCIBLE,
        "Norm(A + B) = Norm(A) + Norm(B).",
        "any two states",
        "appendix I.2 (denied there)",
        _norm_of_sum,
        Verdict.FALSE,
    ),
    Claim(
        "pre-norm-stays-additive",
        NON_REDUCIBLE,
        "With pre-norm the accumulating copy is a plain sum: scan it in parallel and normalise at read-out.",
        "dot product, only the last layer moves; momentum and orthogonalisation allowed",
        "corrects appendix I.2, which holds for post-norm",
        _pre_norm,
    ),
)
