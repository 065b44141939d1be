"""Softmax attention of the hosts: exact sliding window, and rotary positions on half-split pairs."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor


def rotary_angles(start: int, length: int, dim: int, base: float, like: Tensor) -> tuple[Tensor, Tensor]:
    """Return cos and sin [length, dim/2] of position / base^(2j/dim), for positions from `start`; float32 at least."""
    dtype = torch.float64 if like.dtype == torch.float64 else torch.float32
    frequencies = base ** -(torch.arange(0, dim, 2, device=like.device, dtype=dtype) / dim)
    positions = torch.arange(start, start + length, device=like.device, dtype=dtype)
    angles = positions[:, None] * frequencies
    return angles.cos(), angles.sin()


def rotate_half_split(x: Float[Tensor, "B H T D"], angles: tuple[Tensor, Tensor]) -> Float[Tensor, "B H T D"]:
    """Turn the pairs (x_j, x_{j + D/2}) by the angles of their position; computed in the dtype of the angles."""
    cos, sin = angles
    first, second = x.to(cos.dtype).chunk(2, dim=-1)
    return torch.cat((first * cos - second * sin, first * sin + second * cos), dim=-1).to(x.dtype)


def causal_attention(
    q: Float[Tensor, "B H T D"],
    k: Float[Tensor, "B H S D"],
    v: Float[Tensor, "B H S D"],
    window: int | None,
) -> Float[Tensor, "B H T D"]:
    """Softmax attention in which a query sees itself and the `window` - 1 keys before it (all of them when None).

    The T queries belong to the last T of the S keys, so that earlier keys may be handed over while streaming. A long
    sequence without earlier keys is cut into blocks of `window`: a block attends to itself and the one before, which is
    exact and costs T * 2 * window instead of T * T.
    """
    length, keys = q.shape[2], k.shape[2]
    if window is None or (keys == length and length <= window):
        if keys == length:
            return F.scaled_dot_product_attention(q, k, v, is_causal=True)
        window = keys
    if keys == length:
        return _blocked(q, k, v, window)
    query = torch.arange(keys - length, keys, device=q.device)[:, None]
    key = torch.arange(keys, device=q.device)
    mask = (key <= query) & (key > query - window)
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask)


def _blocked(q: Tensor, k: Tensor, v: Tensor, window: int) -> Tensor:
    batch, heads, length, dim = q.shape
    blocks = -(-length // window)
    padding = (0, 0, 0, blocks * window - length)
    q, k, v = (F.pad(x, padding).reshape(batch * heads, blocks, window, dim) for x in (q, k, v))
    k, v = (torch.cat((F.pad(x, (0, 0, 0, 0, 1, 0))[:, :-1], x), dim=2) for x in (k, v))
    query = torch.arange(window, device=q.device)[:, None] + window
    key = torch.arange(2 * window, device=q.device)
    band = (key <= query) & (key > query - window)
    mask = band.expand(blocks, window, 2 * window).clone()
    mask[0, :, :window] = False
    out = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
    return out.reshape(batch, heads, blocks * window, dim)[:, :, :length]
