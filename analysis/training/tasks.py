"""The data of a run, held on the device it trains on: a training sampler, evaluation batches, and their digests.

The embedded text corpus is read from the installed packages, whose versions differ between machines. So that a run
elsewhere trains on the same tokens, export it once and hand the folder over as `corpus`:

    python -m analysis.training.tasks export .cache/corpus
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import Tensor

from analysis.data import image_formats, images, scene_formats, scenes, text
from analysis.data.corpus import evaluation_corpus
from analysis.data.text_files import load_text
from analysis.errors import DataError
from analysis.training.recipes import Recipe
from analysis.training.scales import Data, ImageData, SceneData, TextData

Batch = dict[str, Tensor]
Sampler = Callable[[], Batch]
TRAINING_FILE, EVALUATION_FILE = "training.npz", "evaluation.npz"
PROBED = {TextData: 16, SceneData: 16, ImageData: 64}
"""Examples on which the inner loss is read during training, by kind of data."""


@dataclass(frozen=True)
class Task:
    """The data sets of a run; `digest` names the training data, `evaluation_digest` the evaluation examples."""

    digest: str
    evaluation_digest: str
    sampler: Callable[[int, torch.Generator], Sampler] = field(repr=False)
    evaluation: Callable[[], Iterable[Batch]] = field(repr=False)
    probe: Batch = field(repr=False)
    token_bytes: Tensor | None = field(default=None, repr=False)


def load_task(
    recipe: Recipe, device: torch.device, corpus: Path | None = None, data: Path | None = None
) -> Task:
    """Load or render the data of a recipe on `device`.

    corpus: folder with the exported embedded text corpus; without it the corpus is read from the installed packages.
    data: folder of real data for recipes that name a source. Inside, `train` and `evaluation` each hold text or JSONL
        files, one folder of images per class, or the `cameras` and `frames` of RealEstate10K.

    Raises:
        DataError: a source without `data`, a folder that cannot be read, or one with other classes than the recipe's.
    """
    if recipe.data.source is not None and data is None:
        raise DataError(
            f"expected the folder of {recipe.data.source!r} for {recipe.name}, received none; pass one with train and "
            'evaluation inside: --data FOLDER, or TRAIN_ARGS="--data FOLDER" for make (in Python data=FOLDER).'
        )
    if isinstance(recipe.data, TextData):
        return _text(recipe.data, device, corpus, data)
    if isinstance(recipe.data, SceneData):
        return _scenes(recipe.data, device, data)
    return _images(recipe.data, device, data, recipe.config.num_classes)


def rows(batch: Batch, rank: int, world: int) -> Batch:
    """Return the examples of one process: every process draws the same joint batch and keeps every `world`-th example."""
    return batch if world == 1 else {name: tensor[rank::world] for name, tensor in batch.items()}


def export_corpus(folder: Path | str) -> None:
    """Write the embedded training and evaluation token streams into `folder`, for machines with other packages."""
    folder = Path(folder)
    text.save_stream(text.training_stream(), folder / TRAINING_FILE)
    corpus = evaluation_corpus()
    description = f"Python source of networkx {corpus.versions['networkx']}"
    text.save_stream(text.stream_of(corpus, "python-source", description), folder / EVALUATION_FILE)


def _text(settings: TextData, device: torch.device, corpus: Path | None, data: Path | None) -> Task:
    if data is not None:
        stream, held_out = load_text(data / "train"), load_text(data / "evaluation")
        crops = held_out.crops(settings.length, settings.crops)
    elif corpus is not None:
        stream = text.load_training_corpus(corpus / TRAINING_FILE)
        crops = text.load_training_corpus(corpus / EVALUATION_FILE).crops(settings.length, settings.crops)
    else:
        stream, crops = text.training_stream(), text.evaluation_set(settings.length, settings.crops)
    return Task(
        digest=stream.digest,
        evaluation_digest=crops.digest,
        sampler=lambda batch, generator: text.lm_sampler(stream, batch, settings.length, generator),
        evaluation=lambda: text.lm_batches(crops, 64, device),
        probe=next(iter(text.lm_batches(crops, _probed(settings), device))),
        token_bytes=crops.byte_lengths.to(device),
    )


def _scenes(settings: SceneData, device: torch.device, data: Path | None) -> Task:
    size, shown = (settings.size, settings.size), settings.inputs + settings.evaluation_targets
    if data is None:
        training = scenes.procedural_scenes(
            settings.scenes, "train", views=settings.views, size=size, device=device
        )
        held_out = scenes.procedural_scenes(
            settings.evaluation_scenes, "evaluation", views=shown, size=size, device=device
        )
    else:
        training = _clips(data / "train", size, settings.views)
        held_out = _clips(data / "evaluation", size, shown)

    def batches(count: int) -> Iterable[Batch]:
        return scenes.nvs_batches(held_out, count, settings.inputs, settings.evaluation_targets, device)

    return Task(
        digest=training.digest,
        evaluation_digest=held_out.digest,
        sampler=lambda batch, generator: scenes.nvs_sampler(
            training, batch, generator, settings.inputs, settings.targets
        ),
        evaluation=lambda: batches(64),
        probe=next(iter(batches(_probed(settings)))),
    )


def _clips(folder: Path, size: tuple[int, int], views: int) -> scenes.SceneSet:
    return scene_formats.load_realestate(folder / "cameras", folder / "frames", size, views)


def _images(settings: ImageData, device: torch.device, data: Path | None, classes: int) -> Task:
    if data is None:
        training = images.rendered_images(settings.images, "train", size=settings.size, device=device)
        held_out = images.rendered_images(
            settings.evaluation_images, "evaluation", size=settings.size, device=device
        )
    else:
        training = image_formats.load_image_folder(data / "train", settings.size)
        held_out = image_formats.load_image_folder(data / "evaluation", settings.size)
    if training.classes != held_out.classes or len(training.classes) != classes:
        raise DataError(
            f"expected images of the recipe's {classes} classes in train and evaluation, received {len(training.classes)} and "
            f"{len(held_out.classes)}; pass the folders of the same {classes} classes."
        )
    return Task(
        digest=training.digest,
        evaluation_digest=held_out.digest,
        sampler=lambda batch, generator: images.image_sampler(training, batch, generator, flip=True),
        evaluation=lambda: images.image_batches(held_out, 500, device),
        probe=next(iter(images.image_batches(held_out, _probed(settings), device))),
    )


def _probed(settings: Data) -> int:
    return PROBED[type(settings)]


def main(arguments: list[str] | None = None) -> None:
    """Run the command line: `export FOLDER` writes the embedded text corpus as tokens."""
    parser = argparse.ArgumentParser(prog="python -m analysis.training.tasks", description=main.__doc__)
    parser.add_argument("verb", choices=["export"])
    parser.add_argument("folder", type=Path)
    export_corpus(parser.parse_args(arguments).folder)


if __name__ == "__main__":
    main()
