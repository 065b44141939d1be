"""What a LaCT novel-view-synthesis network looks like: the published YAML, read into a frozen dataclass."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from analysis.errors import CheckpointError, UnsupportedSpecError, closest
from analysis.models.config_fields import check_fields, check_layers
from analysis.spec import Loops, presets

LOOP = "fast_weights"
PUBLISHED_MUON_STEPS = 5


@dataclass(frozen=True, kw_only=True)
class SelfAttention:
    """Softmax attention among the tokens of one view."""

    head_dim: int
    use_qk_norm: bool = True

    def __post_init__(self) -> None:
        check_fields(self)


@dataclass(frozen=True, kw_only=True)
class FastWeights:
    """The fast-weight sub-layer: width per head, hidden width as a multiple of it, and how it is updated."""

    head_dim: int
    inter_multi: int = 1
    base_lr: float = 0.01
    muon_update_steps: int = 5

    def __post_init__(self) -> None:
        check_fields(self, muon_update_steps=0)


@dataclass(frozen=True, kw_only=True)
class FeedForward:
    """Two linear maps with an exact GELU between them."""

    inter_multi: int = 4

    def __post_init__(self) -> None:
        check_fields(self)


SubLayer = SelfAttention | FastWeights | FeedForward

# published `type` -> our class and the span of tokens (`length_dim`) that the published networks give it
_TYPES: dict[str, tuple[type[SubLayer], str]] = {
    "model.SelfAttention": (SelfAttention, "l"),
    "lact_ttt.FastWeightGluMLPMultihead": (FastWeights, "vl"),
    "model.MLP": (FeedForward, "vl"),
}


@dataclass(frozen=True, kw_only=True)
class LaCTNVSConfig:
    """The keyword arguments of the published network; `block_config` holds one entry per sub-layer.

    Each kind of sub-layer may appear at most once in a block. A block without `FastWeights` is a network
    without an inner loop.
    """

    patch_size: int
    dim: int
    layers: int
    block_config: tuple[SubLayer, ...]

    def __post_init__(self) -> None:
        check_fields(self)
        check_layers(self.layers)
        kinds = [type(entry) for entry in self.block_config]
        if not kinds or len(set(kinds)) != len(kinds):
            names = ", ".join(kind.__name__ for kind in kinds) or "none"
            raise CheckpointError(
                f"expected each kind of sub-layer at most once per block, and one at least, received {names}; mend block_config"
            )
        for entry in self.block_config:
            head_dim = getattr(entry, "head_dim", self.dim)
            if self.dim % head_dim:
                raise CheckpointError(
                    f"expected head_dim to divide dim={self.dim}, received {head_dim} in {entry}; change one"
                )

    @property
    def fast_weights(self) -> FastWeights | None:
        """The fast-weight entry of the block, or None."""
        return next((entry for entry in self.block_config if isinstance(entry, FastWeights)), None)

    def default_loops(self) -> Loops:
        """The inner loop that the published fields describe; empty without a fast-weight sub-layer."""
        entry = self.fast_weights
        if entry is None:
            return {}
        if entry.muon_update_steps not in (0, PUBLISHED_MUON_STEPS):
            raise UnsupportedSpecError(
                f"expected muon_update_steps of 0 or {PUBLISHED_MUON_STEPS}, the schedules that were published, received "
                f"{entry.muon_update_steps}; hand over the loops to use instead"
            )
        return {LOOP: presets.lact_nvs(muon=entry.muon_update_steps > 0)}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> LaCTNVSConfig:
        """Read the published mapping (a parsed YAML file); raises CheckpointError on unknown names."""
        known = {field.name for field in fields(cls)}
        _refuse_unknown(values, known, "configuration")
        missing = sorted(known - set(values))
        if missing:
            raise CheckpointError(
                f"expected {sorted(known)} in the configuration, missing {missing}; add them"
            )
        blocks = values["block_config"]
        if not isinstance(blocks, Sequence) or not all(isinstance(entry, Mapping) for entry in blocks):
            raise CheckpointError(
                f"expected a list of sub-layers in block_config, received {blocks!r}; mend the configuration"
            )
        return cls(
            patch_size=values["patch_size"],
            dim=values["dim"],
            layers=values["layers"],
            block_config=tuple(_read_entry(entry) for entry in blocks),
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the published mapping."""
        return {
            "patch_size": self.patch_size,
            "dim": self.dim,
            "layers": self.layers,
            "block_config": [_write_entry(entry) for entry in self.block_config],
        }


def _refuse_unknown(values: Mapping[str, Any], known: set[str], where: str) -> None:
    for name in values:
        if name not in known:
            raise CheckpointError(
                f"expected {where} names among {sorted(known)}, received {name!r}{closest(name, known)}; rename it"
            )


def _read_entry(entry: Mapping[str, Any]) -> SubLayer:
    _refuse_unknown(entry, {"type", "length_dim", "params"}, "block entry")
    name = entry.get("type", "")
    if not isinstance(name, str) or name not in _TYPES:
        raise CheckpointError(
            f"expected a sub-layer type among {sorted(_TYPES)}, received {name!r}; rename it"
        )
    kind, span = _TYPES[name]
    if entry.get("length_dim", span) != span:
        raise CheckpointError(
            f"expected length_dim {span!r} for {name}, received {entry['length_dim']!r}; other spans are not built"
        )
    params = entry.get("params") or {}
    if not isinstance(params, Mapping):
        raise CheckpointError(
            f"expected a mapping under params of {name}, received {params!r}; mend the configuration"
        )
    _refuse_unknown(params, {field.name for field in fields(kind)}, f"{name} parameter")
    return kind(**params)


def _write_entry(entry: SubLayer) -> dict[str, Any]:
    name, span = next((name, span) for name, (kind, span) in _TYPES.items() if kind is type(entry))
    params = {field.name: getattr(entry, field.name) for field in fields(entry)}
    return {"type": name, "length_dim": span, "params": params}


def lact_nvs_config(
    *, layers: int, dim: int, attention_head_dim: int, head_dim: int, inter_multi: int, mlp_multi: int = 4
) -> LaCTNVSConfig:
    """Return the published block order (attention, fast weights, MLP) at the given sizes, patch size 8."""
    return LaCTNVSConfig(
        patch_size=8,
        dim=dim,
        layers=layers,
        block_config=(
            SelfAttention(head_dim=attention_head_dim),
            FastWeights(head_dim=head_dim, inter_multi=inter_multi),
            FeedForward(inter_multi=mlp_multi),
        ),
    )


def _large(layers: int, inter_multi: int) -> LaCTNVSConfig:
    return lact_nvs_config(
        layers=layers, dim=768, attention_head_dim=64, head_dim=768, inter_multi=inter_multi
    )


# The first three are the published YAML files, "l12_d768_ttt2x" is the paper's 12-layer setting with the
# published inner width (the paper leaves it open), "small" trains in a minute on one accelerator.
CONFIGS: dict[str, LaCTNVSConfig] = {
    "l14_d768_ttt2x": _large(14, 2),
    "l24_d768_ttt2x": _large(24, 2),
    "l24_d768_ttt4x": _large(24, 4),
    "l12_d768_ttt2x": _large(12, 2),
    "small": lact_nvs_config(
        layers=5, dim=96, attention_head_dim=32, head_dim=96, inter_multi=2, mlp_multi=3
    ),
}
