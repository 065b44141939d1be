"""Verdicts on made-up retrained models, each beside the records that must turn it."""

import pytest

from analysis.publish import retrained_verdicts, verdicts
from analysis.publish.published import table_1, table_2
from analysis.records import Record
from analysis.spec import Family, InnerLoop
from tests.publish.made_records import BASELINE, FROZEN, KNOWN, trained

LM = Family.LACT_LM


def test_the_margin_is_a_quarter_of_what_the_updates_are_worth():
    assert retrained_verdicts.margin(KNOWN, LM) == pytest.approx(1.0)
    assert retrained_verdicts.margin(KNOWN[:3], LM) is None


def test_there_is_no_margin_when_the_updates_do_not_help():
    worse = [*trained("baseline", FROZEN), *trained("frozen", BASELINE), *trained("ascent", FROZEN)]
    assert retrained_verdicts.margin(worse, LM) is None
    found = retrained_verdicts.equal(LM, "ascent")(worse)
    assert found.verdict == verdicts.OPEN and "no margin" in found.reason and "14.00" in found.measured


@pytest.mark.parametrize(
    ("values", "verdict"),
    [
        ((10.1, 10.2, 10.0), verdicts.REPRODUCED),
        ((13.0, 13.1, 12.9), verdicts.FAILED),
        ((10.2, 12.5, 10.9), verdicts.OPEN),
        ((11.3, 11.0, 11.1), verdicts.OPEN),
        ((10.1,), verdicts.OPEN),
        ((), verdicts.MISSING),
    ],
)
def test_as_good_needs_the_whole_interval_within_the_margin(values, verdict):
    assert retrained_verdicts.equal(LM, "ascent")([*KNOWN, *trained("ascent", values)]).verdict == verdict


@pytest.mark.parametrize(
    ("decide", "value", "way"),
    [
        (retrained_verdicts.equal, 12.8, "points against"),
        (retrained_verdicts.equal, 10.9, "points for"),
        (retrained_verdicts.equal, 7.0, "points against"),
        (retrained_verdicts.at_least_as_good, 7.0, "points for"),
        (retrained_verdicts.at_least_as_good, 12.8, "points against"),
    ],
)
def test_one_seed_shows_its_number_and_points_one_way(decide, value, way):
    found = decide(LM, "v6")([*KNOWN, *trained("v6", (value,))])
    assert found.verdict == verdicts.OPEN and way in found.reason and found.seeds == 1
    assert f"{value - 10:+.2f} perplexity ({value:.2f} against 10.00)" in found.measured
    assert "margin 1.00" in found.measured and "interval" not in found.measured
    assert ("70 % of the gap" in found.measured) == (value == 12.8)
    assert found.evidence == "seed 0 against 3 seeds of the baseline, 512 windows each"


@pytest.mark.parametrize(
    ("decide", "change", "said"),
    [
        (retrained_verdicts.equal, 0.5, "; nevertheless worse than the baseline beyond its interval"),
        (retrained_verdicts.equal, -0.5, "; nevertheless better than the baseline beyond its interval"),
        (retrained_verdicts.equal, 0.0, ""),
        (retrained_verdicts.equal, 0.95, "too few seeds for this spread; worse than the baseline beyond"),
        (retrained_verdicts.at_least_as_good, 0.5, "; nevertheless worse than the baseline beyond"),
        (retrained_verdicts.at_least_as_good, -0.5, "allows; better than the baseline beyond its interval"),
        (retrained_verdicts.at_least_as_good, 0.0, ""),
    ],
)
def test_a_difference_that_the_margin_forgives_is_named_when_it_is_sure(decide, change, said):
    reason = decide(LM, "v6")([*KNOWN, *trained("v6", [value + change for value in BASELINE])]).reason
    assert said in reason and ("beyond its interval" in reason) == bool(said)


def test_the_margin_knows_nothing_of_a_model_without_an_inner_loop():
    assert retrained_verdicts.margin([*KNOWN, *trained("none", (20.0, 20.1))], LM) == pytest.approx(1.0)


def test_a_pair_names_the_model_it_is_held_against():
    rows = [*trained("v3", BASELINE), *trained("v2", BASELINE[:2])]
    found = retrained_verdicts.worse(LM, "v3", "v2")(rows)
    assert found.evidence == "3 seeds against 2 seeds of Variant 2, 512 windows each"


def test_digits_show_on_which_side_of_the_margin_a_seed_lies():
    found = retrained_verdicts.equal(LM, "v6")([*KNOWN, *trained("v6", (11.004,))])
    assert "points against" in found.reason and "+1.004 perplexity" in found.measured


@pytest.mark.parametrize(
    ("values", "verdict"),
    [
        ((7.0, 7.1, 6.9), verdicts.REPRODUCED),
        ((13.0, 13.1, 12.9), verdicts.FAILED),
        ((10.2, 12.5, 10.9), verdicts.OPEN),
    ],
)
def test_at_least_as_good_looks_at_one_side(values, verdict):
    found = retrained_verdicts.at_least_as_good(LM, "v1")([*KNOWN, *trained("v1", values)])
    assert found.verdict == verdict


def test_shortened_runs_are_named_and_not_compared_with_full_ones():
    rows = [*trained("frozen", FROZEN), *trained("baseline", BASELINE, steps=30)]
    assert retrained_verdicts.by_variant(rows, LM, "baseline") == []
    found = retrained_verdicts.worse(LM, "frozen", "baseline")(rows)
    assert found.verdict == verdicts.MISSING
    assert "only shortened runs of the baseline (30 of 100 steps)" in found.reason
    full = [*trained("frozen", FROZEN), *trained("baseline", BASELINE)]
    assert "shortened" not in retrained_verdicts.worse(LM, "frozen", "baseline")(full).reason


def test_worse_needs_an_interval_without_zero():
    worse = retrained_verdicts.worse(LM, "frozen", "baseline")
    assert worse(KNOWN).verdict == verdicts.REPRODUCED
    swapped = [*trained("baseline", FROZEN), *trained("frozen", BASELINE)]
    assert worse(swapped).verdict == verdicts.FAILED
    near = [*trained("baseline", (10.0, 11.0)), *trained("frozen", (10.2, 11.3))]
    assert worse(near).verdict == verdicts.OPEN
    single = worse([*trained("baseline", BASELINE[:1]), *trained("frozen", FROZEN[:1])])
    assert single.verdict == verdicts.OPEN and "points for" in single.reason


def test_differences_carry_the_unit_of_a_difference():
    def rows(metric, family):
        values = {"baseline": (90.0, 90.1, 89.9), "frozen": (80.0, 80.1, 79.9)}
        return [row for v, found in values.items() for row in trained(v, found, metric=metric, family=family)]

    images = retrained_verdicts.worse(Family.VITTT, "frozen", "baseline")(rows("top1", "vittt"))
    assert "-10.00 percentage points (80.00 against 90.00 %)" in images.measured
    assert (
        "perplexity (14.00 against 10.00)"
        in retrained_verdicts.worse(LM, "frozen", "baseline")(KNOWN).measured
    )


def ascending(ascent, seeds):
    sides = {"baseline": (-1.0, -2.0), "ascent": (-1.0, ascent)}
    return [
        row
        for variant, ends in sides.items()
        for side, end in zip(("before", "after"), ends, strict=True)
        for row in trained(variant, (end,) * seeds, metric=f"inner_loss_{side}")
    ]


@pytest.mark.parametrize(
    ("ascent", "seeds", "verdict", "reason"),
    [
        (1.0, 2, verdicts.REPRODUCED, "in every seed"),
        (-3.0, 2, verdicts.FAILED, "other sign"),
        (1.0, 1, verdicts.OPEN, "points for"),
        (-3.0, 1, verdicts.OPEN, "points against"),
    ],
)
def test_ascent_must_raise_the_inner_loss_in_every_seed(ascent, seeds, verdict, reason):
    found = retrained_verdicts.ascent_loss(LM)(ascending(ascent, seeds))
    assert found.verdict == verdict and reason in found.reason


def test_a_loss_is_only_compared_with_that_of_its_own_seed():
    rows = ascending(1.0, 3)
    gone = [r for r in rows if (r.metric, r.seeds) != ("inner_loss_before", (0,))]
    found = retrained_verdicts.ascent_loss(LM)(gone)
    assert found.verdict == verdicts.REPRODUCED and found.seeds == 2


@pytest.mark.parametrize(
    ("loops", "moved"),
    [
        (("fast_weights",), "by -1 (descent) and +2 (ascent)"),
        (("conv", "glu"), "by -2 (descent) and +4 (ascent), the loops of a layer added"),
    ],
)
def test_an_inner_loss_adds_the_loops_that_a_training_run_averages(loops, moved):
    rows = [row.edit(trained_spec=dict.fromkeys(loops, InnerLoop())) for row in ascending(1.0, 2)]
    found = retrained_verdicts.ascent_loss(LM)(rows)
    assert found.measured.endswith(moved) and found.verdict == verdicts.REPRODUCED


def test_an_inner_loss_of_one_batch_does_not_claim_the_examples_of_the_task_metric():
    found = retrained_verdicts.ascent_loss(LM)([*ascending(1.0, 2), *KNOWN])
    assert found.evidence == "2 seeds, the first held-out batch alone"
    other = retrained_verdicts.ascent_loss(LM)(ascending(1.0, 3)[:-1])
    assert other.evidence == "2 seeds against 3 seeds of the baseline, the first held-out batch alone"
    task = retrained_verdicts.worse(LM, "frozen", "baseline")(KNOWN)
    assert task.evidence == "3 seeds, 512 windows each", "a task metric is of all examples"


def test_a_record_without_a_specification_counts_as_one_loop():
    assert retrained_verdicts.added_loops(Record(question="retrained", metric="m", value=1.0)) == 1


def test_published_rows_are_never_measured_ones():
    assert {row.kind.value for row in (*table_1(), *table_2())} == {"published"}
    assert retrained_verdicts.by_variant([*table_1(), *table_2()], LM, "baseline") == []
