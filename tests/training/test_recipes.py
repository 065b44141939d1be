"""Recipes are data: generated from families, variants and scales, and true to the ladder."""

from __future__ import annotations

import itertools
import json

import pytest
import torch

from analysis.errors import ParameterError
from analysis.models import families
from analysis.spec import Direction, Family, QuerySource, Trained, ladder
from analysis.training.optimiser import adamw, learning_rate, rate_table
from analysis.training.recipes import ALIASES, RECIPES, find, scaled, smoke
from analysis.training.variants import VARIANTS

RUNG_KEYS = ("baseline", "v1", "v2", "v3", "v4", "v5", "v6")
PARAMETERS = {"lact_lm-baseline": 1_025_000, "lact_nvs-baseline": 1_017_647, "vittt-baseline": 532_912}


@pytest.mark.parametrize("name", RECIPES)
def test_every_recipe_builds_and_is_plain_data(name):
    recipe = RECIPES[name]
    with torch.device("meta"):
        host = families.build(recipe.family, recipe.config, recipe.loops)
    assert host.loops == recipe.loops
    assert json.loads(json.dumps(recipe.to_dict()))["name"] == name
    assert hash(recipe.inner_loops) == hash(find(name).inner_loops)


@pytest.mark.parametrize("name", PARAMETERS)
def test_small_hosts_have_about_a_million_parameters(name):
    recipe = find(name)
    host = families.build(recipe.family, recipe.config, recipe.loops)
    assert host.num_parameters() == pytest.approx(PARAMETERS[name], rel=0.01)


@pytest.mark.parametrize("family", list(Family))
@pytest.mark.parametrize("key", RUNG_KEYS)
def test_rungs_train_with_the_loops_of_the_ladder(family, key):
    recipe = find(f"{family.value}-{key}")
    assert recipe.loops == ladder(family, chunk=64)[key]


def test_rungs_without_effect_are_other_names_and_say_so():
    small = {name: target for name, target in ALIASES.items() if not name.endswith("-paper")}
    assert small == {
        "lact_nvs-v5": "lact_nvs-v4",
        "vittt-v2": "vittt-v1",
        "vittt-v4": "vittt-v3",
        "vittt-v5": "vittt-v3",
    }
    assert find("vittt-v5").note == "vittt-v5 changes nothing for ViTTT: this is vittt-v3"
    assert find("vittt-v3").note == ""


@pytest.mark.parametrize("family", [family.value for family in Family])
def test_paradox_variants_change_what_they_say(family):
    edits = {"ascent": ("direction", Direction.ASCENT), "q_is_k": ("query", QuerySource.KEY)}
    for key, (field, value) in edits.items():
        assert all(getattr(loop, field) is value for loop in find(f"{family}-{key}").loops.values())
    frozen = find(f"{family}-frozen").loops
    assert frozen and all(loop.trained is Trained.NONE for loop in frozen.values())
    assert not find(f"{family}-none").loops


def test_only_the_language_model_has_a_ceiling_and_several_steps():
    assert find("lact_lm-full_attention").config.full_attention
    assert find("lact_lm-steps4").loops["fast_weights"].steps == 4
    assert {v.key for v in VARIANTS if Family.VITTT not in v.families} == {
        "full_attention",
        "steps2",
        "steps4",
    }


@pytest.mark.parametrize(
    ("given", "hint"),
    [
        ("lact_lm-assent", "'lact_lm-ascent'"),
        ("vitt-v1", "'vittt-v1'"),
        ("nonsense", "`ttt-analysis recipes` lists"),
    ],
)
def test_an_unknown_name_is_refused_with_the_nearest_one(given, hint):
    with pytest.raises(ParameterError, match=given) as caught:
        find(given)
    assert hint in str(caught.value)


def test_edits_are_checked():
    recipe = find("vittt-v1")
    assert scaled(recipe, 0.1).steps == recipe.steps // 10
    assert smoke(recipe).loops == recipe.loops
    with pytest.raises(ParameterError, match="did you mean 'steps'"):
        recipe.edit(stepz=1)
    with pytest.raises(ParameterError, match="positive fraction"):
        scaled(recipe, 0)


def test_the_rate_rises_linearly_then_follows_a_cosine():
    recipe = find("vittt-v1").edit(steps=100, warmup=10, lr=1.0, final_lr=0.1)
    rates = [learning_rate(recipe, step) for step in range(100)]
    assert rates[:10] == pytest.approx([0.1 * (i + 1) for i in range(10)])
    assert max(rates) == pytest.approx(1.0)
    assert rates[55] == pytest.approx((1 + 0.1) / 2)
    assert all(earlier > later for earlier, later in itertools.pairwise(rates[10:]))
    assert 0.1 < rates[-1] < 0.102
    torch.testing.assert_close(rate_table(recipe, torch.device("cpu")), torch.tensor(rates))


def test_decay_acts_on_matrices_only():
    recipe = smoke(find("lact_lm-baseline"))
    host = families.build(recipe.family, recipe.config, recipe.loops)
    decayed, rest = adamw(host, recipe, torch.device("cpu")).param_groups
    assert decayed["weight_decay"] == recipe.weight_decay and rest["weight_decay"] == 0
    assert all(p.ndim >= 2 for p in decayed["params"]) and all(p.ndim < 2 for p in rest["params"])
    assert sum(len(group["params"]) for group in (decayed, rest)) == len(list(host.parameters()))
