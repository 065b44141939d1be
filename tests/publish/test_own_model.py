"""What one checkpoint can say: its own measurements decide, and nothing is borrowed from the shipped models."""

import pytest

from analysis.publish.claims import CLAIMS
from analysis.publish.own_model import ALREADY, NO_UPDATE, OwnTable, decide_own, judged, own_claims
from analysis.publish.verdicts import MISSING, OPEN, UNDECIDABLE, Verdict
from analysis.records import Record
from analysis.spec import Direction, Family, QuerySource, baseline, to_dict
from tests.publish.made_records import KNOWN, clouds, sweep

ASCENT = "gradient ascent on the frozen model"


def task(question, arm, moved, *, each=8):
    loops = baseline(Family.LACT_LM, chunk=64)
    direction = Direction.ASCENT if arm == "ascent" else Direction.DESCENT
    return {
        "question": question,
        "seeds": (0,),
        "samples": each,
        "data": "d",
        "run_spec": {name: to_dict(loop.edit(direction=direction)) for name, loop in loops.items()},
        "parameters": {"family": "lact_lm", "variant": "own"} | ({"arm": arm} if arm else {}),
    }, {"per_example": [1.0 + moved + 0.001 * i for i in range(each)], "lower_is_better": True}


def rows(question, arm, moved, update=-1.0):
    base, extra = task(question, arm, moved)
    return [
        Record(**base, metric="perplexity", value=3.0 + moved, extra=extra, diverged=moved != moved),
        Record(**base, metric="inner_loss_before", value=0.0),
        Record(**base, metric="inner_loss_after", value=update),
    ]


OWN = [
    *rows("evaluation", None, 0.0),
    *sweep(seeds=(0,), variant="own"),
    *clouds(seeds=(0,)),
    *rows(ASCENT, "as trained", 0.0),
    *rows(ASCENT, "ascent", 0.3, update=0.5),
    *rows(ASCENT, "no update", -0.2),
]


def test_claims_are_decided_on_the_own_measurements_or_not_at_all():
    found = {claim.key.removesuffix("-lact_lm"): verdict for claim, verdict in own_claims(OWN)}
    asked = {"steps", "ascent-loss", "qk"}
    assert {key for key, verdict in found.items() if verdict.verdict == OPEN} == asked
    assert all(found[key].reason.startswith("one seed points for the claim") for key in asked)
    others = set(found) - asked - {"vo"}
    assert found["vo"].verdict == MISSING and {found[key].verdict for key in others} == {UNDECIDABLE}
    assert not any(found[key].measured for key in others)
    assert found["ascent-loss"].measured.endswith("by -1 (descent) and +0.5 (ascent)")


@pytest.mark.parametrize(
    "key", ["v1", "v2", "v3", "v4", "v5", "v6", "best", "depth", "orthogonal"], ids=lambda key: key
)
def test_no_rung_of_the_ladder_is_decided_on_one_checkpoint(key):
    asked = [claim for claim in CLAIMS if claim.key.removesuffix(f"-{claim.family.value}") == key]
    assert asked and {decide_own(claim, OWN) for claim in asked} == {
        Verdict(UNDECIDABLE, reason="it compares retrained models over several seeds")
    }


def test_a_claim_about_retrained_models_borrows_no_record():
    (update,) = [claim for claim in CLAIMS if claim.key == "update-lact_lm"]
    assert judged([update], KNOWN)[0][1].verdict == "reproduced"
    assert decide_own(update, [*OWN, *KNOWN]).verdict == UNDECIDABLE


@pytest.mark.parametrize(
    ("direction", "verdict"), [(Direction.ASCENT, UNDECIDABLE), (Direction.DESCENT, OPEN)]
)
def test_more_steps_say_nothing_about_a_model_that_was_trained_to_climb(direction, verdict):
    loops = baseline(Family.LACT_LM, chunk=64)
    trained = {name: to_dict(loop.edit(direction=direction)) for name, loop in loops.items()}
    found = {claim.key: one for claim, one in own_claims([row.edit(trained_spec=trained) for row in OWN])}
    assert found["steps-lact_lm"].verdict == verdict
    assert ("trained with ascent" in found["steps-lact_lm"].reason) == (verdict == UNDECIDABLE)


def test_what_was_not_measured_is_said_to_be_missing():
    found = {claim.key: verdict.verdict for claim, verdict in own_claims(rows("evaluation", None, 0.0))}
    assert found["steps-lact_lm"] == found["ascent-loss-lact_lm"] == found["qk-lact_lm"] == MISSING


def test_the_frozen_model_is_told_edit_by_edit():
    table = OwnTable(OWN)
    told = {row["key"]: row for row in table.plain()}
    assert set(told) == {"own-metric-lact_lm", "own-no-update-lact_lm", "own-flipped-lact_lm"}
    assert (
        told["own-flipped-lact_lm"]["verdict"] == "worse"
        and told["own-no-update-lact_lm"]["verdict"] == "better"
    )
    assert told["own-metric-lact_lm"]["measured here"].startswith("perplexity 3")
    assert "id='claim-own-flipped-lact_lm'" in table._repr_html_() and "worse" in repr(table)


@pytest.mark.parametrize(
    ("moved", "word"), [(0.0, "no difference beyond its interval"), (float("nan"), "diverged")]
)
def test_an_edit_without_an_effect_and_one_that_breaks_the_numbers(moved, word):
    own = [*rows("evaluation", None, 0.0), *rows(ASCENT, "ascent", moved)]
    assert OwnTable(own).plain()[1]["verdict"] == word


PAIRS = "wrong pairs for the inner loop of the frozen model"
ARMS = (
    ("no-update", ASCENT, "no update", lambda loop: loop.frozen()),
    ("flipped", ASCENT, "ascent", None),
    (
        "query",
        "query replaced by key on the frozen model",
        "query from key",
        lambda loop: loop.edit(query=QuerySource.KEY),
    ),
    ("shuffled", PAIRS, "values of shuffled tokens", lambda loop: loop),
    ("foreign", PAIRS, "keys and values of another example", lambda loop: loop),
)


def flipped(loop):
    ascends = loop.direction is Direction.ASCENT
    return loop.edit(direction=Direction.DESCENT if ascends else Direction.ASCENT)


def edited(change):
    """Records of every edit of a model that was trained as `change` says, each of which costs the metric something."""
    trained = {name: change(loop) for name, loop in baseline(Family.LACT_LM, chunk=64).items()}
    sides = [
        ("evaluation", None, lambda loop: loop),
        *((q, arm, edit or flipped) for _, q, arm, edit in ARMS),
    ]
    return [
        row.edit(
            trained_spec={name: to_dict(loop) for name, loop in trained.items()},
            run_spec={name: to_dict(edit(loop)) for name, loop in trained.items()},
        )
        for question, arm, edit in sides
        for row in rows(question, arm, 0.0 if arm is None else 0.3)
    ]


@pytest.mark.parametrize(
    ("change", "idle"),
    [
        (lambda loop: loop, {}),
        (lambda loop: loop.edit(direction=Direction.ASCENT), {}),
        (lambda loop: loop.edit(query=QuerySource.KEY), {"query": ALREADY}),
        (
            lambda loop: loop.frozen(),
            {"no-update": ALREADY, "flipped": NO_UPDATE, "shuffled": NO_UPDATE, "foreign": NO_UPDATE},
        ),
        (
            lambda loop: loop.frozen().edit(query=QuerySource.KEY),
            {"no-update": ALREADY, "query": ALREADY, "flipped": NO_UPDATE, "shuffled": NO_UPDATE},
        ),
    ],
    ids=["baseline", "ascent", "q_is_k", "frozen", "frozen_q_is_k"],
)
def test_an_edit_that_the_model_was_trained_with_gets_no_verdict(change, idle):
    told = {key: (measured, verdict) for key, _, measured, verdict in OwnTable(edited(change)).rows()}
    assert set(told) == {"metric", *(key for key, *_ in ARMS)}
    for key, *_ in ARMS:
        measured, verdict = told[key]
        assert verdict == idle.get(key, "worse")
        assert ("[" in measured) == (key not in idle), "no interval around a change that is none"


@pytest.mark.parametrize(("direction", "turned"), [("ascent", "to descent"), ("descent", "to ascent")])
def test_a_flipped_update_is_told_with_the_direction_it_was_turned_to(direction, turned):
    own = edited(lambda loop: loop.edit(direction=Direction(direction)))
    told = {key: measured for key, _, measured, _ in OwnTable(own).rows()}
    assert told["flipped"].startswith(f"from {direction} {turned}: +")


def test_a_model_without_an_update_tells_nothing_about_more_steps_and_ascent():
    found = {claim.key: verdict for claim, verdict in own_claims(edited(lambda loop: loop.frozen()))}
    for key in ("steps-lact_lm", "ascent-loss-lact_lm"):
        assert found[key].verdict == UNDECIDABLE and "trained without an inner update" in found[key].reason
