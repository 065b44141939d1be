"""Whether models trained with more inner steps are best at their own number, on made-up sweeps."""

from __future__ import annotations

import pytest

from analysis.publish.step_verdicts import steps
from analysis.publish.trained_steps import answer, note, optima, table
from analysis.spec import Family, InnerLoop
from tests.publish.made_records import KNOWN, sweep, trained

TWO = {0: 0.5, 1: 0.1, 2: 0.0, 4: 0.2}
FOUR = {0: 0.5, 1: 0.2, 2: 0.1, 4: 0.0}


def swept(variant, trained_with, changes, seeds=(0,)):
    """A sweep whose perplexities and windows move together, with the number of steps that the model was trained with."""
    spec = {"fast_weights": InnerLoop(steps=trained_with)}
    return [
        row.edit(trained_spec=spec, value=3.0 + changes[row.parameters["inner_steps"]])
        if "per_example" in row.extra
        else row.edit(trained_spec=spec)
        for row in sweep(changes=changes, seeds=seeds, variant=variant)
    ]


BASELINE = swept("baseline", 1, {0: 0.5, 1: 0.0, 2: 0.1, 4: 0.2}, seeds=(0, 1))
FOLLOWING = [*BASELINE, *swept("steps2", 2, TWO), *swept("steps4", 4, FOUR)]


def test_the_optimum_is_the_number_with_the_lowest_perplexity_in_every_seed():
    found = optima(FOLLOWING)
    assert [(one.trained, one.best) for one in found] == [(1, [1, 1]), (2, [2]), (4, [4])]
    assert all(one.follows and not one.near for one in found)
    assert found[1].values() == [3.0] and found[1].values(1) == [3.1]


def test_an_optimum_that_follows_training_is_what_a_mismatch_predicts():
    said = answer(FOLLOWING)
    assert said.startswith("**Every model is best at the number of steps it was trained with.**")
    assert (
        "what the paper's explanation by a mismatch between training and test (section 5.2) predicts" in said
    )
    assert "With k = 2 and 4 a single seed was trained, which has no interval over seeds" in said
    assert "Not recorded" not in said


def test_an_optimum_that_stays_speaks_against_it():
    stays = {0: 0.5, 1: 0.0, 2: 0.1, 4: 0.2}
    said = answer([*BASELINE, *swept("steps2", 2, stays), *swept("steps4", 4, stays)])
    assert said.startswith("**Training with more steps does not move the optimum.** That speaks against")


def test_an_optimum_that_moves_elsewhere_or_in_one_model_is_told_so():
    beyond = answer([*BASELINE, *swept("steps2", 2, TWO), *swept("steps4", 4, TWO)])
    assert "moves the optimum, but not to the trained number each time" in beyond and "in part" in beyond
    alone = answer([*BASELINE, *swept("steps2", 2, {**TWO, 1: -0.1}), *swept("steps4", 4, FOUR)])
    assert "The optimum moves in the model trained with k = 4 alone." in alone


def test_an_optimum_within_its_interval_of_the_baselines_is_not_called_moved_for_sure():
    close = swept("steps2", 2, {**TWO, 1: 1e-9})
    rows = [row.edit(extra={**row.extra, "per_example": NOISE[row.parameters["inner_steps"]]})
            if "per_example" in row.extra else row for row in close]  # fmt: skip
    (_, two) = optima([*BASELINE, *rows])
    assert two.near == [1]
    assert "but with k = 2 its interval does not tell that from the baseline's best number" in answer(
        [*BASELINE, *rows]
    )
    assert table([*BASELINE, *rows]).loc["k = 2", "best at test"] == "k = 2, not told from k = 1"


NOISE = {
    0: [2.0 + 0.001 * i for i in range(8)],
    1: [1.0 + 0.01 * (-1) ** i for i in range(8)],
    2: [1.0 - 0.01 * (-1) ** i for i in range(8)],
    4: [1.5 + 0.001 * i for i in range(8)],
}


@pytest.mark.parametrize(
    ("value", "place"),
    [
        (9.0, "better than every seed of the baseline"),
        (10.0, "overlapping the seeds of the baseline"),
        (12.0, "worse than every seed of the baseline."),
        (15.0, "worse than every seed of the baseline and of the model without updates."),
    ],
)
def test_a_model_run_as_trained_is_compared_with_the_baseline_on_the_full_set(value, place):
    said = answer([*BASELINE, *swept("steps2", 2, TWO), *KNOWN, *trained("steps2", (value,))])
    assert f"trained with more steps it is {value:.2f} (n = 1) for k = 2, {place}" in said
    assert ("without one they do not help either" in said) == (value > 11)
    assert "was not tuned for more steps." in said, "without training curves no gradient norm is told"


def test_the_largest_gradient_norm_of_the_training_is_told_where_every_model_has_one():
    full = [
        row.edit(extra={"curve": {"gradient_norm": [norm, 0.5]}})
        for variant, norm in (("baseline", 0.7), ("steps2", 123.4))
        for row in trained(variant, (10.0,))
    ]
    assert "norm of the training reached 0.7 (k = 1) and 123 (k = 2)" in answer(
        [*BASELINE, *swept("steps2", 2, TWO), *full]
    )


def test_what_is_not_recorded_is_told():
    assert answer([]).startswith(
        "Not recorded: the inner-step sweep of LaCT-LM trained with one inner step, two inner"
    )
    assert answer([*BASELINE, *swept("steps2", 2, TWO)]).endswith("trained with four inner steps.")
    assert table([]).empty and note([]) == "" and note(BASELINE) == ""
    assert optima(sweep()) == [], "a record that does not know its trained number has no optimum to compare"


def test_the_table_has_a_row_for_each_trained_number():
    rows = table(FOLLOWING)
    assert list(rows.index) == ["k = 1", "k = 2", "k = 4"]
    assert (
        rows.loc["k = 1", "k = 1 against the best"] == ""
        and rows.loc["k = 1", "best at test"] == "k = 1 in every seed"
    )
    assert rows.loc["k = 4", "k = 1 against the best"].startswith("+22.14 [+22.14, +22.14] % perplexity")


def test_the_answer_stands_beside_the_claim():
    told = steps(Family.LACT_LM)(FOLLOWING).note
    assert "Trained with k = 1, 2 and 4 LaCT-LM is best at k = 1, 2 and 4, with perplexity 3.00" in told
    assert told.endswith("One seed decides nothing.")
    assert told == note(FOLLOWING), "nothing else is recorded here"
    assert steps(Family.LACT_LM)(BASELINE).note == ""
