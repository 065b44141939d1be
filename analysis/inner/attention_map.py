"""What a query attends to in the linear-attention view: coefficients of the pairs, maps over tokens, the mask in words.

Also the paper's variant with the gradient transform inside the momentum sum (section 5.3, appendix E.3), for comparison.
"""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from analysis.errors import InputError, UnsupportedSpecError
from analysis.inner.effective import EffectiveAttention, pair_sum, read_out
from analysis.inner.types import Inputs
from analysis.inner.updates import apply_transform
from analysis.spec import InnerLoop, Order, Trained


def momentum_weights(view: EffectiveAttention) -> Float[Tensor, "B H J1 J"]:
    """C[t, i] = sum_{j=i..t} rate_j beta_i^j: how often the pairs of step i entered the state after t steps (appendix H.1).

    Row t belongs to the state after t steps, so row 0 is zero. Gradient transform and weight norm are left out.
    """
    rows, beta, total = _start(view)
    for j in range(len(view.steps)):
        beta = _decayed(view, beta, j)
        total = total + view.rate[:, :, j, 0] * beta
        rows.append(total)
    return torch.stack(rows, 2)


def _start(view: EffectiveAttention) -> tuple[list[Tensor], Tensor, Tensor]:
    zeros = view.s_0.new_zeros(*view.s_0.shape[:2], len(view.steps))
    return [zeros], zeros, zeros


def _decayed(view: EffectiveAttention, beta: Tensor, j: int) -> Tensor:
    fresh = torch.zeros_like(beta)
    fresh[..., j] = 1
    return view.decay[:, :, j, 0] * beta + fresh


def coefficients(
    view: EffectiveAttention,
) -> tuple[Float[Tensor, "B H J1 J V"], Float[Tensor, "B H J1 V"]]:
    """Return how strongly channel v of the pairs of each step, and of S_0, stands in channel v of each state.

    Exact unless Newton-Schulz mixes value channels; then this is the diagonal of the mixing. With `coefficients` called C
    and A: o_t[v] = (q_eff S_0)[v] A[t, v] + sum_p (q_eff_t . k_eff_p) C[t, step(p), v] v_eff_p[v].
    """
    _, beta, _ = _start(view)
    width = view.s_0.shape[-1]
    kept = view.s_0.new_zeros(*view.s_0.shape[:2], len(view.steps), width)
    start = view.s_0.new_ones(*view.s_0.shape[:2], width)
    rows, starts = [kept], [start]
    for j in range(len(view.steps)):
        beta = _decayed(view, beta, j)
        kept = kept + view.rate[:, :, j] * beta.unsqueeze(-1) * _value_diagonal(view, j)
        if view.norm_scale is None:
            rows.append(kept)
            starts.append(start)
            continue
        scale = view.norm_scale[:, :, j]
        rows.append(kept * scale)
        starts.append(start * scale[:, :, 0])
        if not view.normalises_at_read_out:
            kept, start = rows[-1], starts[-1]
    return torch.stack(rows, 2), torch.stack(starts, 2)


def _value_diagonal(view: EffectiveAttention, j: int) -> Tensor:
    if view.value_scale is not None:
        return view.value_scale[:, :, j]
    if view.value_mixing is not None:
        return view.value_mixing[:, :, j].diagonal(dim1=-2, dim2=-1).unsqueeze(2)
    return torch.ones_like(view.s_0[:, :, :1])


def attention_map(view: EffectiveAttention, head: int, channel: int | None = None) -> Float[Tensor, "B T T"]:
    """Return the effective attention weights of one head: q_eff k_eff^T times the coefficients, masked as the model is.

    Entry [b, t, i] is the weight of token i's v_eff in output t, before an output gate; zero where t cannot see i. Pairs of
    several inner steps on one token are added. `channel` picks one value channel; without it the mean over channels
    is returned, which is every channel's weight as long as neither transform nor norm treats columns differently.

    Raises:
        InputError: no such head or channel.
    """
    _expect_index("head", head, view.s_0.shape[1])
    if channel is not None:
        _expect_index("channel", channel, view.s_0.shape[-1])
    chosen = slice(None) if channel is None else slice(channel, channel + 1)
    weight = coefficients(view)[0][:, head, :, :, chosen]
    queries, keys = view.q_eff[:, head], view.k_eff[:, head]
    if not view.is_convolution:
        weight, chosen = weight.mean(-1, keepdim=True), slice(None)
        queries, keys = queries.unsqueeze(2), keys.unsqueeze(2)
    tokens = queries.shape[1]
    found = queries.new_zeros(queries.shape[0], tokens, tokens)
    for (first, stop), seen in view.reads:
        for j, ((start, end), (pair, last)) in enumerate(view.steps[:seen]):
            scores = torch.einsum(
                "btcn,bpcn->btpc", queries[:, first:stop, chosen], keys[:, pair:last, chosen]
            )
            found[:, first:stop, start:end] += (scores * weight[:, seen, j, None, None]).mean(-1)
    return found


def _expect_index(name: str, index: int, size: int) -> None:
    if not 0 <= index < size:
        raise InputError(f"{name} must lie in 0..{size - 1}, received {index}; pass an existing one.")


def visible(view: EffectiveAttention) -> Bool[Tensor, "T T"]:
    """Return which tokens' pairs (column) the state contains that a token reads (row)."""
    tokens = view.q_eff.shape[2]
    mask = torch.zeros(tokens, tokens, dtype=torch.bool, device=view.q_eff.device)
    for (first, stop), seen in view.reads:
        for (start, end), _ in view.steps[:seen]:
            mask[first:stop, start:end] = True
    return mask


def mask_text(spec: InnerLoop, inputs: Inputs) -> str:
    """Say in one sentence which tokens a query sees through the inner loop."""
    if spec.trained is Trained.NONE:
        return "no pairs at all: the fast weights do not move"
    if inputs.update_tokens is not None:
        return f"the first {inputs.update_tokens} tokens (input views) to all tokens, the others to none"
    if spec.chunk is None or spec.chunk >= inputs.num_tokens:
        if spec.order is Order.UPDATE_THEN_APPLY:
            return "the full set: every token sees every token"
        return "no pairs at all: a single chunk is applied before its own update"
    if spec.order is Order.UPDATE_THEN_APPLY:
        return f"block-causal: chunks of {spec.chunk} tokens, each sees itself and all earlier chunks"
    return f"block-shifted: chunks of {spec.chunk} tokens, each sees earlier chunks and not itself"


def evaluate_inside_momentum(view: EffectiveAttention) -> Float[Tensor, "B H T V"]:
    """The paper's form S_t = S_0 + sum_i M(k_eff_i^T m_i(t)), m_i(t) = v_eff_i C[t, i], one M per chunk (section 5.3).

    Equal to `evaluate` without momentum and with rates inside the gradient; with momentum it is another operator.

    Raises:
        UnsupportedSpecError: the loop has a weight norm, which this form leaves out.
    """
    if view.norm_scale is not None:
        raise UnsupportedSpecError(
            "the form with M inside the momentum sum needs weight_norm=None, received a weight norm; edit the loop first."
        )
    weight = momentum_weights(view)
    sums = [
        pair_sum(view.k_eff[:, :, slice(*pairs)], view.v_eff[:, :, slice(*pairs)]) for _, pairs in view.steps
    ]
    seen = [view.s_0]
    for count in range(1, len(sums) + 1):
        terms = [sums[i] * weight[:, :, count, i, None, None] for i in range(count)]
        seen.append(view.s_0 + sum(apply_transform(view.spec.transform, term) for term in terms))
    return read_out(view, seen)
