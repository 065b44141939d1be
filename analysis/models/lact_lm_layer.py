"""One layer of the LaCT language model: window attention and fast weights on shared projections, added; then an MLP.

Parameter names are the published ones. The fast path takes q and k before rotary positions, scales and shifts them per
channel, applies silu, normalises per fast-weight head, rotates with the attention's head layout, and hands them to the
inner loop. The published matrices w0, w1, w2 act as W x; `initial_weights` gives them transposed, [in, out]:

    w_gate = w0^T [H, d, d_h]    w_up = w2^T [H, d, d_h]    w_out = w1^T [H, d_h, d]
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from analysis.inner import Inputs
from analysis.models.attention import causal_attention, rotary_angles, rotate_half_split
from analysis.models.inner_call import Call
from analysis.models.lact_lm_config import LOOP, LaCTLMConfig, has_momentum_projection, rate_order
from analysis.models.lact_lm_stream import LayerState
from analysis.spec import InnerLoop, SwiGLU

BASE_LR = 0.001
_BASE_LR_BEFORE_SOFTPLUS = BASE_LR + math.log(-math.expm1(-BASE_LR))
_NORM_EPS = 1e-5


class LowRankWeight(nn.Module):
    """w_left w_right + 0.5 I, [heads, out, in]: the published parameterisation of the initial w0 and w2."""

    def __init__(self, heads: int, out_dim: int, in_dim: int, rank: int) -> None:
        super().__init__()
        self.w_left = nn.Parameter(torch.empty(heads, out_dim, rank))
        self.w_right = nn.Parameter(torch.empty(heads, rank, in_dim))

    def initialise(self, gain: float) -> None:
        """Draw both factors: std gain / sqrt(rank) and gain / sqrt(in)."""
        nn.init.normal_(self.w_left, std=gain / math.sqrt(self.w_left.shape[-1]))
        nn.init.normal_(self.w_right, std=gain / math.sqrt(self.w_right.shape[-1]))

    def forward(self) -> Tensor:
        """Return the assembled matrix."""
        product = self.w_left @ self.w_right
        return product + 0.5 * torch.eye(*product.shape[-2:], device=product.device, dtype=product.dtype)


def _l2_normalised(x: Tensor) -> Tensor:
    return x / (x.norm(dim=-1, keepdim=True) + _NORM_EPS)


def _heads(x: Float[Tensor, "B T C"], heads: int) -> Float[Tensor, "B H T D"]:
    return x.reshape(*x.shape[:-1], heads, -1).transpose(1, 2)


def _merged(x: Float[Tensor, "B H T D"]) -> Float[Tensor, "B T C"]:
    return x.transpose(1, 2).flatten(2)


class LaCTAttention(nn.Module):
    """Window attention plus the fast-weight branch; `loop` None leaves the branch out."""

    def __init__(self, config: LaCTLMConfig, loop: InnerLoop | None) -> None:
        super().__init__()
        self.config = config
        hidden = config.hidden_size
        self.qkv = nn.Linear(hidden, 3 * hidden, bias=config.qkv_bias)
        self.o_proj = nn.Linear(hidden, hidden, bias=False)
        if config.attn_qk_norm:
            self.q_norm = nn.RMSNorm(hidden, eps=_NORM_EPS)
            self.k_norm = nn.RMSNorm(hidden, eps=_NORM_EPS)
        self.has_branch = loop is not None
        if loop is not None:
            self._build_branch(config, loop)

    def _build_branch(self, config: LaCTLMConfig, loop: InnerLoop) -> None:
        hidden, heads, d, d_h = config.hidden_size, config.num_lact_heads, config.fast_dim, config.fast_hidden
        self.rates = rate_order(loop)
        if isinstance(loop.network, SwiGLU):
            self.w0, self.w2 = (self._input_matrix(config) for _ in range(2))
            self.w1 = nn.Parameter(torch.empty(heads, d, d_h))
        else:
            self.w1 = nn.Parameter(torch.empty(heads, d, d))
        self.qk_scale = nn.Parameter(torch.ones(hidden, 2))
        self.qk_offset = nn.Parameter(torch.zeros(hidden, 2))
        self.ttt_norm = nn.RMSNorm(d, eps=_NORM_EPS)
        if self.rates:
            self.lr_proj = nn.Linear(hidden, heads * len(self.rates))
        if has_momentum_projection(loop):
            self.momentum_proj = nn.Sequential(nn.Linear(hidden, heads), nn.Sigmoid())
        if config.learnable_ttt_scale:
            self.ttt_scale_proj = nn.Linear(hidden, heads)

    @staticmethod
    def _input_matrix(config: LaCTLMConfig) -> nn.Module | nn.Parameter:
        shape = (config.num_lact_heads, config.fast_hidden, config.fast_dim)
        rank = config.w0_w2_low_rank
        return LowRankWeight(*shape, rank) if rank > 0 else nn.Parameter(torch.empty(shape))

    def initialise(self) -> None:
        """Draw the initial fast weights as published: std 1/sqrt(in), or the low-rank factors."""
        if not self.has_branch:
            return
        nn.init.ones_(self.qk_scale)
        nn.init.zeros_(self.qk_offset)
        nn.init.normal_(self.w1, std=1 / math.sqrt(self.w1.shape[-1]))
        for name in ("w0", "w2"):
            weight = getattr(self, name, None)
            if isinstance(weight, LowRankWeight):
                weight.initialise(self.config.fw_init_gain)
            elif weight is not None:
                nn.init.normal_(weight, std=1 / math.sqrt(weight.shape[-1]))
        if self.config.learnable_ttt_scale and self.config.zero_init_ttt_scale:
            nn.init.zeros_(self.ttt_scale_proj.weight)

    def initial_weights(self) -> dict[str, Tensor]:
        """Initial fast weights in the inner layout, [H, in, out]."""
        matrices = {"w_out": self.w1}
        for name, published in (("w_gate", "w0"), ("w_up", "w2")):
            weight = getattr(self, published, None)
            if weight is not None:
                matrices[name] = weight() if isinstance(weight, LowRankWeight) else weight
        return {name: weight.transpose(-1, -2) for name, weight in matrices.items()}

    def forward(
        self, h: Float[Tensor, "B T C"], call: Call, state: LayerState | None = None
    ) -> Float[Tensor, "B T C"]:
        """h: the normed hidden states. With `state` the sequence continues an earlier one, and `state` is advanced."""
        q, k, v = self.qkv(h).chunk(3, dim=-1)
        if self.config.attn_qk_norm:
            q, k = self.q_norm(q), self.k_norm(k)
        start = 0 if state is None else state.position
        angles = rotary_angles(start, h.shape[1], self.config.head_dim, self.config.rope_theta, h)
        mixed = self._attention(q, k, v, angles, call, state)
        if self.has_branch:
            mixed = mixed + self._fast_branch(h, (q, k, v), angles, call, state)
        if state is not None:
            state.position += h.shape[1]
        return self.o_proj(mixed)

    def _attention(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        angles: tuple[Tensor, Tensor],
        call: Call,
        state: LayerState | None,
    ) -> Tensor:
        heads = self.config.num_attn_heads
        window = None if self.config.full_attention else self.config.window_size
        q, k, v = (_heads(x, heads) for x in (q, k, v))
        q, k, v = call.site.inside("attention").group(
            q=rotate_half_split(q, angles), k=rotate_half_split(k, angles), v=v
        )
        if state is not None:
            k, v = state.extend_window(k, v, window)
        return call.site.inside("attention").note("o", _merged(causal_attention(q, k, v, window)))

    def _fast_branch(
        self,
        h: Tensor,
        qkv: tuple[Tensor, Tensor, Tensor],
        angles: tuple[Tensor, Tensor],
        call: Call,
        state: LayerState | None,
    ) -> Tensor:
        inputs = self._inner_inputs(h, *qkv, angles, call)
        if state is None:
            out = call.run_loop(LOOP, inputs, self.initial_weights()).outputs
        else:
            out = state.continue_loop(call, LOOP, inputs, self.initial_weights())
        out = self.ttt_norm(out.to(h.dtype))
        if self.config.learnable_ttt_scale:
            out = out * F.silu(self.ttt_scale_proj(h)).transpose(1, 2).unsqueeze(-1)
        return _merged(out)

    def _inner_inputs(
        self, h: Tensor, q: Tensor, k: Tensor, v: Tensor, angles: tuple[Tensor, Tensor], call: Call
    ) -> Inputs:
        config, heads = self.config, self.config.num_lact_heads
        q = q * self.qk_scale[:, 0] + self.qk_offset[:, 0]
        k = k * self.qk_scale[:, 1] + self.qk_offset[:, 1]
        if config.qkv_silu:
            q, k = F.silu(q), F.silu(k)
            v = v if config.no_v_silu else F.silu(v)
        q, k, v = (_heads(x, heads) for x in (q, k, v))
        q, k = _l2_normalised(q), _l2_normalised(k)
        if not config.ttt_nope:
            q, k = (
                _heads(_merged(rotate_half_split(_heads(_merged(x), config.num_attn_heads), angles)), heads)
                for x in (q, k)
            )
        loop = call.loops[LOOP]
        return Inputs(q, k, v, rates=self._rates(h, loop), momentum=self._momentum(h, loop))

    def _rates(self, h: Tensor, loop: InnerLoop) -> dict[str, Tensor]:
        if not loop.rate_names:
            return {}
        logits = self.lr_proj(h)
        logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
        rates = F.softplus(logits + _BASE_LR_BEFORE_SOFTPLUS).to(h.dtype)
        rates = rates.reshape(*h.shape[:2], -1, len(self.rates), 1).transpose(1, 2)
        return {name: rates[:, :, :, self.rates.index(name)] for name in loop.rate_names}

    def _momentum(self, h: Tensor, loop: InnerLoop) -> Tensor | None:
        if not loop.needs_momentum_input:
            return None
        if not hasattr(self, "momentum_proj"):  # trained frozen: the loop asks for a gate that it never reads
            return h.new_zeros(h.shape[0], self.config.num_lact_heads, h.shape[1], 1)
        return self.momentum_proj(h).transpose(1, 2).unsqueeze(-1)


class TokenMLP(nn.Module):
    """down(silu(gate(x)) * up(x)), no biases."""

    def __init__(self, hidden: int, width: int) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(hidden, width, bias=False)
        self.up_proj = nn.Linear(hidden, width, bias=False)
        self.down_proj = nn.Linear(width, hidden, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Apply the MLP to every token."""
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class LaCTBlock(nn.Module):
    """x + attention(norm(x)), then x + mlp(norm(x))."""

    def __init__(self, config: LaCTLMConfig, loop: InnerLoop | None) -> None:
        super().__init__()
        self.attn_norm = nn.RMSNorm(config.hidden_size, eps=config.norm_eps)
        self.attn = LaCTAttention(config, loop)
        self.mlp_norm = nn.RMSNorm(config.hidden_size, eps=config.norm_eps)
        self.mlp = TokenMLP(config.hidden_size, config.mlp_dim)

    def forward(
        self, x: Float[Tensor, "B T C"], call: Call, state: LayerState | None = None
    ) -> Float[Tensor, "B T C"]:
        """Run the block on a sequence, or on a piece that continues `state`."""
        x = x + self.attn(self.attn_norm(x), call, state)
        return x + self.mlp(self.mlp_norm(x))
