"""The command line as a user meets it: help at once, mistakes in one sentence, exit codes that mean something."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import pytest

from analysis import cli
from analysis.errors import CheckpointError
from analysis.paths import ROOT
from analysis.spec import RUNGS

VERBS = {"ladder", "inspect", "verify", "probe", "evaluate", "train", "recipes", "bench", "figures", "report"}


def run(*arguments: str, **options) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "analysis", *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        **options,
    )


def code_of(*arguments: str) -> int:
    with pytest.raises(SystemExit) as left:
        cli.main(list(arguments))
    return left.value.code


def test_help_answers_at_once():
    times = []
    for _ in range(3):
        start = time.perf_counter()
        done = run("--help")
        times.append(time.perf_counter() - start)
    assert done.returncode == 0
    assert all(f"\n  {verb} " in done.stdout for verb in VERBS)
    assert min(times) < 0.5, times


@pytest.mark.parametrize("arguments", [["--help"], *([verb, "--help"] for verb in sorted(VERBS)), ["ladder"]])
def test_help_and_ladder_import_neither_torch_nor_pandas(arguments):
    code = (
        "import sys; from analysis.cli import _run\n"
        f"code = _run({arguments!r})\n"
        "sys.exit(code or [name for name in ('torch', 'pandas', 'matplotlib', 'papermill') if name in sys.modules] or None)"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_no_arguments_show_the_help():
    assert run().stdout == run("--help").stdout


def test_version():
    import analysis

    assert run("--version").stdout == f"ttt-analysis {analysis.__version__}\n"


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["lader"], "did you mean 'ladder'"),
        (["inspect"], "missing argument 'checkpoint'"),
        (["report", "--jobs", "0"], "invalid value for '--jobs'"),
        (["probe", "steps"], "missing option '--checkpoint'"),
        (["ladder", "--chunk", "3"], "no such option"),
    ],
)
def test_a_mistake_in_the_command_is_one_line_and_exit_code_2(arguments, sentence):
    done = run(*arguments)
    assert done.returncode == 2
    assert done.stdout == ""
    (line,) = done.stderr.splitlines()
    assert line.startswith("error: ")
    assert sentence in line.lower()
    assert line.endswith("--help.")


def test_an_error_of_the_library_is_one_line_and_exit_code_2(monkeypatch, capsys):
    def refuse(chunks):
        raise CheckpointError("expected a file, received a folder; pass the file.")

    monkeypatch.setattr("analysis.commands.show.ladder_table", refuse)
    assert code_of("ladder") == 2
    assert capsys.readouterr().err == "error: expected a file, received a folder; pass the file.\n"


def test_an_error_of_the_program_keeps_its_traceback(monkeypatch):
    def fail(chunks):
        raise RuntimeError("a bug")

    monkeypatch.setattr("analysis.commands.show.ladder_table", fail)
    with pytest.raises(RuntimeError, match="a bug"):
        cli.main(["ladder"])


def waiting_command() -> subprocess.Popen[str]:
    """Start `ttt-analysis ladder` with a table that takes a minute, and return it once it is at work."""
    code = (
        "import sys, time, analysis.commands.show as show\n"
        "def wait(chunks):\n    sys.stdout.write('ready\\n'); sys.stdout.flush(); time.sleep(60)\n"
        "show.ladder_table = wait\n"
        "from analysis.cli import main; main(['ladder'])"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout.readline() == "ready\n"
    return process


def test_an_interrupt_is_one_line_and_exit_code_130():
    process = waiting_command()
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=30)
    assert process.returncode == 130
    assert errors.startswith("interrupted: ")
    assert len(errors.splitlines()) == 1


def test_a_closed_pipe_has_nothing_to_say():
    script = f"'{sys.executable}' -m analysis ladder | true"
    done = subprocess.run(["bash", "-c", script], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.stderr == ""


def test_the_ladder_shows_every_rung_with_its_class(capsys):
    assert code_of("ladder", "--chunks", "4") == 0
    text = capsys.readouterr().out
    for rung in RUNGS:
        assert rung.key in text
    for part in ("sequential", "additive per chunk", "single update", "†", "LaCT-LM", "ViTTT"):
        assert part in text


def test_the_installed_script_is_the_same_command():
    script = os.path.join(os.path.dirname(sys.executable), "ttt-analysis")
    done = subprocess.run([script, "--version"], capture_output=True, text=True, check=False)
    assert done.stdout.startswith("ttt-analysis ")
