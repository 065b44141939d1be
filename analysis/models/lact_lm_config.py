"""Configuration of the LaCT language model: the fields of the published config.json and a few of our own."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from analysis.errors import CheckpointError, SpecError, UnsupportedSpecError, closest
from analysis.models.config_fields import check_fields, check_layers
from analysis.spec import (
    InnerLoop,
    Linear,
    Loops,
    PerTokenMomentum,
    PerTokenRate,
    SwiGLU,
    Trained,
    presets,
)

LOOP = "fast_weights"


@dataclass(frozen=True, kw_only=True)
class LaCTLMConfig:
    """Published fields with the defaults of the published configuration class; ours are at the end.

    Fields that only choose a fused implementation of the same numbers are read and ignored. `use_muon`, `use_momentum`,
    `ttt_prenorm` and `lact_chunk_size` describe the published inner loop; a host built with other loops follows those.
    """

    hidden_size: int = 2048
    num_hidden_layers: int = 24
    num_attn_heads: int = 32
    num_lact_heads: int = 4
    inter_multi: float = 1
    qkv_bias: bool = False
    attn_qk_norm: bool = False
    lact_chunk_size: int = 2048
    use_muon: bool = False
    lr_dim: int = 1
    qkv_silu: bool = True
    no_v_silu: bool = False
    lr_parameterization: str = "mamba"
    learnable_ttt_scale: bool = True
    use_momentum: bool = True
    ttt_loss_type: str = "dot_product"
    ttt_prenorm: bool = False
    ttt_nope: bool = False
    w0_w2_low_rank: int = -1
    window_size: int = 2048
    rope_theta: float = 10000.0
    hidden_ratio: float | None = 4
    intermediate_size: int | None = None
    hidden_act: str = "swish"
    initializer_range: float = 0.006
    norm_eps: float = 1e-6
    tie_word_embeddings: bool = False
    vocab_size: int = 32000
    fw_init_gain: float = 0.5
    use_fused_kernel: bool = False
    full_attention: bool = False
    """Ours: every query sees all earlier keys (the ceiling of the ladder) instead of a window."""
    ttt_branch: bool = True
    """Ours: without it the layer is window (or full) attention alone and the host has no inner loop."""
    zero_init_ttt_scale: bool = False
    """Ours: the output gate starts at exactly zero, so that training begins as the attention-only model."""

    def __post_init__(self) -> None:
        check_fields(self, initializer_range=0, norm_eps=0, w0_w2_low_rank=-1)
        check_layers(self.num_hidden_layers)
        for heads in ("num_attn_heads", "num_lact_heads"):
            if self.hidden_size % getattr(self, heads):
                raise SpecError(
                    f"expected hidden_size divisible by {heads}, received {self.hidden_size} and {getattr(self, heads)}; "
                    "the published code cannot run such a configuration either, change one of the two"
                )
        fixed = {"lr_dim": 1, "lr_parameterization": "mamba", "ttt_loss_type": "dot_product"}
        for name, value in fixed.items():
            if getattr(self, name) != value:
                raise UnsupportedSpecError(
                    f"expected {name} = {value!r}, the only value with which the published model runs, "
                    f"received {getattr(self, name)!r}; correct config.json"
                )
        if self.hidden_act not in ("swish", "silu"):
            raise UnsupportedSpecError(
                f"expected hidden_act 'swish', received {self.hidden_act!r}; no other was published"
            )
        if self.use_fused_kernel and self.use_muon:
            raise UnsupportedSpecError(
                "expected use_fused_kernel or use_muon but not both: the fused kernel orthogonalises w0 and w2 stacked as one "
                "matrix, which is another model; set use_fused_kernel to false only if the weights were trained without it"
            )

    @property
    def head_dim(self) -> int:
        """Width of an attention head."""
        return self.hidden_size // self.num_attn_heads

    @property
    def fast_dim(self) -> int:
        """Width of a fast-weight head."""
        return self.hidden_size // self.num_lact_heads

    @property
    def fast_hidden(self) -> int:
        """Hidden width of the fast-weight network."""
        return int(self.fast_dim * self.inter_multi)

    @property
    def mlp_dim(self) -> int:
        """Hidden width of the token MLP; when not given, 2/3 of hidden_ratio, rounded up to a multiple of 256."""
        if self.intermediate_size is not None:
            return self.intermediate_size
        width = int(self.hidden_size * (self.hidden_ratio or 4) * 2 / 3)
        return 256 * ((width + 255) // 256)

    def default_loops(self) -> Loops:
        """The inner loops that the published fields describe; empty without a TTT branch."""
        if not self.ttt_branch:
            return {}
        loop = presets.lact_lm(
            chunk=self.lact_chunk_size,
            muon=self.use_muon,
            momentum=self.use_momentum,
            prenorm=self.ttt_prenorm,
        )
        return {LOOP: loop}

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as plain values."""
        return dataclasses.asdict(self)


# Published fields that change no number here: fused implementations, caches, token ids, bookkeeping of the hub.
_WITHOUT_EFFECT = frozenset(
    {
        *("architectures", "auto_map", "model_type", "dtype", "torch_dtype", "transformers_version"),
        *("bos_token_id", "eos_token_id", "pad_token_id", "max_position_embeddings", "use_cache"),
        *(
            "fuse_cross_entropy",
            "fuse_linear_cross_entropy",
            "fuse_norm",
            "fuse_swiglu",
            "last_layer_fuse_norm",
        ),
        *("fp32_states", "attention_bias", "elementwise_affine", "use_l2warp"),
    }
)


def parse_config(data: Mapping[str, Any]) -> tuple[LaCTLMConfig, tuple[str, ...]]:
    """Read a published config.json (or our manifest's config); returns the configuration and the names of ignored fields.

    Raises `CheckpointError` for another model type or a value of the wrong type.
    """
    model_type = data.get("model_type", "lact_swiglu")
    if model_type != "lact_swiglu":
        raise CheckpointError(
            f"expected a config.json with model_type 'lact_swiglu', received {model_type!r}; this folder holds another model"
        )
    known = {field.name for field in dataclasses.fields(LaCTLMConfig)}
    values = {name: value for name, value in data.items() if name in known}
    ignored = tuple(
        f"config field {name!r} is not known{closest(name, known)} and was ignored"
        for name in data
        if name not in known and name not in _WITHOUT_EFFECT
    )
    return LaCTLMConfig(**values), ignored


def check_loop(loop: InnerLoop) -> None:
    """Raise `UnsupportedSpecError` for a loop this host has no parameters for."""
    if not isinstance(loop.network, (SwiGLU, Linear)):
        raise UnsupportedSpecError(
            f"expected the language model's network to be SwiGLU or Linear, received {loop.network}; "
            "the published layer defines fast weights for no other network"
        )


def rate_order(loop: InnerLoop) -> tuple[str, ...]:
    """Names of the per-token rates in the order of the outputs of `lr_proj` (w0, w1, w2 = gate, out, up)."""
    if not isinstance(loop.lr, PerTokenRate) or loop.trained is Trained.NONE:
        return ()
    if loop.lr.shared:
        return ("shared",)
    return ("w_gate", "w_out", "w_up") if isinstance(loop.network, SwiGLU) else ("w_out",)


def has_momentum_projection(loop: InnerLoop) -> bool:
    """Whether the layer computes a momentum for every token."""
    return isinstance(loop.momentum, PerTokenMomentum) and loop.trained is not Trained.NONE
