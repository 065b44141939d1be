"""The sub-layers of LaCT novel-view synthesis: attention within a view, fast weights across views, feed-forward.

Parameter names are the published ones. The published fast weights are [in, out] already, so the mapping renames only:

    w_gate = w0 [H, d, d_h]    w_up = w2 [H, d, d_h]    w_out = w1 [H, d_h, d]

A loop with a single linear layer keeps w1 alone, [H, d, d]; a loop without per-token rates, or one in which nothing
moves, has no lr_fc.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from analysis.errors import UnsupportedSpecError
from analysis.inner import Inputs, run
from analysis.models import lact_nvs_config as config
from analysis.models.inner_call import Call
from analysis.models.lact_nvs_config import LOOP
from analysis.spec import ConstantRate, InnerLoop, Linear, PerTokenRate, SwiGLU, Trained

NORM_EPS = 1e-5
PUBLISHED_NAMES = {"w0": "w_gate", "w1": "w_out", "w2": "w_up"}
_INIT_GAIN = math.sqrt(2)

FastWeightsOfLayer = dict[str, Tensor]


@dataclass(frozen=True)
class Span:
    """Which tokens a pass holds: how many one view has, and how many leading ones belong to input views."""

    per_view: int
    num_input: int


def _heads(x: Float[Tensor, "B T C"], head_dim: int) -> Float[Tensor, "B H T D"]:
    return x.unflatten(-1, (-1, head_dim)).transpose(1, 2)


def _merged(x: Float[Tensor, "B H T D"]) -> Float[Tensor, "B T C"]:
    return x.transpose(1, 2).flatten(2)


def _normed(norm: nn.RMSNorm, x: Float[Tensor, "B H T D"]) -> Float[Tensor, "B H T D"]:
    """Apply an RMS norm in the dtype of its weight, so that autocast does not lower its precision or its epsilon."""
    return norm(x.to(norm.weight.dtype)).to(x.dtype)


class SelfAttention(nn.Module):
    """Softmax attention among the tokens of each view; q and k are RMS-normalised per head if asked for.

    The norm's epsilon is the machine epsilon of the dtype, as published.
    """

    def __init__(self, dim: int, entry: config.SelfAttention) -> None:
        super().__init__()
        self.head_dim = entry.head_dim
        self.to_qkv = nn.Linear(dim, 3 * dim, bias=False)
        self.c_proj = nn.Linear(dim, dim, bias=False)
        self.has_norm = entry.use_qk_norm
        if self.has_norm:
            self.q_norm = nn.RMSNorm(entry.head_dim)
            self.k_norm = nn.RMSNorm(entry.head_dim)

    def forward(self, x: Float[Tensor, "B T C"], span: Span, call: Call) -> Float[Tensor, "B T C"]:
        """Attend within views of `span.per_view` tokens; sites attention.q, k, v, o."""
        views = x.unflatten(1, (-1, span.per_view)).flatten(0, 1)
        q, k, v = (_heads(part, self.head_dim) for part in self.to_qkv(views).chunk(3, dim=-1))
        if self.has_norm:
            q, k = _normed(self.q_norm, q), _normed(self.k_norm, k)
        site = call.site.inside("attention")
        q, k, v = site.group(q=q, k=k, v=v)
        mixed = site.note("o", _merged(F.scaled_dot_product_attention(q, k, v)))
        return self.c_proj(mixed).reshape(x.shape)


class FeedForward(nn.Module):
    """c_proj(gelu(c_fc(x))), exact GELU, no biases."""

    def __init__(self, dim: int, entry: config.FeedForward) -> None:
        super().__init__()
        self.c_fc = nn.Linear(dim, dim * entry.inter_multi, bias=False)
        self.c_proj = nn.Linear(dim * entry.inter_multi, dim, bias=False)

    def forward(self, x: Float[Tensor, "B T C"]) -> Float[Tensor, "B T C"]:
        """Apply the layer to every token."""
        return self.c_proj(F.gelu(self.c_fc(x)))


class FastWeights(nn.Module):
    """The inner loop of one block: updated by input-view tokens, applied to all tokens.

    q, k, v = silu(to_qkv(x)) per head, q and k divided by their norm + 1e-5. Rates are softplus(lr_fc(x) + bias) with
    output index = matrix * heads + head, computed in float32 or wider. The output is RMS-normalised per head, then
    projected.
    """

    def __init__(self, dim: int, entry: config.FastWeights, loop: InnerLoop) -> None:
        super().__init__()
        self.head_dim = d = entry.head_dim
        heads = dim // d
        self.base_lr_before_softplus = entry.base_lr + math.log(-math.expm1(-entry.base_lr))
        self.names = _published_names(loop)
        self.rates = _rate_order(loop, self.names)
        shapes = {name: (heads, d, d) for name in self.names}
        if isinstance(loop.network, SwiGLU):
            hidden = int(d * entry.inter_multi)
            shapes = {"w0": (heads, d, hidden), "w1": (heads, hidden, d), "w2": (heads, d, hidden)}
        for name, shape in shapes.items():
            setattr(self, name, nn.Parameter(torch.empty(shape)))
        self.to_qkv = nn.Linear(dim, 3 * dim, bias=False)
        self.c_proj = nn.Linear(dim, dim, bias=False)
        if self.rates:
            self.lr_fc = nn.Linear(dim, heads * len(self.rates))
        self.o_norm = nn.RMSNorm(d, eps=NORM_EPS)

    def initialise(self) -> None:
        """Draw the initial fast weights as published: std sqrt(2 / in)."""
        for name in self.names:
            weight = getattr(self, name)
            nn.init.normal_(weight, std=_INIT_GAIN / math.sqrt(weight.shape[-2]))

    def initial_weights(self) -> FastWeightsOfLayer:
        """Initial fast weights in the inner layout, [H, in, out]."""
        return {PUBLISHED_NAMES[name]: getattr(self, name) for name in self.names}

    def forward(
        self, x: Float[Tensor, "B T C"], span: Span, call: Call
    ) -> tuple[Float[Tensor, "B T C"], FastWeightsOfLayer]:
        """Update from the input tokens and apply to all; returns the output and the updated fast weights [B, H, in, out]."""
        inputs = self._inputs(x, call.loops[LOOP], span.num_input)
        result = call.run_loop(LOOP, inputs, self.initial_weights())
        return self._project(result.outputs, x), result.state.fast_weights

    def apply_only(
        self, x: Float[Tensor, "B T C"], call: Call, fast: FastWeightsOfLayer
    ) -> Float[Tensor, "B T C"]:
        """Apply fast weights that were updated before; nothing moves."""
        loop = call.loops[LOOP].edit(trained=Trained.NONE, lr=ConstantRate(), momentum=None)
        result = run(loop, self._inputs(x, loop, None), fast, backend=call.backend, **call.options)
        return self._project(result.outputs, x)

    def _project(self, outputs: Float[Tensor, "B H T D"], x: Tensor) -> Tensor:
        return self.c_proj(_merged(_normed(self.o_norm, outputs).to(x.dtype)))

    def _inputs(self, x: Float[Tensor, "B T C"], loop: InnerLoop, num_input: int | None) -> Inputs:
        q, k, v = (_heads(part, self.head_dim) for part in F.silu(self.to_qkv(x)).chunk(3, dim=-1))
        q, k = (part / (part.norm(dim=-1, keepdim=True) + NORM_EPS) for part in (q, k))
        return Inputs(q, k, v, rates=self._token_rates(x, loop), update_tokens=num_input)

    def _token_rates(self, x: Float[Tensor, "B T C"], loop: InnerLoop) -> dict[str, Float[Tensor, "B H T 1"]]:
        if not loop.rate_names:
            return {}
        missing = [name for name in loop.rate_names if name not in self.rates]
        if missing:
            raise UnsupportedSpecError(
                f"expected a loop with rates among {self.rates or 'none'}, received one that needs {missing}; this host was "
                "trained without them, train one with this lr instead"
            )
        with torch.autocast(x.device.type, enabled=False):
            dtype = torch.promote_types(x.dtype, torch.float32)
            logits = F.linear(x.to(dtype), self.lr_fc.weight.to(dtype), self.lr_fc.bias.to(dtype))
            rates = F.softplus(logits + self.base_lr_before_softplus).to(self.lr_fc.weight.dtype)
        per_matrix = rates.unflatten(-1, (len(self.rates), -1)).transpose(1, 3).unsqueeze(-1)
        return {name: per_matrix[:, :, self.rates.index(name)] for name in loop.rate_names}


def _published_names(loop: InnerLoop) -> tuple[str, ...]:
    if isinstance(loop.network, SwiGLU):
        return tuple(PUBLISHED_NAMES)
    if isinstance(loop.network, Linear):
        return ("w1",)
    raise UnsupportedSpecError(
        f"expected the network of LaCT-NVS to be SwiGLU or Linear, received {loop.network}; "
        "the published layer defines fast weights for no other network"
    )


def _rate_order(loop: InnerLoop, names: tuple[str, ...]) -> tuple[str, ...]:
    if not isinstance(loop.lr, PerTokenRate):
        return ()
    if loop.lr.shared:
        return ("shared",)
    return () if loop.trained is Trained.NONE else tuple(PUBLISHED_NAMES[name] for name in names)
