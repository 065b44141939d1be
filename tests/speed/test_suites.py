"""What the benchmark measures: the ladder once, sweeps around it, nothing twice, and nothing that cannot run."""

from __future__ import annotations

from dataclasses import replace

import pytest

from analysis.kernels.cases import Case
from analysis.kernels.plan import plan_of
from analysis.spec import RUNGS
from analysis.speed.suites import AXES, SUITES, cases, forms, loop_of, title

BASE = Case("baseline", "recurrent")


def test_the_ladder_has_every_rung_and_the_parallel_form_where_there_is_one():
    found = [(case.rung, case.form) for case in cases("ladder", BASE)]
    assert [rung for rung, form in found if form == "recurrent"] == [rung.key for rung in RUNGS]
    assert [rung for rung, form in found if form == "parallel"] == ["v2", "v3", "v4", "v5", "v6"]


def test_no_shape_is_measured_twice_and_the_sweeps_leave_the_ladders_to_it():
    every = [case for suite in SUITES if suite != "first" for case in cases(suite, BASE)]
    assert len(set(every)) == len(every)
    swept = cases("sweeps", BASE)
    for axis, values in AXES.items():
        mine = {getattr(case, axis) for case in swept} | {getattr(BASE, axis)}
        assert mine == set(values)


def test_training_cases_are_passes_both_ways():
    assert {case.passes for case in cases("training", BASE)} == {"training"}
    assert {case.passes for suite in ("ladder", "sweeps", "first") for case in cases(suite, BASE)} == {
        "forward"
    }


@pytest.mark.parametrize("suite", ["ladder", "training", "first", "sweeps"])
def test_a_parallel_case_is_one_that_the_kernels_run_in_parallel(suite):
    for case in cases(suite, BASE):
        assert case.form == "recurrent" or plan_of(loop_of(case)).is_additive, title(case)
        assert loop_of(case).chunk == case.chunk


def test_a_smaller_ladder_keeps_its_own_sweeps():
    small = replace(BASE, tokens=4096)
    assert all(case.tokens == 4096 for case in cases("ladder", small))
    assert small not in cases("sweeps", small)
    assert forms("v1") == ("recurrent",)
