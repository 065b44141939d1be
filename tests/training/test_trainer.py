"""Training in the small: losses fall, an interrupted run ends like an uninterrupted one, mistakes are said plainly."""

from __future__ import annotations

import json
import os
import signal

import pytest
import torch
from safetensors.torch import load_file

from analysis.errors import CheckpointError, DataError, ParameterError
from analysis.inner import compiled
from analysis.models import checkpoints
from analysis.models.manifest import read_manifest
from analysis.records import difference
from analysis.training.distributed import Team
from analysis.training.recipes import RECIPES, find
from analysis.training.results import training_records
from analysis.training.resume import RESUME_FILE
from analysis.training.run import DivergedError, Run
from analysis.training.step import choose_graph
from analysis.training.tasks import load_task
from analysis.training.trainer import train
from tests.training.toys import CPU, toy

SMALL = [name for name in RECIPES if not name.endswith("-paper")]


def trained(recipe, folder, task, **options):
    return train(recipe, folder, device="cpu", task=task(recipe.family), progress=False, **options)


@pytest.mark.parametrize("name", SMALL)
def test_every_small_recipe_takes_steps_and_leaves_a_checkpoint(name, task, tmp_path):
    recipe = toy(name, steps=2)
    evaluation = trained(recipe, tmp_path / "run", task)
    manifest = json.loads((tmp_path / "run" / "manifest.json").read_text())
    assert manifest["metrics"][evaluation.metric] == evaluation.value
    assert manifest["metrics"]["curve"]["steps"] == [1, 2]
    assert manifest["recipe"]["name"] == name and manifest["data_digest"] == task(recipe.family).digest
    host = checkpoints.load(tmp_path / "run")
    assert host.loops == recipe.loops
    assert not (tmp_path / "run" / RESUME_FILE).exists()


@pytest.mark.parametrize("family", ["lact_lm", "lact_nvs", "vittt"])
def test_the_outer_loss_falls_and_the_inner_loss_is_lower_after_the_update(family, task, tmp_path):
    recipe = toy(f"{family}-baseline", steps=30, lr=1e-2, warmup=3, batch=8)
    trained(recipe, tmp_path, task)
    metrics = json.loads((tmp_path / "manifest.json").read_text())["metrics"]
    curve, inner = metrics["curve"]["outer_loss"], metrics["inner_curve"]
    assert sum(curve[-3:]) < 0.99 * sum(curve[:3])
    assert len(inner["steps"]) >= 10
    assert inner["inner_loss_after"][-1] < inner["inner_loss_before"][-1]


def test_the_records_of_a_run_say_what_was_measured_on_what(task, tmp_path):
    recipe = toy("vittt-baseline", steps=2)
    evaluation = trained(recipe, tmp_path, task)
    first, *inner = training_records(read_manifest(tmp_path))
    assert (first.question, first.value, first.samples) == ("retrained", evaluation.value, evaluation.samples)
    assert first.seeds == (0,) and first.data == task(recipe.family).evaluation_digest
    assert difference(first) == "none: run as trained"
    assert [row.metric for row in inner] == ["inner_loss_before", "inner_loss_after"]
    assert all("first held-out batch alone" in row.extra["definition"] for row in inner)


@pytest.mark.parametrize("name", ["lact_lm-baseline", "lact_nvs-v1", "vittt-v6"])
def test_an_interrupted_run_ends_bit_for_bit_like_an_uninterrupted_one(name, task, tmp_path):
    recipe = toy(name, steps=6)
    whole = Run(recipe, task(recipe.family), Team(0, 1, CPU), tmp_path / "whole")
    whole.advance(6)
    whole.finish()
    part = Run(recipe, task(recipe.family), Team(0, 1, CPU), tmp_path / "part")
    part.advance(3)
    part.save_state()
    torch.rand(7)  # whatever else draws random numbers in between
    trained(recipe, tmp_path / "part", task)
    first, second = (load_file(tmp_path / side / "model.safetensors") for side in ("whole", "part"))
    assert all(torch.equal(first[key], second[key]) for key in first)
    curves = [
        json.loads((tmp_path / s / "manifest.json").read_text())["metrics"]["curve"]
        for s in ("whole", "part")
    ]
    assert curves[0] == curves[1]


def test_ctrl_c_leaves_a_state_that_the_next_call_continues(task, tmp_path, monkeypatch):
    recipe = toy("vittt-v1", steps=20)
    advance = Run.advance

    def interrupted(run, steps):
        advance(run, steps)
        if run.step == 5:
            os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(Run, "advance", interrupted)
    with pytest.raises(KeyboardInterrupt, match="step 5"):
        trained(recipe, tmp_path, task)
    assert (tmp_path / RESUME_FILE).is_file()
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    monkeypatch.setattr(Run, "advance", advance)
    assert trained(recipe, tmp_path, task) is not None


def test_a_state_of_another_recipe_or_a_damaged_one_is_refused(task, tmp_path):
    run = Run(toy("vittt-v1"), task("vittt"), Team(0, 1, CPU), tmp_path)
    run.save_state()
    with pytest.raises(CheckpointError, match="another recipe"):
        trained(toy("vittt-v1", lr=0.5), tmp_path, task)
    (tmp_path / RESUME_FILE).write_bytes(b"not a state")
    with pytest.raises(CheckpointError, match="cannot be read"):
        trained(toy("vittt-v1"), tmp_path, task)
    assert trained(toy("vittt-v1"), tmp_path, task, resume=False) is not None


def test_a_loss_that_is_not_finite_stops_the_run_and_names_the_step(task, tmp_path):
    run = Run(toy("vittt-v1"), task("vittt"), Team(0, 1, CPU), tmp_path)
    run.advance(1)
    with torch.no_grad():
        next(run.host.parameters()).fill_(torch.nan)
    run.advance(1)
    with pytest.raises(DivergedError, match="received nan at step 2"):
        run.check()
    with pytest.raises(DivergedError):
        run.finish()
    assert not (tmp_path / "manifest.json").exists()


def test_a_graph_is_refused_where_there_is_none_and_never_faked():
    assert choose_graph("auto", CPU, 1) == (False, "a cpu device has no CUDA graphs")
    assert choose_graph("auto", torch.device("cuda"), 1)[0]
    assert not choose_graph("auto", torch.device("cuda"), 2)[0]
    with pytest.raises(ParameterError, match="cpu device"):
        choose_graph("on", CPU, 1)
    with pytest.raises(ParameterError, match="auto, on or off"):
        choose_graph("yes", CPU, 1)


def test_waiting_is_never_silent(tmp_path, capsys, caplog):
    caplog.set_level("INFO", logger="analysis.training.trainer")
    train(toy("vittt-baseline", steps=1), tmp_path / "run", device="cpu")
    assert "preparing 32 images for training" in caplog.text
    assert "16 examples" in capsys.readouterr().err


def test_a_recipe_with_a_source_needs_its_folder_and_leaves_none(tmp_path):
    with pytest.raises(DataError, match=r"fineweb-edu.*--data FOLDER"):
        load_task(find("lact_lm-baseline-paper"), CPU)
    with pytest.raises(DataError):
        train(find("lact_lm-baseline-paper"), tmp_path / "run", device="cpu")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    "name", ["lact_lm-baseline", "lact_lm-v1", "lact_lm-v6", "lact_nvs-baseline", "vittt-baseline"]
)
def test_compiled_blocks_compute_the_same(name, task, tmp_path, monkeypatch):
    compiling = torch.compile
    monkeypatch.setattr(
        torch, "compile", lambda f, dynamic: compiling(f, dynamic=dynamic, backend="eager", fullgraph=True)
    )
    torch._dynamo.reset()  # other tests of this process may have left code that is marked as not worth compiling
    monkeypatch.setattr(compiled, "_compiled", lambda function: torch.compile(function, dynamic=False))
    gradients = []
    for is_compiled in (False, True):
        run = Run(toy(name), task(toy(name).family), Team(0, 1, CPU), tmp_path, compiled=is_compiled)
        gradients.append(
            (run.outer.backward(run.task.probe), [p.grad.clone() for p in run.host.parameters()])
        )
    torch.testing.assert_close(gradients[0], gradients[1], rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("name", SMALL)
def test_bfloat16_products_keep_every_variant_finite(name, task, tmp_path):
    recipe = toy(name, steps=3)
    run = Run(recipe, task(recipe.family), Team(0, 1, CPU), tmp_path)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        run.advance(3)
    assert run.check() == pytest.approx(float(run.outer.losses.mean()))
    assert all(bool(torch.isfinite(p).all()) for p in run.host.parameters())
