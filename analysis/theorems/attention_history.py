"""The blog post's road from softmax attention to test-time training, and DeltaNet as the squared-error loop."""

from __future__ import annotations

import torch
from torch import Tensor

from analysis.spec import ConstantRate, DotProduct, InnerLoop, Linear, PerTokenRate, SquaredError
from analysis.theorems.claims import Claim, Sides
from analysis.theorems.draws import Problem, Sizes, draw

GROUP = "from attention to test-time training"


def _positive(x: Tensor) -> Tensor:
    return torch.nn.functional.elu(x) + 1


def _causal_linear(sizes: Sizes, seed: int, twin: bool) -> Sides:
    """The quadratic sum, query by query, against S_t and z_t carried along; the twin sums keys over heads, not time."""
    problem = draw(InnerLoop(network=Linear()), sizes, seed)
    q, k, v = _positive(problem.inputs.q), _positive(problem.inputs.k), problem.inputs.v
    quadratic = []
    for t in range(q.shape[2]):
        scores = (q[:, :, t, None] * k[:, :, : t + 1]).sum(-1, keepdim=True)
        quadratic.append((scores * v[:, :, : t + 1]).sum(2) / scores.sum(2))
    states = torch.einsum("bhtd,bhtv->bhtdv", k, v).cumsum(2)
    totals = k.cumsum(1 if twin else 2)
    outputs = torch.einsum("bhtd,bhtdv->bhtv", q, states) / (q * totals).sum(-1, keepdim=True)
    leaves = {name: problem.leaves[name] for name in ("q", "k", "v")}
    return Sides({"outputs": torch.stack(quadratic, 2)}, {"outputs": outputs}, leaves)


def _softmax_mlp(sizes: Sizes, seed: int, twin: bool) -> Sides:
    """Softmax attention against an MLP whose layers are K^T and V; the twin leaves the softmax out."""
    problem = draw(InnerLoop(network=Linear()), sizes, seed)
    x = problem.inputs
    expected = torch.nn.functional.scaled_dot_product_attention(x.q, x.k, x.v)
    first_layer, second_layer = x.k.mT / x.k.shape[-1] ** 0.5, x.v
    hidden = x.q @ first_layer
    if not twin:
        hidden = hidden.exp() / hidden.exp().sum(-1, keepdim=True)
    return Sides({"outputs": expected}, {"outputs": hidden @ second_layer})


def _zero_start(problem: Problem) -> Problem:
    zero = torch.zeros_like(problem.start).requires_grad_()
    return Problem(problem.spec, problem.inputs, {"w_out": zero})


def _linear_attention(sizes: Sizes, seed: int, twin: bool) -> Sides:
    """One full-sequence step from zero at rate 1 against (Q K^T) V; the twin starts from a random layer."""
    problem = draw(InnerLoop(network=Linear(), lr=ConstantRate(1.0)), sizes, seed)
    problem = problem if twin else _zero_start(problem)
    x = problem.inputs
    return Sides({"outputs": problem.reference().outputs}, {"outputs": (x.q @ x.k.mT) @ x.v})


def _linear_attention_squared(sizes: Sizes, seed: int, twin: bool) -> Sides:
    """The same with the squared error, whose first residual from zero is -v; the twin takes two steps."""
    loop = InnerLoop(network=Linear(), loss=SquaredError(), lr=ConstantRate(1.0), steps=2 if twin else 1)
    problem = _zero_start(draw(loop, sizes, seed))
    x = problem.inputs
    return Sides({"outputs": problem.reference().outputs}, {"outputs": (x.q @ x.k.mT) @ x.v})


def _reduced(sizes: Sizes, seed: int, twin: bool) -> Sides:
    """Variant 6: o_t = q_t (W + sum_{i<=t} k_i^T v_i), token by token; the twin leaves W out."""
    loop = InnerLoop(network=Linear(), chunk=1, lr=ConstantRate(1.0))
    problem = draw(loop, sizes, seed)
    x, tokens = problem.inputs, problem.inputs.q.shape[2]
    causal = torch.ones(tokens, tokens, dtype=torch.bool).tril()
    outputs = ((x.q @ x.k.mT) * causal) @ x.v
    outputs = outputs if twin else outputs + x.q @ problem.start
    return Sides({"outputs": problem.reference().outputs}, {"outputs": outputs}, problem.leaves)


def delta_rule(q: Tensor, k: Tensor, v: Tensor, beta: Tensor, start: Tensor) -> tuple[Tensor, Tensor]:
    """DeltaNet, token by token: replace what the key retrieves, S <- S + k^T (beta (v - k S)), then read o = q S."""
    state, outputs = start, []
    for t in range(q.shape[2]):
        key, rate = k[:, :, t], beta[:, :, t]
        old = torch.einsum("bhd,bhdv->bhv", key, state)
        new = rate * v[:, :, t] + (1 - rate) * old
        state = state - key.unsqueeze(-1) * old.unsqueeze(-2) + key.unsqueeze(-1) * new.unsqueeze(-2)
        outputs.append(torch.einsum("bhd,bhdv->bhv", q[:, :, t], state))
    return torch.stack(outputs, 2), state


def _delta_net(sizes: Sizes, seed: int, twin: bool) -> Sides:
    """A linear inner layer, squared error, a rate per token and a step per token; the twin has the dot product."""
    loss = DotProduct() if twin else SquaredError()
    problem = draw(InnerLoop(network=Linear(), loss=loss, chunk=1, lr=PerTokenRate()), sizes, seed)
    x, result = problem.inputs, problem.reference()
    outputs, state = delta_rule(x.q, x.k, x.v, x.rates["w_out"], problem.start)
    return Sides(
        {"outputs": result.outputs, "state": result.state.fast_weights["w_out"]},
        {"outputs": outputs, "state": state},
        problem.leaves,
    )


CLAIMS = (
    Claim(
        "causal-linear-attention-recurrence",
        GROUP,
        "Causal linear attention with its normaliser equals the recurrence over S_t and z_t.",
        "a positive feature map (elu + 1)",
        "blog post, causal linear attention",
        _causal_linear,
    ),
    Claim(
        "softmax-attention-is-an-mlp",
        GROUP,
        "Softmax attention is a two-layer perceptron on Q whose layers are K^T and V, with softmax between them.",
        "scores divided by the root of the key width",
        "blog post, a different view of attention",
        _softmax_mlp,
    ),
    Claim(
        "zero-start-is-linear-attention",
        GROUP,
        "A single linear inner layer that starts at zero and takes one full-sequence step is unnormalised linear attention.",
        "dot product, rate 1",
        "blog post; section 5, first paragraph",
        _linear_attention,
    ),
    Claim(
        "zero-start-squared-error",
        GROUP,
        "The same holds for the squared error, because the first residual from zero is -v.",
        "squared error, rate 1, one step",
        "blog post, the test-time training paradigm",
        _linear_attention_squared,
    ),
    Claim(
        "variant-6-is-linear-attention",
        GROUP,
        "After all reductions the loop is o = q (W + sum k_i^T v_i).",
        "linear layer, dot product, rate 1, one step per token",
        "section 6.1, step 6",
        _reduced,
    ),
    Claim(
        "delta-net-is-squared-error",
        GROUP,
        "DeltaNet is a linear inner layer with squared error, its write strength being the rate.",
        "one step per token, update then apply",
        "section 2.1",
        _delta_net,
    ),
)
