"""Geometry: rays meet solids where hand calculation says, cameras project where they look."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from analysis.data import cameras, raycast, shading
from analysis.data.draws import Draws, hsv_to_rgb
from analysis.errors import DataError


def unit_solid(shape: str) -> raycast.Solids:
    return raycast.Solids(
        torch.tensor([[raycast.SHAPES.index(shape)]]), torch.eye(3)[None, None], torch.zeros(1, 1, 3)
    )


def cast(shape: str, origin, direction) -> float:
    start, along = ([torch.tensor([[float(axis)]]) for axis in one] for one in (origin, direction))
    return float(raycast.nearest_hit(unit_solid(shape), start, along)[0])


@pytest.mark.parametrize(
    ("shape", "origin", "direction", "distance"),
    [
        ("sphere", (-3, 0, 0), (1, 0, 0), 2.0),
        ("sphere", (-3, 0, 0.6), (1, 0, 0), 3 - 0.8),
        ("cylinder", (-3, 0, 0.6), (1, 0, 0), 2.0),
        ("cylinder", (0.5, 0, 3), (0, 0.001, -1), 2.0),
        ("cone", (-3, 0, 0), (1, 0, 0), 2.5),
        ("cone", (-3, 0, -0.5), (1, 0, 0), 2.25),
        ("cube", (-3, 0.9, 0.9), (1, 0.001, 0.001), 2.0),
        ("cube", (-3, 0.5, 0.5), (2, 0.001, 0.001), 1.0),
    ],
)
def test_a_ray_meets_the_unit_solid_where_it_should(shape, origin, direction, distance):
    assert cast(shape, origin, direction) == pytest.approx(distance, abs=2e-3)


@pytest.mark.parametrize(
    ("shape", "origin", "direction"),
    [
        ("sphere", (-3, 0, 1.1), (1, 0, 0)),
        ("cone", (-3, 0, 0.9), (1, 0.1, 0)),
        ("cylinder", (-3, 0.9, 1.1), (1, 0.001, 0)),
        ("cube", (-3, 1.1, 0), (1, 0.001, 0.001)),
        ("cube", (-3, 0, 0), (-1, 0.001, 0.001)),
        ("sphere", (-3, 0, 0), (-1, 0, 0)),
    ],
)
def test_a_ray_misses_beside_and_behind(shape, origin, direction):
    assert cast(shape, origin, direction) == raycast.FAR


def test_mixed_shapes_in_one_batch_equal_one_at_a_time():
    generator = torch.Generator().manual_seed(0)
    shape = torch.tensor([[0, 3], [3, 1], [2, 3], [3, 3]])
    centre = torch.randn(4, 2, 3, generator=generator)
    matrix = torch.eye(3).expand(4, 2, 3, 3) * torch.rand(4, 2, 1, 1, generator=generator).add(0.7)
    origin = [torch.full((4, 1), -4.0), torch.zeros(4, 1), torch.zeros(4, 1)]
    direction = [torch.ones(4, 200), *torch.randn(2, 4, 200, generator=generator) * 0.4]
    distance, index = raycast.nearest_hit(raycast.Solids(shape, matrix, centre), origin, direction)
    assert 100 < (distance < raycast.FAR).sum() < 800
    for frame in range(4):
        part = raycast.Solids(shape[frame, None], matrix[frame, None], centre[frame, None])
        rays = [[axis[frame, None] for axis in one] for one in (origin, direction)]
        alone, which = raycast.nearest_hit(part, *rays)
        assert (alone[0] == distance[frame]).all() and (which[0] == index[frame]).all()


def test_normals_point_away_from_the_surface():
    points = [torch.tensor([[axis]]) for axis in (0.6, 0.0, 0.8)]
    sphere = raycast.local_normal(torch.tensor([[0]]), *points)
    assert [float(axis) for axis in sphere] == pytest.approx([0.6, 0.0, 0.8])
    cube = raycast.local_normal(torch.tensor([[3]]), *(torch.tensor([[axis]]) for axis in (0.2, -1.0, 0.3)))
    assert [float(axis) for axis in cube] == [0, -1, 0]
    lid = raycast.local_normal(torch.tensor([[1]]), *(torch.tensor([[axis]]) for axis in (0.2, 0.1, 1.0)))
    assert [float(axis) for axis in lid] == [0, 0, 1]


def test_a_known_point_lands_on_the_expected_pixel():
    c2w = torch.from_numpy(cameras.look_at(np.array([0.0, -4.0, 0.0]), np.zeros(3)))
    lens = torch.from_numpy(cameras.intrinsics(90.0, 64, 48))
    u, v, depth = cameras.project(torch.tensor([1.0, 0.0, 0.5], dtype=torch.float64), c2w, lens).tolist()
    # looking along +y with z up: +x is to the right, +z is above the centre; focal = 32
    assert (u, v, depth) == pytest.approx((24 + 32 / 4, 32 - 32 * 0.5 / 4, 4.0))
    assert torch.linalg.det(c2w[:3, :3]) == pytest.approx(1.0)


def test_a_rendered_sphere_stands_where_it_projects():
    world = sphere_world()
    c2w = torch.from_numpy(cameras.look_at(np.array([0.5, -4.0, 1.5]), np.zeros(3))).float()
    lens = torch.from_numpy(cameras.intrinsics(45.0, 64, 96)).float()
    image = shading.render(world, c2w[None, None], lens[None, None], 64, 96)[0, 0].float()
    red = (image[0] > 1.8 * image[1]).float()
    rows, columns = torch.meshgrid(torch.arange(64) + 0.5, torch.arange(96) + 0.5, indexing="ij")
    centre = torch.stack([(red * columns).sum(), (red * rows).sum()]) / red.sum()
    expected = cameras.project(world.centre[0, 0], c2w, lens)
    assert (centre - expected[:2]).abs().max() < 0.4
    radius = (red.sum() / torch.pi).sqrt()
    assert radius == pytest.approx(float(lens[0]) * 0.3 / float(expected[2]), rel=0.06)


def sphere_world() -> shading.World:
    grey = torch.full((1, 2, 3), 0.5)
    return shading.World(
        shape=torch.zeros(1, 1, dtype=torch.int64),
        to_local=torch.eye(3)[None, None] / 0.3,
        centre=torch.tensor([[[0.4, 0.2, 0.3]]]),
        texture=torch.zeros(1, 1, dtype=torch.int64),
        colours=torch.tensor([[[[0.9, 0.1, 0.1], [0.9, 0.1, 0.1]]]]),
        ground=grey,
        ground_scale=torch.ones(1),
        sky=grey,
        sun=torch.tensor([[0.0, 0.0, 1.0]]),
    )


def test_the_sun_casts_a_shadow_straight_down():
    world = sphere_world()

    def floor_light(x: float, y: float) -> float:
        # from the side, so that the sphere does not hide the floor below it
        start = [torch.tensor([[value]]) for value in (x - 2.0, y, 0.2)]
        along = [torch.tensor([[value]]) for value in (2.0, 0.0, -0.2)]
        return float(shading.shade(world, start, along)[0])

    lit, shadow = floor_light(-0.5, 0.2), floor_light(0.2, 0.2)
    assert shadow < 0.6 * lit


def test_mean_pose_puts_the_rig_at_the_origin_and_refuses_inward_rings():
    angles = np.array([-0.3, 0.0, 0.2, 0.5])
    poses = cameras.orbit(angles, angles * 0.3 + 0.3, np.full(4, 3.0) + angles, np.zeros((4, 3)))
    normal = cameras.mean_pose_normalisation(torch.from_numpy(poses))
    assert normal[:, :3, 3].abs().max() == pytest.approx(1.0)
    assert normal[:, :3, 3].mean(0).abs().max() < 1e-6
    assert normal[:, :3, 2].mean(0)[:2].abs().max() < 1e-6
    ring = np.arange(8) * np.pi / 4
    poses = cameras.orbit(ring, np.zeros(8), np.full(8, 3.0), np.zeros((8, 3)))
    with pytest.raises(DataError, match="without a mean pose"):
        cameras.mean_pose_normalisation(torch.from_numpy(poses))


def test_draws_of_a_split_are_prefixes_and_splits_differ():
    many, few = Draws(9, 5, "train", 1), Draws(4, 5, "train", 1)
    assert (many.table[:4] == few.table).all()
    assert not np.isin(Draws(9, 5, "evaluation", 1).table, many.table).any()
    with pytest.raises(DataError, match="split"):
        Draws(1, 5, "test", 0)
    with pytest.raises(DataError, match="at least one"):
        Draws(0, 5, "train", 0)


def test_hues_become_colours():
    rgb = hsv_to_rgb(np.array([0, 1 / 3, 2 / 3, 1 / 6]), 1.0, 0.8)
    assert rgb == pytest.approx(0.8 * np.array([[1, 0, 0], [0, 1, 0], [0, 0, 1], [1, 1, 0]]), abs=1e-9)
