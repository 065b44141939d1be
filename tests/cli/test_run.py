"""`train`, `evaluate`, `probe`, `recipes` and `bench` from the command line, on toy sizes."""

from __future__ import annotations

import pytest

from analysis import cli
from analysis.commands.run import edited, split_fields
from analysis.errors import ParameterError
from analysis.spec import Direction


def code_of(*arguments: str) -> int:
    with pytest.raises(SystemExit) as left:
        cli.main(list(arguments))
    return left.value.code


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    """A ViTTT of toy size, trained for four steps through the command line."""
    from analysis.training import recipes

    folder = tmp_path_factory.mktemp("trained") / "toy"
    toy = recipes.smoke(recipes.find("vittt-baseline"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("analysis.training.recipes.find", lambda name: toy)
        assert (
            code_of("train", "vittt-baseline", "--output", str(folder), "--device", "cpu", "--set", "steps=3")
            == 0
        )
    return folder


def test_training_shows_the_metric_and_leaves_a_checkpoint(checkpoint, capsys):
    assert (checkpoint / "manifest.json").is_file()
    assert code_of("inspect", str(checkpoint)) == 0
    assert "ViTTT" in capsys.readouterr().out


def test_evaluate_measures_as_trained_and_edited(checkpoint, tmp_path, capsys):
    common = ["evaluate", "--checkpoint", str(checkpoint), "--samples", "8", "--records", str(tmp_path)]
    assert code_of(*common) == 0
    assert "none: run as trained" in " ".join(capsys.readouterr().out.split())
    assert code_of(*common, "--set", "direction=ascent") == 0
    assert "ascent" in capsys.readouterr().out
    assert list(tmp_path.glob("*.json"))


def test_a_probe_takes_its_own_parameters_before_fields(checkpoint, tmp_path, capsys):
    common = ["probe", "steps", "--checkpoint", str(checkpoint), "--samples", "4", "--records", str(tmp_path)]
    assert code_of(*common, "--set", "steps=[1, 2]") == 0
    assert "steps=2" in capsys.readouterr().out
    assert code_of(*common, "--set", "stepz=[1]") == 2
    assert "did you mean 'steps'" in capsys.readouterr().err


@pytest.mark.parametrize("device", ["tpu", "cuda:x", "cuda:99"])
def test_a_device_that_is_not_here_is_refused_in_one_line(checkpoint, capsys, device):
    assert code_of("evaluate", "--checkpoint", str(checkpoint), "--device", device) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("error: --device ")


def test_fields_are_parsed_and_parameters_left_alone():
    edits, parameters = split_fields(
        {"direction": "ascent", "steps": [1], "transform": "identity"}, ["steps"]
    )
    assert edits["direction"] is Direction.ASCENT
    assert parameters == {"steps": [1]}


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ({"stepz": 3}, "did you mean 'steps'"),
        ({"steps": "3"}, "expects a value like"),
        ({"steps": 1.5}, "expects a value like"),
        ({"lr": True}, "expects a value like"),
        ({"config": 3}, "knows"),
        ({"data.images": 0}, "at least 1"),
        ({"data.source": "imagenet"}, "knows"),
    ],
)
def test_a_recipe_is_edited_by_numbers_of_the_same_type(values, sentence):
    from analysis.training.recipes import find

    recipe = find("vittt-baseline")
    assert edited(recipe, {"steps": 3, "lr": 1}).steps == 3
    assert edited(recipe, {"data.images": 2000, "steps": 3}).data.images == 2000
    with pytest.raises(ParameterError, match=sentence):
        edited(recipe, values)


def test_recipes_are_listed_by_part_of_their_name(capsys):
    assert code_of("recipes", "vittt") == 0
    text = capsys.readouterr().out
    assert "vittt-v6" in text
    assert "lact_lm" not in text


def test_bench_gives_a_speed_only_beside_an_agreement(capsys, monkeypatch):
    assert code_of("bench", "--tokens", "32", "--chunk", "8") == 0
    text = capsys.readouterr().out
    assert "appendix I.1" in text
    assert "disagrees" not in text
    assert " x " in text
    monkeypatch.setattr("analysis.speed.processor.AGREEMENT", -1.0)
    assert code_of("bench", "--tokens", "32", "--chunk", "8") == 0
    rows = [line.split("│") for line in capsys.readouterr().out.splitlines() if line.startswith("│")]
    assert not any(row[4].strip() for row in rows)


@pytest.mark.parametrize("recorded", ["identity", "false"])
def test_verify_fails_when_a_verdict_is_not_the_recorded_one(monkeypatch, capsys, recorded):
    from analysis import theorems
    from analysis.theorems.claims import Claim, Judgement, Verdict

    claim = Claim(
        "t1", "theorems", "a statement", "none", "Theorem 1", lambda *_: None, recorded=Verdict(recorded)
    )
    judgement = Judgement(claim, Verdict.IDENTITY, {"outputs": 1e-15})
    monkeypatch.setattr(theorems, "verify", lambda: [judgement], raising=False)
    assert code_of("verify") == (0 if recorded == "identity" else 1)
    text = capsys.readouterr().out
    assert "1.0e-15" in text
    assert ("every verdict as recorded" in text) == (recorded == "identity")
