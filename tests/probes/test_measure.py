"""Every record of a probe names the backend that ran, and measuring inner losses does not decide which one that is."""

from __future__ import annotations

import math

import pytest

from analysis.probes import evaluation_task, paradoxes
from analysis.probes.measure import INNER
from analysis.records import Store
from tests.models import kernels_stand_in


def check_names(rows, log) -> None:
    """Raise where records name other backends than those in the log of runs."""
    gave = {name for name, measured in log if not measured} or {name for name, _ in log}
    measured = {name for name, measured in log if measured}
    for row in rows:
        assert row.extra["backends"] == sorted(measured if row.metric in INNER else gave), row.metric


def test_records_name_the_backend_and_each_loop_runs_once_without_kernels(case, store, monkeypatch):
    host, task = case
    log = kernels_stand_in.log_runs(monkeypatch)
    rows = paradoxes.evaluation(host, task, store=store)
    check_names(rows, log)
    assert len(log) == len(list(task.batches())) * host.num_layers * len(host.loops)
    assert all(measured for _, measured in log) and {row.metric for row in rows} >= set(INNER)


def test_the_metric_takes_the_kernels_and_inner_losses_stay_what_they_are(case, store, tmp_path, monkeypatch):
    host, task = case
    expected = paradoxes.evaluation(host, task, store=store)
    kernels_stand_in.stand_in(monkeypatch)
    log = kernels_stand_in.log_runs(monkeypatch)
    rows = paradoxes.evaluation(host, task, store=Store(tmp_path / "kernels"))
    check_names(rows, log)
    assert rows[0].extra["backends"] == ["triton"]
    assert log.count(("triton", False)) == len(log) / 2
    for row, before in zip(rows, expected, strict=True):
        assert row.metric == before.metric and row.key == before.key
        assert row.value == pytest.approx(before.value, rel=1e-4)
        assert row.extra.keys() == before.extra.keys()


def test_a_backend_that_gives_a_wrong_name_is_caught(language, store, monkeypatch):
    kernels_stand_in.stand_in(monkeypatch, says="parallel")
    log = kernels_stand_in.log_runs(monkeypatch)
    rows = paradoxes.evaluation(*language, store=store)
    with pytest.raises(AssertionError, match="perplexity"):
        check_names(rows, log)


def test_every_arm_of_every_probe_names_what_ran(case, store, monkeypatch):
    host, task = case
    kernels_stand_in.stand_in(monkeypatch)
    rows = [
        *paradoxes.inner_steps(host, task, (1, 2), store=store),
        *paradoxes.gradient_ascent(host, task, store=store),
        *paradoxes.query_to_key(host, task, store=store),
        *paradoxes.feeding(host, task, store=store),
    ]
    for row in rows:
        named = set(row.extra["backends"])
        assert named <= {"parallel", "recurrent"} and named if row.metric in INNER else named == {"triton"}


def test_a_named_backend_that_keeps_no_inner_losses_can_be_probed(language, store, monkeypatch):
    host, _ = language
    task = evaluation_task(host, 2, length=32)
    auto = paradoxes.evaluation(host, task, store=store)
    monkeypatch.setattr(host, "backend", "reference")
    rows = paradoxes.evaluation(host, task, store=store)
    assert rows[0].parameters["backend"] == "reference" and rows[0].extra["backends"] == ["reference"]
    assert {tuple(row.extra["backends"]) for row in rows if row.metric in INNER} == {("recurrent",)}
    assert all(math.isclose(a.value, b.value, rel_tol=1e-4) for a, b in zip(auto, rows, strict=True))


def test_the_curve_over_positions_names_its_backend_too(language, store):
    loss = next(row for row in paradoxes.evaluation(*language, store=store) if row.metric == "loss")
    assert set(loss.extra) == {"by_position", "backends"}
