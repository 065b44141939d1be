"""The linear-attention view: q_eff, k_eff, v_eff and S_0 of any specification, and their evaluation (section 5, appendices B-G).

Every inner step adds the pairs k_eff^T v_eff of its tokens to an accumulator, D_j = sum k_eff^T v_eff + alpha_j D_{j-1}, and the
state is S_{j+1} = (S_j + rate_j D_j R_j) N_j, read as o = gate * (q_eff S). R_j is the gradient transform seen as a factor on the
value side: the identity, one scale per column (soft clip, Frobenius), or a V x V matrix (Newton-Schulz: M(D) is D times an
even polynomial of D). N_j is the weight norm, one scale per column. So no transform and no norm touches queries or keys.

Extraction runs the inner loop once, since R_j, N_j and moving features depend on the data; evaluation uses the view alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from analysis.errors import UnsupportedSpecError
from analysis.inner import linear_view
from analysis.inner.chunks import check, chunks
from analysis.inner.networks import patches, value
from analysis.inner.recurrent import initial_state, update
from analysis.inner.types import FastWeights, Inputs, Result, State
from analysis.inner.updates import (
    column_norms,
    inside_rates,
    momentum_gate,
    outside_rates,
    sign,
    upstream_gradient,
)
from analysis.spec import (
    DepthwiseConv3x3,
    DotProduct,
    FrobeniusScaling,
    Identity,
    InnerLoop,
    NewtonSchulz,
    NormMode,
    Order,
    QuerySource,
    SoftClip,
)

Span = tuple[int, int]
Part = tuple[Tensor, Tensor, Tensor, Tensor, Tensor | None, Tensor | None, Tensor | None]


@dataclass(frozen=True)
class EffectiveAttention:
    """An inner loop on given inputs, written as linear attention. J is the number of inner steps over all chunks.

    Attributes:
        spec: the loop it was extracted from.
        q_eff: phi at the fast weights each token reads; [B, H, T, V, 9] for the convolution (a 3x3 patch per channel).
        k_eff: phi at the fast weights of each inner step, one row per pair; [B, H, P, V, 9] for the convolution.
        v_eff: -/+ rate * dL/df of every pair (Theorem 1), times the gate of the key for GLU (appendix F).
        s_0: the initial last layer.
        output_gate: factor on the output (GLU), or None.
        decay, rate: momentum gate of every inner step, and the factor on its transformed accumulator.
        value_scale, value_mixing: R_j as a scale per column or as a matrix (in float64); at most one of them is set.
        norm_scale: N_j, or None; under pre-norm it acts at read-out only.
        steps: per inner step, the tokens it trains on and its range of pairs.
        reads: ranges of tokens, and how many inner steps the state that they read has seen.
        final: the state after the last chunk, as the recurrence leaves it.
    """

    spec: InnerLoop
    q_eff: Tensor
    k_eff: Tensor
    v_eff: Float[Tensor, "B H P V"]
    s_0: Float[Tensor, "B H D V"]
    output_gate: Float[Tensor, "B H T V"] | None
    decay: Float[Tensor, "B H J 1 1"]
    rate: Float[Tensor, "B H J 1 1"]
    value_scale: Float[Tensor, "B H J 1 V"] | None
    value_mixing: Float[Tensor, "B H J V V"] | None
    norm_scale: Float[Tensor, "B H J 1 V"] | None
    steps: tuple[tuple[Span, Span], ...]
    reads: tuple[tuple[Span, int], ...]
    final: State

    @property
    def is_convolution(self) -> bool:
        """Whether every value channel has queries and keys of its own (appendix G)."""
        return isinstance(self.spec.network, DepthwiseConv3x3)

    @property
    def normalises_at_read_out(self) -> bool:
        """Whether the accumulated sum is kept and its normalised copy is read (pre-norm)."""
        return self.spec.weight_norm is not None and self.spec.weight_norm.mode is NormMode.PRE


def effective(spec: InnerLoop, inputs: Inputs, weights: FastWeights) -> EffectiveAttention:
    """Extract the linear attention that a loop performs; takes the pair that a host's site `layers.I.inner` yields.

    Raises:
        InputError: tensors that do not fit the specification.
    """
    check(spec, inputs, weights)
    state, one_step = initial_state(spec, weights), spec.edit(steps=1)
    queries: list[tuple[Tensor, Tensor | None]] = []
    reads: list[tuple[Span, int]] = []
    steps: list[tuple[Span, Span]] = []
    parts: list[Part] = []
    length = 0
    accumulator: Tensor | None = None
    for span, updates, read_span in _schedule(spec, inputs):
        if spec.order is Order.APPLY_THEN_UPDATE:
            queries.append(_queries(spec, state, inputs, read_span))
            reads.append((read_span, len(steps)))
        piece = inputs.tokens(*span)
        for _ in range(spec.steps if updates and spec.moving else 0):
            part, accumulator = _inner_step(spec, state, piece, accumulator)
            parts.append(part)
            steps.append((span, (length, length + piece.num_tokens)))
            length += piece.num_tokens
            state = update(one_step, state, piece)
        if spec.order is Order.UPDATE_THEN_APPLY:
            queries.append(_queries(spec, state, inputs, read_span))
            reads.append((read_span, len(steps)))
    gates = [gate for _, gate in queries if gate is not None]
    keys, values, decay, rate, scale, mixing, norm = _joined(parts, queries[0][0], weights[spec.network.last])
    return EffectiveAttention(
        spec,
        torch.cat([query for query, _ in queries], 2),
        keys,
        values,
        weights[spec.network.last],
        torch.cat(gates, 2) if gates else None,
        decay,
        rate,
        scale,
        mixing,
        norm,
        tuple(steps),
        tuple(reads),
        state,
    )


def _schedule(spec: InnerLoop, inputs: Inputs) -> Iterator[tuple[Span, bool, Span]]:
    if inputs.update_tokens is not None:
        yield (0, inputs.update_tokens), True, (0, inputs.num_tokens)
        return
    for chunk in chunks(spec, inputs.num_tokens):
        yield (chunk.start, chunk.stop), chunk.updates, (chunk.start, chunk.stop)


def _features(spec: InnerLoop, state: State, x: Tensor, inputs: Inputs) -> tuple[Tensor, Tensor | None]:
    if isinstance(spec.network, DepthwiseConv3x3):
        return patches(x, inputs.grid), None
    weights = state.fast_weights
    return linear_view.features(spec.network, weights, x), linear_view.output_gate(spec.network, weights, x)


def _queries(spec: InnerLoop, state: State, inputs: Inputs, span: Span) -> tuple[Tensor, Tensor | None]:
    source = inputs.k if spec.query is QuerySource.KEY else inputs.q
    return _features(spec, state, source[:, :, slice(*span)], inputs)


def _inner_step(
    spec: InnerLoop, state: State, piece: Inputs, accumulator: Tensor | None
) -> tuple[Part, Tensor]:
    """Return what one inner step contributes (k_eff, v_eff, decay, rate, scale, mixing, norm) and D_j."""
    last = spec.network.last
    keys, gate = _features(spec, state, piece.k, piece)
    prediction = None
    if not isinstance(spec.loss, DotProduct):
        prediction = value(spec.network, state.fast_weights, piece.k, piece.grid)
    upstream = upstream_gradient(spec.loss, prediction, piece.v, piece.num_tokens)
    values = sign(spec) * upstream * inside_rates(spec, piece)[last]
    if gate is not None:
        values = values * gate
    ones = torch.ones_like(piece.v[:, :, :1, :1])
    decay, rate = ones * momentum_gate(spec, piece), ones * outside_rates(spec, piece)[last]
    total = pair_sum(keys, values)
    if accumulator is not None and spec.momentum is not None:
        total = total + decay * accumulator
    scale, mixing = _value_side(spec, total)
    norm = None
    if spec.weight_norm is not None:
        assert state.target_norms is not None
        base = state.fast_weights[last] if state.main is None else state.main[last]
        moved = base + rate * _mixed(total, scale, mixing)
        norm = state.target_norms[last] / (column_norms(moved) + spec.weight_norm.eps)
    return (keys, values, decay, rate, scale, mixing, norm), total


def _value_side(spec: InnerLoop, total: Tensor) -> tuple[Tensor | None, Tensor | None]:
    """Return R with transform(D) = D R: a scale per column, or the polynomial of D^T D that Newton-Schulz amounts to."""
    if isinstance(spec.transform, Identity):
        return None, None
    if isinstance(spec.transform, SoftClip):
        return 1 / (column_norms(total) + 1), None
    length = torch.linalg.vector_norm(total, dim=(-2, -1), keepdim=True) + spec.transform.eps
    if isinstance(spec.transform, FrobeniusScaling):
        return (1 / length).expand(*total.shape[:-2], 1, total.shape[-1]), None
    assert isinstance(spec.transform, NewtonSchulz)
    # float64 whatever the inputs: R stretches weak directions five-hundredfold, and rounding R would stretch with it
    x = (total / length).double()
    eye = torch.eye(total.shape[-1], dtype=x.dtype, device=x.device)
    product = eye / length
    for a, b, c in spec.transform.schedule.coefficients:
        gram = x.transpose(-2, -1) @ x
        factor = a * eye + b * gram + c * gram @ gram
        x, product = x @ factor, product @ factor
    return None, product


def _mixed(total: Tensor, scale: Tensor | None, mixing: Tensor | None) -> Tensor:
    if scale is not None:
        return total * scale
    return total if mixing is None else (total.to(mixing.dtype) @ mixing).to(total.dtype)


def _joined(parts: list[Part], query: Tensor, s_0: Tensor) -> Part:
    """Join the parts of all inner steps: pairs along their axis, scalars and matrices along a new one."""
    if not parts:
        none = s_0[:, :, :0, :1].unsqueeze(-1)
        return query[:, :, :0], s_0[:, :, :0], none, none, None, None, None
    keys, values, decay, rate, scale, mixing, norm = (list(column) for column in zip(*parts, strict=True))

    def stacked(tensors: list[Tensor | None]) -> Tensor | None:
        found = [tensor for tensor in tensors if tensor is not None]
        return torch.stack(found, 2) if found else None

    joined = torch.cat(keys, 2), torch.cat(values, 2), torch.stack(decay, 2), torch.stack(rate, 2)
    return (*joined, stacked(scale), stacked(mixing), stacked(norm))


def pair_sum(keys: Tensor, values: Float[Tensor, "B H P V"]) -> Float[Tensor, "B H D V"]:
    """Sum over pairs of k_eff^T v_eff; for the convolution, of patch times value within each channel (appendix G.3)."""
    if keys.ndim == 5:
        return torch.einsum("bhtcn,bhtc->bhnc", keys, values)
    return keys.transpose(-2, -1) @ values


def states(view: EffectiveAttention) -> list[Float[Tensor, "B H D V"]]:
    """Return the J + 1 states that are read: S_0, then S_{j+1} = (S_j + rate_j D_j R_j) N_j after every inner step."""
    total = torch.zeros_like(view.s_0)
    kept, shown = view.s_0, [view.s_0]
    for j, (_, pairs) in enumerate(view.steps):
        fresh = pair_sum(view.k_eff[:, :, slice(*pairs)], view.v_eff[:, :, slice(*pairs)])
        total = fresh + view.decay[:, :, j] * total
        scale = None if view.value_scale is None else view.value_scale[:, :, j]
        mixing = None if view.value_mixing is None else view.value_mixing[:, :, j]
        kept = kept + view.rate[:, :, j] * _mixed(total, scale, mixing)
        if view.norm_scale is None:
            shown.append(kept)
            continue
        shown.append(kept * view.norm_scale[:, :, j])
        kept = kept if view.normalises_at_read_out else shown[-1]
    return shown


def read_out(view: EffectiveAttention, seen: list[Tensor]) -> Float[Tensor, "B H T V"]:
    """o = gate * (q_eff S), each token with the state it reads; `seen` holds the J + 1 states."""
    product = "bhtcn,bhnc->bhtc" if view.is_convolution else "bhtd,bhdv->bhtv"
    pieces = [
        torch.einsum(product, view.q_eff[:, :, slice(*span)], seen[count]) for span, count in view.reads
    ]
    outputs = torch.cat(pieces, 2)
    return outputs if view.output_gate is None else view.output_gate * outputs


def evaluate(view: EffectiveAttention) -> Float[Tensor, "B H T V"]:
    """Return the outputs from the view alone: linear attention with the extracted queries, keys, values and S_0."""
    return read_out(view, states(view))


def run_effective(
    spec: InnerLoop,
    inputs: Inputs,
    weights: FastWeights,
    *,
    measure: bool = False,
    newton_schulz_dtype: torch.dtype | None = None,
) -> Result:
    """Backend `effective`: extract the linear attention of the loop and evaluate it in place of the loop.

    Raises:
        UnsupportedSpecError: inner losses were asked for, or another precision for Newton-Schulz.
    """
    if measure or newton_schulz_dtype is not None:
        raise UnsupportedSpecError(
            "the effective backend needs measure=False and newton_schulz_dtype=None, received others; use 'recurrent'."
        )
    view = effective(spec, inputs, weights)
    seen = states(view)
    fast = {**view.final.fast_weights, spec.network.last: seen[-1]}
    state = State(fast, view.final.main, view.final.momentum, view.final.target_norms)
    return Result(read_out(view, seen), state, None, "effective")
