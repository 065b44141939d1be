"""Configurations and manifests with values that no network can have: one sentence, never a traceback."""

from __future__ import annotations

import json

import pytest
import yaml

from analysis.errors import AnalysisError, CheckpointError
from analysis.models import families
from analysis.models.checkpoints import inspect, load, save
from analysis.models.lact_nvs import LaCTNVS
from analysis.models.vittt import build_vittt
from analysis.models.vittt_config import ViTTTConfig
from analysis.spec import Family
from tests.models.lact_nvs_cases import TINY
from tests.models.lm_cases import SMALL

NAN, INF = float("nan"), float("inf")
VITTT = {"img_size": 16, "patch_size": 8, "embed_dim": 32, "depth": 1, "num_heads": 4, "num_classes": 3}
DEEP = "[" * 100_000


@pytest.mark.parametrize(
    ("family", "name", "value"),
    [
        *((Family.LACT_LM, "hidden_size", value) for value in (0, -64, "64", 64.5, True, None, [64])),
        *((Family.LACT_LM, "num_hidden_layers", value) for value in (0, -1, 2.5, 10**9)),
        *((Family.LACT_LM, "inter_multi", value) for value in (0, -1, NAN, INF)),
        *((Family.LACT_LM, "window_size", value) for value in (0, -3, 1.5)),
        *((Family.LACT_LM, "rope_theta", value) for value in (0, -1.0, NAN)),
        (Family.LACT_LM, "num_attn_heads", 0),
        (Family.LACT_LM, "num_lact_heads", -2),
        (Family.LACT_LM, "vocab_size", -5),
        (Family.LACT_LM, "intermediate_size", "a"),
        (Family.LACT_LM, "norm_eps", -1),
        (Family.LACT_LM, "initializer_range", -1),
        (Family.LACT_LM, "tie_word_embeddings", "no"),
        *((Family.LACT_NVS, "dim", value) for value in (0, "x", NAN, INF, -32, 32.7, None)),
        *((Family.LACT_NVS, "layers", value) for value in (0, -1, 1.5)),
        *((Family.LACT_NVS, "block_config", value) for value in ([], {}, None, "abc", [1])),
        (Family.LACT_NVS, "patch_size", -8),
        *((Family.VITTT, "embed_dim", value) for value in (0, -32, "x", [32])),
        *((Family.VITTT, "depth", value) for value in (0, -1)),
        *((Family.VITTT, "mlp_ratio", value) for value in ("a", NAN, INF)),
        *((Family.VITTT, "drop_path_rate", value) for value in (2.0, -0.1, NAN)),
        (Family.VITTT, "num_heads", 0),
        (Family.VITTT, "patch_size", 0),
        (Family.VITTT, "img_size", INF),
        (Family.VITTT, "num_classes", None),
        (Family.VITTT, "qkv_bias", "no"),
    ],
)
def test_a_field_that_no_network_can_have_is_named(family, name, value):
    whole = {Family.LACT_LM: SMALL, Family.LACT_NVS: TINY.to_dict(), Family.VITTT: VITTT}[family]
    assert families.read_config(family, whole)
    with pytest.raises(CheckpointError, match=f"{name}|number of layers|sub-layer"):
        families.read_config(family, {**whole, name: value})


@pytest.mark.parametrize(
    ("entry", "changes"),
    [
        *((0, {"head_dim": value}) for value in (0, -16, "x", 16.0)),
        *((1, {"inter_multi": value}) for value in (0, "2")),
        *((1, {"base_lr": value}) for value in (0, -1, NAN, "1e-2")),
        (1, {"muon_update_steps": -1}),
        (0, {"use_qk_norm": "no"}),
        (0, [1]),
    ],
)
def test_a_sub_layer_that_cannot_be_built_is_refused(entry, changes):
    values = TINY.to_dict()
    params = values["block_config"][entry]["params"]
    values["block_config"][entry]["params"] = {**params, **changes} if isinstance(changes, dict) else changes
    with pytest.raises(CheckpointError):
        families.read_config(Family.LACT_NVS, values)


def test_sizes_that_only_building_shows_to_be_impossible_are_refused():
    config = ViTTTConfig(**{**VITTT, "embed_dim": 2**40, "num_heads": 1})
    with pytest.raises(CheckpointError, match="cannot"):
        families.shapes_of(Family.VITTT, config)


@pytest.fixture
def folder(tmp_path):
    save(build_vittt(ViTTTConfig(**VITTT)), tmp_path / "own")
    return tmp_path / "own"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("sha256", value) for value in (5, None)),
        *(("family", value) for value in (["vittt"], 3)),
        *(("loops", value) for value in (None, [], "x", {"glu": None}, {"glu": [1]})),
        *(("config", value) for value in (None, [])),
        *(("seed", value) for value in ("a", 1.5)),
        *(("recipe", value) for value in ([1], 3)),
        ("num_parameters", "x"),
        ("step", "a"),
        ("metrics", []),
        ("versions", []),
        ("storage", 3),
        ("commit", None),
        ("data_digest", 1),
    ],
)
def test_a_manifest_with_a_value_of_another_type_is_refused(folder, name, value):
    file = folder / "manifest.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), name: value}))
    with pytest.raises(CheckpointError):
        load(folder)


@pytest.mark.parametrize(
    ("loop", "field", "value"),
    [
        ("glu", "network", {"kind": ["a"]}),
        ("glu", "weight_norm", {"kind": "initial_norm", "detach_target": "x"}),
        ("glu", "lr", {"kind": "constant", "placement": 3}),
        ("conv", "chunk", 1.5),
    ],
)
def test_a_loop_with_an_impossible_field_is_refused(folder, loop, field, value):
    file = folder / "manifest.json"
    manifest = json.loads(file.read_text())
    manifest["loops"][loop][field] = value
    file.write_text(json.dumps(manifest))
    with pytest.raises(AnalysisError):
        load(folder)


def test_files_nested_without_end_or_in_another_encoding_are_refused(folder, tmp_path):
    (folder / "manifest.json").write_text(DEEP)
    with pytest.raises(CheckpointError, match="cannot be read"):
        load(folder)
    from analysis.models.checkpoint_sources import _read_values

    for name, content in (
        ("a.yaml", DEEP[:5000].encode()),
        ("b.yaml", b"\xff\xfe\x00"),
        ("c.json", DEEP.encode()),
    ):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(CheckpointError):
            _read_values(tmp_path / name)


def test_a_configuration_beside_a_folder_that_holds_its_own_is_not_passed_over(folder):
    with pytest.raises(CheckpointError, match="leave it out"):
        inspect(folder, config=folder / "manifest.json")


def test_a_view_synthesis_file_is_read_with_the_layers_it_holds(tmp_path):
    import torch

    torch.save({"model": LaCTNVS(TINY).state_dict()}, tmp_path / "m.pt")
    (tmp_path / "config.yaml").write_text(yaml.safe_dump({**TINY.to_dict(), "layers": 1}))
    with pytest.raises(CheckpointError, match=r"blocks\.1 on top"):
        load(tmp_path / "m.pt")
