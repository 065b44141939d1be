"""Figures over training seeds show means, intervals and every seed of what is recorded, and nothing else."""

from __future__ import annotations

import math

import pytest

from analysis.publish import seed_plots, use_style
from analysis.records import Record
from analysis.spec import Family, InnerLoop
from analysis.statistics import interval
from tests.publish.made_records import sweep as whole_sweep

LM = (Family.LACT_LM,)


def sweep(variant, seed, offset=0.0, **parameters):
    where = {"family": "lact_lm", "variant": variant, "step_size": 1.0, "training_steps": 3000, **parameters}
    for k in (1, 2, 4):
        for metric, value in (("inner_loss_after", -k - offset), ("perplexity", 10 + k + offset)):
            yield Record(
                question="inner steps",
                metric=metric,
                value=value,
                seeds=(seed,),
                parameters={**where, "inner_steps": k},
            )


def trained(variant, seed, sign):
    for metric, factor in (("inner_loss_before", 0.1), ("inner_loss_after", 1.0)):
        history = {"steps": [0, 100, 200], "values": [0.0, sign * factor, 2 * sign * factor]}
        yield Record(
            question="retrained",
            metric=metric,
            value=history["values"][-1],
            seeds=(seed,),
            parameters={"family": "lact_lm", "variant": variant, "training_steps": 200},
            extra={"history": history},
        )


@pytest.fixture(autouse=True)
def styled():
    use_style()


def test_a_sweep_shows_mean_interval_and_every_seed():
    records = [*sweep("baseline", 0), *sweep("baseline", 1, 0.5), *sweep("v1", 0, 2.0)]
    _, rows = seed_plots.sweeps(records, LM)
    (row,) = [r for r in rows if (r["variant"], r["metric"], r["at"]) == ("Baseline", "perplexity", 2)]
    across = interval([12.0, 12.5], "t")
    assert (row["mean"], row["low"], row["high"]) == (across.mean, across.low, across.high)
    assert row["by seed"] == [12.0, 12.5]
    (alone,) = [r for r in rows if (r["variant"], r["metric"], r["at"]) == ("Variant 1", "perplexity", 2)]
    assert alone["mean"] == 14.0 and math.isnan(alone["low"]), "one seed has no interval"


def test_a_sweep_draws_the_change_of_every_seed_against_one_step_and_keeps_the_levels():
    records = [*sweep("baseline", 0), *sweep("baseline", 1, 0.5), *sweep("v1", 0, 2.0)]
    figure, rows = seed_plots.sweeps(records, LM)
    (loss,) = [r for r in rows if (r["variant"], r["metric"], r["at"]) == ("Baseline", "inner_loss_after", 4)]
    assert loss["by seed"] == [-4.0, -4.5] and loss["change by seed"] == [-3.0, -3.0]
    assert (loss["change low"], loss["change high"]) == (-3.0, -3.0), "the level of a seed is no spread"
    (task,) = [r for r in rows if (r["variant"], r["metric"], r["at"]) == ("Variant 1", "perplexity", 2)]
    assert task["change mean"] == pytest.approx(100 * (14 / 13 - 1)), "perplexity moves in per cent"
    places = {tuple(line.get_xdata()) for line in figure.axes[0].lines if len(line.get_xdata()) == 3}
    assert len(places) == 2 and len({place for each in places for place in each}) == 6, "side by side"
    assert figure.axes[0].get_yscale() == "linear"


def test_a_sweep_over_many_sizes_keeps_its_first_steps_in_sight_and_one_without_k_1_is_left_out():
    far = [row.edit(value=1000 * row.value) for row in sweep("baseline", 0)]
    figure, _ = seed_plots.sweeps(far, LM)
    assert figure.axes[0].get_yscale() == "symlog"
    without = [row for row in sweep("baseline", 0) if row.parameters["inner_steps"] > 1]
    assert seed_plots.sweeps(without, LM)[1] == []
    alone = [row for row in sweep("baseline", 0) if row.parameters["inner_steps"] == 1]
    assert [row["change mean"] for row in seed_plots.sweeps(alone, LM)[1]] == [0.0, 0.0]


def test_models_trained_with_more_steps_have_a_column_each_and_a_line_a_seed():
    records = [
        row.edit(trained_spec={"fast_weights": InnerLoop(steps=k)})
        for variant, k, seeds in (("baseline", 1, (0, 1)), ("steps2", 2, (0,)))
        for row in whole_sweep(variant=variant, seeds=seeds)
    ]
    figure, rows = seed_plots.trained_steps(records)
    assert [axes.get_title("left") for axes in figure.axes[:2]] == [
        "trained with k = 1, 2 seeds",
        "trained with k = 2, one seed",
    ]
    changes = [row for row in rows if row["metric"] == "% perplexity"]
    assert {(row["trained with"], row["seed"]) for row in changes} == {(1, 0), (1, 1), (2, 0)}
    assert all(row["value"] == 0 for row in changes if row["inner steps"] == row["trained with"])
    assert {row["inner steps"] for row in rows} == {1, 2, 4}, "without updates it would hide the rest"
    trained = [
        line.get_xdata()[0] for axes in figure.axes[2:] for line in axes.lines if line.get_linestyle() == ":"
    ]
    assert trained == [1, 2], "the dotted line marks the trained number of each"


def test_other_step_sizes_and_foreign_models_stay_out():
    others = [*sweep("baseline", 1, 9.0, step_size=2.0), *sweep("own", 2, 9.0)]
    rows = seed_plots.sweeps([*sweep("baseline", 0), *others], LM)[1]
    assert {value for row in rows for value in row["by seed"]} == {-1.0, -2.0, -4.0, 11.0, 12.0, 14.0}


def test_inner_losses_have_a_line_for_every_seed_side_and_direction():
    records = [
        line for seed in (0, 1) for line in (*trained("baseline", seed, -1), *trained("ascent", seed, 1))
    ]
    figure, rows = seed_plots.inner_losses(records, LM)
    assert len(figure.axes[0].lines) == 8 and len(rows) == 24
    assert {row["run"] for row in rows} == {
        f"{way}, {side} the update" for way in ("descent", "ascent") for side in ("before", "after")
    }
    assert all(
        (row["inner loss"] >= 0) == row["run"].startswith("ascent") or row["inner loss"] == 0 for row in rows
    )


def test_the_inner_losses_of_a_layer_are_added_where_a_record_averages_them():
    records = [
        row.edit(trained_spec={"conv": InnerLoop(), "glu": InnerLoop()}) for row in trained("ascent", 0, 1)
    ]
    rows = seed_plots.inner_losses(records, LM)[1]
    assert max(row["inner loss"] for row in rows) == 2 * max(row.value for row in records)


@pytest.mark.parametrize("draw", [seed_plots.sweeps, seed_plots.trained_steps, seed_plots.inner_losses])
def test_without_records_there_is_an_empty_figure(draw):
    assert draw([])[1] == []
