"""From posed images to tokens: one vector of camera rays and colours per patch.

Axes: B batch, V views, h and w pixels, P patch side, T = V (h/P) (w/P) tokens.
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from analysis.errors import InputError

CHANNELS = 12  # ray origin, ray direction, their cross product, colour


def camera_rays(
    c2w: Float[Tensor, "B V 4 4"], fxfycxcy: Float[Tensor, "B V 4"], height: int, width: int
) -> Float[Tensor, "B V h w 9"]:
    """Return origin o, unit direction d and moment o x d of the ray through each pixel centre.

    d = R ((u + 1/2 - cx) / fx, (v + 1/2 - cy) / fy, 1), normalised, in OpenCV axes. Computed in float32 or
    wider whatever the surrounding autocast says: half precision loses the position within a patch.
    """
    with torch.autocast(c2w.device.type, enabled=False):
        dtype = torch.promote_types(c2w.dtype, torch.float32)
        c2w, intrinsics = c2w.to(dtype), fxfycxcy.to(dtype)
        columns = torch.arange(width, device=c2w.device, dtype=dtype) + 0.5
        rows = torch.arange(height, device=c2w.device, dtype=dtype) + 0.5
        fx, fy, cx, cy = (value[..., None, None] for value in intrinsics.unbind(-1))
        x = ((columns - cx) / fx).expand(*c2w.shape[:2], height, width)
        y = ((rows[:, None] - cy) / fy).expand(*c2w.shape[:2], height, width)
        local = torch.stack((x, y, torch.ones_like(x)), dim=-1)
        direction = torch.einsum("bvij,bvhwj->bvhwi", c2w[..., :3, :3], local)
        direction = direction / direction.norm(dim=-1, keepdim=True)
        origin = c2w[..., None, None, :3, 3].expand_as(direction)
        return torch.cat((origin, direction, torch.linalg.cross(origin, direction)), dim=-1)


def view_tokens(
    c2w: Float[Tensor, "B V 4 4"],
    fxfycxcy: Float[Tensor, "B V 4"],
    images: Float[Tensor, "B V 3 h w"] | None,
    size: tuple[int, int],
    patch: int,
) -> Float[Tensor, "B T PPC"]:
    """Return the tokens of all views one after the other; each vector runs over row, column, channel.

    Colours are 2 x - 1 for images in 0..1 and zero for views without an image (the ones to be rendered).
    Raises InputError when a side is not a multiple of the patch, or cameras and images do not belong together.
    """
    height, width = size
    _check_cameras(c2w, fxfycxcy, images)
    if height % patch or width % patch:
        raise InputError(
            f"expected image sides to be multiples of {patch}, received {height}x{width}; resize or crop"
        )
    rays = camera_rays(c2w, fxfycxcy, height, width)
    colour = (
        rays.new_zeros(*rays.shape[:-1], 3)
        if images is None
        else images.to(rays.dtype).movedim(-3, -1) * 2 - 1
    )
    pixels = torch.cat((rays, colour), dim=-1)
    batch, views = pixels.shape[:2]
    grid = pixels.reshape(batch, views, height // patch, patch, width // patch, patch, CHANNELS)
    return grid.movedim(3, 4).reshape(
        batch, views * (height // patch) * (width // patch), patch * patch * CHANNELS
    )


def _check_cameras(c2w: Tensor, fxfycxcy: Tensor, images: Tensor | None) -> None:
    views = tuple(c2w.shape[:2])
    shapes = {"c2w": (c2w, (*views, 4, 4)), "fxfycxcy": (fxfycxcy, (*views, 4))}
    if images is not None:
        shapes["images"] = (images, (*views, *images.shape[2:]))
    for name, (tensor, wanted) in shapes.items():
        if tuple(tensor.shape) != wanted or 0 in wanted or not tensor.is_floating_point():
            raise InputError(
                f"expected cameras of one or more views, c2w [B, V, 4, 4] and fxfycxcy [B, V, 4] as floating-point numbers, "
                f"received {name} {tuple(tensor.shape)} {tensor.dtype} for B, V = {views}; pass one camera for each view"
            )


def images_from_tokens(
    tokens: Float[Tensor, "B T PP3"], size: tuple[int, int], patch: int
) -> Float[Tensor, "B V 3 h w"]:
    """Put patches of colours back into images; the inverse of the patch order of `view_tokens`."""
    height, width = size
    grid = tokens.reshape(tokens.shape[0], -1, height // patch, width // patch, patch, patch, 3)
    return grid.movedim(4, 3).reshape(tokens.shape[0], -1, height, width, 3).movedim(-1, -3)
