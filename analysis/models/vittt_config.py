"""What a ViTTT classifier looks like, flat or hierarchical, with the published constructor arguments."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from analysis.errors import CheckpointError, closest
from analysis.models.config_fields import check_fields, check_layers
from analysis.spec import Family, Loops, baseline


@dataclass(frozen=True, kw_only=True)
class ViTTTConfig:
    """ViT^3: one resolution, patches from one convolution. Published constructor arguments, and two of ours.

    `label_smoothing` belongs to training: it enters `Host.loss` while the module is in training mode. `ttt_branch`
    False leaves the token mixer out, and the host has no inner loop.
    """

    img_size: int = 224
    patch_size: int = 16
    in_chans: int = 3
    num_classes: int = 1000
    embed_dim: int = 768
    depth: int = 12
    num_heads: int = 12
    mlp_ratio: float = 4.0
    qkv_bias: bool = True
    drop_path_rate: float = 0.0
    label_smoothing: float = 0.0
    ttt_branch: bool = True

    def __post_init__(self) -> None:
        _check(self)
        check_layers(self.depth)
        _refuse_uneven(self.embed_dim, self.num_heads)


@dataclass(frozen=True, kw_only=True)
class HierarchicalViTTTConfig:
    """H-ViT^3: a convolution stem and stages of falling resolution. Published constructor arguments.

    `dim`, `depths` and `num_heads` hold one number per stage; `label_smoothing` and `ttt_branch` as in `ViTTTConfig`.
    """

    img_size: int = 224
    in_chans: int = 3
    num_classes: int = 1000
    dim: tuple[int, ...] = (64, 128, 320, 512)
    depths: tuple[int, ...] = (1, 3, 9, 4)
    num_heads: tuple[int, ...] = (2, 4, 10, 16)
    mlp_ratio: float = 4.0
    qkv_bias: bool = True
    drop_path_rate: float = 0.0
    label_smoothing: float = 0.0
    ttt_branch: bool = True

    def __post_init__(self) -> None:
        _check(self)
        check_layers(sum(self.depths))
        if not len(self.dim) == len(self.depths) == len(self.num_heads):
            raise CheckpointError(
                f"expected dim, depths and num_heads of one length, received {self.dim}, {self.depths}, "
                f"{self.num_heads}; give one number per stage"
            )
        for width, heads in zip(self.dim, self.num_heads, strict=True):
            _refuse_uneven(width, heads)
            if width % 4:
                raise CheckpointError(
                    f"expected stage widths divisible by 4 for the rotary, received {width}; change dim"
                )


AnyViTTTConfig = ViTTTConfig | HierarchicalViTTTConfig


def default_loops(config: AnyViTTTConfig) -> Loops:
    """The published inner loops, or none without a TTT branch."""
    return baseline(Family.VITTT) if config.ttt_branch else {}


def _check(config: AnyViTTTConfig) -> None:
    check_fields(config, drop_path_rate=0, label_smoothing=0)
    for name in ("drop_path_rate", "label_smoothing"):
        if getattr(config, name) >= 1:
            raise CheckpointError(
                f"expected {name} in the configuration to be below 1, received {getattr(config, name)}; lower it"
            )


def _refuse_uneven(width: int, heads: int) -> None:
    if width % heads:
        raise CheckpointError(
            f"expected the width to be a multiple of the heads, received {width} and {heads}; change one"
        )


def vittt_config_from_dict(values: Mapping[str, Any]) -> AnyViTTTConfig:
    """Read published constructor arguments; a `depths` entry makes it hierarchical. Raises CheckpointError."""
    kind = HierarchicalViTTTConfig if "depths" in values else ViTTTConfig
    known = {field.name for field in fields(kind)}
    for name in values:
        if name not in known:
            raise CheckpointError(
                f"expected arguments among {sorted(known)}, received {name!r}{closest(name, known)}; rename it"
            )
    arguments: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value for name, value in values.items()
    }
    return kind(**arguments)


def vittt_config_to_dict(config: AnyViTTTConfig) -> dict[str, Any]:
    """Return the constructor arguments as plain JSON values."""
    values = {field.name: getattr(config, field.name) for field in fields(config)}
    return {name: list(value) if isinstance(value, tuple) else value for name, value in values.items()}


# "small" trains in a few seconds on one accelerator; the others carry the published names.
CONFIGS: dict[str, AnyViTTTConfig] = {
    "vittt_tiny": ViTTTConfig(embed_dim=192, num_heads=6),
    "vittt_small": ViTTTConfig(embed_dim=384, num_heads=6),
    "vittt_base": ViTTTConfig(embed_dim=768, num_heads=12),
    "h_vittt_tiny": HierarchicalViTTTConfig(),
    "h_vittt_small": HierarchicalViTTTConfig(depths=(2, 6, 18, 8)),
    "h_vittt_base": HierarchicalViTTTConfig(
        dim=(96, 192, 448, 640), depths=(2, 6, 18, 8), num_heads=(3, 6, 14, 20)
    ),
    "small": ViTTTConfig(img_size=48, patch_size=4, num_classes=16, embed_dim=96, depth=4, num_heads=3),
}
