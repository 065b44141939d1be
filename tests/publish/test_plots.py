"""Every kind of figure, with warnings as errors: a picture that cannot be drawn is a visible gap, never a missing panel."""

from __future__ import annotations

import math
import warnings

import matplotlib as mpl
import numpy as np
import pytest

from analysis.probes.embedding import embed
from analysis.publish import ladder_plots, plots, published, use_style
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


def points_with_rows(figure):
    """Every point that says what it is under the mouse: the row it names, and the coordinates it is drawn at."""
    found = {}
    for artist in figure.findobj(lambda artist: (artist.get_gid() or "").startswith("rows-")):
        start, stop = map(int, artist.get_gid().split("-")[1:])
        drawn = artist.get_offsets() if hasattr(artist, "get_offsets") else np.stack(artist.get_data(), 1)
        assert len(drawn) == stop - start, artist.get_gid()
        found |= dict(zip(range(start, stop), drawn.tolist(), strict=True))
    return [found[row] for row in range(len(found))]


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
    assert points_with_rows(figure) == [[row["layer"], row["value"]] for row in rows]
    figure, rows = plots.costs({"one": [1.0, 2.0], "two": [2.0, 8.0]}, [16, 32], "time (ms)")
    assert len(rows) == 4 and len(figure.axes[0].lines) == 2
    assert points_with_rows(figure) == [[row["tokens"], row["time (ms)"]] for row in rows]


def retrained(variant, seed, value):
    where = {"family": "vittt", "variant": variant, "training_steps": 10}
    return make(question="retrained", metric="top1", value=value, seeds=(seed,), parameters=where)


def test_the_points_of_the_ladder_are_the_variants_that_were_trained():
    records = [retrained("baseline", seed, 80.0 + seed) for seed in range(3)] + [retrained("v1", 0, 70.0)]
    records.append(retrained("frozen", 0, 50.0))
    rows = ladder_plots.quality_rows(records, ["baseline", "v1", "v2", "v3"], published.table_2())
    figure, points = ladder_plots.ladder(records, rows)
    assert [(row["family"], row["variant"]) for row in points] == [
        ("vittt", variant) for variant in ("baseline", "v1", "v2")
    ], "variant 2 changes nothing in ViTTT and repeats variant 1; variant 3 was not trained"
    assert points_with_rows(figure) == [[place, row["mean"]] for place, row in enumerate(points)]


def test_perplexity_by_position_names_every_point():
    def curve(variant, loss):
        where = {"family": "lact_lm", "variant": variant, "training_steps": 10}
        curves = {"by_position": [loss] * 128}
        return make(question="evaluation", metric="loss", value=loss, parameters=where, extra=curves)

    figure, rows = ladder_plots.by_position(
        [curve("baseline", 1.0), curve("v1", 2.0)], ["baseline", "v1", "v2"]
    )
    assert points_with_rows(figure) == [[row["position"], row["perplexity"]] for row in rows]
    assert {row["variant"] for row in rows} == {"Baseline", "Variant 1"} and len(rows) == 4


def test_one_seed_has_a_difference_to_the_baseline_without_an_interval():
    records = [retrained("baseline", seed, 80.0 + seed) for seed in range(3)] + [retrained("v1", 0, 70.0)]
    rows = ladder_plots.quality_rows(records, ["baseline", "v1", "v3"], published.table_2())
    baseline, single, none = [row for row in rows if row["family"] == "vittt"]
    assert single["difference"] == -11.0 and math.isnan(single["difference low"])
    assert math.isnan(baseline["difference"]) and math.isnan(none["difference"])


def test_perplexity_is_named_and_other_metrics_carry_their_unit():
    assert published.quantity("perplexity", 12.456, "per token") == "perplexity 12.46"
    assert published.quantity("psnr", 23.4, "dB") == "23.40 dB"


def test_a_gain_compares_the_ends_of_the_sequence():
    rows = [
        {"variant": name, "perplexity": value}
        for name, values in (
            ("Baseline", [9.0, 8.0, 7.0, 6.0]),
            ("Fast weights frozen", [10.0, 10.0, 10.0, 10.0]),
        )
        for value in values
    ]
    assert ladder_plots.gains(rows, "Fast weights frozen", "Baseline") == (1.0, 4.0)
    assert ladder_plots.gains(rows, "Fast weights frozen", "Variant 1") is None
