"""Pinhole cameras with OpenCV axes (x right, y down, z forward) and pixel centres at +0.5."""

from __future__ import annotations

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from analysis.errors import DataError


def look_at(eye: np.ndarray, target: np.ndarray) -> np.ndarray:
    """Return camera-to-world matrices [..., 4, 4] of cameras at `eye` facing `target`, with the world's z axis up."""
    forward = target - eye
    forward = forward / np.linalg.norm(forward, axis=-1, keepdims=True)
    right = np.cross(forward, np.array([0.0, 0.0, 1.0]))
    right = right / np.linalg.norm(right, axis=-1, keepdims=True)
    down = np.cross(forward, right)
    c2w = np.zeros((*eye.shape[:-1], 4, 4))
    c2w[..., :3, 0], c2w[..., :3, 1], c2w[..., :3, 2], c2w[..., :3, 3] = right, down, forward, eye
    c2w[..., 3, 3] = 1
    return c2w


def orbit(azimuth: np.ndarray, elevation: np.ndarray, distance: np.ndarray, target: np.ndarray) -> np.ndarray:
    """Return camera-to-world matrices [..., 4, 4] on a sphere about `target` [..., 3]; angles in radians."""
    flat = np.cos(elevation)
    offset = np.stack([flat * np.cos(azimuth), flat * np.sin(azimuth), np.sin(elevation)], axis=-1)
    return look_at(target + distance[..., None] * offset, target)


def intrinsics(field_of_view: float, height: int, width: int) -> np.ndarray:
    """Return (fx, fy, cx, cy) in pixels, float64 [4], for a vertical field of view in degrees."""
    focal = height / 2 / np.tan(np.deg2rad(field_of_view) / 2)
    return np.array([focal, focal, width / 2, height / 2])


def project(
    points: Float[Tensor, "*batch 3"], c2w: Float[Tensor, "*batch 4 4"], fxfycxcy: Float[Tensor, "*batch 4"]
) -> Float[Tensor, "*batch 3"]:
    """Return (u, v, depth) of world points: u = fx x / z + cx, v = fy y / z + cy, in pixels."""
    local = torch.einsum("...ji,...j->...i", c2w[..., :3, :3], points - c2w[..., :3, 3])
    depth = local[..., 2]
    pixel = fxfycxcy[..., :2] * local[..., :2] / depth[..., None] + fxfycxcy[..., 2:]
    return torch.cat([pixel, depth[..., None]], dim=-1)


def mean_pose_normalisation(c2w: Float[Tensor, "views 4 4"]) -> Float[Tensor, "views 4 4"]:
    """Express cameras in the frame of their mean pose, scaled so that the largest coordinate of a centre is 1.

    The mean pose has the mean centre, the mean forward axis, and the mean down axis made orthogonal to it.
    Raises DataError when these axes do not define a frame (a rig that looks inwards from all sides).
    """
    c2w = c2w.double()
    forward, down = c2w[:, :3, 2].mean(0), c2w[:, :3, 1].mean(0)
    right = torch.linalg.cross(down, forward)
    extent = (c2w[:, :3, 3] - c2w[:, :3, 3].mean(0)).abs().max()
    if min(forward.norm(), down.norm(), right.norm(), extent) < 1e-6:
        raise DataError(
            "Expected cameras whose mean forward and mean down axes span a plane and whose centres differ, "
            "received a rig without a mean pose (it looks inwards from all sides); use normalise='none' for objects."
        )
    forward, right = forward / forward.norm(), right / right.norm()
    mean = torch.eye(4, dtype=c2w.dtype)
    mean[:3, 0], mean[:3, 1], mean[:3, 2] = right, torch.linalg.cross(forward, right), forward
    mean[:3, 3] = c2w[:, :3, 3].mean(0)
    normalised = torch.linalg.inv(mean) @ c2w
    normalised[:, :3, 3] /= normalised[:, :3, 3].abs().max()
    return normalised.float()
