"""Digests of data and atomic writes, shared by every data set."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from analysis.errors import DataError


def digest_files(files: Iterable[tuple[str, bytes]]) -> str:
    """Return the sha256 over sorted (name, content) pairs; each part is preceded by its length."""
    total = hashlib.sha256()
    for name, content in sorted(files):
        for part in (name.encode(), content):
            total.update(len(part).to_bytes(8, "little"))
            total.update(part)
    return total.hexdigest()


def digest_arrays(recipe: dict[str, Any], *arrays: np.ndarray) -> str:
    """Return the sha256 over a JSON-able recipe and the type, shape and bytes of each array."""
    total = hashlib.sha256(json.dumps(recipe, sort_keys=True).encode())
    for array in arrays:
        total.update(f"{array.dtype.str}{array.shape}".encode())
        total.update(np.ascontiguousarray(array).tobytes())
    return total.hexdigest()


def require_folder(folder: Path | str, content: str) -> Path:
    """Return `folder` as a path, or raise DataError when it is not a folder holding `content`."""
    folder = Path(folder)
    if not folder.is_dir():
        raise DataError(
            f"Expected a folder of {content}, received {folder}, which is not one; check the path."
        )
    return folder


def read_bytes(path: Path | str, content: str) -> bytes:
    """Return the bytes of a file, or raise DataError when it is not there or cannot be read."""
    path = Path(path)
    if not path.is_file():
        raise DataError(f"Expected {content} at {path}, where no file is; check the path.")
    try:
        return path.read_bytes()
    except OSError as error:
        raise DataError(
            f"Expected {content} at {path}, received: {error.strerror}; check its permissions."
        ) from error
