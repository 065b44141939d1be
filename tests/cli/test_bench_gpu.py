"""The benchmark of the kernels from the command line: what it refuses, what a line says, and the course of a run."""

from __future__ import annotations

import pytest

from analysis.commands import bench_gpu
from analysis.commands.bench_gpu import chosen, line, main
from analysis.errors import ParameterError
from analysis.kernels.cases import Case
from analysis.records import Record, Store
from analysis.speed import jobs as work
from analysis.speed.rows import case_records
from analysis.speed.session import Job
from analysis.speed.suites import SUITES, loop_of
from tests.speed.times import CEILINGS, row

CASE = Case("v6", "parallel")


def records(**changes):
    return case_records(CASE, loop_of(CASE), row(CASE) | changes, CEILINGS, "bench")


def test_suites_are_named_once_and_run_in_their_own_order():
    assert chosen("all") == SUITES
    assert chosen("sweeps, ladder") == ("ladder", "sweeps")
    with pytest.raises(ParameterError, match="did you mean 'ladder'"):
        chosen("ladder,laddr")


def test_without_a_device_it_ends_in_one_line(capsys):
    assert main(["--suite", "ladder"]) == 2
    (said,) = capsys.readouterr().err.splitlines()
    assert said.startswith("error: --device cuda needs a CUDA device")
    assert main(["--device", "cpu"]) == 2
    assert "need --device cuda" in capsys.readouterr().err


def test_a_line_says_time_floor_first_call_memory_error_and_ratio():
    ours, other = records()
    text = line(ours, ours)
    for part in (
        "1.000 [0.880..1.120]",
        "32.77 M tokens/s",
        "floor 0.500 (50% achieved)",
        "first call 1.20 s",
    ):
        assert part in text
    assert "peak 0.25 GiB" in text and "error 1.0e-03" in text
    assert "times as long" not in text
    assert line(other, ours).endswith("4.00 times as long as the kernels")
    assert "plain arithmetic 1.0e-03" in text and "plain arithmetic" not in line(other, ours)


@pytest.fixture
def toy_jobs(monkeypatch):
    """Two jobs in place of the suites, the second of which fails, and a device that is not there."""

    def fail():
        raise ParameterError("expected agreement, received 0.5")

    def take():
        return [Record(question="first call", metric="seconds", unit="s", value=2.0,
                       parameters={"cache": "empty"}, extra={"error": 1e-3})]  # fmt: skip

    monkeypatch.setattr(bench_gpu, "_require", lambda device: None)
    monkeypatch.setattr("torch.cuda.set_device", lambda device: None)
    monkeypatch.setattr("torch.cuda.get_device_name", lambda *a: "a GPU")
    monkeypatch.setattr(work, "device_ceilings", lambda: CEILINGS)
    jobs = [Job("good", 1.0, {"job": 1}, take), Job("bad", 1.0, {"job": 2}, fail)]
    monkeypatch.setattr(work, "jobs", lambda settings, say: jobs)
    return jobs


def test_a_run_records_at_once_names_failures_and_is_not_repeated(toy_jobs, tmp_path, capsys):
    arguments = ["--suite", "first", "--records", str(tmp_path / "records")]
    assert main(arguments) == 1
    said = capsys.readouterr().out
    assert "2.00 s with empty cache" in said
    assert "bad\n  no time is given: expected agreement" in said
    assert "1 measured, 0 kept" in said and "without a time: bad" in said
    assert len(Store(tmp_path / "records")) == 1
    del toy_jobs[1]
    assert main(arguments) == 0
    assert "0 measured, 1 kept" in capsys.readouterr().out


def test_a_budget_names_what_it_leaves_out(toy_jobs, tmp_path, capsys):
    assert main(["--suite", "first", "--records", str(tmp_path), "--budget", "0.5"]) == 0
    assert "left out, since --budget 0.5 would not hold them: good; bad" in capsys.readouterr().out


def test_processes_that_compile_are_stopped_when_their_time_is_up(tmp_path):
    script = tmp_path / "wait.py"
    script.write_text("import sys, time\ntime.sleep(30 * int(sys.argv[-1][0]))\n")
    done, seconds = work.compile_beforehand([str(script)], 2, seconds=2.0)
    assert done == 1
    assert seconds < 20


def test_what_cannot_be_compared_is_said_and_the_kernels_are_still_timed(monkeypatch):
    def measure(spec, case, truth, plain, ceilings, others=None):
        if others:
            raise RuntimeError("the compiler\ngave up")
        return row(case, other=None)

    monkeypatch.setattr(work, "measure", measure)
    monkeypatch.setattr(work, "device_ceilings", lambda: CEILINGS)
    monkeypatch.setattr("torch.cuda.get_device_name", lambda *a: "a GPU")
    monkeypatch.setattr(work.flash, "is_installed", lambda: True)
    said = []
    found = work.jobs(work.Settings(suites=("ladder",), base=Case("baseline", "recurrent")), said.append)
    assert found[-1].name.startswith("flash-linear-attention, v6 parallel")
    (only,) = found[0].take()
    assert "the compiler gave up" in said[0] and only.extra["notes"]
