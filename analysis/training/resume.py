"""The state of an unfinished run: written whole or not at all, and read back to continue as if nothing had happened."""

from __future__ import annotations

import json
import os
import pickle
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from analysis.errors import CheckpointError, StorageError
from analysis.models.manifest import MANIFEST_FILE, WEIGHTS_FILE, read_manifest
from analysis.paths import replacing
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


class AlreadyFinishedError(CheckpointError):
    """The folder holds the finished checkpoint of this very recipe; there is nothing to train."""


def require_free(folder: Path, recipe: Recipe) -> None:
    """Refuse, before any data are prepared, a folder that cannot be made or holds something finished; creates nothing.

    Raises:
        StorageError: the folder, or one above it, is a file or cannot be written.
        AlreadyFinishedError: it holds the finished checkpoint of this recipe, the same in all but the note.
        CheckpointError: it holds a checkpoint of another recipe, weights of unknown origin, or a manifest that cannot be read.
    """
    _require_possible(folder)
    if not (folder / MANIFEST_FILE).exists():
        if (folder / WEIGHTS_FILE).exists() and not (folder / RESUME_FILE).exists():
            raise CheckpointError(
                f"expected {folder} to be free, received {WEIGHTS_FILE} without {MANIFEST_FILE}; {_ELSEWHERE}."
            )
        return
    held = read_manifest(folder)
    former = held.recipe if isinstance(held.recipe, Mapping) else {"name": held.recipe}
    if differing := _differences(former, json.loads(fingerprint(recipe))):
        raise CheckpointError(
            f"expected {folder} to be free or to hold {recipe.name} with seed {recipe.seed} as asked, received a finished "
            f"checkpoint of {former.get('name')} with seed {held.seed} ({differing}); {_ELSEWHERE}."
        )
    raise AlreadyFinishedError(
        f"{recipe.name} with seed {recipe.seed} is already finished in {folder} ({held.step} steps, training data "
        f"{held.data_digest[:12]}), so nothing is trained; to train it again, {_ELSEWHERE}."
    )


_ELSEWHERE = "choose another folder (--output FOLDER on the command line), or remove this one"


def _require_possible(folder: Path) -> None:
    """Look for what would keep the folder from being made or written, without making it."""
    there = next(path for path in (folder.absolute(), *folder.absolute().parents) if path.exists())
    if not there.is_dir():
        raise StorageError(f"expected a folder at {there}, received a file; name another place.")
    if not os.access(there, os.W_OK | os.X_OK):
        raise StorageError(
            f"expected a folder that can be written at {there}, received one that cannot; change the permissions, or name "
            "another place."
        )


def _differences(held: Mapping[str, Any], asked: Mapping[str, Any]) -> str:
    """Return in words what two recipes differ in, the first three of it; the note does not count."""
    former, now = (_flat({**values, "note": ""}) for values in (held, asked))
    different = [name for name in {**now, **former} if former.get(name, _NONE) != now.get(name, _NONE)]
    names = sorted(
        different, key=lambda name: name.count(".")
    )  # the plain settings before those inside others
    told = [f"{name} is {former.get(name, _NONE)}, asked {now.get(name, _NONE)}" for name in names[:3]]
    return "; ".join([*told, *([f"{len(names) - 3} more"] if len(names) > 3 else [])])


_NONE = "not stated"


def _flat(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in values.items():
        found |= (
            _flat(value, f"{prefix}{name}.") if isinstance(value, Mapping) else {f"{prefix}{name}": value}
        )
    return found


def remove_state(folder: Path) -> None:
    """Remove the state once the run is finished."""
    (folder / RESUME_FILE).unlink(missing_ok=True)


def fingerprint(recipe: Recipe) -> str:
    """Return everything that decides the run as one line."""
    return json.dumps({**recipe.to_dict(), "note": ""}, sort_keys=True)
