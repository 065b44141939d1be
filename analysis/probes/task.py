"""What a host is evaluated on: the embedded data of its family, or the reader's own, with its digest."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from analysis.data import image_formats, images, scene_formats, scenes, text, text_files
from analysis.errors import DataError, ParameterError
from analysis.models.host import EditedHost, Host, unwrap
from analysis.spec import Family

DEFAULT_SAMPLES = {Family.LACT_LM: 32, Family.LACT_NVS: 64, Family.VITTT: 1000}
MOST_SAMPLES = 100_000
INPUT_VIEWS, TARGET_VIEWS = 2, 3
IMAGE_SIZE = 64
CONTEXT = 1024


@dataclass(frozen=True)
class Task:
    """Evaluation batches with their provenance; `batches()` starts from the first example each time.

    `digest` tells data sets apart in the cache of records: two tasks with one digest share their records. `Task.of` takes it
    from the tensors.
    """

    name: str
    description: str
    digest: str
    samples: int
    batches: Callable[[], Iterable[Mapping[str, Tensor]]]
    token_bytes: Tensor | None = None
    classes: tuple[str, ...] = ()

    @classmethod
    def of(cls, name: str, description: str, batches: Callable[[], Iterable[Mapping[str, Tensor]]]) -> Task:
        """Return the task of a reader's own batches, dictionaries of tensors whose first axis counts examples.

        Number of examples and digest are read from the batches, which must be the same at every call.

        Raises:
            DataError: there is no batch.
        """
        total, samples = hashlib.sha256(name.encode()), 0
        for batch in batches():
            samples += len(next(iter(batch.values())))
            for key, tensor in sorted(batch.items()):
                held = tensor.detach().cpu().contiguous()
                total.update(f"{key}{held.dtype}{tuple(held.shape)}".encode())
                total.update(held.reshape(-1).view(torch.uint8).numpy().tobytes())
        if not samples:
            raise DataError(f"expected batches of examples for {name!r}, received none; yield at least one.")
        return cls(name, description, total.hexdigest(), samples, batches)


def evaluation_task(
    host: Host | EditedHost,
    samples: int | None = None,
    data: Path | str | None = None,
    *,
    length: int | None = None,
) -> Task:
    """Return the evaluation task of a host's family.

    Args:
        host: the model; its configuration gives image size, vocabulary and number of classes.
        samples: sequences, scenes or images; None takes the family's default.
        data: a folder or file in a real format; None takes the embedded data.
        length: tokens per sequence (language models); None takes 1024, or four chunks where that is more.

    Raises:
        ParameterError: samples out of range, no host, or one of no published family.
        DataError: the data do not exist, are damaged, or do not fit the host.
    """
    if not isinstance(unwrap(host), Host | EditedHost):
        raise ParameterError(
            f"expected a loaded host, received {type(host).__name__}; pass analysis.load(path), or an edit of it"
        )
    if not isinstance(host.family, Family):
        raise ParameterError(
            f"expected a host of a published family to choose data for, received {host.family.title}; hand your own Task to the "
            "probe's function"
        )
    count = DEFAULT_SAMPLES[host.family] if samples is None else samples
    if type(count) is not int or count < 1:
        raise ParameterError(
            f"samples must be an integer of at least 1, received {samples!r}; ask for one or more."
        )
    if data is None and count > MOST_SAMPLES:
        raise ParameterError(
            f"samples of the embedded data must be at most {MOST_SAMPLES}, received {samples}; ask for fewer."
        )
    if host.family is Family.LACT_LM:
        return _language(host, count, data, length)
    return _views(host, count, data) if host.family is Family.LACT_NVS else _classification(host, count, data)


def _batch_size(count: int, most: int) -> int:
    """Return the largest batch size up to `most` that leaves no example alone, where a probe could not take another's pairs."""
    return next((size for size in range(most, 1, -1) if count % size != 1), most)


def _language(host: Host | EditedHost, count: int, data: Path | str | None, length: int | None) -> Task:
    chunk = max([loop.chunk or 0 for loop in host.trained_loops.values()], default=0)
    length = length or max(CONTEXT, 4 * chunk)
    if data is None:
        crops = text.evaluation_set(length=length, crops=count)
    else:
        folder = Path(data)
        tokenizer = folder / "tokenizer.json"
        stream = text_files.load_text(folder, tokenizer if tokenizer.is_file() else None)
        crops = stream.crops(length, min(count, max(1, len(stream.tokens) // (length + 1))))
    if crops.vocabulary > host.config.vocab_size:
        raise DataError(
            f"expected tokens below the host's vocabulary of {host.config.vocab_size}, received a tokenizer of "
            f"{crops.vocabulary}; pass --data with the tokenizer.json this checkpoint was trained with."
        )
    return Task(
        name=crops.name,
        description=crops.description,
        digest=crops.digest,
        samples=len(crops),
        batches=lambda: text.lm_batches(crops, _batch_size(len(crops), 8)),
        token_bytes=crops.byte_lengths,
    )


def _views(host: Host | EditedHost, count: int, data: Path | str | None) -> Task:
    found = scenes.procedural_scenes(count, size=IMAGE_SIZE) if data is None else _read_scenes(Path(data))
    targets = min(TARGET_VIEWS, found.num_views - INPUT_VIEWS)
    return Task(
        name=found.name,
        description=f"{found.description}; {INPUT_VIEWS} input and {targets} target views",
        digest=found.digest,
        samples=len(found),
        batches=lambda: scenes.nvs_batches(found, _batch_size(len(found), 16), INPUT_VIEWS, targets),
    )


def _read_scenes(path: Path) -> scenes.SceneSet:
    """Read the LaCT-NVS layout, or RealEstate10K as a folder with `cameras` and `frames` inside."""
    size = (IMAGE_SIZE, IMAGE_SIZE)
    if (path / "cameras").is_dir() and (path / "frames").is_dir():
        views = INPUT_VIEWS + TARGET_VIEWS
        return scene_formats.load_realestate(path / "cameras", path / "frames", size, views)
    return scene_formats.load_lact_scenes(path, size)


def _read_images(path: Path, size: int, count: int) -> images.ImageSet:
    """Read CIFAR-10 batch files, or an ImageNet-style folder with an equal share of each class."""
    if (path / "test_batch").is_file() or (path / "test_batch.bin").is_file():
        return image_formats.load_cifar10(path)
    classes = sum(1 for one in path.iterdir() if one.is_dir()) if path.is_dir() else 1
    return image_formats.load_image_folder(path, size, limit_per_class=-(-count // max(classes, 1)))


def _classification(host: Host | EditedHost, count: int, data: Path | str | None) -> Task:
    size = host.config.img_size
    found = (
        images.rendered_images(count, size=size) if data is None else _read_images(Path(data), size, count)
    )
    if len(found.classes) != host.config.num_classes:
        raise DataError(
            f"expected images of the host's {host.config.num_classes} classes, received {len(found.classes)}; "
            "pass --data with the classes this checkpoint was trained on."
        )
    return Task(
        name=found.name,
        description=found.description,
        digest=found.digest,
        samples=len(found),
        batches=lambda: images.image_batches(found, _batch_size(len(found), 100)),
        classes=found.classes,
    )
