"""Weights that cannot be computed with, damaged files, and indexes that point elsewhere."""

from __future__ import annotations

import argparse
import json
import os
import pickle
import zipfile

import pytest
import torch
from safetensors.torch import load_file, save_file

from analysis.errors import CheckpointError, ParameterError, StorageError
from analysis.models.checkpoints import inspect, load, save
from analysis.models.manifest import sha256_of
from analysis.models.safe_loading import load_pickled
from analysis.models.vittt import build_vittt
from analysis.models.vittt_config import ViTTTConfig
from tests.models.lm_cases import small_lm, state, trained
from tests.models.test_checkpoints import huggingface

CONFIG = ViTTTConfig(img_size=16, patch_size=8, embed_dim=32, depth=1, num_heads=4, num_classes=3)
WEIGHT = "blocks.0.attn.w1"


@pytest.fixture
def folder(tmp_path):
    save(build_vittt(CONFIG), tmp_path / "own")
    return tmp_path / "own"


def rewrite(folder, change):
    tensors = load_file(folder / "model.safetensors")
    save_file(change(tensors), folder / "model.safetensors")
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest["sha256"] = sha256_of(folder / "model.safetensors")
    (folder / "manifest.json").write_text(json.dumps(manifest))


@pytest.mark.parametrize("dtype", [torch.int32, torch.bool, torch.complex64])
def test_weights_that_are_no_floating_point_numbers_are_refused_by_name(folder, dtype):
    rewrite(folder, lambda tensors: {**tensors, WEIGHT: tensors[WEIGHT].to(dtype)})
    for read in (load, inspect):
        with pytest.raises(CheckpointError, match=WEIGHT):
            read(folder)


def test_eight_bit_floating_point_weights_are_read_and_checked(folder):
    rewrite(folder, lambda tensors: {**tensors, WEIGHT: tensors[WEIGHT].to(torch.float8_e4m3fn)})
    assert load(folder).get_parameter(WEIGHT).dtype == torch.float32
    nan = torch.full((1, 4, 8, 8), torch.nan).to(torch.float8_e4m3fn)
    rewrite(folder, lambda tensors: {**tensors, WEIGHT: nan})
    with pytest.raises(CheckpointError, match="NaN"):
        load(folder)


@pytest.mark.parametrize("kind", ["sparse", "meta"])
def test_tensors_without_dense_values_are_refused(tmp_path, kind):
    tensors = build_vittt(CONFIG).state_dict()
    weight = tensors["norm.weight"]
    tensors["norm.weight"] = weight.to_sparse() if kind == "sparse" else weight.to("meta")
    torch.save({"model": tensors, "config": {"DATA": {"IMG_SIZE": 16}}}, tmp_path / "m.pth")
    with pytest.raises(CheckpointError, match=r"norm\.weight"):
        load(tmp_path / "m.pth")


@pytest.mark.parametrize("size", [None, [1], float("inf"), 0, -4, "abc"])
def test_a_training_configuration_with_an_impossible_image_size_is_refused(tmp_path, size):
    torch.save(
        {"model": build_vittt(CONFIG).state_dict(), "config": {"DATA": {"IMG_SIZE": size}}},
        tmp_path / "m.pth",
    )
    with pytest.raises(CheckpointError, match="img_size"):
        inspect(tmp_path / "m.pth")


@pytest.mark.parametrize("name", ["patch_embed.proj.weight", WEIGHT])
def test_empty_tensors_do_not_stop_the_reading_of_shapes(tmp_path, name):
    tensors = build_vittt(CONFIG).state_dict()
    tensors[name] = tensors[name].narrow(1 if name == WEIGHT else 0, 0, 0)
    torch.save(tensors, tmp_path / "m.pth")
    with pytest.raises(CheckpointError):
        inspect(tmp_path / "m.pth")


def test_layers_that_the_configuration_does_not_know_are_not_left_out(tmp_path):
    tensors = state(trained(small_lm()))
    with pytest.raises(CheckpointError, match=r"model\.layers\.1 on top"):
        load(huggingface(tmp_path, tensors, {"num_hidden_layers": 1}))


@pytest.mark.parametrize("name", [3, "../a.safetensors", "/etc/passwd", None])
def test_an_index_names_files_beside_it_and_nothing_else(tmp_path, name):
    folder = huggingface(tmp_path, state(small_lm()), shards=2)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"a": name}}))
    with pytest.raises(CheckpointError, match="weight_map"):
        load(folder)


def packed(path, pickled):
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("a/data.pkl", pickled)
        archive.writestr("a/version", "3\n")
    return path


@pytest.mark.parametrize(
    "pickled",
    [
        b"\x80\x02.",  # stops on an empty stack
        b"\x80\x04\x8e\xff\xff\xff\xff\xff\xff\xff\x7f.",  # announces more bytes than there can be
        b"\x80\x02cyacs.config\nCfgNode\n0" + b"]" * 50_000 + b"a" * 49_999 + b".",  # nested without end
        b"\x80\x02cyacs.config\nCfgNode\n0X\x01\x00\x00\x00aQ.",  # a storage that is none
    ],
)
def test_a_pickle_that_was_tampered_with_is_named(tmp_path, pickled):
    with pytest.raises(CheckpointError, match=r"bad\.pth"):
        load_pickled(packed(tmp_path / "bad.pth", pickled))


class Bomb:
    def __init__(self, target):
        self.target = target

    def __reduce__(self):
        return os.system, (f"touch {self.target}",)


def test_old_files_run_nothing_and_say_how_to_save_them_anew(tmp_path):
    content = {"model": {"a": torch.ones(1)}, "config": argparse.Namespace(lr=1)}
    torch.save(content, tmp_path / "old.pth", _use_new_zipfile_serialization=False)
    torch.save({"a": Bomb(tmp_path / "ran")}, tmp_path / "bomb.pth", _use_new_zipfile_serialization=False)
    (tmp_path / "raw.pth").write_bytes(pickle.dumps(Bomb(tmp_path / "ran")))
    for name in ("old", "bomb", "raw"):
        with pytest.raises(CheckpointError, match=r"state_dict alone with torch 1\.6"):
            load_pickled(tmp_path / f"{name}.pth")
    assert not (tmp_path / "ran").exists()


def test_nothing_is_replaced_by_weights_or_provenance_that_cannot_be_stored(folder, tmp_path):
    before = {file.name: file.read_bytes() for file in folder.iterdir()}
    with pytest.raises(CheckpointError, match="floating-point dtype"):
        save(build_vittt(CONFIG), folder, dtype=torch.int8)
    with pytest.raises(CheckpointError, match="JSON"):
        save(build_vittt(CONFIG), folder, {"metrics": {"a": object()}})
    assert {file.name: file.read_bytes() for file in folder.iterdir()} == before
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match="another place"):
        save(build_vittt(CONFIG), tmp_path / "file" / "below")


@pytest.mark.parametrize("device", ["abacus", "cuda:99"])
def test_a_device_that_is_not_there_is_refused(folder, device):
    with pytest.raises(ParameterError, match="device of this machine"):
        load(folder, device=device)
