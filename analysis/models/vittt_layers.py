"""What surrounds the inner loops of ViTTT: stems, rotary position, feed-forward layers, downsampling.

Attribute names are the published ones, since they are the names in checkpoints. Tokens are [B, N, C] with
N = h w in row-major order; `grid` is (h, w).
"""

from __future__ import annotations

import math

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from analysis.errors import InputError

ROTARY_BASE = 10000.0


def as_image(tokens: Float[Tensor, "B N C"], grid: tuple[int, int]) -> Float[Tensor, "B C h w"]:
    """Return tokens as an image of channels."""
    return tokens.transpose(1, 2).unflatten(2, grid)


def as_tokens(image: Float[Tensor, "B C h w"]) -> Float[Tensor, "B N C"]:
    """Return an image of channels as tokens; the inverse of `as_image`."""
    return image.flatten(2).transpose(1, 2)


def on_grid(
    layer: nn.Module, tokens: Float[Tensor, "B N C"], grid: tuple[int, int]
) -> Float[Tensor, "B N C"]:
    """Apply a size-preserving image layer to tokens."""
    return as_tokens(layer(as_image(tokens, grid)))


def depthwise(channels: int, stride: int = 1) -> nn.Conv2d:
    """Return a depthwise 3x3 convolution with bias and zero padding."""
    return nn.Conv2d(channels, channels, 3, stride, padding=1, groups=channels)


class PatchEmbed(nn.Module):
    """ViT^3 stem: one convolution whose stride is the patch."""

    def __init__(self, patch_size: int, in_chans: int, dim: int) -> None:
        super().__init__()
        self.proj = nn.Conv2d(in_chans, dim, patch_size, patch_size)

    def forward(self, images: Float[Tensor, "B 3 H W"]) -> tuple[Float[Tensor, "B N C"], tuple[int, int]]:
        """Return tokens and grid; raises InputError when a side is not a multiple of the patch."""
        patch = self.proj.kernel_size[0]
        height, width = images.shape[-2:]
        if height % patch or width % patch:
            raise InputError(
                f"expected image sides to be multiples of {patch}, received {height}x{width}; resize or crop"
            )
        return as_tokens(self.proj(images)), (height // patch, width // patch)


class ConvUnit(nn.Module):
    """Convolution, then batch norm and ReLU where asked for; the published `conv` and `norm`."""

    def __init__(self, conv: nn.Conv2d, has_norm: bool, has_activation: bool) -> None:
        super().__init__()
        self.conv = conv
        self.norm = nn.BatchNorm2d(conv.out_channels) if has_norm else nn.Identity()
        self.has_activation = has_activation

    def forward(self, image: Float[Tensor, "B C h w"]) -> Float[Tensor, "B D hh ww"]:
        """Apply the unit."""
        image = self.norm(self.conv(image))
        return F.relu(image) if self.has_activation else image


def _plain(inputs: int, outputs: int, kernel: int, stride: int = 1, bias: bool = False) -> nn.Conv2d:
    return nn.Conv2d(inputs, outputs, kernel, stride, padding=kernel // 2, bias=bias)


class ConvStem(nn.Module):
    """H-ViT^3 stem: five convolutions, a quarter of the resolution, batch norm after each, ReLU but after the last."""

    def __init__(self, in_chans: int, dim: int) -> None:
        super().__init__()
        narrow = dim // 2
        self.conv = nn.Sequential(
            ConvUnit(_plain(in_chans, narrow, 3, 2), True, True),
            ConvUnit(_plain(narrow, narrow, 3), True, True),
            ConvUnit(_plain(narrow, narrow, 3), True, True),
            ConvUnit(_plain(narrow, dim * 4, 3, 2), True, True),
            ConvUnit(_plain(dim * 4, dim, 1), True, False),
        )

    def forward(self, images: Float[Tensor, "B 3 H W"]) -> tuple[Float[Tensor, "B N C"], tuple[int, int]]:
        """Return tokens and grid."""
        features = self.conv(images)
        return as_tokens(features), tuple(features.shape[-2:])


class Downsample(nn.Module):
    """Halve the resolution between stages: 1x1, depthwise 3x3 with stride 2, 1x1 with batch norm."""

    def __init__(self, dim: int, out_dim: int) -> None:
        super().__init__()
        wide = out_dim * 4
        self.conv = nn.Sequential(
            ConvUnit(_plain(dim, wide, 1, bias=True), False, True),
            ConvUnit(depthwise(wide, stride=2), False, True),
            ConvUnit(_plain(wide, out_dim, 1, bias=True), True, False),
        )

    def forward(
        self, tokens: Float[Tensor, "B N C"], grid: tuple[int, int]
    ) -> tuple[Float[Tensor, "B M D"], tuple[int, int]]:
        """Return the tokens of the next stage and their grid."""
        features = self.conv(as_image(tokens, grid))
        return as_tokens(features), tuple(features.shape[-2:])


class Rotary(nn.Module):
    """Two-dimensional rotary position over all channels, before any head split.

    Neighbouring channels form a complex number; the first C/4 of them turn by row * theta_j, the next C/4 by
    column * theta_j, theta_j = base^(-j / (C/4)). The table is a saved buffer [h, w, C/2, 2] (cosine, sine), as in
    the published checkpoints, so a host is bound to its resolution.
    """

    rotations: Tensor

    def __init__(self, grid: tuple[int, int], dim: int) -> None:
        super().__init__()
        quarter = dim // 4
        theta = ROTARY_BASE ** (-torch.arange(quarter, dtype=torch.float32) / quarter)
        rows = torch.arange(grid[0], dtype=torch.float32)[:, None, None] * theta
        columns = torch.arange(grid[1], dtype=torch.float32)[None, :, None] * theta
        angles = torch.cat((rows.expand(*grid, quarter), columns.expand(*grid, quarter)), dim=-1)
        self.register_buffer("rotations", torch.stack((angles.cos(), angles.sin()), dim=-1))

    def forward(self, tokens: Float[Tensor, "B N C"], grid: tuple[int, int]) -> Float[Tensor, "B N C"]:
        """Turn each token by its position; raises InputError when the grid is not the one of the table."""
        table = self.rotations
        if tuple(table.shape[:2]) != grid:
            raise InputError(
                f"expected a {table.shape[0]}x{table.shape[1]} grid of tokens, received {grid[0]}x{grid[1]}; the rotary "
                "table is saved with the checkpoint, so use images of the size it was trained on"
            )
        real, imaginary = tokens.to(table.dtype).unflatten(-1, (-1, 2)).unbind(-1)
        cosine, sine = table.flatten(0, 1).unbind(-1)
        turned = torch.stack((real * cosine - imaginary * sine, real * sine + imaginary * cosine), dim=-1)
        return turned.flatten(-2).to(tokens.dtype)


class FeedForward(nn.Module):
    """fc1, exact GELU, fc2; with `is_convolutional` also a residual depthwise 3x3 and a second GELU between them."""

    def __init__(self, dim: int, hidden: int, is_convolutional: bool) -> None:
        super().__init__()
        self.fc1 = nn.Linear(dim, hidden)
        self.dwc = depthwise(hidden) if is_convolutional else None
        self.fc2 = nn.Linear(hidden, dim)

    def forward(self, tokens: Float[Tensor, "B N C"], grid: tuple[int, int]) -> Float[Tensor, "B N C"]:
        """Apply the layer."""
        hidden = F.gelu(self.fc1(tokens))
        if self.dwc is not None:
            hidden = F.gelu(hidden + on_grid(self.dwc, hidden, grid))
        return self.fc2(hidden)


def drop_path(branch: Float[Tensor, "B N C"], rate: float, training: bool) -> Float[Tensor, "B N C"]:
    """Stochastic depth: in training, leave a residual branch out per sample with probability `rate`."""
    if not training or rate == 0.0:
        return branch
    keep = torch.rand(branch.shape[0], 1, 1, device=branch.device) >= rate
    return branch * keep.to(branch.dtype) / (1.0 - rate)


def stage_grid(img_size: int, stage: int) -> tuple[int, int]:
    """Return the token grid of a stage: a quarter of the image, then halved (rounded up) per downsampling."""
    side = math.ceil(math.ceil(img_size / 2) / 2)
    for _ in range(stage):
        side = math.ceil(side / 2)
    return side, side


def initialise(module: nn.Module) -> None:
    """Set truncated-normal (0.02) linear maps, zero biases, unit norms; use with `Module.apply`."""
    if isinstance(module, nn.Linear):
        nn.init.trunc_normal_(module.weight, std=0.02)
        if module.bias is not None:
            nn.init.zeros_(module.bias)
