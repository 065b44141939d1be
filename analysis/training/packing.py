"""Putting finished checkpoints into a few plain tar files of limited size, most important first."""

from __future__ import annotations

import os
import tarfile
from collections.abc import Sequence
from pathlib import Path

from analysis.models.manifest import MANIFEST_FILE, WEIGHTS_FILE

MOST_FILES = 4
MOST_BYTES = 15 * 2**20
_MEMBER_OVERHEAD = 2048
_TAR_END = 20480


def pack(folders: Sequence[Path], target: Path, files: int = MOST_FILES, size: int = MOST_BYTES) -> list[str]:
    """Pack checkpoint folders into at most `files` tars of less than `size` bytes; returns those left without weights.

    The manifest of every folder is packed, whatever the room; weights go in by the order of `folders` while there is room.
    A tar unpacks into `<folder>/manifest.json` and `<folder>/model.safetensors`.
    """
    target.mkdir(parents=True, exist_ok=True)
    room = [size - _TAR_END] * files
    contents: list[list[Path]] = [[] for _ in range(files)]
    manifests = [folder / MANIFEST_FILE for folder in folders]
    left_out = []
    for path in [*manifests, *(folder / WEIGHTS_FILE for folder in folders)]:
        needed = path.stat().st_size + _MEMBER_OVERHEAD
        place = next((i for i in range(files) if room[i] >= needed), None)
        if place is None:
            left_out.append(path.parent.name)
            continue
        room[place] -= needed
        contents[place].append(path)
    for index, paths in enumerate(contents):
        if paths:
            _write(paths, target / f"checkpoints-{index}.tar")
    return left_out


def _write(paths: Sequence[Path], path: Path) -> None:
    partial = path.with_suffix(".tmp")
    with tarfile.open(partial, "w") as archive:
        for member in paths:
            archive.add(member, arcname=f"{member.parent.name}/{member.name}")
    os.replace(partial, path)
