"""Every kind of figure, with warnings as errors: a picture that cannot be drawn is a visible gap, never a missing panel."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from matplotlib import pyplot as plt

from analysis.publish import ladder_plots, plots, published
from analysis.spec import Family
from tests.sample_records import make

FAMILIES = ("lact_lm", "vittt")

pytestmark = pytest.mark.usefixtures("strict_figures")


def record(metric, value, where, **others):
    return make(
        metric=metric, value=value, ci_low=value - 0.5, ci_high=value + 0.5, parameters=where, **others
    )


def points_with_rows(figure):
    """Every point that says what it is under the mouse: the row it names, and the coordinates it is drawn at."""
    found = {}
    for artist in figure.findobj(lambda artist: (artist.get_gid() or "").startswith("rows-")):
        start, stop = map(int, artist.get_gid().split("-")[1:])
        drawn = artist.get_offsets() if hasattr(artist, "get_offsets") else np.stack(artist.get_data(), 1)
        assert len(drawn) == stop - start, artist.get_gid()
        found |= dict(zip(range(start, stop), drawn.tolist(), strict=True))
    return [found[row] for row in range(len(found))]


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
    figure, rows = plots.arms({"vittt": [before, after]})
    assert np.isnan(rows[1]["change"])
    assert [text.get_text() for text in figure.axes[0].texts] == [" diverged"], "a gap in the figure says why"


@pytest.mark.parametrize("moved", [0.1, 5.0])
def test_arms_are_drawn_at_their_paired_change_or_as_ratios_where_far_apart(moved):
    each = [1.0, 2.0, 3.0]
    records = [
        record(
            "perplexity",
            10.0,
            {"family": "lact_lm", "arm": arm},
            extra={"per_example": [x + by for x in each]},
        )
        for arm, by in (("as trained", 0.0), ("ascent", moved))
    ]
    figure, rows = plots.arms({"lact_lm": records})
    far = moved > np.log(plots.SPREAD)
    expected = [np.exp(by) if far else 100 * np.expm1(by) for by in (0.0, moved)]
    assert np.allclose(points_with_rows(figure), [[x, place] for place, x in enumerate(expected)])
    assert figure.axes[0].get_xscale() == ("log" if far else "linear")
    assert rows[1]["change low"] == pytest.approx(rows[1]["change high"]), "paired: the examples move alike"


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
    both = [
        record(row.metric, row.value + 10 * (loop == "glu"), {**row.parameters, "loop": loop})
        for loop in ("glu", "conv")
        for row in found
    ]
    figure, rows = plots.mismatch_by_layer(both)
    assert len(figure.axes) == 2 * len(plots.MEASURES) and len(rows) == 2 * len(found)
    assert [axes.get_ylabel() for axes in figure.axes[:: len(plots.MEASURES)]] == ["loop conv", "loop glu"]
    assert all((row["value"] > 10) == (row["loop"] == "glu") for row in rows)
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


@pytest.mark.parametrize(("frozen", "told"), [(50.0, "downarrow"), (77.0, None), (200.0, "uparrow")])
def test_a_model_without_updates_far_off_is_told_at_the_edge_and_does_not_squash_the_rungs(frozen, told):
    records = [retrained("baseline", seed, 80.0 + seed) for seed in range(3)] + [
        retrained("frozen", 0, frozen)
    ]
    rows = ladder_plots.quality_rows(records, ["baseline"], published.table_2())
    figure, _ = ladder_plots.ladder(records, rows)
    axes = figure.axes[[family.value for family in Family].index("vittt")]
    texts = [text.get_text() for text in axes.texts]
    low, high = axes.get_ylim()
    if told is None:
        assert texts == [] and low < frozen < high
    else:
        assert len(texts) == 1 and told in texts[0] and f"{frozen:.1f}" in texts[0]
        assert not low < frozen < high and low < 80.0 and high > 82.0


def curve(variant, seed, losses, steps=10, data="text"):
    where = {"family": "lact_lm", "variant": variant, "training_steps": steps}
    curves = {"by_position": [loss for loss in losses for _ in range(64)]}
    return make(
        question="evaluation",
        metric="loss",
        value=1.0,
        seeds=(seed,),
        parameters=where,
        extra=curves,
        data=data,
    )


ZIGZAG = (3.0, 1.0, 2.5, 0.5)


def curves_with_a_rung(rise=0.1):
    """Three seeds of a baseline whose loss goes up and down, and a rung that is worse by more and more."""
    base = [curve("baseline", seed, [loss + seed for loss in ZIGZAG]) for seed in range(3)]
    worse = [loss + rise * place for place, loss in enumerate(ZIGZAG)]
    return base + [curve("v1", seed, [loss + seed for loss in worse]) for seed in range(3)]


def test_perplexity_by_position_names_every_point_and_what_is_hard_for_both_cancels():
    records = [*curves_with_a_rung(), curve("full_attention", 0, ZIGZAG)]
    figure, rows = ladder_plots.by_position(records, 64)
    assert points_with_rows(figure) == [[row["position"], row["mean"]] for row in rows]
    change = [row for row in rows if row["quantity"] == "change in %"]
    assert {row["variant"] for row in change} == {"Variant 1"} and {row["seeds"] for row in change} == {3}
    assert [row["position"] for row in change] == [32, 96, 160, 224]
    for place, row in enumerate(change):
        assert row["mean"] == pytest.approx(100 * math.expm1(0.1 * place))
        assert row["low"] == pytest.approx(row["mean"]) and row["high"] == pytest.approx(row["mean"])
    own = [row["mean"] for row in rows if (row["variant"], row["quantity"]) == ("Baseline", "perplexity")]
    assert own == pytest.approx([math.exp(loss + 1) for loss in ZIGZAG])
    assert {"Baseline", "Variant 1", "Full attention (one seed)"} == {
        text.get_text() for part in figure.subfigs for legend in part.legends for text in legend.get_texts()
    }


def test_a_pair_needs_the_same_seed_text_and_schedule():
    records = curves_with_a_rung()
    whole = ladder_plots.changes(records, "v1", 64)
    strangers = [
        curve("v1", 7, ZIGZAG),
        curve("v1", 0, ZIGZAG, data="other"),
        curve("v1", 1, ZIGZAG, steps=5),
    ]
    assert ladder_plots.changes([*records, *strangers], "v1", 64) == whole
    swapped = [row if row.seeds != (2,) else row.edit(seeds=(1,)) for row in records if row.seeds != (1,)]
    assert len(ladder_plots.position_records(swapped, "v1")) == 2
    odd = [row for row in records if row.parameters["variant"] != "v1"] + [curve("v1", 1, ZIGZAG)]
    assert ladder_plots.changes(odd, "v1", 64)[0][1] == pytest.approx(100 * math.expm1(-1.0)), (
        "seed 1, not their mean"
    )


def test_one_seed_has_a_change_by_position_without_a_band():
    records = [curve("baseline", 0, ZIGZAG), curve("v1", 0, ZIGZAG)]
    _, rows = ladder_plots.by_position(records, 64)
    assert all(
        math.isnan(row["low"]) and row["mean"] == 0 for row in rows if row["quantity"] == "change in %"
    )


def test_changes_by_quarter_are_those_of_its_windows():
    records = curves_with_a_rung()
    assert ladder_plots.quarters(records, "v1") == ladder_plots.changes(records, "v1", 64)
    assert len(ladder_plots.quarters(records, "v1")) == 4
    assert ladder_plots.quarters(records, "v2") == [] and ladder_plots.by_position([])[1] == []


def test_one_seed_has_a_difference_to_the_baseline_without_an_interval():
    records = [retrained("baseline", seed, 80.0 + seed) for seed in range(3)] + [retrained("v1", 0, 70.0)]
    rows = ladder_plots.quality_rows(records, ["baseline", "v1", "v3"], published.table_2())
    baseline, single, none = [row for row in rows if row["family"] == "vittt"]
    assert single["difference"] == -11.0 and math.isnan(single["difference low"])
    assert math.isnan(baseline["difference"]) and math.isnan(none["difference"])


def test_perplexity_is_named_and_other_metrics_carry_their_unit():
    assert published.quantity("perplexity", 12.456, "per token") == "perplexity 12.46"
    assert published.quantity("psnr", 23.4, "dB") == "23.40 dB"


@pytest.mark.parametrize(("size", "end"), [(0.01, "0.01"), (5.0, "5"), (5_678.0, "5,678")])
def test_a_heat_map_has_a_scale_of_its_own_with_white_for_zero(size, end):
    figure, axes = plt.subplots()
    plots.heat_map(axes, torch.full((4, 6), size), "one layer")
    (image,), scale = axes.images, figure.axes[1]
    assert image.get_clim() == pytest.approx((-size, size))
    assert [label.get_text() for label in scale.get_xticklabels()] == [f"−{end}", "0", end]


def test_a_heat_map_of_nothing_is_white():
    _, axes = plt.subplots()
    plots.heat_map(axes, torch.zeros(3, 3), "no weights")
    assert axes.images[0].get_clim() == (-1.0, 1.0)
