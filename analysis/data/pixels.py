"""Opening image files and fitting them to a size."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import torch
from jaxtyping import UInt8
from PIL import Image, UnidentifiedImageError
from torch import Tensor

from analysis.errors import DataError


def open_image(path: Path) -> Image.Image:
    """Open an image file; raises DataError when it is missing, damaged or no image."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter(
                "ignore", Image.DecompressionBombWarning
            )  # the reader's own images may be large
            image = Image.open(path)
        image.load()
    except FileNotFoundError as error:
        raise DataError(f"Expected an image at {path}, where no file is; check the path.") from error
    except Image.DecompressionBombError as error:
        raise DataError(
            f"Expected an image of a usual size in {path}, received: {error}; scale it down."
        ) from error
    except (UnidentifiedImageError, OSError, SyntaxError, ValueError) as error:
        raise DataError(
            f"Expected a readable image in {path}, received: {error}; replace the file."
        ) from error
    return image


def fit_image(
    image: Image.Image, size: tuple[int, int], lens: np.ndarray, resampling: Image.Resampling
) -> tuple[UInt8[Tensor, "3 h w"], np.ndarray]:
    """Resize an image to cover `size` = (height, width), crop the centre, and put transparency on white.

    Returns the pixels and (fx, fy, cx, cy) of the fitted image. Transparency is composited after the resize, as the
    published reader of LaCT-NVS does.
    """
    height, width = size
    if min(height, width) < 1:
        raise DataError(f"Expected a positive image size, received {height} x {width}.")
    if image.mode not in ("RGB", "RGBA"):
        image = image.convert("RGBA" if "transparency" in image.info or "A" in image.mode else "RGB")
    scale = max(height / image.height, width / image.width)
    covered = (max(width, round(image.width * scale)), max(height, round(image.height * scale)))
    stretch = np.array([covered[0] / image.width, covered[1] / image.height])
    left, top = (covered[0] - width) // 2, (covered[1] - height) // 2
    fitted = image.resize(covered, resampling).crop((left, top, left + width, top + height))
    lens = np.concatenate([lens[:2] * stretch, lens[2:] * stretch - np.array([left, top])])
    pixels = torch.from_numpy(np.array(fitted))
    if pixels.shape[-1] == 4:
        colour, alpha = pixels[..., :3].float() / 255, pixels[..., 3:].float() / 255
        pixels = ((colour * alpha + (1 - alpha)) * 255).round().to(torch.uint8)
    return pixels.permute(2, 0, 1).contiguous(), lens
