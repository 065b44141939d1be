"""Verdicts on made-up distributions, each beside the records that must turn it."""

import pytest

from analysis.publish import verdicts
from analysis.publish.mismatch_verdicts import mismatched
from analysis.spec import Family, InnerLoop
from tests.publish.made_records import clouds

decide = mismatched(Family.LACT_LM, "Q/K")


@pytest.mark.parametrize(
    ("accuracy", "verdict"),
    [((0.99, 0.8), verdicts.REPRODUCED), ((0.99, 0.7), verdicts.OPEN), ((0.6, 0.7), verdicts.FAILED)],
)
def test_every_layer_must_be_told_apart(accuracy, verdict):
    assert decide(clouds(accuracy)).verdict == verdict


def test_one_seed_points_one_way():
    assert "points for" in decide(clouds(seeds=(0,))).reason
    assert "points against" in decide(clouds((0.6, 0.7), seeds=(0,))).reason
    assert "points neither way" in decide(clouds((0.99, 0.7), seeds=(0,))).reason
    assert decide(clouds(seeds=(0,))).verdict == verdicts.OPEN


def test_few_relabellings_decide_nothing():
    found = decide(clouds(permutations=19))
    assert found.verdict == verdicts.OPEN and "19 relabellings" in found.reason


def test_clouds_are_judged_by_what_they_were_measured_on_whatever_the_order_of_records():
    rows = [*clouds((0.99, 0.6), seeds=(0,)), *clouds((0.99, 0.6), seeds=(1,))]
    weak = [
        row.edit(value=0.5) if row.metric == "mmd_p_value" and row.parameters["layer"] == 0 else row
        for row in rows
    ]
    for found in (decide(weak), decide(sorted(weak, key=lambda row: (row.metric, -row.value)))):
        assert found.verdict == verdicts.FAILED and found.reason.startswith("0 of 4 pairs")


def test_an_accuracy_without_its_p_value_decides_nothing():
    assert decide(clouds()[:-1]).verdict == verdicts.MISSING


def test_layers_are_counted_as_seeds_by_layers():
    assert "4 of 4 pairs of clouds (2 seeds × 2 layers)" in decide(clouds()).reason
    assert "2 of 2 pairs of clouds (2 layers)" in decide(clouds(seeds=(3,))).reason


def both(conv=(0.99, 0.98), glu=(0.9, 0.8), seeds=(0, 1)):
    """Clouds of a model with two inner loops, an accuracy a layer of each."""
    trained = {"conv": InnerLoop(), "glu": InnerLoop()}
    return [
        row.edit(trained_spec=trained, run_spec=trained, parameters={**row.parameters, "loop": loop})
        for loop, accuracy in (("conv", conv), ("glu", glu))
        for row in clouds(accuracy, seeds=seeds)
    ]


def test_every_inner_loop_is_judged_and_named():
    found = decide(both())
    assert found.verdict == verdicts.REPRODUCED
    assert "accuracy 0.98 to 0.99 (loop conv), 0.80 to 0.90 (loop glu); MMD" in found.measured
    assert "8 of 8 pairs of clouds (2 seeds × 2 layers × 2 loops: conv and glu)" in found.reason
    assert decide(both(glu=(0.9, 0.6))).verdict == verdicts.OPEN
    assert decide(both((0.6, 0.6), (0.6, 0.6))).verdict == verdicts.FAILED


@pytest.mark.parametrize("seed", [0, 1])
def test_a_loop_that_was_trained_and_not_measured_leaves_the_claim_open(seed):
    rows = [row for row in both() if row.parameters["loop"] == "conv" or row.seeds != (seed,)]
    found = decide(rows)
    assert found.verdict == verdicts.MISSING and "glu" in found.reason and "conv" not in found.reason


def test_one_value_is_no_range():
    assert "accuracy 1.00; MMD" in decide(clouds((0.998, 0.999))).measured


def test_an_accuracy_near_the_floor_shows_its_side():
    assert "0.7503 to 0.94" in decide(clouds((0.7503, 0.94))).measured
    assert "0.80 to 0.94" in decide(clouds((0.8, 0.94))).measured


def test_the_smallest_p_value_that_the_test_can_give_is_said_to_be_that():
    assert "MMD p <= 1/201, the floor of 200 relabellings" in decide(clouds()).measured
    larger = decide(clouds(p_value=0.03)).measured
    assert "largest MMD p 0.03 (at least 1/201" in larger
