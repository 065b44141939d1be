"""The three families as the checkpoint loader sees them: telling them apart, reading configurations, building hosts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor

from analysis.errors import AnalysisError, CheckpointError
from analysis.models.host import Host
from analysis.models.lact_lm import LaCTLM
from analysis.models.lact_lm_adapter import explain_shape
from analysis.models.lact_lm_config import LaCTLMConfig, parse_config
from analysis.models.lact_nvs import LaCTNVS
from analysis.models.lact_nvs_config import LaCTNVSConfig
from analysis.models.vittt import build_vittt
from analysis.models.vittt_config import vittt_config_from_dict, vittt_config_to_dict
from analysis.spec import Family, Loops

_MARKS = {
    Family.LACT_LM: ("embeddings.weight", "attn_norm.weight"),
    Family.LACT_NVS: ("input_linear.weight", "image_token_decoder."),
    Family.VITTT: ("patch_embed.", ".cpe.weight"),
}


def recognise(names: Iterable[str], source: str) -> Family:
    """Tell the family from parameter names; raises `CheckpointError` for another architecture."""
    names = tuple(names)
    for family, marks in _MARKS.items():
        if all(any(mark in name for name in names) for mark in marks):
            return family
    shown = ", ".join(names[:4]) or "no tensors"
    raise CheckpointError(
        f"expected a LaCT language model, LaCT view synthesis or ViTTT checkpoint, received {source} with {shown}; "
        "other architectures have no inner loop to study"
    )


def read_config(family: Family, values: Mapping[str, Any]) -> tuple[Any, tuple[str, ...]]:
    """Read a configuration in the published form; returns it and notes on ignored fields."""
    try:
        if family is Family.LACT_LM:
            return parse_config(values)
        if family is Family.LACT_NVS:
            return LaCTNVSConfig.from_dict(values), ()
        return vittt_config_from_dict(values), ()
    except (TypeError, KeyError, AttributeError) as error:
        raise CheckpointError(
            f"expected a {family.title} configuration, received one that cannot be read: {error}; mend the configuration"
        ) from error


def write_config(host: Host) -> dict[str, Any]:
    """Return the configuration of a host as plain values that `read_config` reads back."""
    if host.family is Family.VITTT:
        return vittt_config_to_dict(host.config)
    return dict(host.config.to_dict())


def build(family: Family, config: Any, loops: Loops | None = None) -> Host:
    """Build the host of a family; loops None means those the configuration describes."""
    if family is Family.LACT_LM:
        return LaCTLM(config, loops)
    if family is Family.LACT_NVS:
        return LaCTNVS(config, loops)
    return build_vittt(config, loops)


def explain_mismatch(config: Any, mismatched: Iterable[tuple[str, tuple[int, ...], tuple[int, ...]]]) -> str:
    """Infer from differing shapes which field of the configuration is the wrong one; empty when they do not tell."""
    for name, _, found in mismatched:
        if isinstance(config, LaCTLMConfig):
            if hint := explain_shape(config, name, found):
                return hint
        elif isinstance(config, LaCTNVSConfig) and name.endswith("f.w0") and config.fast_weights is not None:
            entry, (_, width, hidden) = config.fast_weights, found
            if width != entry.head_dim:
                return f"the weights look like head_dim = {width}, the configuration says {entry.head_dim}"
            return f"the weights look like inter_multi = {hidden / width:g}, the configuration says {entry.inter_multi}"
    return ""


def infer_vittt_config(tensors: Mapping[str, Tensor], stored: Mapping[str, Any]) -> dict[str, Any]:
    """Read the constructor arguments of a ViTTT classifier off its shapes.

    The flat model has no position table, so its image size is not in the weights: it is taken from the training
    configuration `stored` in the file (`DATA.IMG_SIZE`), else the published 224.
    """
    data = stored.get("DATA", {})
    size = data.get("IMG_SIZE", 224) if isinstance(data, Mapping) else 224
    shared = {"num_classes": tensors["head.weight"].shape[0], "img_size": size}
    if "patch_embed.proj.weight" in tensors:
        dim, channels, patch, _ = tensors["patch_embed.proj.weight"].shape
        return shared | {
            "in_chans": channels,
            "patch_size": patch,
            "embed_dim": dim,
            "depth": _count(tensors, "blocks."),
            "num_heads": tensors["blocks.0.attn.w1"].shape[1],
            "qkv_bias": "blocks.0.attn.qkv.bias" in tensors,
            "mlp_ratio": tensors["blocks.0.mlp.fc1.weight"].shape[0] / dim,
        }
    stages = range(_count(tensors, "layers."))
    first = "layers.0.blocks.0."
    dims = [tensors[f"layers.{i}.blocks.0.norm1.weight"].shape[0] for i in stages]
    if f"{first}rope.rotations" in tensors:
        shared["img_size"] = 4 * tensors[f"{first}rope.rotations"].shape[0]
    return shared | {
        "in_chans": tensors["patch_embed.conv.0.conv.weight"].shape[1],
        "dim": dims,
        "depths": [_count(tensors, f"layers.{i}.blocks.") for i in stages],
        "num_heads": [tensors[f"layers.{i}.blocks.0.attn.w1"].shape[1] for i in stages],
        "qkv_bias": f"{first}attn.qkv.bias" in tensors,
        "mlp_ratio": tensors[f"{first}mlp.fc1.weight"].shape[0] / dims[0],
    }


def _count(tensors: Mapping[str, Tensor], prefix: str) -> int:
    return 1 + max(
        int(name.removeprefix(prefix).split(".")[0]) for name in tensors if name.startswith(prefix)
    )


def skeleton(family: Family, config: Any, loops: Loops | None = None) -> Host:
    """Build a host without memory, on the meta device; raises `CheckpointError` when no network has these sizes."""
    try:
        with torch.device("meta"):
            return build(family, config, loops)
    except AnalysisError:
        raise
    except (RuntimeError, ValueError, TypeError, ArithmeticError) as error:
        raise CheckpointError(
            f"expected a {family.title} configuration of a network that can be built, received sizes that cannot: {error}; "
            "mend the configuration"
        ) from error


def shapes_of(family: Family, config: Any, loops: Loops | None = None) -> dict[str, tuple[int, ...]]:
    """Names and shapes of all tensors a checkpoint of this configuration must hold (tied ones once)."""
    return {name: tuple(tensor.shape) for name, tensor in tensors_of(family, config, loops).items()}


def tensors_of(family: Family, config: Any, loops: Loops | None = None) -> dict[str, Tensor]:
    """All tensors a checkpoint of this configuration must hold (tied ones once), on the meta device."""
    host = skeleton(family, config, loops)
    tied = host.tied_names()
    return {name: tensor for name, tensor in host.state_dict().items() if name not in tied}
