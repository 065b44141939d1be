"""Notebooks, caches and reports that are damaged, and folders that cannot be written."""

from __future__ import annotations

import json

import pytest

from analysis import paths
from analysis.errors import CheckpointError, ReportError, StorageError
from analysis.paths import replacing
from analysis.publish.difference import compare_reports
from analysis.publish.notebooks import read_notebook, run_notebooks
from analysis.publish.outputs import Outputs
from analysis.publish.report import build_report
from tests.publish import toys
from tests.publish.conftest import project  # noqa: F401 - a fixture

DEEP = "[" * 100_000
CELL = {"cell_type": "code", "source": "1", "metadata": {}}


@pytest.mark.parametrize(
    "content",
    [
        "",
        "[]",
        DEEP,
        json.dumps({"cells": [], "metadata": {}}),
        json.dumps({"nbformat": 3, "worksheets": [], "metadata": {}}),
        json.dumps({"nbformat": 4, "metadata": {}, "cells": None}),
        json.dumps({"nbformat": 4, "metadata": {}, "cells": [1]}),
        json.dumps({"nbformat": 4, "metadata": {}, "cells": [{**CELL, "source": None}]}),
        json.dumps({"nbformat": 4, "metadata": {}, "cells": [{**CELL, "metadata": None}]}),
        json.dumps({"nbformat": 4, "metadata": None, "cells": []}),
    ],
)
def test_a_file_that_is_no_notebook_is_named(tmp_path, content):
    (tmp_path / "a.ipynb").write_text(content)
    with pytest.raises(ReportError, match=r"a\.ipynb"):
        read_notebook(tmp_path / "a.ipynb")


def test_a_notebook_without_a_title_is_refused_before_it_runs(project, monkeypatch):  # noqa: F811
    toys.write(project / "notebooks", "01_text", toys.new_markdown_cell("## Too deep"), toys.code("1"))
    monkeypatch.setattr("analysis.publish.report.run_notebooks", None)
    with pytest.raises(ReportError, match="# Title"):
        build_report(output=project / "report")


@pytest.mark.parametrize("content", ["", "[]", "{}", "not json", DEEP])
def test_a_damaged_cache_entry_is_made_again(project, content):  # noqa: F811
    toys.write(project / "notebooks", "01_text", toys.new_markdown_cell("# Title"))
    run_notebooks()
    (entry,) = (project / ".cache" / "executed").iterdir()
    entry.write_text(content)
    (executed,) = run_notebooks()
    assert not executed.cached and json.loads(entry.read_text())["cells"]


def test_a_kernel_that_dies_has_one_sentence(project, capfd):  # noqa: F811
    toys.write(
        project / "notebooks",
        "01_text",
        toys.new_markdown_cell("# Title"),
        toys.code("import os; os._exit(1)"),
    )
    with pytest.raises(ReportError, match="DeadKernelError"):
        build_report(output=project / "report", pdf_engine="none")
    said = capfd.readouterr().err.splitlines()
    assert [line.split(" after ")[0] for line in said] == [
        "01_text: started",
        "01_text: stopped (DeadKernelError)",
    ]


def test_folders_that_cannot_be_written_are_named(project, monkeypatch):  # noqa: F811
    toys.write(project / "notebooks", "01_text", toys.new_markdown_cell("# Title"))
    (project / "file").write_text("")
    monkeypatch.setattr(paths, "CACHE", project / "file" / "cache")
    with pytest.raises(StorageError, match="cache"):
        run_notebooks()
    with pytest.raises(StorageError, match="below"), replacing(project / "file" / "below"):
        raise AssertionError("nothing can be written there")


def test_a_full_disk_keeps_the_former_file(tmp_path):
    (tmp_path / "a").write_text("former")
    with pytest.raises(StorageError, match="No space left"), replacing(tmp_path / "a"):
        raise OSError(28, "No space left on device")
    assert [(file.name, file.read_text()) for file in tmp_path.iterdir()] == [("a", "former")]


def test_the_folders_of_the_environment_are_absolute_and_never_the_current_one():
    import os
    import subprocess
    import sys

    code = "from analysis.paths import CACHE, ROOT; print(CACHE == ROOT / '.cache', ROOT.is_absolute())"
    environment = {**os.environ, "TTT_ANALYSIS_CACHE": "", "TTT_ANALYSIS_ROOT": ""}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, cwd=paths.ROOT, capture_output=True, text=True
    )
    assert done.stdout == "True True\n"


def test_a_report_on_what_is_no_checkpoint_runs_nothing(tmp_path, monkeypatch):
    from analysis.commands.publish import Selection, report

    monkeypatch.setattr("analysis.publish.report.build_report", None)
    with pytest.raises(CheckpointError, match="to hold"):
        report(Selection(checkpoint=tmp_path), pdf_engine="none", require_pdf=False, output=tmp_path / "out")


def test_a_picture_without_a_drawing_is_refused():
    with pytest.raises(ReportError, match="<svg> element"):
        Outputs(name="01").figure({"data": {"image/svg+xml": "nothing"}})


def test_claims_nested_without_end_are_no_report(tmp_path):
    (tmp_path / "index.html").write_text(f'<script type="application/json" id="claims">{DEEP}</script>')
    with pytest.raises(ReportError, match="claims inside"):
        compare_reports(tmp_path, tmp_path)
