"""Finding out what a path holds and reading it: our own folders, HuggingFace folders, `torch.save` files."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from torch import Tensor

from analysis.errors import CheckpointError
from analysis.models import families
from analysis.models.lact_lm_adapter import read_weights, weight_files
from analysis.models.manifest import (
    MANIFEST_FILE,
    WEIGHTS_FILE,
    Manifest,
    read_json,
    read_manifest,
    sha256_of,
)
from analysis.models.safe_loading import load_pickled, load_shapes, load_tensors
from analysis.models.state_dicts import without_prefixes
from analysis.spec import Family, Loops

_PICKLED = (".pt", ".pth")
_CONFIG_NAMES = ("config.yaml", "config.yml", "config.json")
_EMA_KEYS = ("state_dict_ema", "model_ema")
_MODEL_KEYS = ("model", "state_dict")


@dataclass
class Source:
    """A checkpoint as read: tensors with wrapper prefixes removed, configuration, loops (None: as published), notes."""

    path: Path
    family: Family
    config: Any
    tensors: dict[str, Tensor]
    files: tuple[Path, ...]
    layout: str
    loops: Loops | None = None
    manifest: Manifest | None = None
    weights: str = "model"
    stripped: str = ""
    notes: list[str] = field(default_factory=list)

    def digest(self) -> str:
        """SHA-256 that identifies the weights: of the file, or over the digests of several, with the choice of EMA."""
        parts = [sha256_of(path) for path in self.files]
        if len(parts) == 1 and self.weights == "model":
            return parts[0]
        return hashlib.sha256(":".join([*parts, self.weights]).encode()).hexdigest()


def read_source(
    path: Path, weights: str | None, config: Path | Mapping[str, Any] | None, shapes_only: bool
) -> Source:
    """Read a checkpoint of any known layout; `shapes_only` leaves tensors of safetensors files on the meta device.

    Raises `CheckpointError` when the path holds no known layout or a damaged file.
    """
    if weights not in (None, "model", "ema"):
        raise CheckpointError(
            f"expected weights to be None, 'model' or 'ema', received {weights!r}; pass one of those"
        )
    if not path.exists():
        raise CheckpointError(f"expected a checkpoint at {path}, received nothing there; check the path")
    if path.is_file() and path.suffix == ".safetensors":
        path = _folder_of(path)
    if path.is_dir():
        pickled = sorted(entry for entry in path.iterdir() if entry.suffix in _PICKLED)
        if (path / MANIFEST_FILE).is_file():
            if config is not None:
                raise CheckpointError(
                    f"expected no configuration for {path.name}, whose {MANIFEST_FILE} holds it, received one; leave it out"
                )
            return _read_own(path, _only_model(weights, path), shapes_only)
        if (path / "config.json").is_file() and not pickled:
            return _read_huggingface(path, _only_model(weights, path), config, shapes_only)
        if not any(path.iterdir()):
            raise CheckpointError(
                f"expected {path} to hold {MANIFEST_FILE}, config.json with safetensors, or one .pt/.pth file, received an empty "
                "folder; check the path"
            )
        if len(pickled) != 1:
            names = ", ".join(entry.name for entry in pickled[:4]) or "none"
            raise CheckpointError(
                f"expected {path} to hold {MANIFEST_FILE}, config.json with safetensors, or one .pt/.pth file, received "
                f"{names} of the last kind; give the path of one checkpoint"
            )
        path = pickled[0]
    if path.suffix not in _PICKLED:
        raise CheckpointError(
            f"expected a folder or a .pt, .pth or .safetensors file, received {path.name}; check the path"
        )
    return _read_pickled(path, weights, config)


def _folder_of(file: Path) -> Path:
    """Return the folder of a safetensors file, which must also hold what describes it."""
    folder = file.parent
    if not any((folder / name).is_file() for name in (MANIFEST_FILE, "config.json")):
        raise CheckpointError(
            f"expected {MANIFEST_FILE} or config.json beside {file}, received neither; a safetensors file names no "
            "architecture, put its configuration into the same folder"
        )
    return folder


def _only_model(weights: str | None, path: Path) -> str:
    if weights == "ema":
        raise CheckpointError(
            f"expected averaged weights in {path.name} for weights='ema', received a folder with one set; use weights=None"
        )
    return "model"


def _read_own(folder: Path, weights: str, shapes_only: bool) -> Source:
    manifest, file = read_manifest(folder), folder / WEIGHTS_FILE
    tensors = (load_shapes if shapes_only else load_tensors)(file)
    if (digest := sha256_of(file)) != manifest.sha256:
        raise CheckpointError(
            f"expected {file.name} of {folder.name} with sha256 {manifest.sha256[:12]} as its manifest says, received "
            f"{digest[:12]}; the file was changed or belongs to another manifest, fetch both again"
        )
    parsed, notes = families.read_config(manifest.family, manifest.config)
    source = Source(
        folder, manifest.family, parsed, tensors, (file,), "own", manifest.loops, manifest, weights
    )
    source.notes.extend(notes)
    if manifest.step == 0:
        source.notes.append("untrained: the manifest says step 0")
    return source


def _read_huggingface(
    folder: Path, weights: str, config: Path | Mapping[str, Any] | None, shapes_only: bool
) -> Source:
    values = read_json(folder / "config.json") if config is None else _read_values(config)
    parsed, notes = families.read_config(Family.LACT_LM, values)
    files = weight_files(folder)
    if shapes_only:
        found = {name: tensor for file in files for name, tensor in load_shapes(file).items()}
    else:
        found = read_weights(folder)
    families.recognise(found, folder.name)
    tensors, stripped = _stripped(Family.LACT_LM, parsed, None, found)
    source = Source(
        folder,
        Family.LACT_LM,
        parsed,
        tensors,
        tuple(files),
        "huggingface",
        weights=weights,
        stripped=stripped,
    )
    source.notes.extend(notes)
    return source


def _read_pickled(path: Path, weights: str | None, config: Path | Mapping[str, Any] | None) -> Source:
    container = load_pickled(path)
    if not isinstance(container, Mapping):
        raise CheckpointError(
            f"expected a dictionary in {path.name}, received {type(container).__name__}; save the state_dict"
        )
    found, chosen, notes = _choose_weights(container, weights, path)
    family = families.recognise(found, path.name)
    stored = container.get("config")
    parsed, more = _pickled_config(family, path, config, found, stored if isinstance(stored, Mapping) else {})
    tensors, stripped = _stripped(family, parsed, None, found)
    source = Source(path, family, parsed, tensors, (path,), "pickled", weights=chosen, stripped=stripped)
    source.notes.extend([*notes, *more])
    if container.get("now_iters") == 0:
        source.notes.append("untrained: the file was saved at iteration 0")
    return source


def _choose_weights(
    container: Mapping[str, Any], weights: str | None, path: Path
) -> tuple[dict[str, Tensor], str, list[str]]:
    sets: dict[str, Mapping[str, Any]] = {}
    for label, keys in (("ema", _EMA_KEYS), ("model", _MODEL_KEYS)):
        for key in keys:
            if isinstance(container.get(key), Mapping):
                sets[label] = container[key]
    if "model" not in sets and all(isinstance(value, Tensor) for value in container.values()):
        sets["model"] = container
    chosen = weights or ("ema" if "ema" in sets else "model")
    if chosen not in sets:
        raise CheckpointError(
            f"expected {chosen!r} weights in {path.name}, received {', '.join(sets) or 'none'} (keys: "
            f"{', '.join(map(str, list(container)[:6]))}); choose among those present"
        )
    tensors = {str(name): value for name, value in sets[chosen].items() if isinstance(value, Tensor)}
    notes = [
        f"weights = {chosen}: the file holds both; averaged ones are the default, as in the published evaluation"
    ]
    return tensors, chosen, notes if len(sets) == 2 else []


def _pickled_config(
    family: Family,
    path: Path,
    config: Path | Mapping[str, Any] | None,
    found: Mapping[str, Tensor],
    stored: Mapping[str, Any],
) -> tuple[Any, tuple[str, ...]]:
    if config is not None:
        return families.read_config(family, _read_values(config))
    beside = _config_beside(path, (".json",) if family is Family.VITTT else (".yaml", ".yml", ".json"))
    if beside is not None:
        return families.read_config(family, _read_values(beside))
    if family is not Family.VITTT:
        raise CheckpointError(
            f"expected the configuration of {path.name} beside it (config.yaml), received none; rates and Newton-Schulz steps "
            "cannot be read off the weights, pass config=PATH"
        )
    names, _ = without_prefixes(found, ["head.weight", "norm.weight"])
    plain_names = {short: found[name] for name, short in names.items()}
    try:
        values = families.infer_vittt_config(plain_names, stored)
    except (LookupError, ValueError, ArithmeticError) as error:
        raise CheckpointError(
            f"expected the tensors of a whole ViTTT classifier in {path.name}, received others ({error}); use a complete "
            "checkpoint"
        ) from error
    return families.read_config(family, values)[0], ("configuration inferred from the shapes of the weights",)


def _config_beside(path: Path, suffixes: tuple[str, ...]) -> Path | None:
    for name in _CONFIG_NAMES:
        candidate = path.parent / name
        if candidate.suffix in suffixes and candidate.is_file():
            return candidate
    others = sorted(
        entry for entry in path.parent.iterdir() if entry.suffix in suffixes and entry.suffix != ".json"
    )
    return others[0] if len(others) == 1 else None


def _read_values(config: Path | Mapping[str, Any]) -> Mapping[str, Any]:
    if isinstance(config, Mapping):
        return config
    config = Path(config)
    if config.suffix == ".json":
        return read_json(config)
    try:
        values = yaml.safe_load(config.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, RecursionError, yaml.YAMLError) as error:
        raise CheckpointError(
            f"expected a readable YAML configuration at {config}, received: {error}; mend it"
        ) from error
    if not isinstance(values, Mapping):
        raise CheckpointError(
            f"expected a mapping in {config.name}, received {type(values).__name__}; mend it"
        )
    return values


def _stripped(
    family: Family, config: Any, loops: Loops | None, found: Mapping[str, Tensor]
) -> tuple[dict[str, Tensor], str]:
    names, removed = without_prefixes(found, families.shapes_of(family, config, loops))
    return {short: found[name] for name, short in names.items()}, removed
