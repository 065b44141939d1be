"""The verdict on inner steps on made-up sweeps: the strict rule, what its reason adds, and the control."""

import pytest

from analysis.publish import verdicts
from analysis.publish.step_verdicts import CONTROL, control_text, steps, update_size
from analysis.spec import Family
from tests.publish.made_records import SMALL, STEPS, WORSE, sweep

decide = steps(Family.LACT_LM)


@pytest.mark.parametrize(
    ("losses", "changes", "verdict"),
    [
        (STEPS, WORSE, verdicts.REPRODUCED),
        ({1: -1.0, 2: -0.5, 4: -3.0}, WORSE, verdicts.FAILED),
        (STEPS, {**WORSE, 2: -0.1}, verdicts.FAILED),
        (STEPS, {**WORSE, 2: 0.0}, verdicts.OPEN),
    ],
)
def test_more_steps(losses, changes, verdict):
    assert decide(sweep(losses, changes)).verdict == verdict


@pytest.mark.parametrize(
    ("losses", "way"), [(STEPS, "points for"), ({1: -1.0, 2: -0.5, 4: -3.0}, "points against")]
)
def test_one_seed_points_one_way(losses, way):
    found = decide(sweep(losses, seeds=(0,)))
    assert found.verdict == verdicts.OPEN and way in found.reason
    assert found.evidence == "seed 0, 8 windows"


def test_a_failed_part_leaves_the_other_part_standing():
    turning = [*sweep({1: -1.0, 2: -2.0, 4: -1.5}, seeds=(0,)), *sweep(seeds=(1,))]
    reason = decide(turning).reason
    assert "the inner loss falls up to k = 2, 4 (seeds 0, 1) and not with every further step" in reason
    assert "the metric is worse at every k > 1 in every seed: this part of the claim holds" in reason
    neither = decide(sweep({1: -1.0, 2: -2.0, 4: -1.5}, {**WORSE, 2: 0.0})).reason
    assert "this part of the claim holds" not in neither


TURNING = {1: -1.0, 2: -2.0, 4: -1.5}


@pytest.mark.parametrize(
    ("losses", "changes", "seeds", "said"),
    [
        (STEPS, WORSE, (0, 1), []),
        (
            TURNING,
            WORSE,
            (0, 1),
            ["the inner loss falls only up to k = 2 in 2 of 2 seeds", "the metric is worse at every k > 1 in every seed"],
        ),
        (
            {1: -1.0, 2: -0.5, 4: -3.0},
            WORSE,
            (0,),
            ["the inner loss falls only up to k = 1", "the metric is worse at every k > 1"],
        ),
        (
            STEPS,
            {**WORSE, 2: -0.1},
            (0,),
            ["the inner loss falls with every further step", "some k > 1 is better than k = 1 beyond its interval"],
        ),
        (
            STEPS,
            {**WORSE, 2: 0.0},
            (0, 1),
            [
                "the inner loss falls with every further step in every seed",
                "not every k > 1 is worse beyond its interval in every seed",
            ],
        ),
    ],
    ids=["holds", "loss turns", "one seed against", "a step helps", "a step is unsure"],
)  # fmt: skip
def test_what_fails_stands_before_the_numbers(losses, changes, seeds, said):
    *before, numbers = decide(sweep(losses, changes, seeds=seeds)).measured.split("; ")
    assert before == said and numbers.startswith("4 steps change the inner loss by")


def test_only_the_seeds_that_stop_are_counted_as_stopping():
    turning = [*sweep(TURNING, seeds=(0,)), *sweep(seeds=(1,))]
    assert decide(turning).measured.startswith("the inner loss falls only up to k = 2 in 1 of 2 seeds; ")


def test_the_size_of_an_update_is_counted_by_loop():
    (row,) = [r for r in sweep(seeds=(0,)) if r.metric == "update_norm" and r.parameters["inner_steps"] == 2]
    assert row.value == 1.2 and update_size(row) == pytest.approx(0.6)
    assert update_size(row.edit(extra={})) == 1.2


def test_the_reason_looks_at_updates_no_larger_than_the_weights():
    assert "loss and metric already part at k = 2, where the update is no larger" in decide(sweep()).reason
    late = decide(sweep(changes={**WORSE, 2: 0.0})).reason
    assert "loss and metric do not part yet at k = 2" in late
    large = decide(sweep(sizes={1: 0.7, 2: 1.5, 4: 3.0})).reason
    assert "no k > 1 keeps the update within the weights" in large and "it is 1.5 times as large" in large
    assert "not recorded" in decide(sweep(sizes={})).reason


@pytest.mark.parametrize("far", [0.5, 0.2])
def test_a_blow_up_is_called_one(far):
    sizes, changes = {1: 1.0, 2: 3.0, 4: 9.0}, {**WORSE, 4: far}
    reason = decide(sweep(changes=changes, sizes=sizes)).reason
    assert "k = 4 is a blow-up: the steps add up to 9 times the weights" in reason
    assert ("no better than without updates" in reason) == (far == 0.5)
    assert "blow-up" not in decide(sweep(changes=changes, sizes=SMALL)).reason


@pytest.mark.parametrize(
    ("sizes", "family", "likely", "norm"),
    [
        ({1: 0.7, 2: 1.4, 4: 2.8}, Family.LACT_LM, True, True),
        ({1: 0.7, 2: 1.4, 4: 2.8}, Family.VITTT, True, False),
        ({1: 0.7, 2: 1.4, 4: 1.8}, Family.LACT_LM, False, False),
        (SMALL, Family.LACT_LM, False, False),
    ],
    ids=["overshoots", "without weight norm", "steps shrink", "within the weights"],
)
def test_a_loss_that_stops_falling_is_explained_as_far_as_the_sizes_allow(sizes, family, likely, norm):
    reason = steps(family)(sweep(TURNING, sizes=sizes, family=family.value)).reason
    assert f"where it stops, the steps add up to {sizes[2]:.2g} times the weights" in reason
    assert f"is on average {sizes[4] / 4 / sizes[1]:.2f} times as long as the first" in reason
    assert ("a likely reason, not tested here" in reason) == likely
    assert ("weight normalisation holds" in reason) == norm


def test_nothing_is_explained_where_the_loss_keeps_falling_or_one_seed_decides_nothing():
    assert "where it stops" not in decide(sweep(changes={**WORSE, 2: -0.1})).reason
    assert "where it stops" not in decide(sweep(TURNING, seeds=(0,))).reason
    assert "where it stops" not in decide(sweep(TURNING, sizes={})).reason


def test_the_control_stands_beside_the_verdict():
    control = sweep(seeds=(0, 1, 2), family=CONTROL, variant="own")
    note = decide([*sweep(), *control]).note
    assert "does not by itself tell a memory from linear attention" in note and "3 seeds" in note
    assert "inner loss of a layer that does store pairs" in note and "-2.00" in note
    assert decide(sweep()).note == ""


def test_a_control_that_answers_otherwise_is_told_otherwise():
    better = sweep(changes={**WORSE, 4: -0.2}, family=CONTROL, variant="own")
    assert control_text(better).startswith("A layer that does store pairs answers otherwise")


def test_several_seeds_show_their_range_and_what_holds_their_intervals():
    two = decide([*sweep(seeds=(0,)), *sweep(changes={**WORSE, 4: 0.3}, seeds=(1,))]).measured
    assert (
        "-2 and the task metric by +22.14 to +34.99 % perplexity (95 % intervals within [+22.14, +34.99])"
        in two
    )
    assert "within" not in decide(sweep(seeds=(0,))).measured


def test_a_seed_without_every_loss_or_with_other_counts_leaves_the_claim_unmeasured():
    short = {k: loss for k, loss in STEPS.items() if k != 4}
    assert decide([*sweep(seeds=(0,)), *sweep(short, seeds=(1,))]).verdict == verdicts.MISSING
    fewer = {k: moved for k, moved in WORSE.items() if k != 4}
    assert decide([*sweep(seeds=(0,)), *sweep(changes=fewer, seeds=(1,))]).verdict == verdicts.MISSING
