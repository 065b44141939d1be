"""Novel-view synthesis data: procedural scenes ray-cast from a seed, and batches of input and target views."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np
import torch
from jaxtyping import Float, UInt8
from torch import Tensor

from analysis.data import cameras, shading
from analysis.data.draws import Draws, hsv_to_rgb
from analysis.data.raycast import SHAPES
from analysis.data.storage import digest_arrays
from analysis.errors import DataError

Batch = dict[str, Tensor]
OBJECTS = 5
CELL, JITTER = 0.95, 0.14
FIELD_OF_VIEW = 42.0
DRAWS_PER_SCENE = 512
MOST_VIEWS = 64


@dataclass(frozen=True)
class SceneSet:
    """Views of scenes: images uint8 [S, V, 3, h, w], c2w [S, V, 4, 4], fxfycxcy [S, V, 4] in pixels, float32."""

    name: str
    description: str
    digest: str
    images: UInt8[Tensor, "S V 3 h w"] = field(repr=False)
    c2w: Float[Tensor, "S V 4 4"] = field(repr=False)
    fxfycxcy: Float[Tensor, "S V 4"] = field(repr=False)

    def __len__(self) -> int:
        return len(self.images)

    @property
    def num_views(self) -> int:
        """Return the number of views of each scene."""
        return self.images.shape[1]

    def to(self, device: torch.device | str) -> SceneSet:
        """Return the same set with its tensors on `device`."""
        moved = (one.to(device) for one in (self.images, self.c2w, self.fxfycxcy))
        return SceneSet(self.name, self.description, self.digest, *moved)


def scene_worlds(draws: Draws) -> shading.World:
    """Draw scenes: five solids of random shape, size, turn, colours and texture on a checkered ground under one sun."""
    cells = draws.order(9)[:, :OBJECTS]
    place = np.stack([cells % 3 - 1, cells // 3 - 1], axis=-1) * CELL + draws.uniform(
        -JITTER, JITTER, OBJECTS, 2
    )
    shape = draws.integers(len(SHAPES), OBJECTS)
    radius = draws.uniform(0.26, 0.44, OBJECTS)
    tall = np.where(shape == 0, radius, draws.uniform(0.28, 0.62, OBJECTS))
    turn = draws.uniform(0, 2 * np.pi, OBJECTS)
    hue, other = draws.uniform(0, 1, OBJECTS), draws.uniform(0.2, 0.8, OBJECTS)
    first = hsv_to_rgb(hue, draws.uniform(0.45, 0.85, OBJECTS), draws.uniform(0.6, 0.95, OBJECTS))
    second = hsv_to_rgb(hue + other, draws.uniform(0.2, 0.6, OBJECTS), draws.uniform(0.45, 0.95, OBJECTS))
    kind = draws.integers(2 * len(shading.TEXTURES) - 2, OBJECTS)
    texture = np.where(kind < len(shading.TEXTURES), kind, 0)  # half of the solids are plain
    ground_hue, ground_value = draws.uniform(0, 1), draws.uniform(0.45, 0.75)
    ground = [
        hsv_to_rgb(ground_hue, draws.uniform(0.05, 0.35), ground_value),
        hsv_to_rgb(ground_hue, draws.uniform(0.05, 0.25), ground_value + draws.uniform(0.08, 0.2)),
    ]
    sky_hue = draws.uniform(0.52, 0.66)
    sky = [hsv_to_rgb(sky_hue, 0.12, 0.93), hsv_to_rgb(sky_hue, draws.uniform(0.35, 0.6), 0.85)]
    azimuth, elevation = draws.uniform(0, 2 * np.pi), draws.uniform(0.7, 1.1)
    sun = [np.cos(elevation) * np.cos(azimuth), np.cos(elevation) * np.sin(azimuth), np.sin(elevation)]
    centre = np.concatenate([place, tall[..., None]], axis=-1)
    return shading.World(
        shape=torch.from_numpy(shape),
        to_local=torch.from_numpy(world_to_local(turn, radius, tall)).float(),
        centre=torch.from_numpy(centre).float(),
        texture=torch.from_numpy(texture),
        colours=torch.from_numpy(np.stack([first, second], axis=2)).float(),
        ground=torch.from_numpy(np.stack(ground, axis=1)).float(),
        ground_scale=torch.from_numpy(draws.uniform(1.0, 1.6)).float(),
        sky=torch.from_numpy(np.stack(sky, axis=1)).float(),
        sun=torch.from_numpy(np.stack(sun, axis=-1)).float(),
    )


def world_to_local(turn: np.ndarray, radius: np.ndarray, tall: np.ndarray) -> np.ndarray:
    """Return the matrices [..., 3, 3] from world offsets to the unit solid: a turn about z, then a division by size."""
    matrix = np.zeros((*turn.shape, 3, 3))
    matrix[..., 0, 0], matrix[..., 0, 1] = np.cos(turn) / radius, np.sin(turn) / radius
    matrix[..., 1, 0], matrix[..., 1, 1] = -np.sin(turn) / radius, np.cos(turn) / radius
    matrix[..., 2, 2] = 1 / tall
    return matrix


def scene_cameras(draws: Draws, views: int) -> np.ndarray:
    """Draw cameras [S, views, 4, 4] that look at the middle of the scene from the directions of a third of a circle."""
    around = draws.uniform(0, 2 * np.pi, 1) + draws.uniform(-np.pi / 3, np.pi / 3, views)
    elevation, distance = draws.uniform(0.3, 0.8, views), draws.uniform(4.3, 5.1, views)
    target = np.array([0.0, 0.0, 0.3]) + draws.uniform(-0.12, 0.12, views, 3)
    return cameras.orbit(around, elevation, distance, target)


def procedural_scenes(
    count: int,
    split: str = "evaluation",
    seed: int = 0,
    views: int = 8,
    size: tuple[int, int] | int = 64,
    device: torch.device | str = "cpu",
) -> SceneSet:
    """Render `count` scenes of `views` views, `size` = (height, width) or one number, on `device`.

    A scene depends on split, seed and its number alone. The digest is that of the parameters and of the renderer's
    version: pixels may differ by a grey level between devices. Raises DataError for counts or sizes out of range.
    """
    height, width = (size, size) if isinstance(size, int) else size
    if not 1 <= views <= MOST_VIEWS or min(height, width) < 1:
        raise DataError(
            f"Expected 1 to {MOST_VIEWS} views and a positive size, received {views} views of {height} x {width}."
        )
    draws = Draws(count, DRAWS_PER_SCENE, split, seed)
    world = scene_worlds(draws)
    c2w = torch.from_numpy(scene_cameras(draws, views)).float()
    lens = torch.from_numpy(cameras.intrinsics(FIELD_OF_VIEW, height, width)).float().expand(count, views, 4)
    images = shading.render(world, c2w, lens, height, width, device)
    recipe = {"task": "scenes", "renderer": shading.VERSION, "size": [height, width], "views": views}
    return SceneSet(
        name="procedural-scenes",
        description=f"{count} ray-cast scenes, {views} views of {height} x {width}, {split} split, seed {seed}",
        digest=digest_arrays(recipe, draws.table),
        images=images,
        c2w=c2w.to(device),
        fxfycxcy=lens.contiguous().to(device),
    )


def nvs_batch(images: Tensor, c2w: Tensor, fxfycxcy: Tensor, inputs: int) -> Batch:
    """Split views [B, V, ...] into the first `inputs` as input and the rest as targets; images become 0..1 floats."""
    pixels = images.float() / 255
    return {
        "images": pixels[:, :inputs],
        "c2w": c2w[:, :inputs],
        "fxfycxcy": fxfycxcy[:, :inputs],
        "target_images": pixels[:, inputs:],
        "target_c2w": c2w[:, inputs:],
        "target_fxfycxcy": fxfycxcy[:, inputs:],
    }


def check_views(dataset: SceneSet, inputs: int, targets: int) -> None:
    """Raise DataError unless the set has views for `inputs` inputs and `targets` targets."""
    if inputs < 1 or targets < 1 or inputs + targets > dataset.num_views:
        raise DataError(
            f"Expected at least one input and one target view and at most {dataset.num_views} together, "
            f"received {inputs} and {targets}."
        )


def nvs_batches(
    dataset: SceneSet,
    batch_size: int = 16,
    inputs: int = 2,
    targets: int | None = None,
    device: torch.device | str = "cpu",
) -> Iterator[Batch]:
    """Yield the scenes in order: the first `inputs` views as input, the next `targets` (default: all others) as targets."""
    targets = dataset.num_views - inputs if targets is None else targets
    check_views(dataset, inputs, targets)
    for start in range(0, len(dataset), batch_size):
        part = (slice(start, start + batch_size), slice(0, inputs + targets))
        views = (dataset.images[part], dataset.c2w[part], dataset.fxfycxcy[part])
        yield nvs_batch(*(one.to(device) for one in views), inputs)


def nvs_sampler(
    dataset: SceneSet, batch_size: int, generator: torch.Generator, inputs: int = 2, targets: int = 6
) -> Callable[[], Batch]:
    """Return a function that draws random scenes with a random choice of distinct input and target views.

    The set is held on the generator's device; nothing is synchronised, so a CUDA graph can hold it.
    """
    check_views(dataset, inputs, targets)
    device = generator.device
    held = dataset.to(device)
    shape = (batch_size, dataset.num_views)

    def sample() -> Batch:
        scenes = torch.randint(len(held), (batch_size, 1), generator=generator, device=device)
        views = torch.rand(shape, generator=generator, device=device).argsort(dim=1)[:, : inputs + targets]
        return nvs_batch(
            held.images[scenes, views], held.c2w[scenes, views], held.fxfycxcy[scenes, views], inputs
        )

    return sample
