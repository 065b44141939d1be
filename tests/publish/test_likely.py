"""What a failed claim about a retrained model says of its cause, on made-up seeds."""

import pytest

from analysis.publish import likely, verdicts
from analysis.publish.retrained_verdicts import equal
from analysis.spec import RUNGS, Family
from tests.publish.made_records import KNOWN, trained

LM = Family.LACT_LM
SEEDS = (-0.1, 0.0, 0.1)


def around(variant, value, spread=1.0):
    return trained(variant, tuple(value + spread * seed for seed in SEEDS))


LADDER = [
    *KNOWN, *around("v1", 10), *around("v2", 11, 8), *around("v3", 12.5), *around("v4", 12.6, 8), *around("v5", 12.4),
    *around("v6", 12.9),
]  # fmt: skip


def test_sure_steps_are_losses_and_other_large_ones_are_named_apart_with_their_intervals():
    said = likely.where_lost(LADDER, LM)
    lost, _, unsure = said.partition("; not told from zero, though among the largest estimates: without ")
    assert lost.startswith("down the ladder quality is lost, in perplexity with 95 % intervals, without ")
    assert "gradient orthogonalisation (Variant 5 to 6: +0.50 [+0." in lost
    assert "[-" not in lost and "multi-layer" not in lost and "weight norm" not in lost
    assert unsure.index("the multi-layer network (Variant 2 to 3: +1.50 [-") < unsure.index("weight norm")
    assert "learning rates" not in said and "momentum" not in said and "last layer" not in said


def test_without_a_sure_step_nothing_is_called_lost():
    said = likely.where_lost(LADDER, LM, "v3")
    assert said.startswith(
        "no single step down the ladder is sure to lose anything; the largest estimates, not"
    )
    assert "is lost" not in said and "the multi-layer network (Variant 2 to 3: +1.50 [-" in said
    one = likely.where_lost(LADDER, LM, "v2")
    assert (
        "the largest estimate, not told from zero, in perplexity with 95 % intervals: without weight" in one
    )


def test_with_sure_steps_alone_there_is_nothing_apart():
    said = likely.where_lost([*KNOWN, *around("v1", 11), *around("v2", 12)], LM)
    assert said.startswith("down the ladder quality is lost") and "(Variant 1 to 2: +1.00 [+0." in said
    assert "not told from zero" not in said
    unsure = likely.where_lost([*KNOWN, *around("v1", 11), *around("v2", 12, 30)], LM)
    assert "not told from zero" in unsure and "(Baseline to 1: +1.00 [+0." in unsure


def test_a_step_that_helps_is_not_among_the_losses():
    better = [*KNOWN, *around("v1", 9), *around("v2", 8)]
    assert likely.where_lost(better, LM) == ""


def test_one_step_is_nothing_to_compare():
    assert likely.where_lost([*KNOWN, *around("v1", 12)], LM) == ""


@pytest.mark.parametrize(
    ("value", "spread", "verdict", "where", "scale"),
    [
        (12.9, 1, verdicts.FAILED, True, True),
        (11.0, 8, verdicts.OPEN, True, False),
        (10.0, 1, verdicts.REPRODUCED, False, False),
    ],
)
def test_only_what_did_not_reproduce_is_explained(value, spread, verdict, where, scale):
    rows = [row for row in LADDER if row.parameters["variant"] != "v6"] + around("v6", value, spread)
    found = likely.explained(equal(LM, "v6"), LM, down_to="v6")(rows)
    assert found.verdict == verdict
    assert ("down the ladder" in found.reason, "not tested here" in found.reason) == (where, scale)


def test_a_rung_is_explained_by_the_steps_above_it_only():
    assert "Variant 2 to 3" not in likely.where_lost(LADDER, LM, "v2")
    found = likely.explained(equal(LM, "v3"), LM, down_to="v3")(LADDER)
    assert found.verdict == verdicts.FAILED
    assert "the multi-layer network (Variant 2 to 3: +1.50 [" in found.reason
    assert "Variant 5 to 6" not in found.reason


def test_one_seed_is_not_explained():
    found = likely.explained(equal(LM, "v6"), LM, down_to="v6")([*LADDER[:-3], *trained("v6", (12.9,))])
    assert found.verdict == verdicts.OPEN and "down the ladder" not in found.reason


def test_every_rung_that_changes_vittt_says_what_it_takes_from_it():
    changing = {rung.key for rung in RUNGS if Family.VITTT not in rung.no_op_for}
    assert changing == likely.IN_VITTT.keys()
