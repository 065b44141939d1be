"""What all verdicts share: the rule for seeds, the words for where a number comes from, digits that show the side."""

import pytest

from analysis.publish import verdicts
from analysis.publish.claims import CLAIMS
from analysis.publish.verdicts import Verdict, beside, decided, evidence
from analysis.spec import Family
from tests.publish.made_records import BASELINE, FROZEN, clouds, sweep, trained

LM = Family.LACT_LM


@pytest.mark.parametrize("holds", [True, False, None])
@pytest.mark.parametrize("seeds", [0, 1])
def test_fewer_than_two_seeds_decide_nothing_and_tell_the_direction(holds, seeds):
    found = decided(holds, "+1", "because", seeds=seeds, evidence="seed 0")
    assert found.verdict == verdicts.OPEN and "because" in found.reason
    way = {True: "points for", False: "points against", None: "points neither way"}[holds]
    assert way in found.reason


@pytest.mark.parametrize(
    ("holds", "verdict"), [(True, verdicts.REPRODUCED), (False, verdicts.FAILED), (None, verdicts.OPEN)]
)
def test_two_seeds_decide(holds, verdict):
    found = decided(holds, "+1", "because", seeds=2, evidence="2 seeds")
    assert (found.verdict, found.reason) == (verdict, "because")


def test_a_settled_verdict_cannot_be_made_from_one_seed():
    for word in (verdicts.REPRODUCED, verdicts.FAILED):
        with pytest.raises(AssertionError):
            Verdict(word, seeds=1)
        assert Verdict(word, seeds=None).verdict == word  # a time has no training seeds


def everything(seeds):
    """Records for every claim about trained language models, with this many seeds."""
    rows = [*trained("frozen", FROZEN[:seeds])]
    moved = {
        "baseline": 0,
        "ascent": 0,
        "q_is_k": 0,
        "v1": -0.5,
        "v2": 0,
        "v3": 0,
        "v4": 0,
        "v5": 0,
        "v6": 0.4,
    }
    for variant, change in moved.items():
        rows += trained(variant, [value + change for value in BASELINE[:seeds]])
        for side, value in (("before", -1.0), ("after", 1.0 if variant == "ascent" else -2.0)):
            rows += trained(variant, [value] * seeds, metric=f"inner_loss_{side}")
    rows += sweep(seeds=range(seeds)) + clouds(seeds=range(seeds))
    return rows + [
        row.edit(parameters={**row.parameters, "pair": "V/O"}) for row in clouds(seeds=range(seeds))
    ]


def test_the_rule_for_seeds_is_the_same_for_every_claim_about_trained_models():
    asked = [claim for claim in CLAIMS if claim.family is LM and claim.section != "6.2"]
    assert len(asked) == 15
    one, three = everything(1), everything(3)
    assert {claim.decide(one).verdict for claim in asked} == {verdicts.OPEN}
    assert {claim.decide(three).verdict for claim in asked} == {verdicts.REPRODUCED}


def test_evidence_names_seeds_and_examples():
    three, one = trained("baseline", BASELINE), trained("v6", (11.0,))
    assert evidence(three, "windows") == "3 seeds, 512 windows each"
    assert evidence(one, "windows") == "seed 0, 512 windows"
    assert evidence(one, "windows", three) == "seed 0 against 3 seeds of the baseline, 512 windows each"
    assert evidence(sweep(seeds=(None,)), "images") == "one checkpoint, 8 images"


def test_evidence_says_when_runs_of_different_length_stand_together():
    mixed = [*trained("baseline", BASELINE), *trained("baseline", (11.0,), steps=30)]
    assert evidence(mixed, "windows").endswith(", trained for 30 to 100 steps")
    assert "trained for" not in evidence(mixed[:3], "windows")


@pytest.mark.parametrize(
    ("value", "text"), [(0.7504, "0.7504"), (0.7496, "0.7496"), (0.81, "0.81"), (0.75, "0.75")]
)
def test_as_many_digits_as_show_the_side_of_a_bound(value, text):
    assert beside(value, 0.75) == text
