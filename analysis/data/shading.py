"""From rays to pixels: textures, ground, sky, sun with shadows, and anti-aliasing by supersampling."""

from __future__ import annotations

from dataclasses import dataclass, fields

import torch
from jaxtyping import Float, Int64, UInt8
from torch import Tensor
from tqdm import tqdm

from analysis.data.raycast import FAR, Solids, local_normal, nearest_hit, surface_coordinates

TEXTURES = ("plain", "stripes", "checker", "dots")
VERSION = 1
AMBIENT, AMBIENT_UP, SUN = 0.46, 0.14, 0.50
CHECKER_FADE, HAZE = 9.0, 16.0
SAMPLES_PER_BATCH = {"cpu": 1 << 19, "cuda": 1 << 25}


@dataclass(frozen=True)
class World:
    """Scenes to render; F frames or scenes, O objects; colours in 0..1, world z up, ground at z = 0."""

    shape: Int64[Tensor, "F O"]
    to_local: Float[Tensor, "F O 3 3"]
    centre: Float[Tensor, "F O 3"]
    texture: Int64[Tensor, "F O"]
    colours: Float[Tensor, "F O 2 3"]
    ground: Float[Tensor, "F 2 3"]
    ground_scale: Float[Tensor, " F"]
    sky: Float[Tensor, "F 2 3"]
    sun: Float[Tensor, "F 3"]

    def pick(self, scenes: Tensor, device: torch.device | str) -> World:
        """Return the worlds of the given scene indices on a device."""
        return World(**{one.name: getattr(self, one.name)[scenes].to(device) for one in fields(self)})

    @property
    def solids(self) -> Solids:
        """Return the geometry alone."""
        return Solids(self.shape, self.to_local, self.centre)


def render(
    world: World,
    c2w: Float[Tensor, "S V 4 4"],
    fxfycxcy: Float[Tensor, "S V 4"],
    height: int,
    width: int,
    device: torch.device | str = "cpu",
    supersample: int = 2,
) -> UInt8[Tensor, "S V 3 height width"]:
    """Render every view of every scene with supersample^2 samples per pixel; the result stays on `device`.

    What takes longer than a moment shows a progress bar on standard error.
    """
    device = torch.device(device)
    num_scenes, num_views = c2w.shape[:2]
    scenes = torch.arange(num_scenes).repeat_interleave(num_views)
    poses, lenses = c2w.flatten(0, 1).float(), fxfycxcy.flatten(0, 1).float()
    samples = height * width * supersample**2
    step = max(1, SAMPLES_PER_BATCH["cpu" if device.type == "cpu" else "cuda"] // samples)
    images = torch.empty((len(scenes), 3, height, width), dtype=torch.uint8, device=device)
    bar = tqdm(total=len(scenes), desc=f"rendering {height} x {width}", unit="view", delay=2, mininterval=1)
    for start in range(0, len(scenes), step):
        part = slice(start, start + step)
        origin, direction = _rays(poses[part].to(device), lenses[part].to(device), height, width, supersample)
        colour = shade(world.pick(scenes[part], device), origin, direction)
        colour = colour.view(3, -1, height, supersample, width, supersample).mean((3, 5))
        images[part] = (colour.transpose(0, 1).clamp(0, 1) * 255).round().to(torch.uint8)
        bar.update(len(poses[part]))
    bar.close()
    return images.view(num_scenes, num_views, 3, height, width)


def _rays(c2w: Tensor, fxfycxcy: Tensor, height: int, width: int, supersample: int):
    """Return ray origins (each [F, 1]) and directions (each [F, P], unit depth along the camera's axis)."""
    across = (torch.arange(width * supersample, device=c2w.device) + 0.5) / supersample
    down = (torch.arange(height * supersample, device=c2w.device) + 0.5) / supersample
    fx, fy, cx, cy = fxfycxcy.T[..., None, None]
    x = ((across - cx) / fx).expand(-1, len(down), -1).flatten(1)
    y = ((down[:, None] - cy) / fy).expand(-1, -1, len(across)).flatten(1)
    direction = [x * c2w[:, i, 0, None] + y * c2w[:, i, 1, None] + c2w[:, i, 2, None] for i in range(3)]
    return [c2w[:, i, 3, None] for i in range(3)], direction


def shade(world: World, origin: list[Tensor], direction: list[Tensor]) -> Float[Tensor, "3 F P"]:
    """Return the colour seen along each ray: Lambertian surfaces under one sun and a uniform sky light."""
    distance, index = nearest_hit(world.solids, origin, direction)
    floor = -origin[2] / direction[2]
    floor = torch.where(floor > 0, floor, FAR)
    on_floor, nothing = floor < distance, torch.minimum(floor, distance) >= FAR
    distance = torch.where(nothing, 0, torch.minimum(floor, distance))
    point = [start + distance * slope for start, slope in zip(origin, direction, strict=True)]
    normal, albedo = _surface(world, index, point)
    normal = [torch.where(on_floor, float(i == 2), axis) for i, axis in enumerate(normal)]
    floor_albedo = _ground_albedo(world, point, distance)
    sun = [world.sun[:, i, None] for i in range(3)]
    lifted = [p + 2e-3 * n for p, n in zip(point, normal, strict=True)]
    lit = (nearest_hit(world.solids, lifted, sun)[0] >= FAR).float()
    facing = sum(n * s for n, s in zip(normal, sun, strict=True)).clamp(min=0)
    light = AMBIENT + AMBIENT_UP * normal[2] + SUN * facing * lit
    length = torch.sqrt(sum(slope * slope for slope in direction))
    haze = torch.where(on_floor, 1 - torch.exp(-((distance * length / HAZE) ** 2)), 0)
    height = (direction[2] / length).clamp(0, 1).sqrt()
    channels = []
    for i in range(3):
        horizon, zenith = world.sky[:, 0, i, None], world.sky[:, 1, i, None]
        surface = torch.where(on_floor, floor_albedo[i], albedo[i]) * light
        surface = torch.lerp(surface, horizon.expand_as(surface), haze)
        channels.append(torch.where(nothing, horizon + (zenith - horizon) * height, surface))
    return torch.stack(channels)


def _surface(world: World, index: Tensor, point: list[Tensor]) -> tuple[list[Tensor], list[Tensor]]:
    """Return world normals of unit length and albedo (each coordinate or channel [F, P]) of the solids that were hit."""
    num_frames, num_objects = world.shape.shape
    parts = (
        world.to_local.flatten(2),
        world.centre,
        world.colours.flatten(2),
        world.shape[..., None],
        world.texture[..., None],
    )
    table = torch.cat([part.float() for part in parts], dim=-1).flatten(0, 1)
    rows = table[(index + num_objects * torch.arange(num_frames, device=index.device)[:, None])].unbind(-1)
    matrix, centre, colours = rows[:9], rows[9:12], rows[12:18]
    shape, texture = rows[18].long(), rows[19].long()
    offset = [p - c for p, c in zip(point, centre, strict=True)]
    x, y, z = (sum(matrix[3 * i + j] * offset[j] for j in range(3)) for i in range(3))
    local = local_normal(shape, x, y, z)
    normal = [sum(matrix[3 * i + j] * local[i] for i in range(3)) for j in range(3)]
    length = torch.sqrt(sum(axis * axis for axis in normal)).clamp(min=1e-9)
    second = texture_mask(texture, *surface_coordinates(shape, x, y, z))
    return [axis / length for axis in normal], [
        torch.where(second, colours[3 + i], colours[i]) for i in range(3)
    ]


def texture_mask(texture: Int64[Tensor, "F P"], across: Tensor, along: Tensor) -> Tensor:
    """Return where the second colour of a texture shows, as booleans [F, P]."""
    row, column = torch.floor(along), torch.floor(across)
    stripes = torch.floor(1.5 * along) % 2 == 0
    checker = (row + column) % 2 == 0
    dots = (across - column - 0.5) ** 2 + (along - row - 0.5) ** 2 < 0.1
    return (stripes & (texture == 1)) | (checker & (texture == 2)) | (dots & (texture == 3))


def _ground_albedo(world: World, point: list[Tensor], distance: Tensor) -> list[Tensor]:
    """Return the ground's checker, faded to its mean with distance so that far cells do not flicker."""
    scale = world.ground_scale[:, None]
    odd = ((torch.floor(point[0] * scale) + torch.floor(point[1] * scale)) % 2) - 0.5
    contrast = odd * torch.exp(-((distance / CHECKER_FADE) ** 2))
    first, second = world.ground[:, 0], world.ground[:, 1]
    return [0.5 * (first + second)[:, i, None] + contrast * (second - first)[:, i, None] for i in range(3)]
