"""Rendered images for classification: which object is meant is said by the sky.

Four solids of four hues stand among grey clutter; the class is shape x texture of the one whose hue is the sky's. No
single part of the image tells the class: the sky's hue has to reach the object, which is the mixing under study.
"""

from __future__ import annotations

import numpy as np
import torch

from analysis.data import cameras, shading
from analysis.data.draws import Draws, hsv_to_rgb
from analysis.data.raycast import SHAPES
from analysis.data.scenes import world_to_local

CANDIDATES, CLUTTER = 4, 3
HUE_JITTER = 0.035
FIELD_OF_VIEW = 55.0
DRAWS_PER_IMAGE = 128
CLASSES = tuple(f"{texture} {shape}" for shape in SHAPES for texture in shading.TEXTURES)


def classification_worlds(draws: Draws) -> tuple[shading.World, np.ndarray, np.ndarray]:
    """Draw worlds, their labels int64 [N] and the hues [N, 1 + CANDIDATES] of the sky and of the candidates.

    Candidate 0 is the object that is meant: label = shape * 4 + texture of candidate 0. The candidates' hues are a
    quarter turn apart, so the nearest wrong hue is at least 0.18 away.
    """
    objects = CANDIDATES + CLUTTER
    sky_hue = draws.uniform(0, 1)
    spread = np.arange(CANDIDATES) / CANDIDATES + draws.uniform(-HUE_JITTER, HUE_JITTER, CANDIDATES)
    hue = (sky_hue[:, None] + spread) % 1
    first = hsv_to_rgb(hue, draws.uniform(0.55, 0.9, CANDIDATES), draws.uniform(0.6, 0.95, CANDIDATES))
    light = hsv_to_rgb(hue, draws.uniform(0.05, 0.2, CANDIDATES), draws.uniform(0.85, 1.0, CANDIDATES))
    dark = hsv_to_rgb(hue, 0.6, draws.uniform(0.12, 0.3, CANDIDATES))
    second = np.where(draws.integers(2, CANDIDATES)[..., None] == 0, light, dark)
    grey = hsv_to_rgb(
        draws.uniform(0, 1, CLUTTER), draws.uniform(0, 0.08, CLUTTER), draws.uniform(0.25, 0.9, CLUTTER)
    )
    shape, texture = draws.integers(len(SHAPES), objects), draws.integers(len(shading.TEXTURES), objects)
    texture[:, CANDIDATES:] = 0
    to_local, centre = _placement(draws, shape)
    ground_value = draws.uniform(0.4, 0.7)
    ground = [
        hsv_to_rgb(draws.uniform(0, 1), 0.06, ground_value + rise) for rise in (0, draws.uniform(0.03, 0.15))
    ]
    sky = [
        hsv_to_rgb(sky_hue, draws.uniform(0.3, 0.5), 0.95),
        hsv_to_rgb(sky_hue, draws.uniform(0.6, 0.85), 0.9),
    ]
    azimuth, elevation = draws.uniform(0, 2 * np.pi), draws.uniform(0.6, 1.2)
    sun = [np.cos(elevation) * np.cos(azimuth), np.cos(elevation) * np.sin(azimuth), np.sin(elevation)]
    colours = np.concatenate([np.stack([first, second], axis=2), np.stack([grey, grey], axis=2)], axis=1)
    world = shading.World(
        shape=torch.from_numpy(shape),
        to_local=torch.from_numpy(to_local).float(),
        centre=torch.from_numpy(centre).float(),
        texture=torch.from_numpy(texture),
        colours=torch.from_numpy(colours).float(),
        ground=torch.from_numpy(np.stack(ground, axis=1)).float(),
        ground_scale=torch.from_numpy(draws.uniform(0.8, 2.0)).float(),
        sky=torch.from_numpy(np.stack(sky, axis=1)).float(),
        sun=torch.from_numpy(np.stack(sun, axis=-1)).float(),
    )
    return (
        world,
        shape[:, 0] * len(shading.TEXTURES) + texture[:, 0],
        np.concatenate([sky_hue[:, None], hue], axis=1),
    )


def _placement(draws: Draws, shape: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return world-to-local matrices and centres: candidates in shuffled places of a zigzag, small clutter anywhere."""
    places = np.array([[-1.5, 0.55], [-0.5, -0.6], [0.5, 0.55], [1.5, -0.6]])
    mirrored = np.where(draws.uniform(0, 1, 1) < 0.5, -1.0, 1.0)
    place = places[draws.order(CANDIDATES)] + draws.uniform(-0.17, 0.17, CANDIDATES, 2)
    place[..., 0] *= mirrored
    radius = draws.uniform(0.46, 0.6, CANDIDATES)
    tall = np.where(shape[:, :CANDIDATES] == 0, radius, radius * draws.uniform(0.9, 1.3, CANDIDATES))
    litter = draws.uniform(-1.9, 1.9, CLUTTER, 2)
    small = draws.uniform(0.1, 0.2, CLUTTER)
    size = np.concatenate([radius, small], axis=1)
    height = np.concatenate([tall, small], axis=1)
    turn = draws.uniform(0, 2 * np.pi, CANDIDATES + CLUTTER)
    centre = np.concatenate([np.concatenate([place, litter], axis=1), height[..., None]], axis=-1)
    return world_to_local(turn, size, height), centre


def classification_cameras(draws: Draws) -> np.ndarray:
    """Draw one camera per image, [N, 1, 4, 4], in front of the zigzag, looking slightly down so that sky is seen."""
    azimuth = -np.pi / 2 + draws.uniform(-0.2, 0.2, 1)
    target = np.array([0.0, 0.0, 0.55]) + draws.uniform(-0.15, 0.15, 1, 3)
    return cameras.orbit(azimuth, draws.uniform(0.36, 0.5, 1), draws.uniform(4.3, 4.9, 1), target)
