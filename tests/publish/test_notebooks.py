"""Notebooks run in this interpreter, are reused while nothing changed, and fail without taking others along."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from types import SimpleNamespace

import pytest

from analysis import paths
from analysis.errors import ParameterError, ReportError
from analysis.publish import kernels, provenance
from analysis.publish.notebooks import declared_parameters, find_notebooks, run_notebooks
from tests.publish import toys

TITLE = toys.new_markdown_cell("# A title")
SQUARE = (
    TITLE,
    toys.code("n: int = 3  # a number; range 1..9", "parameters"),
    toys.code("import sys\n(n * n, sys.executable)"),
)


def printed(executed):
    texts = []
    for cell in executed.notebook.cells:
        for output in cell.get("outputs", []):
            texts.append(output.get("text") or output.get("data", {}).get("text/plain", ""))
    return " ".join(texts)


def test_a_run_uses_this_interpreter_whatever_the_notebook_says_and_is_reused(project):
    toys.write(project / "notebooks", "01_square", *SQUARE, kernel="author-env")
    [first] = run_notebooks(parameters={"n": "4"})
    assert not first.cached
    assert printed(first) == str((16, sys.executable))
    stamp = first.notebook.metadata["provenance"]
    assert stamp["parameters"] == {"n": 4}
    assert {"key", "commit", "versions", "device", "seconds", "digests"} <= set(stamp)
    [again] = run_notebooks(parameters={"n": 4})
    assert again.cached and again.notebook == first.notebook
    assert not list(paths.CACHE.glob("run-*")), "no scratch folder is left"


def test_a_change_of_anything_the_result_depends_on_changes_the_key(project, monkeypatch):
    toys.write(project / "notebooks", "01_square", *SQUARE)
    notebook = {"cells": [{"cell_type": "code", "source": "1", "metadata": {}, "outputs": []}]}
    base = provenance.key(notebook, {"n": 1}, provenance.surroundings())
    assert base == provenance.key(notebook, {"n": 1}, provenance.surroundings())
    with_output = {"cells": [notebook["cells"][0] | {"outputs": [{"text": "1"}], "execution_count": 3}]}
    assert base == provenance.key(with_output, {"n": 1}, provenance.surroundings())
    other_source = {"cells": [notebook["cells"][0] | {"source": "2"}]}
    keys = {base, provenance.key(other_source, {"n": 1}, provenance.surroundings())}
    keys.add(provenance.key(notebook, {"n": 2}, provenance.surroundings()))
    (project / "checkpoints" / "a").mkdir(parents=True)
    (project / "checkpoints" / "a" / "manifest.json").write_text("{}")
    keys.add(provenance.key(notebook, {"n": 1}, provenance.surroundings()))
    (project / "requirements.txt").write_text("numpy==2")
    keys.add(provenance.key(notebook, {"n": 1}, provenance.surroundings()))
    keys.add(provenance.key(notebook, {"n": 1}, provenance.surroundings([project / "requirements.txt"])))
    monkeypatch.setattr(provenance, "PACKAGE", project)
    (project / "module.py").write_text("x = 1")
    keys.add(provenance.key(notebook, {"n": 1}, provenance.surroundings()))
    assert len(keys) == 7


@pytest.mark.parametrize("ours", [{"runs_alone": True}, {"runs_alone": False}, None, "alone"])
def test_a_notebook_that_times_the_machine_runs_beside_no_other(ours, project, monkeypatch):
    running, beside = set(), {}

    def pretended(task, *_):
        running.add(task.path.stem)
        time.sleep(0.2)
        beside[task.path.stem] = set(running)
        time.sleep(0.2)
        running.discard(task.path.stem)
        return SimpleNamespace(cached=False)

    monkeypatch.setattr("analysis.publish.notebooks._run_one", pretended)
    for name in ("01_other", "03_another"):
        toys.write(project / "notebooks", name, *SQUARE)
    toys.write(project / "notebooks", "02_timed", *SQUARE, ttt_analysis=ours)
    assert len(run_notebooks(jobs=3)) == 3
    assert {"01_other", "03_another"} <= beside["01_other"]
    is_alone = ours == {"runs_alone": True}
    assert (beside["02_timed"] == {"02_timed"}) == is_alone


def test_a_bad_parameter_stops_everything_before_a_kernel_starts(project, monkeypatch):
    toys.write(project / "notebooks", "01_square", *SQUARE)
    monkeypatch.setattr("analysis.publish.notebooks._run_all", lambda *_: pytest.fail("something ran"))
    with pytest.raises(ParameterError, match="did you mean 'n'"):
        run_notebooks(parameters={"nn": 4})
    with pytest.raises(ParameterError, match="above 9"):
        run_notebooks(parameters={"n": 10})
    with pytest.raises(ParameterError, match="jobs"):
        run_notebooks(jobs=0)
    assert declared_parameters()["01_square"]["n"].expected() == "int in 1..9"


def test_one_failure_is_kept_and_named_and_the_others_still_run(project):
    toys.write(project / "notebooks", "01_broken", *toys.BROKEN)
    toys.write(project / "notebooks", "02_slow", TITLE, toys.code("import time; time.sleep(60)"))
    toys.write(project / "notebooks", "03_dead", TITLE, toys.code("1"), toys.code("import os; os._exit(1)"))
    toys.write(project / "notebooks", "04_square", *SQUARE)
    broken, slow, dead, good = run_notebooks(timeout=3, jobs=4, parameters={"01_broken.steps": [2]})
    assert (broken.failure.cell, broken.failure.name) == (3, "RuntimeError")
    assert "third probe" in broken.failure.text
    assert "computed before the error" in printed(broken)
    assert slow.failure.name == "CellTimeoutError"
    assert (dead.failure.cell, dead.failure.name) == (2, "DeadKernelError")
    assert good.failure is None and "9" in printed(good)
    cached = [file.name.split("-")[0] for file in (paths.CACHE / "executed").iterdir()]
    assert cached == ["04_square"], "a failed run is never reused"


def test_figures_are_written_again_from_a_reused_notebook(project):
    source = (
        "from matplotlib import pyplot as plt\nfrom analysis.publish import save_figure\n"
        "fig, ax = plt.subplots()\nax.plot([0, 1])\n"
        "save_figure(fig, 'line', {'x': [0, 1]}, 'A line.', 'A straight line from zero to one.')"
    )
    toys.write(project / "notebooks", "01_line", TITLE, toys.code(source))
    run_notebooks()
    before = {file.name: file.read_bytes() for file in paths.FIGURES.iterdir()}
    assert sorted(before) == ["line.csv", "line.png", "line.svg"]
    for file in paths.FIGURES.iterdir():
        file.unlink()
    [executed] = run_notebooks()
    assert executed.cached
    assert {file.name: file.read_bytes() for file in paths.FIGURES.iterdir()} == before


def test_an_interruption_leaves_no_process_and_no_half_file(project):
    toys.write(
        project / "notebooks",
        "01_long",
        TITLE,
        toys.code(
            "import os, time, pathlib\npathlib.Path('pid').write_text(str(os.getpid()))\ntime.sleep(120)"
        ),
    )
    program = "from analysis.publish.notebooks import run_notebooks; run_notebooks()"
    environment = os.environ | kernels.kernel_environment()
    process = subprocess.Popen(
        [sys.executable, "-c", program], env=environment, stderr=subprocess.PIPE, text=True
    )
    pid_file = project / "notebooks" / "pid"
    deadline = time.monotonic() + 30
    while not (pid_file.exists() and pid_file.read_text()) and time.monotonic() < deadline:
        time.sleep(0.1)
    kernel = int(pid_file.read_text())
    process.send_signal(signal.SIGINT)
    _, message = process.communicate(timeout=30)
    assert process.returncode != 0 and "KeyboardInterrupt" in message
    with pytest.raises(ProcessLookupError):
        os.kill(kernel, 0)
    assert not list((project / ".cache").glob("run-*"))
    assert not list((project / ".cache").glob("executed/*"))


def test_notebooks_that_cannot_be_used_are_refused(project, tmp_path):
    with pytest.raises(ReportError, match="received none"):
        find_notebooks()
    with pytest.raises(ReportError, match="existing notebook"):
        find_notebooks([project / "notebooks" / "missing.ipynb"])
    one, other = toys.write(tmp_path / "a", "same", TITLE), toys.write(tmp_path / "b", "same", TITLE)
    with pytest.raises(ReportError, match="different names"):
        find_notebooks([one, other])
    one.write_text("not a notebook")
    with pytest.raises(ReportError, match="expected a notebook"):
        run_notebooks([one])


def test_without_a_terminal_every_notebook_says_when_it_starts_and_ends(project, capsys):
    toys.write(project / "notebooks", "01_square", *SQUARE)
    toys.write(project / "notebooks", "02_broken", TITLE, toys.code("1 / 0"))
    run_notebooks(jobs=1)
    lines = [re.sub(r"\d+ s", "N s", line) for line in capsys.readouterr().err.splitlines()]
    assert lines == [
        "01_square: started",
        "01_square: finished after N s, 1 of 2",
        "02_broken: started",
        "02_broken: stopped (ZeroDivisionError) after N s, 2 of 2",
    ]
