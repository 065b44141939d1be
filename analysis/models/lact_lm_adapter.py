"""Published LaCT language-model checkpoints: a HuggingFace folder with config.json and safetensors, single or sharded.

Parameter names are kept, so the mapping concerns the inner loop only (row vectors, weights [in, out]):

    published                                         inner loop
    attn.w0 [H, d_h, d], or w0.w_left w_right + I/2   w_gate = w0^T
    attn.w2 [H, d_h, d], likewise                     w_up   = w2^T
    attn.w1 [H, d, d_h]                               w_out  = w1^T
    attn.lr_proj, output head * 3 + matrix            rates of w_gate, w_out, w_up (matrices 0, 1, 2)
    attn.momentum_proj.0                              momentum
    lact_chunk_size, use_muon, use_momentum,          chunk, transform, momentum,
    ttt_prenorm                                       weight_norm.mode
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from torch import Tensor

from analysis.errors import CheckpointError
from analysis.models.lact_lm_config import LaCTLMConfig
from analysis.models.manifest import read_json
from analysis.models.safe_loading import load_tensors

INDEX_FILE = "model.safetensors.index.json"
SINGLE_FILE = "model.safetensors"


def weight_files(folder: Path) -> list[Path]:
    """Return the safetensors files of a folder, the shards of its index when there is one.

    Raises `CheckpointError` when there is none, or when a shard named by the index is missing.
    """
    index = folder / INDEX_FILE
    if not index.is_file():
        single = folder / SINGLE_FILE
        if single.is_file():
            return [single]
        hint = _conversion_hint(folder)
        raise CheckpointError(f"expected {SINGLE_FILE} or {INDEX_FILE} in {folder}, received neither; {hint}")
    table = read_json(index).get("weight_map")
    if not isinstance(table, Mapping) or not table:
        raise CheckpointError(
            f"expected a weight_map in {index.name}, received {json.dumps(table)[:80]}; restore the index"
        )
    if stray := [name for name in table.values() if not isinstance(name, str) or Path(name).name != name]:
        raise CheckpointError(
            f"expected names of files beside {index.name} in its weight_map, received {stray[0]!r}; restore the index"
        )
    paths = [folder / name for name in sorted(set(table.values()))]
    if lost := [path.name for path in paths if not path.is_file()]:
        raise CheckpointError(
            f"expected {len(paths)} shards in {folder.name}, received {len(paths) - len(lost)}: {', '.join(lost)} missing; "
            "fetch all shards"
        )
    return paths


def _conversion_hint(folder: Path) -> str:
    if any(folder.glob("*.distcp")) or any(folder.rglob(".metadata")):
        return "this is a distributed training checkpoint, convert it with the trainer's DCP-to-HuggingFace script first"
    if any(folder.glob("*.bin")):
        return "convert the .bin files to safetensors first"
    return "check the path"


def read_weights(folder: Path) -> dict[str, Tensor]:
    """Read all tensors of a folder; raises `CheckpointError` when the shards disagree with their index."""
    tensors: dict[str, Tensor] = {}
    for path in weight_files(folder):
        tensors.update(load_tensors(path))
    index = folder / INDEX_FILE
    if index.is_file():
        listed = set(read_json(index)["weight_map"])
        if lost := sorted(listed - set(tensors)):
            raise CheckpointError(
                f"expected {lost[0]} in the shards of {folder.name} as its index says, received shards without "
                f"({len(lost)} names); fetch all shards again"
            )
    return tensors


def explain_shape(config: LaCTLMConfig, name: str, found: tuple[int, ...]) -> str:
    """Say which configuration field the shape of a fast weight points to; empty when it tells nothing."""
    if not name.endswith("attn.w1") or len(found) != 3:
        return ""
    heads, width, hidden = found
    if heads != config.num_lact_heads:
        return (
            f"the weights look like num_lact_heads = {heads}, the configuration says {config.num_lact_heads}"
        )
    return f"the weights look like inter_multi = {hidden / width:g}, the configuration says {config.inter_multi:g}"
