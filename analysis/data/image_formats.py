"""Labelled images of one's own: an ImageNet-style folder and the CIFAR-10 batch files."""

from __future__ import annotations

import io
import pickle
from pathlib import Path

import numpy as np
import torch
from PIL import Image

from analysis.data.images import ImageSet
from analysis.data.pixels import fit_image, open_image
from analysis.data.storage import digest_files, read_bytes, require_folder
from analysis.errors import DataError

IMAGE_SUFFIXES = (".png", ".jpg", ".jpeg", ".webp", ".bmp")
IMAGENET = {"mean": (0.485, 0.456, 0.406), "std": (0.229, 0.224, 0.225)}
CIFAR10 = {"mean": (0.4914, 0.4822, 0.4465), "std": (0.2470, 0.2435, 0.2616)}
CIFAR10_CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
CIFAR10_PIXELS = 3 * 32 * 32
CROP = 0.875
# All that a batch file of CIFAR-10 refers to, under the names of old and new NumPy.
SAFE_GLOBALS = {
    ("numpy.core.multiarray", "_reconstruct"),
    ("numpy._core.multiarray", "_reconstruct"),
    ("numpy", "ndarray"),
    ("numpy", "dtype"),
    ("_codecs", "encode"),
}


def load_image_folder(folder: Path | str, size: int = 224, limit_per_class: int | None = None) -> ImageSet:
    """Read an ImageNet-style folder: one subfolder per class, classes numbered in sorted order.

    Evaluation transform: resize the shorter side to size / 0.875 (bicubic), crop the centre to size x size, normalise
    with the mean (0.485, 0.456, 0.406) and standard deviation (0.229, 0.224, 0.225) of ImageNet. The first
    `limit_per_class` images of each class are taken, in sorted order. Raises DataError for a missing folder, no class
    folders, an empty class, or an unreadable image.
    """
    folder = require_folder(folder, "one subfolder of images per class")
    classes = sorted(one.name for one in folder.iterdir() if one.is_dir())
    if not classes:
        raise DataError(
            f"Expected one subfolder per class in {folder}, found none; sort the images into folders."
        )
    images, labels, contents = [], [], []
    resized = (round(size / CROP), round(size / CROP))
    margin = (resized[0] - size) // 2
    for label, name in enumerate(classes):
        files = sorted(file for file in (folder / name).rglob("*") if file.suffix.lower() in IMAGE_SUFFIXES)
        if not files:
            raise DataError(f"Expected images ({', '.join(IMAGE_SUFFIXES)}) in {folder / name}, found none.")
        for file in files[:limit_per_class]:
            contents.append((file.relative_to(folder).as_posix(), file.read_bytes()))
            with open_image(file) as image:
                pixels, _ = fit_image(image, resized, np.zeros(4), Image.Resampling.BICUBIC)
            images.append(pixels[:, margin : margin + size, margin : margin + size])
            labels.append(label)
    return ImageSet(
        name=folder.name,
        description=f"{len(images)} images of {len(classes)} classes from {folder.name}, {size} x {size}",
        digest=digest_files([*contents, ("settings", f"{size} {CROP}".encode())]),
        images=torch.stack(images),
        labels=torch.tensor(labels),
        classes=tuple(classes),
        **IMAGENET,
    )


def load_cifar10(folder: Path | str, split: str = "evaluation") -> ImageSet:
    """Read CIFAR-10 batch files, in their binary (*.bin) or Python version, from their folder.

    Images stay 32 x 32, normalised with the set's published mean and standard deviation. `split` is "train"
    (data_batch_1 .. 5) or "evaluation" (test_batch). The Python version is unpickled with everything refused that such a
    file does not need. Raises DataError for missing, damaged or unsafe files.
    """
    folder = require_folder(folder, "CIFAR-10 batch files")
    names = {"evaluation": ["test_batch"], "train": [f"data_batch_{index}" for index in range(1, 6)]}.get(
        split
    )
    if names is None:
        raise DataError(f"Expected split 'train' or 'evaluation', received {split!r}.")
    binary = (folder / f"{names[0]}.bin").is_file()
    contents, parts = [], []
    for name in names:
        name = f"{name}.bin" if binary else name
        content = read_bytes(folder / name, "a CIFAR-10 batch file")
        contents.append((name, content))
        parts.append((_binary_batch if binary else _pickled_batch)(content, name))
    images = np.concatenate([pixels for pixels, _ in parts]).reshape(-1, 3, 32, 32)
    return ImageSet(
        name="cifar10",
        description=f"CIFAR-10, {split} split, {len(images)} images",
        digest=digest_files(contents),
        images=torch.from_numpy(images),
        labels=torch.from_numpy(np.concatenate([labels for _, labels in parts])),
        classes=CIFAR10_CLASSES,
        **CIFAR10,
    )


def _binary_batch(content: bytes, name: str) -> tuple[np.ndarray, np.ndarray]:
    if not content or len(content) % (1 + CIFAR10_PIXELS):
        raise DataError(
            f"Expected rows of {1 + CIFAR10_PIXELS} bytes in {name}, received {len(content)} bytes; download it again."
        )
    rows = np.frombuffer(content, dtype=np.uint8).reshape(-1, 1 + CIFAR10_PIXELS)
    return _checked(rows[:, 1:].copy(), rows[:, 0].astype(np.int64), name)


class _BatchUnpickler(pickle.Unpickler):
    """Builds arrays, lists and dictionaries; refuses every other name before it is imported."""

    def find_class(self, module: str, name: str) -> object:
        if (module, name) not in SAFE_GLOBALS:
            raise DataError(
                f"Expected plain arrays in a CIFAR-10 batch file, received a reference to {module}.{name}."
            )
        return super().find_class(module, name)


def _pickled_batch(content: bytes, name: str) -> tuple[np.ndarray, np.ndarray]:
    try:
        batch = _BatchUnpickler(io.BytesIO(content), encoding="bytes").load()
        pixels, labels = np.asarray(batch[b"data"]), np.asarray(batch[b"labels"], dtype=np.int64)
    except DataError:
        raise
    except Exception as error:  # a damaged pickle may raise nearly anything
        raise DataError(
            f"Expected a CIFAR-10 batch in {name}, received a damaged file: {error!r}."
        ) from error
    return _checked(pixels, labels, name)


def _checked(pixels: np.ndarray, labels: np.ndarray, name: str) -> tuple[np.ndarray, np.ndarray]:
    if pixels.dtype != np.uint8 or pixels.shape != (len(labels), CIFAR10_PIXELS):
        raise DataError(
            f"Expected uint8 rows of {CIFAR10_PIXELS} pixels in {name}, received {pixels.dtype} {pixels.shape}."
        )
    if len(labels) == 0 or labels.min() < 0 or labels.max() > 9:
        raise DataError(f"Expected labels 0 to 9 in {name}, received others.")
    return pixels, labels
