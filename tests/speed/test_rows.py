"""Times as records: a key that tells every case and implementation apart."""

from __future__ import annotations

import pytest

from analysis.kernels.cases import Case
from analysis.records import Record
from analysis.speed.rows import case_records, parameters
from analysis.speed.suites import loop_of
from tests.speed.times import CEILINGS, row


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
