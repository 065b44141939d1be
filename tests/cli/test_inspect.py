"""`inspect` on a checkpoint of our own layout, and on paths that hold none."""

from __future__ import annotations

import json

import pytest

from analysis import cli
from analysis.paths import ROOT


def code_of(*arguments: str) -> int:
    with pytest.raises(SystemExit) as left:
        cli.main(list(arguments))
    return left.value.code


@pytest.fixture
def checkpoint(tmp_path):
    from analysis.models.checkpoints import save
    from analysis.models.vittt import ViTTT
    from analysis.models.vittt_config import ViTTTConfig

    config = ViTTTConfig(img_size=16, patch_size=8, embed_dim=32, depth=1, num_heads=4, num_classes=3)
    save(ViTTT(config), tmp_path / "vittt")
    return tmp_path / "vittt"


def test_inspect_shows_family_and_inner_loops(checkpoint, capsys):
    assert code_of("inspect", str(checkpoint)) == 0
    text = capsys.readouterr().out
    for part in ("ViTTT", "inner loop glu", "inner loop conv", "single update", "sha256"):
        assert part in text


def test_inspect_tells_how_a_checkpoint_of_ours_was_trained(capsys):
    folder = ROOT / "checkpoints" / "vittt-v3-s0"
    assert code_of("inspect", str(folder)) == 0
    text = capsys.readouterr().out
    told = {
        cells[1].strip(): cells[2].strip() for line in text.splitlines() if len(cells := line.split("│")) > 3
    }
    manifest = json.loads((folder / "manifest.json").read_text())
    evaluation = manifest["metrics"]["evaluation"]
    assert (told["recipe"], told["variant"], told["seed"]) == ("vittt-v3", "v3", "0")
    assert told["training steps"] == f"{manifest['step']:,}"
    assert (told["trained on"], told["commit"]) == (manifest["metrics"]["device"], manifest["commit"])
    assert told["training data"] == manifest["data_digest"]
    assert told["evaluation data"] == evaluation["data_digest"]
    interval = f"[{evaluation['ci_low']:.4g}, {evaluation['ci_high']:.4g}] %"
    assert told["top1"] == f"{evaluation['value']:.4g} {interval} on 4,000 examples"


@pytest.mark.parametrize(
    "metrics", [{}, {"evaluation": 3}, {"evaluation": {"metric": "top1"}, "device": "cpu"}]
)
def test_inspect_shows_what_a_manifest_of_another_program_tells(checkpoint, capsys, metrics):
    file = checkpoint / "manifest.json"
    stated = {"metrics": metrics, "recipe": "by hand", "seed": 7}
    file.write_text(json.dumps({**json.loads(file.read_text()), **stated}))
    assert code_of("inspect", str(checkpoint)) == 0
    text = capsys.readouterr().out
    assert "by hand" in text and "seed" in text and "top1" not in text


def test_inspect_says_that_a_folder_is_empty(tmp_path, capsys):
    assert code_of("inspect", str(tmp_path)) == 2
    assert "received an empty folder" in capsys.readouterr().err


def test_inspect_refuses_what_is_no_checkpoint(tmp_path, capsys):
    for path in (tmp_path, tmp_path / "absent"):
        assert code_of("inspect", str(path)) == 2
        (line,) = capsys.readouterr().err.splitlines()
        assert line.startswith("error: ")
