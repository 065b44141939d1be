"""What LaCT-NVS is given: cameras and images as tokens, configurations, and refusals of everything else."""

from __future__ import annotations

import dataclasses

import pytest
import torch

from analysis.errors import CheckpointError, InputError, UnsupportedSpecError
from analysis.models.lact_nvs import LaCTNVS
from analysis.models.lact_nvs_config import LOOP, FastWeights, FeedForward, LaCTNVSConfig, SelfAttention
from analysis.models.lact_nvs_rays import camera_rays, images_from_tokens, view_tokens
from analysis.spec import Family, Linear, Order, PerTokenRate, Trained, baseline
from tests.models.lact_nvs_cases import EXACT, FROZEN, TINY, cameras, gap, make_batch, make_host


def test_rays_pass_through_pixel_centres_and_stay_wide_under_autocast():
    c2w, intrinsics = torch.eye(4)[None, None], torch.tensor([4.0, 2.0, 2.0, 1.0])[None, None]
    with torch.autocast("cpu", dtype=torch.bfloat16):
        rays = camera_rays(c2w, intrinsics, 2, 4)
    assert rays.dtype == torch.float32
    expected = torch.tensor([(3.5 - 2) / 4, (0.5 - 1) / 2, 1.0])
    torch.testing.assert_close(rays[0, 0, 0, 3, 3:6], expected / expected.norm())
    torch.testing.assert_close(rays[..., 3:6].norm(dim=-1), torch.ones(1, 1, 2, 4))


def test_moments_are_origin_cross_direction():
    c2w, intrinsics = cameras(2)
    origin, direction, moment = camera_rays(c2w, intrinsics, 8, 8).split(3, dim=-1)
    assert (origin * moment).sum(-1).abs().max() < EXACT and (direction * moment).sum(-1).abs().max() < EXACT
    assert gap(moment, torch.linalg.cross(origin, direction)) == 0


def test_patches_are_put_back_where_they_came_from():
    c2w, intrinsics = cameras(2)
    images = torch.rand(2, 2, 3, 8, 24).double()
    tokens = view_tokens(c2w, intrinsics, images, (8, 24), 4)
    colours = (tokens.unflatten(-1, (16, 12))[..., 9:] + 1) / 2
    assert gap(images_from_tokens(colours.flatten(-2), (8, 24), 4), images) < EXACT
    blank = view_tokens(c2w, intrinsics, None, (8, 24), 4).unflatten(-1, (16, 12))
    assert (
        blank[..., 9:].abs().max() == 0 and gap(blank[..., :9], tokens.unflatten(-1, (16, 12))[..., :9]) == 0
    )


def test_malformed_batches_are_refused():
    host, batch = make_host(), make_batch()
    with pytest.raises(InputError, match="missing target_c2w"):
        host({name: batch[name] for name in ("images", "c2w", "fxfycxcy")})
    with pytest.raises(InputError, match=r"multiples of 8, received 12x24"):
        host(batch | {"images": batch["images"][..., :12, :]})
    with pytest.raises(InputError, match="composite an alpha channel"):
        host(batch | {"images": torch.rand(2, 2, 4, 16, 24)})
    with pytest.raises(InputError, match="divide bytes by 255"):
        host(batch | {"images": torch.zeros(2, 2, 3, 16, 24, dtype=torch.uint8)})
    with pytest.raises(InputError, match="size of the input images"):
        host.loss(host(batch), batch | {"target_images": batch["target_images"][..., :8]})


def test_loops_without_parameters_or_meaning_are_refused():
    host, batch = make_host(loops=FROZEN), make_batch()
    with pytest.raises(UnsupportedSpecError, match="train a checkpoint with this lr"):
        host.edit(trained=Trained.ALL)(batch)
    assert torch.equal(host.edit(lr=PerTokenRate(shared=True))(batch), host(batch))
    with pytest.raises(UnsupportedSpecError, match="keeps the parameters"):
        make_host().edit(network=Linear())
    with pytest.raises(InputError, match="update_tokens needs"):
        make_host().edit(order=Order.APPLY_THEN_UPDATE)(batch)
    with pytest.raises(UnsupportedSpecError, match="SwiGLU or Linear"):
        LaCTNVS(TINY, {LOOP: baseline(Family.VITTT)["glu"]})


def test_configurations_are_read_strictly():
    values = TINY.to_dict()
    assert LaCTNVSConfig.from_dict(values) == TINY
    hash(TINY)
    with pytest.raises(CheckpointError, match="did you mean 'patch_size'"):
        LaCTNVSConfig.from_dict(values | {"patchsize": 8})
    with pytest.raises(CheckpointError, match=r"missing \['layers'\]"):
        LaCTNVSConfig.from_dict({name: value for name, value in values.items() if name != "layers"})
    for change, message in (
        ({"type": "model.Attention"}, "expected a sub-layer type"),
        ({"length_dim": "vl"}, "expected length_dim 'l'"),
        ({"params": {"heads_dim": 16}}, "did you mean 'head_dim'"),
    ):
        entries = [{**values["block_config"][0], **change}, *values["block_config"][1:]]
        with pytest.raises(CheckpointError, match=message):
            LaCTNVSConfig.from_dict(values | {"block_config": entries})
    with pytest.raises(CheckpointError, match="head_dim to divide"):
        dataclasses.replace(TINY, dim=36)
    with pytest.raises(CheckpointError, match="at most once per block"):
        dataclasses.replace(TINY, block_config=(FeedForward(), FeedForward()))
    odd = (SelfAttention(head_dim=16), FastWeights(head_dim=16, muon_update_steps=3))
    with pytest.raises(UnsupportedSpecError, match="muon_update_steps of 0 or 5"):
        LaCTNVS(dataclasses.replace(TINY, block_config=odd))
