"""Every kind of figure, with warnings as errors: a picture that cannot be drawn is a visible gap, never a missing panel."""

from __future__ import annotations

import warnings

import matplotlib as mpl
import numpy as np
import pytest

from analysis.probes.embedding import embed
from analysis.publish import plots, use_style
from tests.sample_records import make

FAMILIES = ("lact_lm", "vittt")


@pytest.fixture(autouse=True)
def _strict():
    from matplotlib import pyplot as plt

    with warnings.catch_warnings(), mpl.rc_context():
        use_style()
        warnings.simplefilter("error")
        warnings.simplefilter("ignore", ResourceWarning)  # what earlier tests left open is not ours to judge
        yield
        plt.close("all")


def record(metric, value, where, **others):
    return make(
        metric=metric, value=value, ci_low=value - 0.5, ci_high=value + 0.5, parameters=where, **others
    )


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


@pytest.mark.parametrize("flat_at", [(), (0,), (2,), (0, 1)])
def test_a_layer_without_a_picture_keeps_its_panel_and_says_why(flat_at):
    found = layers(flat_at)
    figure, rows = plots.embeddings(found)
    assert len(figure.axes) == 2 * len(found)
    silent = [axes for axes in figure.axes if not axes.collections]
    assert len(silent) == len(flat_at)
    assert all("all points coincide" in axes.texts[0].get_text() for axes in silent)
    assert {row["layer"] for row in rows if row["pair"] == "Q/K"} == {
        f"layer {layer}" for layer in range(3) if layer not in flat_at
    }
    assert {"Q", "K", "V", "O"} <= legends(figure)


def test_sweeps_and_arms_have_a_panel_for_every_family():
    sweeps = {
        family: [
            record(metric, k + 1.0, {"family": family, "inner_steps": k}, extra=extra)
            for k in (1, 2)
            for metric, extra in (("top1", {"per_example": [0, 1, k - 1]}), ("inner_loss_after", {}))
        ]
        for family in FAMILIES
    }
    figure, rows = plots.step_sweep(sweeps)
    assert len(figure.axes) == 2 * len(FAMILIES) and len(rows) == 8
    arms = {
        family: [
            record(
                "top1", place + 1.0, {"family": family, "arm": arm}, extra={"per_example": [0, 1, place % 2]}
            )
            for place, arm in enumerate(plots.ARM_LOOKS)
        ]
        for family in FAMILIES
    }
    figure, rows = plots.arms(arms)
    assert len(figure.axes) == len(FAMILIES) and len(rows) == len(FAMILIES) * len(plots.ARM_LOOKS)
    assert len(plots.arm_table(rows)) == len(rows)


def test_a_run_that_diverged_stands_in_the_table():
    where = {"family": "vittt"}
    before = record("psnr", 20.0, {**where, "arm": "as trained"}, extra={"per_example": [1.0, 2.0]})
    after = make(
        metric="psnr",
        value=float("nan"),
        diverged=True,
        parameters={**where, "arm": "ascent"},
        extra={"per_example": [1.0, float("nan")]},
    )
    _, rows = plots.arms({"vittt": [before, after]})
    assert np.isnan(rows[1]["change"])


def test_measures_and_costs_are_drawn():
    found = [
        record(measure, 0.5 + layer, {"layer": layer, "pair": pair})
        for measure in plots.MEASURES
        for layer in range(2)
        for pair in ("Q/K", "V/O")
    ]
    figure, rows = plots.mismatch_by_layer(found)
    assert len(figure.axes) == len(plots.MEASURES) and len(rows) == len(found)
    figure, rows = plots.costs({"one": [1.0, 2.0], "two": [2.0, 8.0]}, [16, 32], "time (ms)")
    assert len(rows) == 4 and len(figure.axes[0].lines) == 2
