"""`train`, `evaluate`, `probe`, `recipes` and `bench` from the command line, on toy sizes."""

from __future__ import annotations

import re
import shlex
import signal
import subprocess

import pytest

from analysis import cli
from analysis.commands.run import edited, split_fields
from analysis.errors import DataError, ParameterError
from analysis.paths import ROOT
from analysis.spec import Direction


def code_of(*arguments: str) -> int:
    with pytest.raises(SystemExit) as left:
        cli.main(list(arguments))
    return left.value.code


def train_toy(folder, *assignments: str) -> int:
    """Train a ViTTT of toy size through the command line and return the exit code."""
    from analysis.training import recipes

    toy = recipes.smoke(recipes.find("vittt-baseline"))
    settings = [word for one in assignments for word in ("--set", one)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("analysis.training.recipes.find", lambda name: toy)
        return code_of("train", "vittt-baseline", "--output", str(folder), "--device", "cpu", *settings)


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    """A ViTTT of toy size, trained for three steps through the command line."""
    folder = tmp_path_factory.mktemp("trained") / "toy"
    assert train_toy(folder, "steps=3") == 0
    return folder


def test_training_shows_the_metric_and_leaves_a_checkpoint(checkpoint, capsys):
    assert (checkpoint / "manifest.json").is_file()
    assert code_of("inspect", str(checkpoint)) == 0
    assert "ViTTT" in capsys.readouterr().out


def test_training_onto_a_finished_checkpoint_leaves_it(checkpoint, tmp_path, capsys, monkeypatch):
    before = {file.name: file.read_bytes() for file in checkpoint.iterdir()}
    monkeypatch.setattr("analysis.training.trainer.load_task", None)  # nothing may be rendered
    assert train_toy(checkpoint, "steps=3") == 0
    said = capsys.readouterr().out
    assert "already finished" in said and "--output FOLDER" in said
    assert train_toy(checkpoint, "steps=5") == 2
    assert "steps is 3, asked 5" in capsys.readouterr().err
    assert {file.name: file.read_bytes() for file in checkpoint.iterdir()} == before
    (tmp_path / "file").write_text("")
    assert train_toy(tmp_path / "file", "steps=3") == 2
    assert "received a file" in capsys.readouterr().err


def test_an_interrupted_training_says_that_the_same_command_continues_it(tmp_path, capsys, monkeypatch):
    from analysis.training.run import Run

    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    advance, finish = Run.advance, Run.finish

    def interrupted(run: Run, steps: int) -> None:
        advance(run, steps)
        if run.step == 2:
            signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(Run, "advance", interrupted)
    assert train_toy(tmp_path) == 130
    assert f"step 2 of 4; the same command continues from {tmp_path}" in capsys.readouterr().err
    monkeypatch.setattr(Run, "finish", interrupt)  # Ctrl-C while it is evaluated
    monkeypatch.setattr(Run, "advance", advance)
    assert train_toy(tmp_path) == 130
    assert f"the same command continues from {tmp_path}" in capsys.readouterr().err
    monkeypatch.setattr(Run, "advance", interrupt)  # no step is left to be taken
    monkeypatch.setattr(Run, "finish", finish)
    assert train_toy(tmp_path) == 0


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


@pytest.mark.parametrize(
    ("probe", "assignment"),
    [
        *(("steps", one) for one in ("steps=a", "steps=0", "steps=[]", "step_size=0", "step_size=true")),
        *(("distributions", one) for one in ("vectors=0", "permutations=x", "loop=nope")),
    ],
)
def test_parameters_of_a_probe_are_judged_before_the_data(
    checkpoint, tmp_path, capsys, monkeypatch, probe, assignment
):
    monkeypatch.setattr("analysis.probes.evaluation_task", None)  # nothing may be rendered
    common = ["--checkpoint", str(checkpoint), "--records", str(tmp_path), "--set", assignment]
    assert code_of("probe", probe, *common) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert f"{assignment.partition('=')[0]} must be" in line


def test_every_probe_is_stopped_before_it_measures(checkpoint):
    from analysis.commands.run import _try_parameters
    from analysis.models.checkpoints import load
    from analysis.probes import PROBES

    for name in PROBES:
        _try_parameters(name, load(checkpoint), {})


def test_the_examples_of_make_help_run_as_printed(capsys, tmp_path, monkeypatch):
    shown = subprocess.run(
        ["make", "-C", str(ROOT), "help"], capture_output=True, text=True, check=True
    ).stdout
    examples = re.findall(
        r"^  ([a-z-]+) .*?(make (?:[A-Z_a-z-]+(?:=(?:\"[^\"]*\"|\S+))? ?)+)", shown, re.MULTILINE
    )
    words = {target: shlex.split(text) for target, text in examples if "=" in text}
    assert set(words) == {"lab", "train", "test", "bench"}
    assert all(line[1] == target for target, line in words.items())
    given = dict(word.split("=", 1) for word in words["train"][2:])

    def reached(*_: object) -> None:
        raise DataError("the data are asked for")

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("analysis.training.trainer.load_task", reached)
    assert code_of("train", given["RECIPE"], *shlex.split(given["TRAIN_ARGS"])) == 2
    assert "the data are asked for" in capsys.readouterr().err


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


@pytest.mark.parametrize(
    ("name", "values", "sentence"),
    [
        ("vittt-baseline", {"data.size": 33}, "multiple of the patch size 4 .*received 33"),
        ("lact_nvs-baseline", {"data.size": 20}, "multiple of the patch size 8"),
        ("lact_nvs-baseline", {"data.targets": 20}, "at most data.views=8 together, received 2 and 20"),
        ("lact_nvs-baseline", {"data.views": 2}, "at most data.views=2 together"),
    ],
)
def test_data_that_do_not_fit_are_refused_before_they_are_rendered(name, values, sentence):
    from analysis.training.recipes import find

    with pytest.raises(ParameterError, match=sentence):
        edited(find(name), values)


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
