"""Errors of timed kernels: tables and sentences say what was checked, how strictly, and no more."""

from __future__ import annotations

import pytest

from analysis.publish import speed, speed_errors
from tests.speed.times import every_record

LOOSE = {
    "first outputs": 0.01,
    "outputs": 0.4,
    "w_out": 0.7,
    "w_up": 0.6,
    "gradient q": 0.4,
    "gradient v": 1.3,
}


@pytest.fixture(scope="module")
def records():
    return every_record()


def trained(records, errors, plain=LOOSE, variant="baseline"):
    """The time of training of one rung, with these errors."""
    times = speed.kernel_times(records, passes="training", variant=variant)
    return [
        record.edit(extra={**record.extra, "errors": errors, "errors_of_plain": plain}) for record in times
    ]


def test_errors_stand_beside_those_of_mixed_precision(records):
    errors = speed_errors.error_table(records)
    assert errors.loc[("Baseline", "recurrent"), "largest"] == "0.1 %"
    assert speed_errors.error_table([]) is None


def test_a_large_error_is_a_whole_number_of_per_cent():
    assert [speed_errors.percent(error) for error in (0.00234, 0.432, 1.287)] == ["0.23 %", "43 %", "129 %"]


def test_gradients_are_told_from_outputs_and_state_and_the_largest_of_each_is_shown(records):
    table = speed_errors.gradient_table(trained(records, LOOSE)).loc[("Baseline", "recurrent")]
    assert dict(table["kernels"]) == {
        "outputs of the first chunks": "1 %",
        "outputs": "40 %",
        "final state (largest)": "70 %",
        "gradients (largest)": "130 %",
    }
    assert speed_errors.COMPILED not in table, "it was not timed"
    assert speed_errors.gradient_table([]) is None


def test_gradients_of_the_first_chunks_are_shown_where_a_record_holds_them(records):
    rows = trained(records, {**LOOSE, "first gradients": 0.02})
    table = speed_errors.gradient_table(rows).loc[("Baseline", "recurrent")]
    assert table.loc[speed_errors.FIRST_GRADIENTS, "kernels"] == "2 %"
    said = speed_errors.gradients_held(rows, 0.05, 1.5, 3)
    assert "on the first 3 chunks alone it is 2 %, below the limit" in said and "made before" not in said


def test_the_sentence_says_where_the_check_is_loose(records):
    said = speed_errors.gradients_held(trained(records, LOOSE), 0.05, 1.5, 3)
    assert "130 %" in said and "no worse than 1.5 times plain arithmetic" in said and "made before" in said
    strict = speed_errors.gradients_held(trained(records, {"gradient q": 0.01}, variant="v2"), 0.05, 1.5, 3)
    assert "below the limit of 5 %" in strict and "loose" not in strict
    assert speed_errors.gradients_held(records, 0.05, 1.5, 3) == "", "no gradients recorded, nothing claimed"
