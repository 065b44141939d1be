"""The manifest beside our own checkpoints: what the file is, how it was made, and the digest that proves it."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from analysis.errors import AnalysisError, CheckpointError, closest
from analysis.paths import replacing
from analysis.spec import Family, Loops, from_dict, parse_family, to_dict

WEIGHTS_FILE = "model.safetensors"
MANIFEST_FILE = "manifest.json"
FORMAT = 1


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """family, config and loops as trained; sha256 of the weights file; then the provenance that the trainer supplies."""

    family: Family
    config: Mapping[str, Any]
    loops: Loops
    sha256: str
    num_parameters: int
    storage: str = "bfloat16"
    recipe: Mapping[str, Any] | str = field(default_factory=dict)
    data_digest: str = ""
    seed: int | None = None
    step: int | None = None
    metrics: Mapping[str, Any] = field(default_factory=dict)
    commit: str = ""
    versions: Mapping[str, str] = field(default_factory=dict)
    format: int = FORMAT

    def to_dict(self) -> dict[str, Any]:
        """Return the manifest as JSON-ready values."""
        values = {item.name: getattr(self, item.name) for item in dataclasses.fields(self)}
        return {
            **values,
            "family": self.family.value,
            "loops": {name: to_dict(loop) for name, loop in self.loops.items()},
        }


_TYPES: dict[str, tuple[type, ...]] = {
    **dict.fromkeys(("config", "loops", "metrics", "versions"), (dict,)),
    **dict.fromkeys(("family", "sha256", "storage", "data_digest", "commit"), (str,)),
    **dict.fromkeys(("seed", "step"), (int, type(None))),
    "num_parameters": (int,),
    "recipe": (dict, str),
}
"""What JSON holds under each name; `config` and `loops` are read further by their own parsers."""

PROVENANCE = ("recipe", "data_digest", "seed", "step", "metrics", "commit", "versions")


def check_provenance(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the provenance a trainer hands over; raises `CheckpointError` for an unknown name or what JSON cannot hold."""
    for name in values:
        if name not in PROVENANCE:
            raise CheckpointError(
                f"expected provenance among {', '.join(PROVENANCE)}, received {name!r}{closest(name, PROVENANCE)}; rename it"
            )
    try:
        json.dumps(dict(values))
    except (TypeError, ValueError) as error:
        raise CheckpointError(
            f"expected provenance that JSON can hold, received: {error}; pass plain numbers, text, lists and mappings"
        ) from error
    return dict(values)


def read_manifest(folder: Path) -> Manifest:
    """Read manifest.json; raises `CheckpointError` when it is damaged, of another version, or lacks a field."""
    path = folder / MANIFEST_FILE
    data = read_json(path)
    known = {item.name for item in dataclasses.fields(Manifest)}
    required = {"family", "config", "loops", "sha256", "num_parameters"}
    if data.get("format", FORMAT) != FORMAT:
        raise CheckpointError(
            f"expected manifest format {FORMAT}, received {data['format']!r}; update the package"
        )
    if missing := sorted(required - set(data)):
        raise CheckpointError(
            f"expected {', '.join(missing)} in {path.name} of {folder.name}, received none; restore the file"
        )
    for name, kinds in _TYPES.items():
        if name in data and not isinstance(data[name], kinds):
            raise CheckpointError(
                f"expected {name} in {path.name} of {folder.name} as {' or '.join(kind.__name__ for kind in kinds)}, received "
                f"{data[name]!r:.80}; restore the file"
            )
    try:
        loops = {name: from_dict(loop) for name, loop in data["loops"].items()}
        family = parse_family(data["family"])
    except AnalysisError as error:
        raise CheckpointError(
            f"expected a readable inner loop in {path.name} of {folder.name}, received: {error}"
        ) from error
    values = {name: value for name, value in data.items() if name in known}
    return Manifest(**{**values, "family": family, "loops": loops})


def write_manifest(manifest: Manifest, path: Path) -> None:
    """Write manifest.json under a temporary name, then put it in place."""
    with replacing(path) as partial:
        partial.write_text(json.dumps(manifest.to_dict(), indent=1, sort_keys=True) + "\n", encoding="utf-8")


def read_json(path: Path) -> dict[str, Any]:
    """Read a JSON object; raises `CheckpointError` when it is missing or damaged."""
    if not path.is_file():
        raise CheckpointError(
            f"expected {path.name} in {path.parent}, received nothing there; check the path"
        )
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError, OSError) as error:
        raise CheckpointError(
            f"expected JSON in {path}, received a file that cannot be read: {error}; restore it"
        ) from error
    if not isinstance(data, dict):
        raise CheckpointError(
            f"expected a JSON object in {path}, received {type(data).__name__}; restore the file"
        )
    return data


def sha256_of(path: Path) -> str:
    """Return the hex digest of a file."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
