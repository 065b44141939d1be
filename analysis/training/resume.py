"""The state of an unfinished run: written whole or not at all, and read back to continue as if nothing had happened."""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from analysis.errors import CheckpointError
from analysis.models.manifest import MANIFEST_FILE, read_manifest
from analysis.paths import replacing, require_writable
from analysis.training.recipes import Recipe

RESUME_FILE = "resume.pt"
# What a state that was cut off or edited makes its readers raise.
_DAMAGE = (RuntimeError, LookupError, ValueError, TypeError, AttributeError)


def write_state(folder: Path, recipe: Recipe, state: dict[str, Any]) -> None:
    """Write the state of a run into its folder, under a temporary name first."""
    with replacing(folder / RESUME_FILE) as partial:
        torch.save({"recipe": fingerprint(recipe), **state}, partial)


def read_state(folder: Path, recipe: Recipe, device: torch.device) -> dict[str, Any] | None:
    """Return the state of an unfinished run of this very recipe, or None when there is none.

    Raises:
        CheckpointError: the file is damaged, or was written by another recipe.
    """
    path = folder / RESUME_FILE
    if not path.exists():
        return None
    try:
        state = torch.load(path, map_location=device, weights_only=True)
    except (*_DAMAGE, pickle.UnpicklingError, EOFError, OSError) as error:
        raise unreadable(folder, error) from error
    if not isinstance(state, dict) or state.pop("recipe", None) != fingerprint(recipe):
        raise CheckpointError(
            f"expected the state of {recipe.name} with seed {recipe.seed} in {path}, received that of another recipe; "
            "remove it or choose another folder."
        )
    return state


@contextmanager
def restoring(folder: Path) -> Iterator[None]:
    """Within the block a state is taken over; what does not fit becomes a CheckpointError."""
    try:
        yield
    except _DAMAGE as error:
        raise unreadable(folder, error) from error


def unreadable(folder: Path, error: Exception) -> CheckpointError:
    """Return the error for a state that is damaged or incomplete."""
    return CheckpointError(
        f"expected the state of an unfinished run in {folder / RESUME_FILE}, received a file that cannot be read "
        f"({type(error).__name__}); remove it."
    )


def require_free(folder: Path, recipe: Recipe) -> None:
    """Refuse, before any training, a folder that cannot be written or holds the finished checkpoint of another recipe.

    Raises:
        StorageError: the folder cannot be written.
        CheckpointError: it holds a checkpoint of another recipe or seed, or one that cannot be read.
    """
    require_writable(folder)
    if not (folder / MANIFEST_FILE).exists():
        return
    held = read_manifest(folder)
    name = held.recipe.get("name") if isinstance(held.recipe, Mapping) else held.recipe
    if (name, held.seed) != (recipe.name, recipe.seed):
        raise CheckpointError(
            f"expected {folder} to be free or to hold {recipe.name} with seed {recipe.seed}, received a checkpoint of {name} "
            f"with seed {held.seed}; choose another folder, or remove it."
        )


def remove_state(folder: Path) -> None:
    """Remove the state once the run is finished."""
    (folder / RESUME_FILE).unlink(missing_ok=True)


def fingerprint(recipe: Recipe) -> str:
    """Return everything that decides the run as one line."""
    return json.dumps({**recipe.to_dict(), "note": ""}, sort_keys=True)
