"""A control panel without a browser: controls move, views follow, the newest request wins, mistakes are one sentence."""

import dataclasses
import html
import re
import threading

import pytest

from analysis import lab, paths
from analysis.errors import ParameterError
from analysis.lab.edits import Choice, runnable_rungs, short_text
from analysis.lab.latest import Latest, Superseded
from analysis.lab.panels import ORDER
from analysis.models import build, save
from analysis.probes import Subject, evaluation_task
from analysis.spec import RUNGS, ConstantRate, Direction, Family, QuerySource, Trained
from tests.lab.conftest import random_host, settle
from tests.probes.conftest import CONFIGS


def picture(panel, name):
    return re.findall(r'src="([^"]+)"', panel.views[name].value)


def test_a_run_without_a_reader_has_no_panel(studied, monkeypatch):
    monkeypatch.setenv("TTT_ANALYSIS_PANELS", "off")
    assert lab.panel("steps", studied) is None
    monkeypatch.setenv("TTT_ANALYSIS_PANELS", "maybe")
    with pytest.raises(ParameterError, match="must be on or off, received 'maybe'"):
        lab.panel("steps", studied)


def test_the_notebook_runner_turns_panels_off():
    from analysis.publish.kernels import kernel_environment

    assert kernel_environment()["TTT_ANALYSIS_PANELS"] == "off"


def test_an_unknown_question_is_refused_even_where_no_panel_is_shown(studied, monkeypatch):
    monkeypatch.setenv("TTT_ANALYSIS_PANELS", "off")
    with pytest.raises(ParameterError, match="did you mean 'steps'"):
        lab.panel("step", studied)


@pytest.mark.parametrize("family", [family.value for family in Family])
def test_moving_the_steps_changes_the_views(open_panel, studied, family):
    panel = open_panel("steps", {family: studied[family]})
    assert "panel-ready" in panel.status.value, panel.status.value
    assert "Run as trained" in panel.views["summary"].value
    before = {name: view.value for name, view in panel.views.items()}
    panel.controls.steps.value = 3
    assert "running" in panel.status.value or "ready" in panel.status.value
    settle(panel)
    assert "steps: 1 -&gt; 3" in panel.views["summary"].value
    assert picture(panel, "chart") != re.findall(r'src="([^"]+)"', before["chart"])
    assert panel.views["attention"].value != before["attention"]
    assert panel.views["example"].value != before["example"]


def test_results_seen_before_are_not_computed_again(open_panel, studied, monkeypatch):
    panel = open_panel("steps", {"vittt": studied["vittt"]})
    panel.controls.steps.value = 2
    settle(panel)
    monkeypatch.setattr("analysis.lab.gallery.measure_edit", None)
    monkeypatch.setattr("analysis.lab.gallery.attention_view", None)
    for steps in (1, 2, 1):
        panel.controls.steps.value = steps
        settle(panel)
        assert "panel-ready" in panel.status.value


def test_text_carries_a_number_for_every_token(open_panel, studied):
    panel = open_panel("steps", {"lact_lm": studied["lact_lm"]})
    text = panel.views["example"].value
    assert len(re.findall(r'title="[^"]+ nats, as trained [^"]+"', text)) == 96
    panel.controls.colour.value = "change"
    settle(panel)
    assert "Change of every token" in panel.views["example"].value


def test_a_token_is_read_out_when_it_is_chosen_with_the_keyboard(open_panel, studied, monkeypatch):
    panel = open_panel("steps", {"lact_lm": studied["lact_lm"]})
    said = re.compile(r'role="status"[^>]*>([^<]*)<')
    assert said.search(panel.views["example"].value).group(1) == ""
    assert (panel.controls.token.min, panel.controls.token.max) == (0, 96)
    monkeypatch.setattr("analysis.lab.gallery.losses", None)  # known from the first look
    panel.controls.token.value = 3
    settle(panel)
    text = panel.views["example"].value
    line = html.unescape(said.search(text).group(1))
    assert re.fullmatch(r"Token 3 of 96, '.+': \d+\.\d\d nats, as trained \d+\.\d\d", line)
    assert len(re.findall(r'title="([^"]+)"[^>]*outline', text)) == 1
    other = open_panel("steps", {"vittt": studied["vittt"]})
    assert other.controls.token.layout.display == "none"


def test_views_say_their_psnr_and_images_their_classes(open_panel, studied):
    views = open_panel("steps", {"lact_nvs": studied["lact_nvs"]})
    assert views.views["example"].value.count("dB</figcaption>") == 3
    views.controls.steps.value = 0
    settle(views)
    assert views.views["example"].value.count("dB</figcaption>") == 6
    assert "no pairs at all" in views.views["attention"].value
    images = open_panel("steps", {"vittt": studied["vittt"]})
    assert images.views["example"].value.count("%)") == 12


def test_rungs_that_need_other_parameters_are_greyed_with_the_reason(open_panel, studied):
    panel = open_panel("steps", {"lact_lm": studied["lact_lm"]})
    buttons = panel.controls.rungs.buttons
    assert [key for key, button in buttons.items() if button.disabled] == ["v3", "v4", "v5", "v6"]
    assert "network = linear where swiglu was trained" in buttons["v3"].tooltip
    assert "Variant 3 and later rungs greyed" in panel.controls.rungs.reason.value
    buttons["v2"].value = True
    settle(panel)
    assert [key for key, button in buttons.items() if button.value] == ["v2"]
    assert "trained: all -&gt; last; weight_norm" in panel.views["summary"].value
    panel.controls.reset.click()
    settle(panel)
    assert "Run as trained" in panel.views["summary"].value and buttons["baseline"].value


def test_every_question_has_its_views(open_panel, studied):
    for question in set(ORDER) - {"steps"}:
        panel = open_panel(question, {"vittt": studied["vittt"]})
        assert all(view.value for view in panel.views.values()), question


def test_changing_the_checkpoint_fits_the_controls(open_panel, studied):
    panel = open_panel("attention", studied)
    panel.controls.subject.value = "vittt"
    settle(panel)
    assert panel.controls.loop.options == ("glu", "conv") and panel.controls.loop.layout.display is None
    panel.controls.loop.value = "conv"
    settle(panel)
    assert "panel-ready" in panel.status.value, panel.status.value


def test_a_path_is_opened_and_a_wrong_one_is_one_sentence(open_panel, studied, tmp_path):
    save(random_host(Family.VITTT), tmp_path / "mine")
    panel = open_panel("steps", {"vittt": studied["vittt"]})
    panel.controls.path.value = str(tmp_path / "nothing")
    settle(panel)
    assert "panel-failed" in panel.status.value and "found nothing; correct the path" in panel.status.value
    panel.controls.path.value = str(tmp_path / "mine")
    settle(panel)
    assert panel.controls.subject.value == str(tmp_path / "mine")
    assert "panel-ready" in panel.status.value, panel.status.value


def test_hosts_whose_loops_stand_still_or_are_absent_have_a_panel_too(open_panel):
    config = CONFIGS[Family.LACT_LM]
    frozen = {
        "fast_weights": config.default_loops()["fast_weights"].edit(
            trained=Trained.NONE, lr=ConstantRate(), momentum=None
        )
    }
    bare = dataclasses.replace(config, ttt_branch=False)
    for host in (build(Family.LACT_LM, config, frozen), build(Family.LACT_LM, bare, {})):
        panel = open_panel("steps", {"lact_lm": Subject(host, evaluation_task(host, 2, length=64))})
        assert "panel-ready" in panel.status.value, panel.status.value
        assert panel.controls.steps.disabled and panel.controls.direction.disabled
        assert "none moves" in panel.views["summary"].value
    assert panel.views["attention"].value == "" and "no inner loop" in panel.controls.rungs.reason.value


def test_a_shipped_checkpoint_is_loaded_when_it_is_chosen(open_panel, studied, tmp_path, monkeypatch):
    save(random_host(Family.VITTT), tmp_path / "vittt-v1-s0")
    monkeypatch.setattr(paths, "CHECKPOINTS", tmp_path)
    panel = open_panel("steps", {"lact_lm": studied["lact_lm"]})
    assert [label for label, _ in panel.controls.subject.options] == ["LaCT-LM", "vittt-v1-s0"]
    panel.controls.subject.value = str(tmp_path / "vittt-v1-s0")
    settle(panel)
    assert "Images with their prediction" in panel.views["example"].value


def test_a_choice_applies_rung_then_query_direction_and_steps(studied):
    host = studied["lact_lm"].host
    choice = Choice(
        subject="x", samples=1, rung="v1", steps=2, direction=Direction.ASCENT, query=QuerySource.KEY
    )
    loop = choice.apply(host).loops["fast_weights"]
    assert (loop.steps, loop.direction, loop.query) == (2, Direction.ASCENT, QuerySource.KEY)
    assert loop.trained.value == "last"
    assert short_text(Choice(subject="x", samples=1, steps=0).apply(host)) == "no update"
    assert short_text(host.edit()) == "as trained"
    assert set(runnable_rungs(host)) == {rung.key for rung in RUNGS}


def test_the_newest_request_wins():
    started, release, answers = threading.Event(), threading.Event(), []

    def compute(request, wanted):
        if request == 1:
            started.set()
            release.wait(5)
            if not wanted():
                raise Superseded
        return request * 10

    worker = Latest(compute, lambda request, answer: answers.append((request, answer)), answers.append)
    worker.request(1)
    started.wait(5)
    for request in (2, 3, 4):
        worker.request(request)
    release.set()
    worker.wait()
    worker.close()
    assert answers == [(4, 40)]


def test_an_unexpected_failure_is_reported_and_the_worker_lives_on():
    answers, failures = [], []
    worker = Latest(lambda request, wanted: 1 / request, lambda r, a: answers.append(a), failures.append)
    worker.request(0)
    worker.wait()
    worker.request(2)
    worker.wait()
    worker.close()
    assert answers == [0.5] and isinstance(failures[0], ZeroDivisionError)
