"""Analytic ray casting of simple solids on a ground plane, batched over frames, on any device.

Axes: F frames, O objects, P samples per frame. Solids live in a local box [-1, 1]^3 and stand on the ground, so their
base is never seen: spheres, cylinders and cones are quadrics x^2 + y^2 = c0 + c1 z + c2 z^2 with a lid, cubes are slabs.
Plain arithmetic instead of matrix products: reduced-precision matrix modes would bend the geometry.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int64
from torch import Tensor

SHAPES = ("sphere", "cylinder", "cone", "cube")
CUBE = SHAPES.index("cube")
QUADRICS = ((1.0, 0.0, -1.0), (1.0, 0.0, 0.0), (0.25, -0.5, 0.25), (0.0, 0.0, 0.0))
NEAR = 1e-3
FAR = 1e6


@dataclass(frozen=True)
class Solids:
    """Solids of a batch of frames: shape index [F, O], world-to-local matrix [F, O, 3, 3] and world centre [F, O, 3]."""

    shape: Int64[Tensor, "F O"]
    to_local: Float[Tensor, "F O 3 3"]
    centre: Float[Tensor, "F O 3"]


def nearest_hit(
    solids: Solids, origin: tuple[Tensor, Tensor, Tensor], direction: tuple[Tensor, Tensor, Tensor]
) -> tuple[Float[Tensor, "F P"], Int64[Tensor, "F P"]]:
    """Return the distance to the nearest solid along each ray (FAR where there is none) and that solid's index.

    `origin` and `direction` are the coordinates of rays, each [F, P] or [F, 1]; distances are in units of direction.
    """
    distance = torch.full(
        torch.broadcast_shapes(origin[0].shape, direction[0].shape), FAR, device=origin[0].device
    )
    index = torch.zeros_like(distance, dtype=torch.int64)
    for one in range(solids.shape.shape[1]):
        found = _object_hit(solids, one, origin, direction)
        closer = found < distance
        distance = torch.where(closer, found, distance)
        index.masked_fill_(closer, one)
    return distance, index


def _object_hit(solids: Solids, one: int, origin, direction) -> Tensor:
    """Return the distance [F, P] to object number `one` of each frame, computing each kind of solid only where it is."""
    cubes = solids.shape[:, one] == CUBE
    groups = [(torch.nonzero(~cubes)[:, 0], _quadric_hit), (torch.nonzero(cubes)[:, 0], _cube_hit)]
    parts = [(frames, hit) for frames, hit in groups if len(frames)]
    found = None
    for frames, hit in parts:
        whole = len(parts) == 1
        rays = [axis if whole else axis[frames] for axis in (*origin, *direction)]
        matrix, centre = solids.to_local[frames, one], solids.centre[frames, one]
        start = local_point(matrix, centre, rays[:3])
        along = local_point(matrix, None, rays[3:])
        part = hit(solids.shape[frames, one], start, along)
        if whole:
            return part
        if found is None:
            found = part.new_empty((len(cubes), part.shape[1]))
        found[frames] = part
    return found


def local_point(matrix: Float[Tensor, "F 3 3"], centre: Float[Tensor, "F 3"] | None, point) -> list[Tensor]:
    """Return the three local coordinates of points (or of directions, without a centre), each [F, P]."""
    if centre is not None:
        point = [axis - centre[:, i, None] for i, axis in enumerate(point)]
    rows = []
    for i in range(3):
        row = point[0] * matrix[:, i, 0, None]
        row = torch.addcmul(row, point[1], matrix[:, i, 1, None])
        rows.append(torch.addcmul(row, point[2], matrix[:, i, 2, None]))
    return rows


def _quadric_hit(shape: Tensor, start: list[Tensor], along: list[Tensor]) -> Tensor:
    """Solve a t^2 + 2 b t + c = 0 for the surface within |z| <= 1, and the lid z = 1."""
    c0, c1, c2 = torch.tensor(QUADRICS, device=shape.device)[shape].T[..., None]
    (x, y, z), (dx, dy, dz) = start, along
    c2dz = c2 * dz
    a = dx * dx + dy * dy - c2dz * dz
    b = dx * x + dy * y - c2dz * z - 0.5 * c1 * dz
    c = x * x + y * y - (c2 * z + c1) * z - c0
    # a vanishes for rays along a cone's flank; nudging it keeps one root finite and right
    a = torch.where(a.abs() < 1e-9, torch.full_like(a, 1e-9), a)
    inside = b * b - a * c
    root = inside.clamp(min=0).sqrt()
    found = torch.full_like(inside, FAR)
    for t in ((-b - root) / a, (root - b) / a):
        valid = (inside > 0) & (t > NEAR) & (torch.addcmul(z, t, dz).abs() <= 1)
        found = torch.where(valid, torch.minimum(found, t), found)
    lid = (1 - z) / dz
    lid_x, lid_y = torch.addcmul(x, lid, dx), torch.addcmul(y, lid, dy)
    on_lid = (lid_x * lid_x + lid_y * lid_y <= c0 + c1 + c2) & (lid > NEAR)
    return torch.where(on_lid, torch.minimum(found, lid), found)


def _cube_hit(shape: Tensor, start: list[Tensor], along: list[Tensor]) -> Tensor:
    """Intersect the slabs |x|, |y|, |z| <= 1."""
    enter = leave = None
    for position, slope in zip(start, along, strict=True):
        inverse = 1 / slope
        middle, half = -position * inverse, inverse.abs()
        low, high = middle - half, middle + half
        enter = low if enter is None else torch.maximum(enter, low)
        leave = high if leave is None else torch.minimum(leave, high)
    return torch.where((enter < leave) & (enter > NEAR), enter, torch.full_like(enter, FAR))


def local_normal(
    shape: Int64[Tensor, "F P"], x: Tensor, y: Tensor, z: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Return outward normals (not of unit length) at local surface points, each coordinate [F, P]."""
    _, c1, c2 = torch.tensor(QUADRICS, device=shape.device)[shape].unbind(-1)
    lid = (z > 0.999) & (shape != SHAPES.index("sphere"))
    flank = -(0.5 * c1 + c2 * z)
    normal = (torch.where(lid, 0, x), torch.where(lid, 0, y), torch.where(lid, 1, flank))
    largest = torch.maximum(torch.maximum(x.abs(), y.abs()), z.abs())
    cube = shape == CUBE
    return tuple(
        torch.where(cube, torch.where(axis.abs() >= largest, axis.sign(), 0), other)
        for axis, other in zip((x, y, z), normal, strict=True)
    )


def surface_coordinates(
    shape: Int64[Tensor, "F P"], x: Tensor, y: Tensor, z: Tensor
) -> tuple[Tensor, Tensor]:
    """Return (across, along): angle and height on round solids, the two in-face coordinates on cubes and lids.

    One unit is one cell of a texture: eight cells around, four from bottom to top.
    """
    flat_top = (z > 0.999) & (shape != SHAPES.index("sphere"))
    around = torch.atan2(y, x) * (4 / torch.pi)
    cube = shape == CUBE
    x_face = x.abs() > torch.maximum(y.abs(), z.abs())
    side = torch.where(x_face, y, x)
    across = torch.where(flat_top, 2 * x, torch.where(cube, 2 * side, around))
    return across, torch.where(flat_top, 2 * y, 2 * z)
