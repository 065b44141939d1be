"""The time of a training step: windows between two waits for the device, their median, and the form that ran."""

from __future__ import annotations

from statistics import mean, median

import pytest
import torch

from analysis.speed import training_steps
from analysis.speed.training_steps import step_records
from analysis.training import recipes, tasks, timing


def test_steps_are_timed_in_windows_whose_mean_is_the_whole():
    toy = recipes.smoke(recipes.find("vittt-baseline"), steps=100)
    found = timing.time_recipe(toy, tasks.load_task(toy, torch.device("cpu")), seconds=0.2)
    assert len(found.windows) >= 1
    assert found.milliseconds == pytest.approx(mean(found.windows))
    assert found.last_loss == found.last_loss


@pytest.mark.parametrize(("name", "form"), [("lact_lm-baseline", "recurrent"), ("lact_lm-v2", "parallel")])
def test_the_record_holds_the_median_window_and_the_form(monkeypatch, name, form):
    windows = (3.0, 1.0, 2.0)

    def timed(recipe, task, *, compiled, seconds):
        assert compiled and task == "the text"
        return timing.Timing(2.0, 30.0, 7.0, 6.0, "captured", windows)

    monkeypatch.setattr(training_steps, "time_recipe", timed)
    monkeypatch.setattr(training_steps, "_task", lambda name, corpus: "the text")
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda *a: "a GPU")
    (record,) = step_records(name, None, "bench")
    assert (record.value, record.ci_low, record.unit) == (median(windows), None, "ms")
    assert record.parameters["form"] == form
    assert record.extra["samples"] == list(windows)
