"""A budget is kept, what is recorded is not measured again, and a failure ends one job alone."""

from __future__ import annotations

import pytest

from analysis.errors import ParameterError
from analysis.records import Record, Store
from analysis.speed.session import Job, Session


class Watch:
    """A clock that stands still until a job moves it."""

    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now


@pytest.fixture
def watch():
    return Watch()


@pytest.fixture
def said():
    return []


def session(folder, watch, said, budget=None, code="a"):
    return Session(
        Store(folder, environment={"code": code}),
        budget,
        lambda name, records: said.append((name, len(records))),
        said.append,
        clock=watch,
    )


def job(name, watch, seconds=10.0, lasts=10.0, error=None):
    def take():
        watch.now += lasts
        if error:
            raise error
        return [Record(question="throughput", metric="milliseconds", value=1.0, parameters={"name": name})]

    return Job(name, seconds, {"name": name}, take)


def test_what_does_not_fit_is_left_out_and_what_fits_is_still_taken(tmp_path, watch, said):
    jobs = [job("a", watch), job("long", watch, seconds=100.0), job("b", watch)]
    outcome = session(tmp_path, watch, said, budget=25.0).run(jobs)
    assert outcome.measured == ["a", "b"]
    assert outcome.left_out == ["long"]
    assert watch.now == 20.0


def test_jobs_that_take_longer_than_expected_make_the_next_ones_expected_longer(tmp_path, watch, said):
    jobs = [job("a", watch, lasts=30.0), job("b", watch)]
    assert session(tmp_path, watch, said, budget=50.0).run(jobs).left_out == ["b"]


def test_a_second_run_takes_nothing_again(tmp_path, watch, said):
    jobs = [job("a", watch), job("b", watch)]
    session(tmp_path, watch, said).run(jobs[:1])
    outcome = session(tmp_path, watch, said).run(jobs)
    assert (outcome.kept, outcome.measured) == (["a"], ["b"])
    assert watch.now == 20.0
    assert [entry for entry in said if entry[0] == "a"] == [("a", 1), ("a", 1)]


def test_a_kept_time_is_shown_whatever_the_budget(tmp_path, watch, said):
    session(tmp_path, watch, said).run([job("a", watch)])
    assert session(tmp_path, watch, said, budget=0.0).run([job("a", watch)]).kept == ["a"]


def test_other_code_measures_again(tmp_path, watch, said):
    session(tmp_path, watch, said).run([job("a", watch)])
    assert session(tmp_path, watch, said, code="b").run([job("a", watch)]).measured == ["a"]


@pytest.mark.parametrize("error", [ParameterError("it disagrees by 0.5"), RuntimeError("out of\nmemory")])
def test_a_failure_is_said_and_the_next_job_begins(tmp_path, watch, said, error):
    outcome = session(tmp_path, watch, said).run([job("bad", watch, error=error), job("b", watch)])
    assert (outcome.failed, outcome.measured) == (["bad"], ["b"])
    assert said[0] == f"bad\n  no time is given: {' '.join(str(error).split())}"
    assert len(Store(tmp_path)) == 1


def test_an_interruption_keeps_what_was_finished(tmp_path, watch, said):
    jobs = [job("a", watch), job("b", watch, error=KeyboardInterrupt())]
    with pytest.raises(KeyboardInterrupt):
        session(tmp_path, watch, said).run(jobs)
    assert session(tmp_path, watch, said).run(jobs[:1]).kept == ["a"]
