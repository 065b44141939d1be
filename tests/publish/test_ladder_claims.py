"""The claims about the ladder: which rungs make one, what is printed beside it, and when Variant 1 is the best."""

import pytest

from analysis.publish import published, verdicts
from analysis.publish.ladder_claims import BEST, EXCEPTIONS, SAME, best_of_ladder, others, reductions
from analysis.spec import RUNGS, Family
from tests.publish.made_records import BASELINE, KNOWN, trained

LM = Family.LACT_LM
best = best_of_ladder(LM)


def ladder(seeds=3, **changes):
    """Every rung at the baseline's values, moved by what is given for it."""
    return [
        row
        for rung in RUNGS
        for row in trained(rung.key, [value + changes.get(rung.key, 0.0) for value in BASELINE[:seeds]])
    ]


@pytest.mark.parametrize("family", Family)
def test_every_rung_that_changes_a_family_makes_a_claim_about_it_with_its_printed_numbers(family):
    rows = {key: printed for key, _, _, printed, _ in reductions(family)}
    changing = {rung.key for rung in RUNGS if family not in rung.no_op_for}
    assert changing <= rows.keys() and changing == {BEST, *SAME} & rows.keys()
    for key in changing:
        assert rows[key] == published.printed(published.table_2(), family, key)
    assert rows.keys() - changing == {"best", *(key for key, about, *_ in EXCEPTIONS if about is family)}


def test_the_exceptions_are_neighbouring_rungs_with_the_numbers_of_both():
    rows = {(family, row[0]): row for family in Family for row in reductions(family)}
    assert rows[Family.LACT_NVS, "depth"][3] == "25.71 against 25.93 dB"
    assert rows[LM, "orthogonal"][3] == "perplexity 16.80 against 15.97"
    for _, family, without, having, _ in EXCEPTIONS:
        keys = [rung.key for rung in RUNGS if family not in rung.no_op_for]
        assert keys.index(without) == keys.index(having) + 1


@pytest.mark.parametrize(
    ("change", "verdict"), [(0.5, verdicts.REPRODUCED), (-0.5, verdicts.FAILED), (0.0, verdicts.OPEN)]
)
def test_an_exception_holds_when_the_rung_without_the_part_is_worse(change, verdict):
    (decide,) = [rule for key, _, _, _, rule in reductions(LM) if key == "orthogonal"]
    assert decide(ladder(v6=change)).verdict == verdict


def test_the_best_of_the_others_is_printed_beside_variant_1():
    printed = {family: row[3] for family in Family for row in reductions(family) if row[0] == "best"}
    assert printed[LM] == "perplexity 15.93 against 15.97 (Variant 5, the best of the others)"
    assert printed[Family.VITTT] == "79.63 against 79.54 % (Variant 6, the best of the others)"
    assert [rung.key for rung in others(Family.VITTT)] == ["baseline", "v3", "v6"]


@pytest.mark.parametrize(
    ("changes", "verdict", "reason"),
    [
        ({"v1": -0.5}, verdicts.REPRODUCED, "every other rung is worse"),
        ({"v1": -0.5, "v4": -0.5}, verdicts.OPEN, "5 of 6 other rungs (Baseline, Variant 2,"),
        ({"v1": -0.5, "v4": -1.5}, verdicts.FAILED, "Variant 4 is better"),
        ({"v1": -0.5, "v4": -1.5, "v5": -1.4}, verdicts.FAILED, "Variant 4 and Variant 5 are better"),
        ({"v3": -0.25}, verdicts.OPEN, "better at the level that all comparisons share: none"),
    ],
    ids=["best", "a tie", "another is better", "two are better", "better at the level of one test only"],
)
def test_variant_1_is_the_best_when_every_other_rung_is_worse(changes, verdict, reason):
    found = best(ladder(**changes))
    assert found.verdict == verdict and reason in found.reason


def test_the_nearest_rung_is_shown_with_its_interval():
    found = best(ladder(v1=-0.5, v2=0.3, baseline=0.3, v4=-0.2))
    assert found.measured.startswith(
        "Variant 4, the best of the others, differs by +0.30 perplexity (9.80 against 9.50)"
    )
    assert "95 % interval [+0." in found.measured


def test_one_seed_points_a_way_and_a_rung_without_a_run_leaves_a_gap():
    one = best(ladder(seeds=1, v1=-0.5))
    assert one.verdict == verdicts.OPEN and "points for the claim: every other rung is worse" in one.reason
    assert best(KNOWN).verdict == best([]).verdict == verdicts.MISSING
