"""Procedural scenes: the same everywhere, two views of one world, batches as the hosts want them."""

from __future__ import annotations

import pytest
import torch

from analysis.data import cameras, raycast, scenes, shading
from analysis.data.draws import Draws
from analysis.errors import DataError


@pytest.fixture(scope="module")
def small() -> scenes.SceneSet:
    return scenes.procedural_scenes(6, views=5, size=(24, 32))


def test_a_seed_means_the_same_scenes(small):
    again = scenes.procedural_scenes(6, views=5, size=(24, 32))
    assert (again.images == small.images).all() and again.digest == small.digest
    fewer = scenes.procedural_scenes(2, views=5, size=(24, 32))
    assert (fewer.images == small.images[:2]).all() and (fewer.c2w == small.c2w[:2]).all()
    other = scenes.procedural_scenes(6, "train", views=5, size=(24, 32))
    assert other.digest != small.digest and (other.images != small.images).any()


def test_the_digest_of_the_default_parameters_is_the_recorded_one(small):
    assert small.digest == "f173b4e2ee5561d44a0c2c53f8183c48163c6abdc7ce48e06e5995f5ca651f17"


def test_shapes_types_and_cameras(small):
    assert small.images.shape == (6, 5, 3, 24, 32) and small.images.dtype == torch.uint8
    assert small.c2w.shape == (6, 5, 4, 4) and small.fxfycxcy.shape == (6, 5, 4)
    assert small.c2w.dtype == small.fxfycxcy.dtype == torch.float32
    assert small.fxfycxcy[0, 0, 2:].tolist() == [16, 12]
    rotation = small.c2w[..., :3, :3]
    assert (rotation.mT @ rotation - torch.eye(3)).abs().max() < 1e-5
    middle = cameras.project(torch.tensor([0.0, 0.0, 0.3]).expand(6, 5, 3), small.c2w, small.fxfycxcy)
    assert (middle[..., :2] - torch.tensor([16.0, 12.0])).abs().max() < 2
    assert (small.c2w[..., 2, 1] < 0).all()  # the image's down axis points down in the world


def test_images_are_neither_dark_nor_saturated(small):
    pixels = small.images.float()
    assert 100 < pixels.mean() < 190 and pixels.std() > 25
    assert (small.images == 255).float().mean() < 0.005 and (small.images < 8).float().mean() < 0.01


def test_two_views_agree_on_the_colour_of_a_surface_point():
    """Lambertian surfaces: the colour that one camera sees at a point is what any camera sees there."""
    count, views = 4, 2
    draws = Draws(count, scenes.DRAWS_PER_SCENE, "evaluation", 5)
    world = scenes.scene_worlds(draws)
    c2w = torch.from_numpy(scenes.scene_cameras(draws, views)).float()
    lens = torch.from_numpy(cameras.intrinsics(scenes.FIELD_OF_VIEW, 64, 64)).float().expand(count, 4)
    origin, direction = shading._rays(c2w[:, 0], lens, 64, 64, 1)
    distance, _ = raycast.nearest_hit(world.solids, origin, direction)
    hit = distance < raycast.FAR
    seen = shading.shade(world, origin, direction)
    point = [start + distance * slope for start, slope in zip(origin, direction, strict=True)]
    other = [c2w[:, 1, i, 3, None] for i in range(3)]
    towards = [p - start for p, start in zip(point, other, strict=True)]
    reached, _ = raycast.nearest_hit(world.solids, other, towards)
    visible = hit & ((reached - 1).abs() < 1e-3)
    difference = (shading.shade(world, other, towards) - seen).abs().amax(0)[visible]
    assert visible.sum() > 1000
    # a sample on the very edge of a texture or shadow may fall to either side
    assert (difference < 0.02).float().mean() > 0.98
    apart = (seen.roll(1, dims=2) - seen).abs().amax(0)[visible]
    assert (apart < 0.02).float().mean() < 0.97


def test_evaluation_batches_split_views_in_order(small):
    batches = list(scenes.nvs_batches(small, 4, inputs=2, targets=3))
    assert [len(batch["images"]) for batch in batches] == [4, 2]
    batch = batches[1]
    assert set(batch) == {"images", "c2w", "fxfycxcy", "target_images", "target_c2w", "target_fxfycxcy"}
    assert (batch["images"] == small.images[4:, :2].float() / 255).all()
    assert (batch["target_images"] == small.images[4:, 2:].float() / 255).all()
    assert (batch["target_c2w"] == small.c2w[4:, 2:]).all()
    assert next(scenes.nvs_batches(small, 4))["target_images"].shape[1] == 3


def test_samples_hold_distinct_views_with_their_cameras(small):
    draw = scenes.nvs_sampler(small, 16, torch.Generator().manual_seed(0), inputs=2, targets=3)
    again = scenes.nvs_sampler(small, 16, torch.Generator().manual_seed(0), inputs=2, targets=3)
    batch = draw()
    assert all((batch[key] == value).all() for key, value in again().items())
    poses = torch.cat([batch["c2w"], batch["target_c2w"]], dim=1)
    images = torch.cat([batch["images"], batch["target_images"]], dim=1)
    known = small.c2w.flatten(0, 1).flatten(1)
    for pose, image in zip(poses, images, strict=True):
        found = (pose.flatten(1)[:, None] == known).all(-1).float().argmax(1)
        assert found.unique().numel() == 5 and (found // 5).unique().numel() == 1
        assert (small.images.flatten(0, 1)[found].float() / 255 == image).all()


def test_impossible_requests_are_data_errors(small):
    with pytest.raises(DataError, match="at most 5 together"):
        next(scenes.nvs_batches(small, 4, inputs=3, targets=3))
    with pytest.raises(DataError, match="at least one input"):
        scenes.nvs_sampler(small, 4, torch.Generator(), inputs=0)
    with pytest.raises(DataError, match="positive size"):
        scenes.procedural_scenes(1, size=0)
    with pytest.raises(DataError, match="1 to 64 views"):
        scenes.procedural_scenes(1, views=65)
    with pytest.raises(DataError, match="split"):
        scenes.procedural_scenes(1, "test")


@pytest.mark.gpu
def test_a_gpu_renders_the_same_scenes_to_a_grey_level(small):
    there = scenes.procedural_scenes(6, views=5, size=(24, 32), device="cuda")
    assert there.digest == small.digest
    difference = (there.images.cpu().int() - small.images.int()).abs()
    assert difference.max() <= 40 and (difference > 1).float().mean() < 1e-3
