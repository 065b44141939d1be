import dataclasses
import itertools

import pytest

from analysis.errors import SpecError
from analysis.spec import (
    RUNGS,
    Family,
    Identity,
    Linear,
    ReducibilityClass,
    climb,
    equal_rung,
    ladder,
    ladder_rows,
    reducibility,
    rung,
)
from analysis.spec.presets import baseline


@pytest.mark.parametrize("family", Family)
def test_every_rung_changes_something_unless_declared(family):
    specs = ladder(family, chunk=64)
    for above, step in itertools.pairwise(RUNGS):
        assert (specs[above.key] == specs[step.key]) == (family in step.no_op_for)


@pytest.mark.parametrize("family", Family)
def test_the_last_rung_is_linear_attention(family):
    for spec in ladder(family, chunk=64)["v6"].values():
        assert spec.transform == Identity()
        assert spec.momentum is None and spec.weight_norm is None
        assert len(spec.moving) == 1
        assert reducibility(spec, 5).kind is ReducibilityClass.ADDITIVE


def test_the_paper_daggers_are_the_declared_no_ops():
    declared = {step.key: {family for family in step.no_op_for} for step in RUNGS[1:]}
    vittt, nvs = Family.VITTT, Family.LACT_NVS
    assert declared == {
        "v1": set(),
        "v2": {vittt},
        "v3": set(),
        "v4": {vittt},
        "v5": {vittt, nvs},
        "v6": set(),
    }


def test_an_undeclared_no_op_is_refused(monkeypatch):
    broken = tuple(
        dataclasses.replace(step, edit=lambda spec: spec) if step.key == "v1" else step for step in RUNGS
    )
    monkeypatch.setattr("analysis.spec.rungs.RUNGS", broken)
    with pytest.raises(SpecError, match="changes nothing"):
        climb(baseline(Family.LACT_LM), Family.LACT_LM, "v1")


def test_an_unknown_rung_is_refused():
    with pytest.raises(SpecError, match="baseline, v1"):
        rung("v7")


def test_language_model_rungs_have_the_classes_of_the_paper():
    kinds = [
        reducibility(loops["fast_weights"], 4).kind for loops in ladder(Family.LACT_LM, chunk=8).values()
    ]
    sequential, per_chunk, additive = (
        ReducibilityClass.SEQUENTIAL,
        ReducibilityClass.ADDITIVE_PER_CHUNK,
        ReducibilityClass.ADDITIVE,
    )
    assert kinds == [sequential, sequential, per_chunk, per_chunk, per_chunk, per_chunk, additive]
    assert Linear() == ladder(Family.LACT_LM)["v3"]["fast_weights"].network


@pytest.mark.parametrize("family", list(Family))
def test_a_rung_without_effect_equals_one_with_the_same_loops(family):
    rungs = ladder(family)
    for key in rungs:
        source = equal_rung(family, key)
        assert rungs[source] == rungs[key]
        assert source == "baseline" or family not in rung(source).no_op_for
    with pytest.raises(SpecError, match="rung must be one of"):
        equal_rung(family, "v7")


def test_the_table_of_rungs_says_how_a_family_runs_and_what_chunks_would_make_of_it():
    rows = {row["rung"].split()[0]: row for row in ladder_rows(4)}
    assert rows["baseline"]["LaCT-LM"] == "sequential" and rows["v6"]["LaCT-LM"] == "additive"
    assert rows["baseline"]["LaCT-NVS"] == "single update; in chunks: sequential"
    assert rows["v2"]["ViTTT"] == "single update; in chunks: additive per chunk †"
    assert {row["LaCT-LM"] for row in ladder_rows(1)} == {"single update"}
