"""Small LaCT-NVS hosts and batches in double precision."""

from __future__ import annotations

import torch

from analysis.models.lact_nvs import LaCTNVS
from analysis.models.lact_nvs_config import lact_nvs_config
from analysis.spec import Family, baseline, ladder, map_loops

TINY = lact_nvs_config(layers=2, dim=32, attention_head_dim=16, head_dim=16, inter_multi=2, mlp_multi=1)
LADDER = ladder(Family.LACT_NVS)
FROZEN = map_loops(baseline(Family.LACT_NVS), lambda loop: loop.frozen())
EXACT = 1e-12


def cameras(views, batch=2, seed=0):
    """Camera poses near the origin, turned a little."""
    generator = torch.Generator().manual_seed(seed)
    c2w = torch.eye(4, dtype=torch.float64).repeat(batch, views, 1, 1)
    turn = torch.randn(batch, views, 3, 3, dtype=torch.float64, generator=generator)
    c2w[..., :3, :3] = torch.linalg.qr(torch.eye(3, dtype=torch.float64) + 0.2 * turn).Q
    c2w[..., :3, 3] = torch.randn(batch, views, 3, dtype=torch.float64, generator=generator)
    intrinsics = torch.tensor([20.0, 21.0, 8.0, 12.0], dtype=torch.float64).repeat(batch, views, 1)
    return c2w, intrinsics


def make_batch(size=(16, 24), inputs=2, targets=3):
    c2w, intrinsics = cameras(inputs + targets)
    images = torch.rand(2, inputs + targets, 3, *size, generator=torch.Generator().manual_seed(1)).double()
    return {
        "images": images[:, :inputs],
        "c2w": c2w[:, :inputs],
        "fxfycxcy": intrinsics[:, :inputs],
        "target_images": images[:, inputs:],
        "target_c2w": c2w[:, inputs:],
        "target_fxfycxcy": intrinsics[:, inputs:],
    }


def make_host(config=TINY, loops=None):
    """A double-precision host whose weights are large enough for every part to matter."""
    torch.manual_seed(0)
    host = LaCTNVS(config, loops).double()
    with torch.no_grad():
        for parameter in host.parameters():
            parameter.add_(0.2 * torch.randn_like(parameter))
    return host


def render(host, state, batch, size=(16, 24)):
    return host.render(state, batch["target_c2w"], batch["target_fxfycxcy"], *size)


def gap(a, b):
    return (a - b).abs().max().item()
