from dataclasses import FrozenInstanceError

import pytest

from analysis.errors import SpecError
from analysis.spec import (
    MLP,
    PRESETS,
    ConstantMomentum,
    ConstantRate,
    Direction,
    InnerLoop,
    NewtonSchulz,
    Schedule,
    Trained,
    describe,
    difference,
    difference_text,
    from_dict,
    parse_field,
    to_dict,
)


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_survives_json(name):
    assert from_dict(to_dict(PRESETS[name])) == PRESETS[name]


def test_a_specification_is_hashable_and_immutable():
    spec = InnerLoop()
    assert hash(spec) == hash(InnerLoop())
    with pytest.raises(FrozenInstanceError):
        spec.steps = 2


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"steps": 0}, "at least 1, received 0"),
        ({"steps": 1.5}, "at least 1, received 1.5"),
        ({"steps": True}, "at least 1, received True"),
        ({"chunk": 0}, "chunk must be an integer of at least 1"),
        ({"stepz": 1}, "did you mean 'steps'"),
        ({"direction": "descent"}, "must be one of Direction"),
        ({"network": None}, "must be one of Linear, SwiGLU"),
        ({"step_size": float("nan")}, "positive finite number"),
        ({"step_size": -1.0}, "positive finite number"),
    ],
)
def test_a_wrong_value_names_what_was_expected(change, message):
    with pytest.raises(SpecError, match=message):
        InnerLoop().edit(**change)


@pytest.mark.parametrize("value", [0.0, float("inf"), "1"])
def test_choices_check_their_parameters(value):
    with pytest.raises(SpecError):
        ConstantRate(value)
    with pytest.raises(SpecError):
        ConstantMomentum(value)


def test_a_perceptron_of_one_layer_points_to_linear():
    with pytest.raises(SpecError, match=r"use Linear\(\)"):
        MLP(1)


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("transform", "newton_schulz", NewtonSchulz()),
        ("transform", {"kind": "newton_schulz", "schedule": "lact_nvs"}, NewtonSchulz(Schedule.LACT_NVS)),
        ("direction", "ascent", Direction.ASCENT),
        ("momentum", "none", None),
        ("steps", 3, 3),
    ],
)
def test_plain_values_become_choices(name, value, expected):
    assert parse_field(name, value) == expected


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("transform", "newton_schultz", "did you mean 'newton_schulz'"),
        ("direction", "up", "descent, ascent"),
        ("lr", {"kind": "constant", "valeu": 1}, "did you mean 'value'"),
        ("network", 3, "must name one of"),
    ],
)
def test_a_wrong_plain_value_names_the_nearest(name, value, message):
    with pytest.raises(SpecError, match=message):
        parse_field(name, value)


def test_the_difference_names_only_what_changed():
    spec = PRESETS["lact_lm"]
    assert difference(spec, spec.edit(steps=4, direction=Direction.ASCENT)) == {
        "direction": ("descent", "ascent"),
        "steps": ("1", "4"),
    }
    assert difference_text({"a": spec}, {"a": spec}) == "none: run as trained"


def test_zero_steps_is_the_frozen_loop():
    frozen = PRESETS["lact_lm"].frozen()
    assert frozen.trained is Trained.NONE
    assert frozen.moving == ()
    assert "none" in describe(frozen)


def test_a_specification_shows_itself_as_a_table():
    assert "whole sequence" in PRESETS["lact_nvs"]._repr_html_()
