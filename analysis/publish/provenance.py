"""What an executed notebook was made from: the key of its cache entry and the stamp in its metadata."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import subprocess
from collections.abc import Iterable, Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

from analysis import paths

STAMP = "provenance"
LOCK_FILES = (
    "requirements.txt",
    "requirements-lock.txt",
    "requirements.lock",
    "environment.yml",
    "pyproject.toml",
)
PACKAGE = Path(__file__).resolve().parent.parent


def source_digest(notebook: Mapping[str, Any]) -> str:
    """Return the sha256 of what a notebook says: cell types, sources and tags, never its outputs."""
    cells = [
        [cell["cell_type"], _joined(cell["source"]), sorted(cell.get("metadata", {}).get("tags", []))]
        for cell in notebook["cells"]
    ]
    return _digest(cells)


def surroundings(extra_inputs: Iterable[Path] = ()) -> dict[str, str]:
    """Return the digests that every notebook depends on: package sources, checkpoints, environment, other inputs."""
    sources = sorted(PACKAGE.rglob("*.py"))
    manifests = sorted(paths.CHECKPOINTS.glob("*/manifest.json"))
    locks = [paths.ROOT / name for name in LOCK_FILES]
    return {
        "sources": _files_digest(sources, PACKAGE),
        "checkpoints": _files_digest(manifests, paths.CHECKPOINTS),
        "environment": _digest([_files_digest(locks, paths.ROOT), sorted(_installed().items()), _machine()]),
        "inputs": _files_digest([*_committed_records(), *sorted(extra_inputs)], paths.ROOT),
    }


def key(notebook: Mapping[str, Any], parameters: Mapping[str, Any], around: Mapping[str, str]) -> str:
    """Return the sha256 under which the executed notebook is cached: same inputs, same key."""
    return _digest([source_digest(notebook), dict(parameters), dict(around)])


def stamp(
    key: str, parameters: Mapping[str, Any], around: Mapping[str, str], *, device: str, seconds: float
) -> dict[str, Any]:
    """Return the provenance written into the metadata of an executed notebook."""
    installed = _installed()
    shown = ("torch", "numpy", "pandas", "scikit-learn", "matplotlib", "papermill", "nbconvert")
    return {
        "key": key,
        "parameters": dict(parameters),
        "commit": commit(),
        "digests": dict(around),
        "versions": {name: installed[name] for name in shown if name in installed}
        | {"python": _machine()["python"]},
        "device": device,
        "seconds": round(seconds, 1),
    }


def commit() -> str:
    """Return the commit of the checkout, marked '+' when tracked files were changed, or 'unknown' outside one."""
    try:
        head = _git("rev-parse", "HEAD")
        return head + ("+" if _git("status", "--porcelain", "--untracked-files=no") else "")
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def _git(*arguments: str) -> str:
    command = ["git", "-C", str(paths.ROOT), *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def _committed_records() -> list[Path]:
    """Return the committed result records, which notebooks read; those that runs write are results, not inputs."""
    try:
        names = _git("ls-files", "-z", "--", str(paths.RECORDS)).split("\0")
    except (OSError, subprocess.CalledProcessError):
        return []
    return [paths.ROOT / name for name in names if name]


def _installed() -> dict[str, str]:
    return {entry.metadata["Name"].lower(): entry.version for entry in metadata.distributions()}


def _machine() -> dict[str, str]:
    return {
        "python": platform.python_version(),
        "system": platform.system(),
        "machine": platform.machine(),
        "gpus": os.environ.get("CUDA_VISIBLE_DEVICES", "all"),
    }


def _files_digest(files: Iterable[Path], root: Path) -> str:
    found = [file for file in files if file.is_file()]
    return _digest(
        [[os.path.relpath(file, root), hashlib.sha256(file.read_bytes()).hexdigest()] for file in found]
    )


def _digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


def _joined(source: str | list[str]) -> str:
    return source if isinstance(source, str) else "".join(source)
