"""Recipes, folders and states that a training run refuses before it takes a step."""

from __future__ import annotations

import json

import pytest
import torch

from analysis.errors import CheckpointError, DataError, ParameterError, StorageError
from analysis.training.distributed import join
from analysis.training.recipes import find
from analysis.training.resume import RESUME_FILE, AlreadyFinishedError, fingerprint
from analysis.training.tasks import load_task
from analysis.training.trainer import train
from tests.training.toys import CPU, toy

NAN, INF = float("nan"), float("inf")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("steps", value) for value in (0, -1, 1.5, True)),
        *(("batch", value) for value in (0, -4)),
        *(("lr", value) for value in (0, -1, NAN, INF)),
        *(("clip", value) for value in (0, -1.0, NAN)),
        *(("seed", value) for value in (-1, 2**63, "1")),
        *(("precision", value) for value in ("", "foo", "int8")),
        ("warmup", -1),
        ("final_lr", -1),
        ("weight_decay", -0.1),
    ],
)
def test_a_number_with_which_no_run_makes_sense_is_refused(name, value):
    with pytest.raises(ParameterError, match=f"{name} of a recipe must be"):
        find("vittt-baseline").edit(**{name: value})


@pytest.fixture(scope="module")
def task():
    return load_task(toy("vittt-v1"), CPU)


def start(folder, task, variant="vittt-v1", **changes):
    return train(toy(variant, **changes), folder, device="cpu", task=task, progress=False)


def contents(folder):
    return {file.name: file.read_bytes() for file in folder.iterdir()}


def test_a_finished_checkpoint_is_never_replaced(tmp_path, task):
    start(tmp_path, task)
    before = contents(tmp_path)
    cases = (({"seed": 1}, "seed is 0, asked 1"), ({"steps": 3}, "steps is 4, asked 3"))
    for changes, told in (*cases, ({"lr": 0.5, "variant": "vittt-v6"}, r"lr is .*more")):
        with pytest.raises(CheckpointError, match=rf"{told}.*choose another folder"):
            start(tmp_path, task, **changes)
    with pytest.raises(
        AlreadyFinishedError, match=r"already finished in .*4 steps.*to train it again, choose"
    ):
        start(tmp_path, task, note="another note")
    assert contents(tmp_path) == before
    (tmp_path / "manifest.json").write_text("{")
    with pytest.raises(CheckpointError):
        start(tmp_path, task)


def test_weights_without_a_manifest_are_not_replaced(tmp_path, task):
    (tmp_path / "model.safetensors").write_bytes(b"of another program")
    with pytest.raises(CheckpointError, match=r"model\.safetensors without manifest\.json"):
        start(tmp_path, task)
    assert contents(tmp_path) == {"model.safetensors": b"of another program"}


def test_what_holds_a_folder_is_looked_at_before_the_data(tmp_path, task, monkeypatch):
    start(tmp_path / "held", task)
    (tmp_path / "file").write_text("")
    monkeypatch.setattr("analysis.training.trainer.load_task", None)  # nothing may be rendered
    for folder in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(StorageError, match=r"received a file; name another place"):
            train(toy("vittt-v1"), folder, device="cpu")
    with pytest.raises(CheckpointError, match="asked 3"):
        train(toy("vittt-v1", steps=3), tmp_path / "held", device="cpu")


def test_a_folder_that_cannot_be_written_is_refused(tmp_path, task, monkeypatch):
    monkeypatch.setattr("os.access", lambda path, mode: False)  # the tests may run as root
    with pytest.raises(StorageError, match="can be written"):
        start(tmp_path / "run", task)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    "state",
    [
        [1],
        5,
        {"recipe": "whole"},
        {"recipe": "whole", "step": "x", "seconds": 0.0},
        {"recipe": "whole", "step": 10**6, "seconds": 0.0},
        {"recipe": "whole", "step": 1, "seconds": 0.0, "host": {}},
    ],
)
def test_a_state_that_is_incomplete_or_of_another_kind_is_refused(tmp_path, task, state):
    if isinstance(state, dict):
        state = {**state, "recipe": fingerprint(toy("vittt-v1"))}
    torch.save(state, tmp_path / RESUME_FILE)
    with pytest.raises(CheckpointError, match="remove it"):
        start(tmp_path, task)


@pytest.mark.parametrize("content", [b"", b"junk" * 50])
def test_a_damaged_state_never_advises_to_load_it_unsafely(tmp_path, task, content):
    (tmp_path / RESUME_FILE).write_bytes(content)
    with pytest.raises(CheckpointError, match="remove it") as caught:
        start(tmp_path, task)
    assert "weights_only" not in str(caught.value)


@pytest.mark.parametrize(
    "variables",
    [{"WORLD_SIZE": "x"}, {"WORLD_SIZE": "2"}, {"WORLD_SIZE": "2", "RANK": "0", "LOCAL_RANK": ""}],
)
def test_an_environment_that_torchrun_did_not_make_is_refused(monkeypatch, variables):
    for name in ("WORLD_SIZE", "RANK", "LOCAL_RANK"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(ParameterError, match="torchrun"):
        join("cpu")


def test_images_of_other_classes_than_the_recipes_are_refused(tmp_path):
    from PIL import Image

    for split in ("train", "evaluation"):
        for name in "ab":
            (tmp_path / split / name).mkdir(parents=True)
            Image.new("RGB", (16, 16)).save(tmp_path / split / name / "0.png")
    with pytest.raises(DataError, match="16 classes"):
        load_task(toy("vittt-v1"), CPU, data=tmp_path)


def test_the_recipe_is_stored_as_json(tmp_path, task):
    start(tmp_path, task)
    assert json.loads((tmp_path / "manifest.json").read_text())["recipe"]["name"] == "vittt-v1"
