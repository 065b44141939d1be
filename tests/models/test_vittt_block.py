"""The token mixer of ViTTT against an independent evaluation, rotary position and stochastic depth."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from analysis.models.inner_call import Call
from analysis.models.sites import SILENT, Scope
from analysis.models.vittt_block import TTT
from analysis.models.vittt_layers import Rotary, drop_path
from analysis.spec import Family, baseline

LOOPS = baseline(Family.VITTT)


def gap(a, b):
    return (a - b).abs().max().item()


@pytest.mark.parametrize("grid", [(3, 7), (1, 5), (6, 2)], ids=str)
@torch.no_grad()
def test_block_output_is_the_closed_form_on_odd_grids(grid):
    """An independent evaluation: autograd for the gated unit, correlation of keys and values for the convolution."""
    torch.manual_seed(0)
    dim, heads, width = 12, 2, 6
    block = TTT(dim, heads, True, LOOPS).double()
    for parameter in block.parameters():
        parameter.normal_()
    x = torch.randn(2, grid[0] * grid[1], dim, dtype=torch.float64)
    output = block(x, grid, Call(LOOPS, Scope(SILENT)))
    assert gap(output, closed_form(block, x, grid, width)) < 1e-10
    assert gap(output, closed_form(block, x, grid, width, factor=1 / 4)) > 1e-3
    if grid[0] != 1:
        assert gap(output, closed_form(block, x, grid, width, is_transposed=True)) > 1e-3


def closed_form(block, x, grid, width, factor=1 / 3, is_transposed=False):
    parts = block.qkv(x).split(block.widths, -1)
    samples = []
    for q1, k1, v1, q2, k2, v2 in zip(*parts, strict=True):
        outputs = []
        for head in range(block.num_heads):
            q, k, v = (part[:, head * width : (head + 1) * width] for part in (q1, k1, v1))
            linear, gate = (w[0, head].detach().clone().requires_grad_() for w in (block.w1, block.w2))
            with torch.enable_grad():
                loss = -factor * ((k @ linear) * F.silu(k @ gate) * v).sum(-1).mean()
                gradients = torch.autograd.grad(loss, (linear, gate))
            linear, gate = (
                w - g / (g.norm(dim=0) + 1) for w, g in zip((linear, gate), gradients, strict=True)
            )
            outputs.append((q @ linear) * F.silu(q @ gate))
        samples.append(
            torch.cat([*outputs, _convolution(block.w3, q2, k2, v2, grid, factor, is_transposed)], -1)
        )
    return block.proj(torch.stack(samples))


def _convolution(kernel, q, k, v, grid, factor, is_transposed):
    image_q, image_k, image_v = (part.T.unflatten(1, grid) for part in (q, k, v))
    padded = F.pad(image_k, (1, 1, 1, 1))
    gradient = torch.empty_like(kernel)
    for row in range(3):
        for column in range(3):
            window = padded[:, row : row + grid[0], column : column + grid[1]]
            place = (column, row) if is_transposed else (row, column)
            gradient[:, 0, place[0], place[1]] = -factor * (window * image_v).mean((1, 2))
    norms = gradient.flatten(1).norm(dim=1)[:, None, None, None]
    updated = kernel - gradient / (norms + 1)
    return F.conv2d(image_q[None], updated, padding=1, groups=len(kernel))[0].flatten(1).T


@torch.no_grad()
def test_rotary_makes_products_depend_on_the_offset_alone():
    rope = Rotary((5, 7), 16).double()
    q, k = torch.randn(2, 1, 1, 16, dtype=torch.float64).expand(2, 1, 35, 16)
    q, k = (rope(x, (5, 7)).unflatten(1, (5, 7)) for x in (q, k))
    here = (q[0, 1, 2] * k[0, 3, 5]).sum()
    assert abs(here - (q[0, 2, 3] * k[0, 4, 6]).sum()) < 1e-6
    assert abs(here - (q[0, 2, 3] * k[0, 4, 5]).sum()) > 1e-3


def test_stochastic_depth_is_for_training_and_keeps_the_mean():
    torch.manual_seed(0)
    branch = torch.ones(4000, 1, 1)
    assert drop_path(branch, 0.5, False) is branch
    dropped = drop_path(branch, 0.25, True)
    assert sorted(set(dropped.flatten().tolist())) == pytest.approx([0, 4 / 3])
    assert abs(dropped.mean().item() - 1) < 0.05
