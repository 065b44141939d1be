"""Image classification data: rendered objects as the embedded default, and batches for any image set."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

import torch
from jaxtyping import Int64, UInt8
from torch import Tensor

from analysis.data import cameras, renders, shading
from analysis.data.draws import Draws
from analysis.data.storage import digest_arrays
from analysis.errors import DataError

Batch = dict[str, Tensor]
MOST_PIXELS = 4096
Statistics = tuple[float, float, float]


@dataclass(frozen=True)
class ImageSet:
    """Images uint8 [N, 3, h, w] with labels int64 [N]; a batch holds (x / 255 - mean) / std per channel."""

    name: str
    description: str
    digest: str
    images: UInt8[Tensor, "N 3 h w"] = field(repr=False)
    labels: Int64[Tensor, " N"] = field(repr=False)
    classes: tuple[str, ...] = field(repr=False)
    mean: Statistics = (0.5, 0.5, 0.5)
    std: Statistics = (0.5, 0.5, 0.5)

    def __len__(self) -> int:
        return len(self.images)

    def to(self, device: torch.device | str) -> ImageSet:
        """Return the same set with its tensors on `device`."""
        return replace(self, images=self.images.to(device), labels=self.labels.to(device))

    def normaliser(self, device: torch.device | str) -> Callable[[Tensor], Tensor]:
        """Return the function from uint8 images [B, 3, h, w] to normalised float32 ones on `device`."""
        mean = torch.tensor(self.mean, device=device)[:, None, None]
        std = torch.tensor(self.std, device=device)[:, None, None]
        return lambda images: (images.float() / 255 - mean) / std


def rendered_images(
    count: int, split: str = "evaluation", seed: int = 0, size: int = 48, device: torch.device | str = "cpu"
) -> ImageSet:
    """Render `count` labelled images of size x size on `device`; the class is shape x texture of the object meant.

    An image depends on split, seed and its number alone; the digest is that of parameters and renderer version.
    """
    if not 1 <= size <= MOST_PIXELS:
        raise DataError(f"Expected a positive image size up to {MOST_PIXELS}, received {size}; correct it.")
    draws = Draws(count, renders.DRAWS_PER_IMAGE, split, seed)
    world, labels, _ = renders.classification_worlds(draws)
    c2w = torch.from_numpy(renders.classification_cameras(draws)).float()
    lens = torch.from_numpy(cameras.intrinsics(renders.FIELD_OF_VIEW, size, size)).float().expand(count, 1, 4)
    images = shading.render(world, c2w, lens, size, size, device)[:, 0]
    return ImageSet(
        name="rendered-objects",
        description=f"{count} rendered images of {size} x {size}, 16 classes, {split} split, seed {seed}",
        digest=digest_arrays({"task": "images", "renderer": shading.VERSION, "size": size}, draws.table),
        images=images,
        labels=torch.from_numpy(labels).to(device),
        classes=renders.CLASSES,
    )


def image_batches(
    dataset: ImageSet, batch_size: int = 100, device: torch.device | str = "cpu"
) -> Iterator[Batch]:
    """Yield {"images": float32 [B, 3, h, w], "labels": int64 [B]} in order; the last batch may be smaller."""
    normalise = dataset.normaliser(device)
    for start in range(0, len(dataset), batch_size):
        part = slice(start, start + batch_size)
        yield {
            "images": normalise(dataset.images[part].to(device)),
            "labels": dataset.labels[part].to(device),
        }


def image_sampler(
    dataset: ImageSet, batch_size: int, generator: torch.Generator, flip: bool = False
) -> Callable[[], Batch]:
    """Return a function that draws random images, mirrored left to right half of the time with `flip`.

    Mirroring keeps the labels of rendered images (hue, shape and texture have no handedness). The set is held on the
    generator's device; nothing is synchronised, so a CUDA graph can hold it.
    """
    device = generator.device
    held, normalise = dataset.to(device), dataset.normaliser(device)

    def sample() -> Batch:
        chosen = torch.randint(len(held), (batch_size,), generator=generator, device=device)
        images = held.images[chosen]
        if flip:
            mirrored = torch.rand((batch_size, 1, 1, 1), generator=generator, device=device) < 0.5
            images = torch.where(mirrored, images.flip(-1), images)
        return {"images": normalise(images), "labels": held.labels[chosen]}

    return sample
