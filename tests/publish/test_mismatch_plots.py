"""Pictures of distributions: every layer and loop has its panel, and no interval leaves what its measure can be."""

from __future__ import annotations

import math

import numpy as np
import pytest

from analysis.probes.embedding import embed
from analysis.publish import mismatch_plots
from analysis.publish.plots import MEASURES
from analysis.records import Record
from analysis.spec import Family

LM = (Family.LACT_LM,)

pytestmark = pytest.mark.usefixtures("strict_figures")


def layers(flat_at):
    rng = np.random.default_rng(0)
    found = {}
    for layer in range(3):
        keys = np.ones((30, 4)) if layer in flat_at else rng.normal(size=(30, 4))
        pair = embed({"q": rng.normal(size=(30, 4)), "k": keys})
        values = embed({"v": rng.normal(size=(30, 4)), "o": rng.normal(size=(30, 4))})
        found[f"layer {layer}"] = {"Q/K": pair, "V/O": values}
    return found


def legends(figure):
    drawn = [*figure.legends, *(axes.get_legend() for axes in figure.axes if axes.get_legend())]
    return {text.get_text() for legend in drawn for text in legend.get_texts()}


def mismatched(seed, value, **where):
    for pair in ("Q/K", "V/O"):
        for layer in (0, 1):
            yield Record(
                question="distribution mismatch",
                metric="classifier_accuracy",
                value=value + 0.1 * layer,
                seeds=(seed,),
                parameters={
                    "family": "lact_lm",
                    "variant": "baseline",
                    "pair": pair,
                    "layer": layer,
                    **where,
                },
            )


@pytest.mark.parametrize("flat_at", [(), (0,), (2,), (0, 1)])
def test_a_layer_without_a_picture_keeps_its_panel_and_says_why(flat_at):
    found = layers(flat_at)
    figure, rows = mismatch_plots.embeddings(found)
    assert len(figure.axes) == 2 * len(found)
    silent = [axes for axes in figure.axes if not axes.collections]
    assert len(silent) == len(flat_at)
    assert all("all points coincide" in axes.texts[0].get_text() for axes in silent)
    assert {row["layer"] for row in rows if row["pair"] == "Q/K"} == {
        f"layer {layer}" for layer in range(3) if layer not in flat_at
    }
    assert {"Q", "K", "V", "O"} <= legends(figure)


def test_pairs_of_two_loops_have_rows_of_their_own():
    found = {
        layer: {f"{loop}: {pair}": one for loop in ("conv", "glu") for pair, one in pairs.items()}
        for layer, pairs in layers(()).items()
    }
    figure, rows = mismatch_plots.embeddings(found)
    assert len(figure.axes) == 4 * len(found)
    named = ["conv: Q/K", "conv: V/O", "glu: Q/K", "glu: V/O"]
    assert [axes.get_ylabel() for axes in figure.axes[:: len(found)]] == named
    assert list(dict.fromkeys(row["pair"] for row in rows)) == named
    assert legends(figure) == {"Q", "K", "V", "O"}


def test_the_frame_holds_seeds_intervals_and_the_reference():
    figure, rows = mismatch_plots.over_training_seeds([*mismatched(0, 0.7), *mismatched(1, 0.8)], LM)
    assert {row["high"] for row in rows} == {1.0}, "an accuracy cannot pass one"
    low, high = figure.axes[0].get_ylim()
    assert low < min(0.5, *(row["low"] for row in rows)) and 1.0 < high < 1.2


def test_pairs_stand_side_by_side_and_ticks_at_layers():
    figure, rows = mismatch_plots.over_training_seeds([*mismatched(0, 0.7), *mismatched(1, 0.8)], LM)
    places = [tuple(line.get_xdata()) for line in figure.axes[0].lines if len(line.get_xdata()) == 2]
    aside = mismatch_plots.ASIDE
    assert {(-aside, 1 - aside), (aside, 1 + aside)} <= set(places)
    assert [row["at"] for row in rows] == [0, 1, 0, 1] and list(figure.axes[0].get_xticks()) == [0, 1]


@pytest.mark.parametrize("metric", MEASURES)
def test_no_interval_passes_the_bounds_of_its_measure(metric):
    least, most = mismatch_plots.BOUNDS[metric]
    records = [
        row.edit(metric=metric, value=value)
        for seed, value in enumerate((least, most))
        for row in mismatched(seed, 0.0)
    ]
    rows = mismatch_plots.over_training_seeds(records, LM)[1]
    assert rows and all((row["low"], row["high"]) == (least, most) for row in rows)


def test_an_estimate_below_its_bound_keeps_its_point_and_one_seed_has_no_interval():
    below = [row.edit(metric="mmd", value=-0.001) for seed in (0, 1) for row in mismatched(seed, 0.0)]
    assert {row["low"] for row in mismatch_plots.over_training_seeds(below, LM)[1]} == {-0.001}
    assert all(math.isnan(row["low"]) for row in mismatch_plots.over_training_seeds(below[:4], LM)[1])


def test_each_loop_of_a_family_has_a_row_with_its_name():
    records = [
        *(row for seed in (0, 1) for row in mismatched(seed, 0.8)),
        *(row for loop in ("glu", "conv") for row in mismatched(0, 0.6, family="vittt", loop=loop)),
    ]
    figure, rows = mismatch_plots.over_training_seeds(records, (Family.LACT_LM, Family.VITTT))
    assert [axes.get_ylabel() for axes in figure.axes[:: len(MEASURES)]] == [
        Family.LACT_LM.title,
        f"{Family.VITTT.title}\nloop conv",
        f"{Family.VITTT.title}\nloop glu",
    ]
    assert [row["loop"] for row in rows] == [""] * 4 + ["conv"] * 4 + ["glu"] * 4
    assert all(len(row["by seed"]) == 1 for row in rows if row["loop"]), (
        "loops are not mixed as if they were seeds"
    )


def test_a_caption_names_the_loops_where_there_are_several():
    both = [row for loop in ("glu", "conv") for row in mismatched(0, 0.6, loop=loop)]
    assert mismatch_plots.loops_text(both) == ", in loop conv and loop glu"
    assert mismatch_plots.loops_text(list(mismatched(0, 0.6, loop="conv"))) == ""


def test_without_records_there_is_an_empty_figure():
    assert mismatch_plots.over_training_seeds([])[1] == []


def test_a_figure_of_too_many_points_is_thinned_evenly_and_keeps_their_places(monkeypatch):
    found = layers(())
    _, every = mismatch_plots.embeddings(found)
    assert mismatch_plots.thinning(found) == 1
    monkeypatch.setattr(mismatch_plots, "MOST_POINTS", len(every) // 2)
    assert mismatch_plots.thinning(found) == 2
    _, some = mismatch_plots.embeddings(found)
    where = [(row["layer"], row["pair"], row["cloud"]) for row in every]
    firsts = [row for at, row in enumerate(every) if (at - where.index(where[at])) % 2 == 0]
    assert some == firsts and len(some) <= len(every) // 2
