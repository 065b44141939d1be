"""Checkpoint files of the two vision families: averaged weights, training configurations, missing YAML."""

from __future__ import annotations

import argparse
import json

import pytest
import torch
from safetensors.torch import load_file

from analysis import lab
from analysis.errors import CheckpointError
from analysis.models.checkpoints import load, save
from analysis.models.lact_nvs import LaCTNVS
from analysis.models.lact_nvs_config import lact_nvs_config
from analysis.models.vittt import build_vittt
from analysis.models.vittt_config import HierarchicalViTTTConfig, ViTTTConfig, vittt_config_to_dict
from tests.models.lm_cases import same, state, trained

VIT = ViTTTConfig(img_size=32, patch_size=8, num_classes=5, embed_dim=32, depth=2, num_heads=4)
HVIT = HierarchicalViTTTConfig(
    img_size=64,
    num_classes=5,
    dim=(8, 16, 16, 16),
    depths=(1, 1, 1, 1),
    num_heads=(1, 2, 2, 2),
    mlp_ratio=3.0,
)


@pytest.mark.parametrize("config", [VIT, HVIT])
def test_vittt_file_with_training_configuration(tmp_path, config):
    made = trained(build_vittt(config)).eval()
    content = {
        "model": {f"module.{name}": tensor for name, tensor in made.state_dict().items()},
        "optimizer": {},
        "max_accuracy": 76.5,
        "config": argparse.Namespace(DATA=argparse.Namespace(IMG_SIZE=config.img_size)),
    }
    torch.save(content, tmp_path / "ckpt.pth")
    found = load(tmp_path / "ckpt.pth")
    assert found.config == config and same(found, made)
    assert "inferred from the shapes" in found.notes[0]
    images = {"images": torch.rand(2, 3, config.img_size, config.img_size)}
    assert torch.equal(found(images), made(images))


def test_averaged_weights_are_a_choice_that_is_printed(tmp_path):
    made = trained(build_vittt(HVIT))
    raw = state(made)
    averaged = {name: tensor + 1 if tensor.is_floating_point() else tensor for name, tensor in raw.items()}
    torch.save({"model": raw, "state_dict_ema": averaged}, tmp_path / "both.pth")
    torch.save({"model": raw}, tmp_path / "raw.pth")
    hosts = {choice: load(tmp_path / "both.pth", choice) for choice in ("ema", "model", None)}
    assert same(hosts[None], hosts["ema"]) and not same(hosts["ema"], hosts["model"])
    assert hosts["ema"].notes[0].startswith("weights = ema") and hosts["model"].notes[0].startswith(
        "weights = model"
    )
    assert hosts["ema"].checkpoint.digest != hosts["model"].checkpoint.digest
    for choice in ("ema", "model"):
        assert f"weights taken: {choice}" in repr(lab.provenance(hosts[choice])), (
            "the report's header says which"
        )
    assert load(tmp_path / "raw.pth").checkpoint.weights == "model"
    with pytest.raises(CheckpointError, match="expected 'ema' weights"):
        load(tmp_path / "raw.pth", "ema")
    with pytest.raises(CheckpointError, match="'model' or 'ema'"):
        load(tmp_path / "raw.pth", "average")


def test_vittt_without_its_first_fast_weight(tmp_path):
    tensors = state(trained(build_vittt(VIT)))
    del tensors["blocks.1.attn.w1"]
    torch.save({"model": tensors}, tmp_path / "ckpt.pth")
    with pytest.raises(CheckpointError, match=r"blocks\.1\.attn\.w1"):
        load(tmp_path / "ckpt.pth")
    (tmp_path / "config.json").write_text(json.dumps({**vittt_config_to_dict(VIT), "dpeth": 2}))
    with pytest.raises(CheckpointError, match="did you mean 'depth'"):
        load(tmp_path / "ckpt.pth")


def test_view_synthesis_file_needs_its_yaml(tmp_path):
    config = lact_nvs_config(layers=1, dim=32, attention_head_dim=16, head_dim=32, inter_multi=4)
    made = trained(LaCTNVS(config))
    torch.save({"model": state(made)}, tmp_path / "model.pt")
    with pytest.raises(CheckpointError, match=r"config\.yaml"):
        load(tmp_path / "model.pt")
    assert same(load(tmp_path / "model.pt", config=config.to_dict()), made)
    wrong = lact_nvs_config(layers=1, dim=32, attention_head_dim=16, head_dim=32, inter_multi=2)
    with pytest.raises(CheckpointError, match="inter_multi = 4, the configuration says 2"):
        load(tmp_path / "model.pt", config=wrong.to_dict())
    (tmp_path / "setting.yaml").write_text("patch_size: [")
    with pytest.raises(CheckpointError, match="YAML"):
        load(tmp_path / "model.pt")


@pytest.mark.parametrize("config", [VIT, HVIT])
def test_own_folder_of_a_classifier(tmp_path, config):
    made = trained(build_vittt(config))
    save(made, tmp_path)
    found = load(tmp_path)
    assert found.config == config and found.loops == made.loops
    for name, buffer in made.named_buffers():
        assert torch.equal(found.get_buffer(name), buffer)


@pytest.mark.parametrize("weights", ["ema", "model"])
def test_published_classifier_file(parity_folder, weights):
    folder = parity_folder / "vittt" / "hvit_4stage_64"
    io = load_file(folder / "io.safetensors")
    logits = load(folder, weights)({"images": io["images"]})
    expected = io["logits_ema" if weights == "ema" else "logits"]
    assert (logits - expected).abs().max() < 0.0005


def test_published_view_synthesis_files(parity_folder):
    for folder in sorted(entry for entry in (parity_folder / "lact_nvs").iterdir() if entry.is_dir()):
        io = load_file(folder / "io.safetensors")
        host = load(folder)
        batch = {
            "images": io["input.image"],
            "c2w": io["input.c2w"],
            "fxfycxcy": io["input.fxfycxcy"],
            "target_c2w": io["target.c2w"],
            "target_fxfycxcy": io["target.fxfycxcy"],
        }
        assert (host(batch) - io["rendering_fp32ns"]).abs().max() < 6e-5, folder.name
        assert any("untrained" in note for note in host.notes) == ("0000000" in str(host.checkpoint.path))
