"""Labelled images of one's own: folders and CIFAR-10 files, and what is refused."""

from __future__ import annotations

import os
import pickle

import numpy as np
import pytest
import torch
from PIL import Image

from analysis.data.image_formats import CIFAR10_PIXELS, IMAGENET, load_cifar10, load_image_folder
from analysis.data.images import image_batches
from analysis.errors import DataError


@pytest.fixture
def folder(tmp_path):
    for name, colour in (("zebra", (255, 255, 255)), ("ant", (255, 0, 0))):
        (tmp_path / name).mkdir()
        for index in range(3):
            Image.new("RGB", (40 + 10 * index, 30), colour).save(tmp_path / name / f"{index}.png")
    return tmp_path


def test_class_folders_are_numbered_in_sorted_order(folder):
    read = load_image_folder(folder, size=16)
    assert read.classes == ("ant", "zebra") and read.labels.tolist() == [0, 0, 0, 1, 1, 1]
    assert read.images.shape == (6, 3, 16, 16)
    limited = load_image_folder(folder, size=16, limit_per_class=1)
    assert limited.labels.tolist() == [0, 1] and limited.digest != read.digest
    first = next(image_batches(read, 6))["images"][-1, :, 0, 0]
    assert first.tolist() == pytest.approx(
        [(1 - mean) / std for mean, std in zip(IMAGENET["mean"], IMAGENET["std"], strict=True)]
    )


def test_the_centre_is_what_is_kept(folder):
    picture = np.zeros((32, 64, 3), dtype=np.uint8)
    picture[:, 16:48] = 200
    Image.fromarray(picture).save(folder / "ant" / "0.png")
    read = load_image_folder(folder, size=28)
    assert (read.images[0] == 200).all()


def test_broken_folders_are_data_errors(folder, tmp_path):
    with pytest.raises(DataError, match="is not one"):
        load_image_folder(tmp_path / "absent")
    with pytest.raises(DataError, match="one subfolder per class"):
        load_image_folder(folder / "ant")
    (folder / "ant" / "1.png").write_bytes(b"no image")
    with pytest.raises(DataError, match="readable image"):
        load_image_folder(folder, size=16)
    (folder / "empty").mkdir()
    (folder / "ant" / "1.png").unlink()
    with pytest.raises(DataError, match="found none"):
        load_image_folder(folder, size=16)


def batch(count: int = 5) -> tuple[np.ndarray, list[int]]:
    pixels = np.random.default_rng(0).integers(0, 256, (count, CIFAR10_PIXELS), dtype=np.uint8)
    return pixels, [index % 10 for index in range(count)]


def write_pickle(path, content) -> None:
    path.write_bytes(pickle.dumps(content, protocol=2))


def test_both_versions_of_cifar10_give_the_same_images(tmp_path):
    pixels, labels = batch()
    for name in ("python", "binary"):
        (tmp_path / name).mkdir()
    write_pickle(tmp_path / "python" / "test_batch", {b"data": pixels, b"labels": labels})
    rows = np.concatenate([np.array(labels, dtype=np.uint8)[:, None], pixels], axis=1)
    (tmp_path / "binary" / "test_batch.bin").write_bytes(rows.tobytes())
    first, second = load_cifar10(tmp_path / "python"), load_cifar10(tmp_path / "binary")
    assert (first.images == second.images).all() and (first.labels == second.labels).all()
    assert first.images[2, 1, 3, 4] == pixels[2, 1024 + 3 * 32 + 4]
    assert first.classes[first.labels[3]] == "cat" and first.labels.dtype == torch.int64
    with pytest.raises(DataError, match="data_batch_1"):
        load_cifar10(tmp_path / "python", "train")
    with pytest.raises(DataError, match="split"):
        load_cifar10(tmp_path / "python", "test")


class Payload:
    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (str(self.path),)


def test_a_pickle_that_would_run_code_is_refused_unrun(tmp_path):
    write_pickle(tmp_path / "test_batch", {b"data": Payload(tmp_path / "ran"), b"labels": [1]})
    with pytest.raises(DataError, match=r"reference to (posix|nt)\.mkdir"):
        load_cifar10(tmp_path)
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({b"data": np.zeros((1, 5), dtype=np.uint8), b"labels": [0]}, "uint8 rows"),
        ({b"data": np.zeros((1, CIFAR10_PIXELS)), b"labels": [0]}, "received float64"),
        ({b"data": np.zeros((1, CIFAR10_PIXELS), dtype=np.uint8), b"labels": [10]}, "labels 0 to 9"),
        ({b"labels": [0]}, "damaged"),
        ([1, 2], "damaged"),
    ],
)
def test_malformed_batches_are_data_errors(tmp_path, content, message):
    write_pickle(tmp_path / "test_batch", content)
    with pytest.raises(DataError, match=message):
        load_cifar10(tmp_path)


def test_truncated_files_are_data_errors(tmp_path):
    (tmp_path / "test_batch").write_bytes(pickle.dumps({b"data": 1})[:-3])
    with pytest.raises(DataError, match="damaged"):
        load_cifar10(tmp_path)
    (tmp_path / "test_batch.bin").write_bytes(b"123")
    with pytest.raises(DataError, match="rows of 3073 bytes"):
        load_cifar10(tmp_path)
