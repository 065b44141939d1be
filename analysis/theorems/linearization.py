"""Theorems 1 to 3: the unrolled inner loop is linear attention, for any features, both losses, with and without momentum."""

from __future__ import annotations

import dataclasses
from functools import partial

import torch
from torch import Tensor

from analysis.inner.effective import effective, evaluate
from analysis.spec import (
    MLP,
    PRESETS,
    ConstantMomentum,
    ConstantRate,
    DepthwiseConv3x3,
    DotProduct,
    InnerLoop,
    PerTokenMomentum,
    SquaredError,
    SwiGLU,
)
from analysis.spec.choices import Loss, Momentum, Network
from analysis.theorems.claims import Claim, Sides
from analysis.theorems.draws import Problem, Sizes, draw
from analysis.theorems.formulas import alphas, beta, outer, phi

GROUP = "linearisation"
RATE = 0.1


def _slope(problem: Problem, prediction: Tensor, v: Tensor) -> Tensor:
    return -v if isinstance(problem.spec.loss, DotProduct) else problem.spec.loss.scale * (prediction - v)


def unrolled(problem: Problem, twin: str = "") -> tuple[Tensor, Tensor]:
    """Outputs and final state by Theorem 3: phi_{t+1}(q_t) (W_0 + sum_i phi_i(k_i)^T g_i sum_{j=i..t} beta_i^j).

    The features' own parameters follow the chain rule through phi and momentum; only W is unrolled. `twin` names what to
    break: 'query' uses phi_t for phi_{t+1}, 'key' uses phi_0 for phi_i, 'momentum' drops the sum over j.
    """
    network, start, alpha = problem.spec.network, problem.start, alphas(problem)
    theta = {name: weight for name, weight in problem.weights.items() if name != "w_out"}
    initial, carried = dict(theta), {name: torch.zeros_like(weight) for name, weight in theta.items()}
    keys, values, outputs, state = [], [], [], start
    for t, span in enumerate(problem.spans()):
        q, k, v = (x[:, :, span] for x in (problem.inputs.q, problem.inputs.k, problem.inputs.v))
        features = phi(network, theta, k)
        slope = _slope(problem, features @ state, v)
        keys.append(phi(network, initial, k) if twin == "key" else features)
        values.append(-RATE * slope)
        slopes = torch.autograd.grad(features, list(theta.values()), slope @ state.mT, create_graph=True)
        before = theta
        carried = {name: grad + alpha[t] * carried[name] for name, grad in zip(theta, slopes, strict=True)}
        theta = {name: weight - RATE * carried[name] for name, weight in theta.items()}
        state = start
        for i in range(t + 1):
            weight = sum(beta(alpha, i, j) for j in range(t if twin == "momentum" else i, t + 1))
            state = state + outer(keys[i], values[i] * weight)
        outputs.append(phi(network, before if twin == "query" else theta, q) @ state)
    return torch.cat(outputs, 2), state


def _theorem(
    network: Network,
    loss: Loss,
    momentum: Momentum | None,
    chunk: int | None,
    broken: str,
    sizes: Sizes,
    seed: int,
    twin: bool,
) -> Sides:
    """`chunk` 0 stands for the chunk size of the draw, 1 for one step per token, None for a single step on all tokens."""
    if chunk == 1:
        sizes = dataclasses.replace(sizes, chunks=sizes.chunks + 3, chunk=1, extra=0)
    size = sizes.chunk if chunk == 0 else chunk
    spec = InnerLoop(network=network, loss=loss, momentum=momentum, chunk=size, lr=ConstantRate(RATE))
    problem = draw(spec, sizes, seed)
    result = problem.reference()
    outputs, state = unrolled(problem, broken if twin else "")
    return Sides(
        {"outputs": result.outputs, "state": result.state.fast_weights["w_out"]},
        {"outputs": outputs, "state": state},
        problem.leaves,
    )


def _effective(name: str, sizes: Sizes, seed: int, twin: bool) -> Sides:
    spec = PRESETS[name]
    spec = spec.edit(chunk=sizes.chunk) if name.startswith("lact_lm") else spec
    problem = draw(spec, sizes, seed)
    view = effective(spec, problem.inputs, problem.weights)
    if twin:
        view = dataclasses.replace(view, v_eff=view.v_eff * 1.01)
    result = problem.reference()
    gradients = {} if isinstance(spec.network, DepthwiseConv3x3) else problem.leaves
    return Sides({"outputs": result.outputs}, {"outputs": evaluate(view)}, gradients)


_DOT, _SQUARE = (
    DotProduct(),
    SquaredError(scale=0.05),
)  # a larger scale lets moving features diverge on some draws
_STATIC_OR_NOT = "any features, all fast weights move, linear last layer without bias"

CLAIMS = (
    Claim(
        "theorem-1-dot-product",
        GROUP,
        "One inner step turns the read-out into linear attention: o = phi_{t+1}(q) (W_t + phi_t(k)^T v_eff), v_eff = eta v.",
        f"{_STATIC_OR_NOT}; dot-product loss",
        "Theorem 1, appendix B",
        partial(_theorem, SwiGLU(), _DOT, None, None, "query"),
    ),
    Claim(
        "theorem-1-squared-error",
        GROUP,
        "The same with the squared error, whose effective value is the residual: v_eff = -eta (f_t(k) - v).",
        f"{_STATIC_OR_NOT}; squared error",
        "Theorem 1, appendix B",
        partial(_theorem, MLP(3), _SQUARE, None, None, "query"),
    ),
    Claim(
        "theorem-2-per-token",
        GROUP,
        "With one step per token, the state is W_0 plus one pair per token, each key with the features of its own time.",
        f"{_STATIC_OR_NOT}; one step per token, dot product",
        "Theorem 2, appendix C",
        partial(_theorem, SwiGLU(), _DOT, None, 1, "key"),
    ),
    Claim(
        "theorem-2-squared-error",
        GROUP,
        "The unrolled form with the squared error, chunk by chunk.",
        f"{_STATIC_OR_NOT}; one step per chunk, squared error",
        "Theorem 2, appendix C",
        partial(_theorem, MLP(2), _SQUARE, None, 0, "key"),
    ),
    Claim(
        "theorem-3-per-token",
        GROUP,
        "Momentum reweights the values only: v_eff_i = g_i sum_{j=i..t} beta_i^j, with factors that depend on the token.",
        f"{_STATIC_OR_NOT}; one step per token, momentum per token, one constant rate",
        "Theorem 3, appendix D",
        partial(_theorem, SwiGLU(), _DOT, PerTokenMomentum(), 1, "momentum"),
    ),
    Claim(
        "theorem-3-per-chunk",
        GROUP,
        "The same per chunk, with the chunk's mean momentum as LaCT has it.",
        f"{_STATIC_OR_NOT}; one step per chunk, dot product",
        "Theorem 3, appendix D",
        partial(_theorem, MLP(3), _DOT, PerTokenMomentum(), 0, "momentum"),
    ),
    Claim(
        "theorem-3-squared-error",
        GROUP,
        "Momentum as a reweighting also with the squared error, whose residuals depend on the state.",
        f"{_STATIC_OR_NOT}; one step per chunk, constant momentum",
        "Theorem 3, appendix D",
        partial(_theorem, SwiGLU(), _SQUARE, ConstantMomentum(0.6), 0, "momentum"),
    ),
    *(
        Claim(
            f"effective-view-{name.replace('_', '-')}",
            GROUP,
            f"Extracted q_eff, k_eff, v_eff and S_0 of {title} give its outputs by linear attention alone.",
            "as published, orthogonalisation and weight norm included as factors on the value side",
            "section 5, appendices B-G",
            partial(_effective, name),
        )
        for name, title in (
            ("lact_lm", "LaCT's language-model loop"),
            ("lact_nvs", "LaCT's view-synthesis loop"),
            ("vittt_glu", "ViTTT's gated loop"),
            ("vittt_conv", "ViTTT's convolution loop"),
        )
    ),
)
