"""LaCT and ViTTT written out: orthogonalisation, weight norm, the gated unit and the depthwise convolution."""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor

from analysis.spec import (
    GLU,
    ConstantRate,
    DepthwiseConv3x3,
    DotProduct,
    Identity,
    InnerLoop,
    NewtonSchulz,
    PerTokenMomentum,
    PerTokenRate,
    Reduction,
    SoftClip,
    Trained,
    WeightNorm,
)
from analysis.theorems.claims import Claim, Sides, Verdict
from analysis.theorems.draws import Problem, Sizes, draw
from analysis.theorems.formulas import (
    alphas,
    beta,
    outer,
    phi,
    silu,
    silu_slope,
    spectral,
    spectral_factor,
    to_initial_norms,
)

LACT, VITTT = "LaCT written out", "ViTTT written out"
M = NewtonSchulz()


def last_layer_lact(chunk: int | None, **changes: object) -> InnerLoop:
    """LaCT with only the last layer moving, rates inside the gradient, orthogonalised, without weight norm."""
    return InnerLoop(chunk=chunk, trained=Trained.LAST, lr=PerTokenRate(), transform=M).edit(**changes)


def read_states(problem: Problem, states: list[Tensor]) -> Tensor:
    """Update then apply: the queries of chunk t read the t-th of the states after an update."""
    queries = phi(problem.spec.network, problem.weights, problem.inputs.q)
    return torch.cat(
        [queries[:, :, span] @ state for span, state in zip(problem.spans(), states, strict=True)], 2
    )


def chunk_pairs(problem: Problem) -> list[Tensor]:
    """phi(K_i)^T (eta V_i) of every chunk, the rate inside."""
    x, keys = problem.inputs, phi(problem.spec.network, problem.weights, problem.inputs.k)
    return [
        outer(keys[:, :, span], x.v[:, :, span] * x.rates["w_out"][:, :, span]) for span in problem.spans()
    ]


def compare_change(problem: Problem, states: list[Tensor]) -> Sides:
    """Compare outputs and the change of the state; the start is subtracted, lest a large S_0 hide a difference."""
    result = problem.reference()
    return Sides(
        {"outputs": result.outputs, "state change": result.state.fast_weights["w_out"] - problem.start},
        {"outputs": read_states(problem, states), "state change": states[-1] - problem.start},
    )


def exact_states(problem: Problem) -> list[Tensor]:
    """S_t = S_0 + sum_{j<=t} M(sum_{i<=j} beta_i^j phi(K_i)^T eta V_i): M outside the momentum sum."""
    pairs, alpha, state, states = chunk_pairs(problem), alphas(problem), problem.start, []
    for j in range(len(pairs)):
        total = torch.zeros_like(state)
        for i in range(j + 1):
            total = total + beta(alpha, i, j) * pairs[i]
        state = state + spectral(M, total)
        states.append(state)
    return states


def _exact(sizes: Sizes, seed: int, twin: bool) -> Sides:
    problem = draw(last_layer_lact(sizes.chunk, momentum=PerTokenMomentum()), sizes, seed)
    states = exact_states(problem)
    if twin:  # orthogonalise the weights' whole change instead of each accumulator
        states = [problem.start + spectral(M, state - problem.start) for state in states]
    return compare_change(problem, states)


def _value_factor(sizes: Sizes, seed: int, twin: bool) -> Sides:
    """One chunk: M(D) = D R, so M(sum k^T v) = sum k^T (v R); the twin leaves R out."""
    problem = draw(last_layer_lact(None), sizes, seed)
    x, keys = problem.inputs, phi(problem.spec.network, problem.weights, problem.inputs.k)
    v_eff = x.v * x.rates["w_out"]
    if not twin:
        v_eff = v_eff @ spectral_factor(M, outer(keys, v_eff))
    queries = phi(problem.spec.network, problem.weights, x.q)
    attended = torch.einsum("bhtd,bhsd,bhsv->bhtv", queries, keys, v_eff)
    return Sides({"outputs": problem.reference().outputs}, {"outputs": queries @ problem.start + attended})


def _full_lact(sizes: Sizes, seed: int, twin: bool) -> Sides:
    """Appendix E with everything on: S_{t+1} = Norm(S_t + M(D_t)) beside a moving kernel (I.1)."""
    spec = InnerLoop(
        chunk=sizes.chunk,
        lr=PerTokenRate(),
        momentum=PerTokenMomentum(),
        transform=M,
        weight_norm=WeightNorm(),
    )
    problem = draw(spec, sizes, seed)
    x, start, outputs = problem.inputs, problem.weights, []
    w, kept = dict(start), {name: torch.zeros_like(weight) for name, weight in start.items()}
    for span, alpha in zip(problem.spans(), alphas(problem), strict=True):
        k, v, eta = x.k[:, :, span], x.v[:, :, span], {n: r[:, :, span] for n, r in x.rates.items()}
        gate, up, back = k @ w["w_gate"], k @ w["w_up"], v @ w["w_out"].mT
        fresh = {
            "w_gate": outer(k, eta["w_gate"] * back * up * silu_slope(gate)),
            "w_up": outer(k, eta["w_up"] * back * silu(gate)),
            "w_out": outer(silu(gate) * up, eta["w_out"] * v),
        }
        kept = {name: fresh[name] + alpha * kept[name] for name in w}
        moved = {name: w[name] + spectral(M, kept[name]) for name in w}
        w = {name: moved[name] if twin else to_initial_norms(moved[name], start[name]) for name in w}
        outputs.append(phi(spec.network, w, x.q[:, :, span]) @ w["w_out"])
    result = problem.reference()
    return Sides(
        {"outputs": result.outputs, **result.state.fast_weights}, {"outputs": torch.cat(outputs, 2), **w}
    )


_VITTT_LOSS = DotProduct(scale=1 / 3, reduction=Reduction.MEAN)


def _clip(gradient: Tensor) -> Tensor:
    return 1 / ((gradient * gradient).sum(-2, keepdim=True).sqrt() + 1)


def _gated(clipped: bool, sizes: Sizes, seed: int, twin: bool) -> Sides:
    """F.3: phi_{t+1}(q) * (q (W + k^T (eta v * phi_t(k)))); under the soft clip each column of v_eff is scaled."""
    transform = SoftClip() if clipped else Identity()
    spec = InnerLoop(network=GLU(), loss=_VITTT_LOSS, lr=ConstantRate(1.0), transform=transform)
    problem = draw(spec, sizes, seed)
    x, w = problem.inputs, problem.weights
    eta = 1 / (3 * x.v.shape[2])
    gate, linear = x.k @ w["w_gate"], x.k @ w["w_linear"]
    to_gate = eta * outer(x.k, x.v * linear * silu_slope(gate))
    v_eff = eta * x.v * (1.0 if twin and not clipped else silu(gate))
    if clipped:
        to_gate = to_gate * _clip(to_gate)
        v_eff = v_eff if twin else v_eff * _clip(outer(x.k, v_eff))
    scores = torch.einsum("bhtd,bhsd->bhts", x.q, x.k)
    outputs = silu(x.q @ (w["w_gate"] + to_gate)) * (x.q @ w["w_linear"] + scores @ v_eff)
    return Sides({"outputs": problem.reference().outputs}, {"outputs": outputs}, problem.leaves)


def neighbourhoods(x: Tensor, height: int, width: int, flip: bool = False) -> Tensor:
    """Return [B, H, T, 9, C]: the value at each of nine offsets around every cell, zero outside the grid."""
    image = x.reshape(*x.shape[:2], height, width, x.shape[-1])
    padded = torch.nn.functional.pad(image, (0, 0, 1, 1, 1, 1))
    offsets = [(dy, dx) for dy in (-1, 0, 1) for dx in (-1, 0, 1)]
    shifted = [padded[:, :, 1 + dy : 1 + dy + height, 1 + dx : 1 + dx + width] for dy, dx in offsets]
    return torch.stack(shifted[::-1] if flip else shifted, 4).flatten(2, 3)


def _convolution(clipped: bool, local: bool, sizes: Sizes, seed: int, twin: bool) -> Sides:
    """G.3: Conv(Q; W) plus, per channel, every value weighted by the overlap of query and key neighbourhoods."""
    transform = SoftClip() if clipped else Identity()
    spec = InnerLoop(network=DepthwiseConv3x3(), loss=_VITTT_LOSS, lr=ConstantRate(1.0), transform=transform)
    problem = draw(spec, sizes, seed)
    x, kernel = problem.inputs, problem.start
    assert x.grid is not None
    breaks = twin and not local
    queries, keys = neighbourhoods(x.q, *x.grid), neighbourhoods(x.k, *x.grid, flip=breaks and not clipped)
    v_eff = x.v / (3 * x.v.shape[2])
    if clipped and not breaks:
        v_eff = v_eff * _clip(torch.einsum("bhtnc,bhtc->bhnc", keys, v_eff))
    overlap = torch.einsum("bhtnc,bhsnc->bhtsc", queries, keys)
    if local and not twin:
        rows, columns = torch.arange(x.v.shape[2]) // x.grid[1], torch.arange(x.v.shape[2]) % x.grid[1]
        near = ((rows[:, None] - rows).abs() <= 1) & ((columns[:, None] - columns).abs() <= 1)
        overlap = overlap * near.unsqueeze(-1)
    attended = torch.einsum("bhtsc,bhsc->bhtc", overlap, v_eff)
    first = torch.einsum("bhtnc,bhnc->bhtc", queries, kernel)
    reference = problem.reference().outputs
    if local:
        return Sides({"update term": reference - first}, {"update term": attended})
    return Sides({"outputs": reference}, {"outputs": first + attended}, problem.leaves)


_LAST = "only the last layer moves, rates inside the gradient, no weight norm"

CLAIMS = (
    Claim(
        "lact-exact-form",
        LACT,
        "Scan the momentum, orthogonalise each chunk's accumulator, scan the weights: this equals the inner loop.",
        f"{_LAST}; momentum per chunk, Newton-Schulz (computed here by singular values)",
        "section 5.3, appendix E, corrected",
        _exact,
    ),
    Claim(
        "orthogonalisation-mixes-values",
        LACT,
        "M(sum k^T v) = sum k^T (v R) with one V x V matrix R per update: keys, queries and scores stay as they are.",
        f"{_LAST}; a single chunk",
        "our addition to section 5.3",
        _value_factor,
        tolerance=1e-9,
    ),
    Claim(
        "lact-with-weight-norm",
        LACT,
        "With weight norm the state is S_{t+1} = Norm(S_t + M(D_t)), read linearly; the kernel moves beside it by I.1.",
        "the published language-model loop, update then apply",
        "appendices E.4 and I.1",
        _full_lact,
    ),
    Claim(
        "vittt-gated-unit",
        VITTT,
        "The gated unit is linear attention with scores q k^T, values gated by phi_t(k), outputs gated by phi_{t+1}(q).",
        "one full-batch step, no clipping; both weights move",
        "section 5.4, appendix F.3",
        partial(_gated, False),
    ),
    Claim(
        "vittt-gated-unit-clipped",
        VITTT,
        "With ViTTT's soft clip the same holds once 1 / (||g|| + 1) of each column is part of v_eff.",
        "as published",
        "appendix F.3, with the clip of the published code",
        partial(_gated, True),
    ),
    Claim(
        "vittt-convolution",
        VITTT,
        "The convolution is Conv(Q; W_0) plus, per channel, values weighted by the overlap of 3x3 neighbourhoods.",
        "one full-batch step, zero padding, no clipping",
        "appendix G.3",
        partial(_convolution, False, False),
    ),
    Claim(
        "vittt-convolution-clipped",
        VITTT,
        "With the soft clip the same holds once 1 / (||g|| + 1) of each channel is part of v_eff.",
        "as published",
        "appendix G.3, with the clip of the published code",
        partial(_convolution, True, False),
    ),
    Claim(
        "convolution-attends-in-a-window",
        VITTT,
        "The update term of the convolution is attention within a sliding 3x3 window.",
        "one full-batch step",
        "section 5.4, appendix G (last sentence)",
        partial(_convolution, False, True),
        Verdict.FALSE,
        note="neighbourhoods enter the score, not the mask: every position attends to every position (the twin), as G.3 says",
    ),
)
