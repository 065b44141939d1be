"""The state of an unfinished run: written whole or not at all, and read back to continue as if nothing had happened."""

from __future__ import annotations

import json
import os
import pickle
from pathlib import Path
from typing import Any

import torch

from analysis.errors import CheckpointError
from analysis.training.recipes import Recipe

RESUME_FILE = "resume.pt"


def write_state(folder: Path, recipe: Recipe, state: dict[str, Any]) -> None:
    """Write the state of a run into its folder, under a temporary name first."""
    folder.mkdir(parents=True, exist_ok=True)
    partial = folder / f"{RESUME_FILE}.{os.getpid()}.tmp"
    try:
        torch.save({"recipe": fingerprint(recipe), **state}, partial)
        os.replace(partial, folder / RESUME_FILE)
    finally:
        partial.unlink(missing_ok=True)


def read_state(folder: Path, recipe: Recipe, device: torch.device) -> dict[str, Any] | None:
    """Return the state of an unfinished run of this very recipe, or None when there is none.

    Raises:
        CheckpointError: the file is damaged, or was written by another recipe.
    """
    path = folder / RESUME_FILE
    if not path.is_file():
        return None
    try:
        state: dict[str, Any] = torch.load(path, map_location=device, weights_only=True)
    except (RuntimeError, pickle.UnpicklingError, EOFError, OSError) as error:
        raise CheckpointError(
            f"expected the state of an unfinished run in {path}, received a file that cannot be read: {error}; remove it."
        ) from error
    if state.pop("recipe", None) != fingerprint(recipe):
        raise CheckpointError(
            f"expected the state of {recipe.name} with seed {recipe.seed} in {path}, received that of another recipe; "
            "remove it, choose another folder, or pass resume=False."
        )
    return state


def remove_state(folder: Path) -> None:
    """Remove the state once the run is finished."""
    (folder / RESUME_FILE).unlink(missing_ok=True)


def fingerprint(recipe: Recipe) -> str:
    """Return everything that decides the run as one line."""
    return json.dumps({**recipe.to_dict(), "note": ""}, sort_keys=True)
