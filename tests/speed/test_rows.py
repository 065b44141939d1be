"""Times as records: intervals of medians, and a key that tells every case and implementation apart."""

from __future__ import annotations

import random
import statistics

import pytest

from analysis.kernels.cases import Case
from analysis.records import Record
from analysis.speed.rows import case_records, median_interval, parameters
from analysis.speed.suites import loop_of
from tests.speed.times import CEILINGS, row


def test_the_interval_of_a_median_holds_it_about_nineteen_times_in_twenty():
    draw = random.Random(0)
    held = 0
    for _ in range(2000):
        samples = [draw.lognormvariate(0, 1) for _ in range(25)]
        low, high = median_interval(samples)
        assert low <= statistics.median(samples) <= high
        held += low <= 1.0 <= high
    assert 0.94 < held / 2000 < 0.98


def test_few_samples_have_no_interval():
    assert median_interval([1.0, 2.0, 3.0]) == (None, None)
    assert median_interval(list(range(6))) == (0, 5)


def test_every_implementation_becomes_a_record_and_the_kernels_carry_the_floor():
    case = Case("v2", "parallel")
    ours, other = case_records(case, loop_of(case), row(case), CEILINGS, "ttt-analysis bench --suite ladder")
    assert (ours.value, ours.unit, ours.device) == (1.0, "ms", "a GPU")
    assert ours.extra["achieved"] == 0.5 and ours.extra["ceilings"] == CEILINGS
    assert ours.extra["errors"]["outputs"] == 1e-3 and ours.extra["first_ms"] == 1200.0
    assert "floor_ms" not in other.extra and other.parameters["implementation"] == "torch.compile"
    assert Record.from_json(ours.to_json()) == ours


@pytest.mark.parametrize(
    "change", [{"tokens": 64}, {"form": "recurrent"}, {"passes": "training"}, {"width": 8}]
)
def test_another_case_is_another_record(change):
    case = Case("v2", "parallel")
    other = Case(**({"rung": "v2", "form": "parallel"} | change))
    assert parameters(case, "triton") != parameters(other, "triton")
    assert parameters(case, "triton") != parameters(case, "torch.compile")
