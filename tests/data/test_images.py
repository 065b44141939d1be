"""Rendered images: labels by construction, the object that is meant can be seen, batches as the hosts want them."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from analysis.data import cameras, images, raycast, renders, shading
from analysis.data.draws import Draws
from analysis.errors import DataError


@pytest.fixture(scope="module")
def small() -> images.ImageSet:
    return images.rendered_images(150)


@pytest.fixture(scope="module")
def construction():
    draws = Draws(150, renders.DRAWS_PER_IMAGE, "evaluation", 0)
    world, labels, hues = renders.classification_worlds(draws)
    return world, labels, hues, torch.from_numpy(renders.classification_cameras(draws)).float()


def test_a_seed_means_the_same_images(small):
    fewer = images.rendered_images(20)
    assert (fewer.images == small.images[:20]).all() and (fewer.labels == small.labels[:20]).all()
    assert fewer.digest == images.rendered_images(20).digest != small.digest
    assert (images.rendered_images(20, "train").images != fewer.images).any()


def test_the_digest_of_the_default_parameters_is_the_recorded_one(small):
    assert small.digest == "92794a1ac8f4b04473fbd7f311610c0d5acfdebc9d41a1016783985b41d1ef80"


def test_the_label_names_shape_and_texture_of_the_object_with_the_hue_of_the_sky(small, construction):
    world, labels, hues, _ = construction
    assert (labels == small.labels.numpy()).all()
    gap = np.abs((hues[:, 1:] - hues[:, :1] + 0.5) % 1 - 0.5)
    assert (gap.argmin(1) == 0).all() and gap[:, 0].max() < 0.05 and gap[:, 1:].min() > 0.17
    for index, label in enumerate(labels):
        texture, shape = small.classes[label].split()
        assert raycast.SHAPES[world.shape[index, 0]] == shape
        assert shading.TEXTURES[world.texture[index, 0]] == texture


def test_hues_in_the_image_are_those_of_the_construction(small, construction):
    """The sky's hue is read from the top row of pixels, an object's from the pixels where it alone is hit."""
    _, _, hues, _ = construction
    sky = small.images[:, :, 0].float().mean(-1).numpy()
    assert circular_gap(hue_of(sky), hues[:, 0]).max() < 0.03


def hue_of(rgb: np.ndarray) -> np.ndarray:
    red, green, blue = rgb.T
    return np.arctan2(np.sqrt(3) * (green - blue), 2 * red - green - blue) / (2 * np.pi) % 1


def circular_gap(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    return np.abs((first - second + 0.5) % 1 - 0.5)


def test_the_object_that_is_meant_can_be_seen(construction):
    world, _, _, c2w = construction
    lens = torch.from_numpy(cameras.intrinsics(renders.FIELD_OF_VIEW, 48, 48)).float().expand(len(c2w), 4)
    origin, direction = shading._rays(c2w[:, 0], lens, 48, 48, 1)
    distance, index = raycast.nearest_hit(world.solids, origin, direction)
    pixels = ((index == 0) & (distance < raycast.FAR)).sum(1)
    assert pixels.float().median() > 80
    assert (pixels < 30).float().mean() < 0.05


def test_all_classes_occur_about_equally_often():
    labels = renders.classification_worlds(Draws(8000, renders.DRAWS_PER_IMAGE, "train", 0))[1]
    counts = np.bincount(labels, minlength=16)
    assert len(renders.CLASSES) == 16 and counts.min() > 420 and counts.max() < 580


def test_batches_are_normalised_and_in_order(small):
    batches = list(images.image_batches(small, 64))
    assert [len(batch["labels"]) for batch in batches] == [64, 64, 22]
    joined = torch.cat([batch["images"] for batch in batches])
    assert joined.dtype == torch.float32 and joined.abs().max() <= 1
    assert torch.allclose(joined * 0.5 + 0.5, small.images.float() / 255, atol=1e-6)


def test_samples_follow_the_generator_and_mirror_only_when_asked(small):
    plain = images.image_sampler(small, 64, torch.Generator().manual_seed(0))()
    again = images.image_sampler(small, 64, torch.Generator().manual_seed(0))()
    mirrored = images.image_sampler(small, 64, torch.Generator().manual_seed(0), flip=True)()
    assert (plain["images"] == again["images"]).all() and (plain["labels"] == mirrored["labels"]).all()
    same = (mirrored["images"] == plain["images"]).flatten(1).all(1)
    turned = (mirrored["images"] == plain["images"].flip(-1)).flatten(1).all(1)
    assert (same | turned).all() and 10 < turned.sum() < 54


def test_impossible_requests_are_data_errors():
    with pytest.raises(DataError, match="positive image size"):
        images.rendered_images(1, size=0)
    with pytest.raises(DataError, match="at least one"):
        images.rendered_images(0)
