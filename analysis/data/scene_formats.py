"""Scenes of one's own: the LaCT-NVS layout (opencv_cameras.json) and RealEstate10K camera files with frames."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image

from analysis.data.cameras import mean_pose_normalisation
from analysis.data.pixels import fit_image, open_image
from analysis.data.scenes import SceneSet
from analysis.data.storage import digest_files, read_bytes, require_folder
from analysis.errors import DataError

NORMALISATIONS = ("none", "mean_pose")
FRAME_SUFFIXES = (".png", ".jpg", ".jpeg")
CAMERAS_FILE = "opencv_cameras.json"
View = tuple[np.ndarray, np.ndarray, Path]
Scene = tuple[str, list[View]]


def load_lact_scenes(
    path: Path | str, size: tuple[int, int], views: int | None = None, normalise: str = "none"
) -> SceneSet:
    """Read scenes in the LaCT-NVS layout at `size` = (height, width).

    `path` is a JSON list of paths to opencv_cameras.json files (relative to itself), one such file, or a folder that
    holds one. A cameras file lists views with w, h, fx, fy, cx, cy, w2c (4 x 4, OpenCV axes) and file_path (relative
    to itself). Images are resized with Lanczos to cover the size, cropped to its centre, then put on white; intrinsics
    follow. The first `views` views of each scene are taken, in file order (default: all). `normalise` is "none" or
    "mean_pose" (see `mean_pose_normalisation`, which raises DataError for inward-looking rigs).
    """
    path = Path(path)
    path = path / CAMERAS_FILE if path.is_dir() else path
    listed = _json(path)
    if isinstance(listed, list) and listed and all(isinstance(one, str) for one in listed):
        files = [path.parent / one for one in listed]
    else:
        files = [path]
    scenes = [(file.parent.name, _lact_views(file)) for file in files]
    return _scene_set("lact-nvs", scenes, files, size, views, normalise)


def _json(path: Path) -> Any:
    try:
        return json.loads(read_bytes(path, "a JSON file of cameras or of paths to cameras"))
    except (json.JSONDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise DataError(f"Expected JSON in {path}, received something else: {error}.") from error


def _lact_views(file: Path) -> list[View]:
    rows = _json(file)
    rows = rows.get("frames") if isinstance(rows, dict) else rows
    if not isinstance(rows, list) or not rows:
        raise DataError(f"Expected a non-empty list of views in {file}, received {type(rows).__name__}.")
    views = []
    for number, row in enumerate(rows):
        needed = ("fx", "fy", "cx", "cy", "w2c", "file_path")
        missing = [key for key in needed if not isinstance(row, dict) or key not in row]
        if missing:
            raise DataError(
                f"Expected {', '.join(missing)} in view {number} of {file}, found none; complete the file."
            )
        where = f"view {number} of {file}"
        if not isinstance(row["file_path"], str):
            raise DataError(
                f"Expected file_path as text in {where}, received {row['file_path']!r}; mend the file."
            )
        lens = _lens([row[key] for key in needed[:4]], where)
        views.append((_inverse(row["w2c"], where), lens, file.parent / row["file_path"]))
    return views


def _lens(values: Any, where: str) -> np.ndarray:
    """Return fx, fy, cx, cy; raises DataError unless they are finite numbers with positive focal lengths."""
    try:
        lens = np.array(values, dtype=np.float64)
    except (ValueError, TypeError) as error:
        raise DataError(
            f"Expected numbers as fx, fy, cx, cy of {where}, received: {error}; mend them."
        ) from error
    if lens.shape != (4,) or not np.isfinite(lens).all() or (lens[:2] <= 0).any():
        raise DataError(
            f"Expected finite fx, fy, cx, cy with fx and fy above 0 in {where}, received {values}; mend them."
        )
    return lens


def _inverse(w2c: Any, where: str) -> np.ndarray:
    try:
        matrix = np.array(w2c, dtype=np.float64)
    except (ValueError, TypeError) as error:
        raise DataError(f"Expected numbers in the pose of {where}, received: {error}.") from error
    if (
        matrix.shape != (4, 4)
        or not np.isfinite(matrix).all()
        or abs(np.linalg.det(matrix[:3, :3])) < 1e-6
        or not np.allclose(matrix[3], (0, 0, 0, 1))
    ):
        raise DataError(
            f"Expected an invertible 4 x 4 w2c matrix in {where}, its last row 0 0 0 1, received {matrix.tolist()}; check it."
        )
    return np.linalg.inv(matrix)


def load_realestate(
    cameras: Path | str, frames: Path | str, size: tuple[int, int], views: int, normalise: str = "mean_pose"
) -> SceneSet:
    """Read RealEstate10K clips at `size` = (height, width), `views` evenly spaced views of each.

    `cameras` holds one text file per clip: a line with the video's address, then lines of a timestamp, fx fy cx cy as
    fractions of width and height, two unused numbers, and the 3 x 4 w2c matrix row by row (OpenCV axes). `frames` holds
    a folder per clip, named as its text file, with an image named as each timestamp. Raises DataError for malformed lines
    and for clips with fewer frames than `views`.
    """
    cameras, frames = (
        require_folder(cameras, "RealEstate10K camera files"),
        require_folder(frames, "clip folders"),
    )
    files = sorted(cameras.glob("*.txt"))
    if not files:
        raise DataError(
            f"Expected RealEstate10K camera files (*.txt) in {cameras}, found none; check the folder."
        )
    scenes = []
    for file in files:
        found = _clip_views(file, frames / file.stem)
        if len(found) < views:
            raise DataError(
                f"Expected at least {views} frames with cameras for clip {file.stem}, found {len(found)} in "
                f"{frames / file.stem}; ask for fewer views or add frames."
            )
        chosen = np.linspace(0, len(found) - 1, views).round().astype(int)
        scenes.append((file.stem, [found[index] for index in chosen]))
    return _scene_set("realestate10k", scenes, files, size, views, normalise)


def _clip_views(file: Path, folder: Path) -> list[View]:
    views = []
    lines = read_bytes(file, "a camera file").decode("utf-8", errors="replace").splitlines()
    for number, line in enumerate(lines[1:], start=2):
        if not line.strip():
            continue
        where, parts = f"line {number} of {file}", line.split()
        try:
            numbers = np.array([float(part) for part in parts[1:]])
        except ValueError as error:
            raise DataError(f"Expected numbers in {where}, received: {error}.") from error
        if len(numbers) != 18:
            raise DataError(f"Expected a timestamp and 18 numbers in {where}, received {len(parts)} fields.")
        frame = next(
            (
                folder / f"{parts[0]}{end}"
                for end in FRAME_SUFFIXES
                if (folder / f"{parts[0]}{end}").is_file()
            ),
            None,
        )
        if frame is None:
            continue  # published clips list more cameras than anyone extracts frames for
        with open_image(frame) as image:
            lens = _lens(numbers[:4] * np.array([image.width, image.height] * 2), where)
        w2c = np.concatenate([numbers[6:].reshape(3, 4), [[0.0, 0.0, 0.0, 1.0]]])
        views.append((_inverse(w2c, where), lens, frame))
    return views


def _scene_set(
    name: str,
    scenes: list[Scene],
    files: list[Path],
    size: tuple[int, int],
    views: int | None,
    normalise: str,
) -> SceneSet:
    if normalise not in NORMALISATIONS:
        raise DataError(f"Expected normalise among {', '.join(NORMALISATIONS)}, received {normalise!r}.")
    counts = {len(found) for _, found in scenes}
    views = min(counts) if views is None and len(counts) == 1 else views
    if views is None or not 1 <= views <= min(counts):
        raise DataError(
            f"Expected a number of views up to {min(counts)} that every scene has (scenes have "
            f"{sorted(counts)}), received {views}; pass views=."
        )
    contents = [(f"{index}/cameras", file.read_bytes()) for index, file in enumerate(files)]
    images, poses, lenses = [], [], []
    for index, (_, found) in enumerate(scenes):
        for number, (_, lens, path) in enumerate(found[:views]):
            contents.append((f"{index}/{number}", read_bytes(path, "an image of a view")))
            with open_image(path) as image:
                pixels, fitted = fit_image(image, size, lens, Image.Resampling.LANCZOS)
            images.append(pixels)
            lenses.append(torch.from_numpy(fitted).float())
        c2w = torch.from_numpy(np.stack([pose for pose, _, _ in found[:views]]))
        poses.append(mean_pose_normalisation(c2w) if normalise == "mean_pose" else c2w.float())
    settings = f"{size[0]} x {size[1]}, {normalise}"
    return SceneSet(
        name=name,
        description=f"{len(scenes)} scenes with {views} views of {settings}",
        digest=digest_files([*contents, ("settings", settings.encode())]),
        images=torch.stack(images).reshape(len(scenes), views, 3, *size),
        c2w=torch.stack(poses),
        fxfycxcy=torch.stack(lenses).reshape(len(scenes), views, 4),
    )
