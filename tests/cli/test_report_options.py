"""What `report` and `figures` hand on: the chosen notebooks, the user's own paths, and every file the result depends on."""

from __future__ import annotations

import json

import pytest

from analysis import paths
from analysis.commands.publish import Selection, chosen_notebooks, report
from analysis.errors import CheckpointError, DataError, ParameterError


@pytest.fixture
def notebooks(tmp_path, monkeypatch):
    folder = tmp_path / "notebooks"
    folder.mkdir()
    for name in ("01_steps", "02_ascent"):
        (folder / f"{name}.ipynb").write_text(
            json.dumps({"cells": [], "nbformat": 4, "nbformat_minor": 5, "metadata": {}})
        )
    monkeypatch.setattr(paths, "NOTEBOOKS", folder)
    monkeypatch.setattr(paths, "RECORDS", tmp_path / "records")
    return folder


@pytest.mark.parametrize("name", ["01_steps", "01", "notebooks/01_steps.ipynb"])
def test_a_notebook_is_chosen_by_name_number_or_path(notebooks, name):
    assert chosen_notebooks([name, name]) == [notebooks / "01_steps.ipynb"]


def test_no_choice_means_all():
    assert chosen_notebooks([]) is None


def test_an_unknown_notebook_is_answered_with_the_nearest(notebooks):
    with pytest.raises(ParameterError, match="did you mean '01_steps'"):
        chosen_notebooks(["01_stepz"])


def test_the_users_paths_become_parameters_and_inputs(notebooks, tmp_path):
    own = tmp_path / "own"
    own.mkdir()
    (own / "model.safetensors").write_bytes(b"1")
    (tmp_path / "records").mkdir()
    (tmp_path / "records" / "r.json").write_text("{}")
    data = tmp_path / "text.txt"
    data.write_text("text")
    options = Selection(checkpoint=own, data=data, assignments=["steps=[1, 2]"]).options()
    assert options["parameters"] == {"checkpoint": str(own), "data": str(data), "steps": "[1, 2]"}
    assert [path.name for path in options["extra_inputs"]] == ["r.json", "model.safetensors", "text.txt"]


def test_a_path_that_is_not_there_stops_before_anything_runs(tmp_path):
    with pytest.raises(CheckpointError, match="found nothing"):
        Selection(checkpoint=tmp_path / "x").options()
    with pytest.raises(DataError, match="found nothing"):
        Selection(data=tmp_path / "x").options()


def test_a_parameter_named_twice_is_refused(tmp_path):
    with pytest.raises(ParameterError, match="same parameter"):
        Selection(checkpoint=tmp_path, assignments=["checkpoint=other"]).options()


def test_the_report_says_where_it_lies_and_why_there_is_no_pdf(monkeypatch, capsys, tmp_path):
    from analysis.publish.report import ReportPaths

    received = {}

    def build(**options):
        received.update(options)
        return ReportPaths(html=tmp_path / "index.html", pdf=None, note="no engine", reused=1, executed=2)

    monkeypatch.setattr("analysis.publish.report.build_report", build)
    report(Selection(jobs=3), pdf_engine="none", require_pdf=False, output=tmp_path)
    assert received["jobs"] == 3
    assert received["pdf_engine"] == "none"
    lines = capsys.readouterr().out.splitlines()
    assert lines == [
        "2 notebooks executed, 1 taken from the cache",
        f"HTML: {tmp_path / 'index.html'}",
        "PDF:  none (no engine)",
    ]


def test_a_checkpoint_without_a_loop_is_refused_before_anything_runs(monkeypatch):
    monkeypatch.setattr("analysis.publish.report.build_report", None)
    selection = Selection(checkpoint=paths.CHECKPOINTS / "vittt-none-s0")
    with pytest.raises(CheckpointError, match="with an inner loop"):
        report(selection, pdf_engine="none", require_pdf=False, output=None)
