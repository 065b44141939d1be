"""The token mixer of ViTTT: two inner loops side by side, a gated linear unit per head and a depthwise convolution.

Parameter names are the published ones, with the mapping to the inner layout (C channels, H heads, d = C / H):

    glu     w_linear = w1[0] [H, d, d]    w_gate = w2[0] [H, d, d]
    conv    w_conv = w3 [d, 1, 3, 3] as [1, 9, d], rows are the offsets in row-major order

A loop with a single linear layer keeps w1 alone, as w_out. Each loop updates once from all tokens of an image and is
then applied to all of them. A loop that a host was built without has no parameters and no share of `qkv` and `proj`.
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor, nn

from analysis.errors import UnsupportedSpecError
from analysis.inner import Inputs
from analysis.models.inner_call import Call
from analysis.models.vittt_layers import FeedForward, Rotary, depthwise, drop_path, on_grid
from analysis.spec import GLU, DepthwiseConv3x3, Linear, Loops, PerTokenRate

GLU_LOOP, CONV_LOOP = "glu", "conv"


class TTT(nn.Module):
    """proj(concat(glu(q1, k1, v1), conv(q2, k2, v2))) with all six from one projection: 3 C and 3 d channels."""

    def __init__(self, dim: int, num_heads: int, qkv_bias: bool, loops: Loops) -> None:
        super().__init__()
        check_loops(loops)
        self.num_heads = num_heads
        self.head_dim = d = dim // num_heads
        self.glu_names: dict[str, str] = {}
        if GLU_LOOP in loops:
            is_gated = isinstance(loops[GLU_LOOP].network, GLU)
            self.glu_names = {"w1": "w_linear", "w2": "w_gate"} if is_gated else {"w1": "w_out"}
        for name in self.glu_names:
            setattr(self, name, nn.Parameter(torch.empty(1, num_heads, d, d)))
        self.has_conv = CONV_LOOP in loops
        if self.has_conv:
            self.w3 = nn.Parameter(torch.empty(d, 1, 3, 3))
        self.widths = [dim] * (3 if self.glu_names else 0) + [d] * (3 if self.has_conv else 0)
        self.qkv = nn.Linear(dim, sum(self.widths), bias=qkv_bias)
        self.proj = nn.Linear(sum(self.widths) // 3, dim)

    def initialise(self) -> None:
        """Draw the initial fast weights, truncated normal with std 0.02."""
        for name in (*self.glu_names, *(("w3",) if self.has_conv else ())):
            nn.init.trunc_normal_(getattr(self, name), std=0.02)

    def initial_weights(self) -> dict[str, dict[str, Tensor]]:
        """Initial fast weights in the inner layout: loop -> name -> [heads, in, out]."""
        weights = {}
        if self.glu_names:
            weights[GLU_LOOP] = {
                name: getattr(self, published)[0] for published, name in self.glu_names.items()
            }
        if self.has_conv:
            weights[CONV_LOOP] = {"w_conv": self.w3.flatten(1).t().unsqueeze(0)}
        return weights

    def forward(
        self, tokens: Float[Tensor, "B N C"], grid: tuple[int, int], call: Call, rope: Rotary | None = None
    ) -> Float[Tensor, "B N C"]:
        """Run both loops; `rope` turns q1 and k1 over all channels before the head split."""
        parts = list(self.qkv(tokens).split(self.widths, dim=-1))
        weights = self.initial_weights()
        outputs = []
        if self.glu_names:
            q, k, v = parts[:3]
            if rope is not None:
                q, k = rope(q, grid), rope(k, grid)
            outputs.append(self._run(GLU_LOOP, (q, k, v), self.num_heads, grid, call, weights))
        if self.has_conv:
            outputs.append(self._run(CONV_LOOP, tuple(parts[-3:]), 1, grid, call, weights))
        return self.proj(torch.cat(outputs, dim=-1).to(tokens.dtype))

    @staticmethod
    def _run(
        loop: str,
        qkv: tuple[Tensor, ...],
        heads: int,
        grid: tuple[int, int],
        call: Call,
        weights: dict[str, dict[str, Tensor]],
    ) -> Float[Tensor, "B N C"]:
        q, k, v = (part.unflatten(-1, (heads, -1)).transpose(1, 2) for part in qkv)
        inner = call.inside(loop) if len(call.loops) > 1 else call
        result = inner.run_loop(loop, Inputs(q, k, v, grid=grid), weights[loop])
        return result.outputs.transpose(1, 2).flatten(2)


class Block(nn.Module):
    """x + cpe(x), x + ttt(norm1(x)), x + mlp(norm2(x)).

    With `rope_grid` it is the hierarchical block: rotary table of that grid, layer norm eps 1e-5, convolution in the
    MLP; without it the flat one: no rotary, eps 1e-6. Empty `loops` leave the token mixer out.
    """

    def __init__(
        self,
        dim: int,
        num_heads: int,
        loops: Loops,
        *,
        mlp_ratio: float,
        qkv_bias: bool,
        drop_path_rate: float,
        rope_grid: tuple[int, int] | None = None,
    ) -> None:
        super().__init__()
        eps = 1e-6 if rope_grid is None else 1e-5
        self.drop_path_rate = drop_path_rate
        self.cpe = depthwise(dim)
        if loops:
            self.norm1 = nn.LayerNorm(dim, eps=eps)
            self.rope = None if rope_grid is None else Rotary(rope_grid, dim)
            self.attn = TTT(dim, num_heads, qkv_bias, loops)
        self.has_mixer = bool(loops)
        self.norm2 = nn.LayerNorm(dim, eps=eps)
        self.mlp = FeedForward(dim, int(dim * mlp_ratio), is_convolutional=rope_grid is not None)

    def forward(self, x: Float[Tensor, "B N C"], grid: tuple[int, int], call: Call) -> Float[Tensor, "B N C"]:
        """Run the block on one grid of tokens."""
        x = x + on_grid(self.cpe, x, grid)
        if self.has_mixer:
            mixed = self.attn(self.norm1(x), grid, call, self.rope)
            x = x + drop_path(mixed, self.drop_path_rate, self.training)
        return x + drop_path(self.mlp(self.norm2(x), grid), self.drop_path_rate, self.training)


def check_loops(loops: Loops) -> None:
    """Raise UnsupportedSpecError for loops that a ViTTT block has no parameters for."""
    allowed = {GLU_LOOP: (GLU, Linear), CONV_LOOP: (DepthwiseConv3x3,)}
    for name, loop in loops.items():
        kinds = allowed.get(name)
        if kinds is None or not isinstance(loop.network, kinds):
            raise UnsupportedSpecError(
                f"expected loops glu (GLU or Linear) and conv (DepthwiseConv3x3), received {name} = {loop.network}; "
                "the published block defines fast weights for no other"
            )
        if isinstance(loop.lr, PerTokenRate) or loop.needs_momentum_input:
            raise UnsupportedSpecError(
                f"expected a constant rate and no per-token momentum in loop {name}, received lr = {loop.lr}, momentum = "
                f"{loop.momentum}; the block has no projection for them"
            )
