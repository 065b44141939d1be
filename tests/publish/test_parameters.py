"""Parameters of notebooks are read, typed and bounded before any kernel starts."""

from __future__ import annotations

import math

import pytest

from analysis.errors import ParameterError
from analysis.publish.parameters import declared, resolve

SOURCE = """
steps: list[int] = [0, 1, 2]  # inner steps; range 0..64
lr: float = 1e-3  # outer rate; range 1e-6..1
samples: int = 8  # sequences; as many as fit; range 1..
device: str = "cpu"  # where to run; one of cpu, cuda
limit: int | None = None  # stop after
weights: dict[str, float] = {"a": 1.0}  # mixture
quick: bool = False  # less of everything
"""


def cell(source, *tags, kind="code"):
    return {"cell_type": kind, "metadata": {"tags": list(tags)}, "source": source}


def read(source=SOURCE, name="01_probe"):
    return declared({"cells": [cell("x = 1"), cell(source, "parameters")]}, name)


def test_the_cell_declares_names_types_defaults_and_meaning():
    found = read()
    assert list(found) == ["steps", "lr", "samples", "device", "limit", "weights", "quick"]
    assert found["steps"].default == [0, 1, 2]
    assert found["samples"].description == "sequences; as many as fit"
    assert (found["lr"].low, found["lr"].high) == (1e-6, 1.0)
    assert found["device"].choices == ("cpu", "cuda")
    assert declared({"cells": [cell("x = 1")]}, "n") == {}


@pytest.mark.parametrize(
    ("name", "given", "value"),
    [
        ("steps", "[1,2,4]", [1, 2, 4]),
        ("steps", (3,), [3]),
        ("lr", "1e-3", 1e-3),
        ("lr", 1, 1.0),
        ("samples", "12", 12),
        ("limit", "none", None),
        ("limit", 5, 5),
        ("weights", "{'b': 2}", {"b": 2.0}),
        ("quick", "true", True),
        ("device", "cuda", "cuda"),
    ],
)
def test_values_and_texts_arrive_in_the_declared_type(name, given, value):
    got = resolve({"01_probe": read()}, {name: given})["01_probe"][name]
    assert got == value
    assert type(got) is type(value)


@pytest.mark.parametrize(
    ("name", "given", "reason"),
    [
        ("steps", 0, "int is not a list"),
        ("steps", "0", "int is not a list"),
        ("steps", "abc", "cannot be read"),
        ("steps", [1, 65], "above 64"),
        ("steps", [1.5], "not a whole number"),
        ("samples", -5, "below 1"),
        ("samples", True, "bool is not a whole number"),
        ("samples", "many", "not a whole number"),
        ("lr", "nan", "not finite"),
        ("lr", math.inf, "not finite"),
        ("lr", 0.0, "below 1e-06"),
        ("device", "cdua", "did you mean 'cuda'"),
        ("device", 7, "quote it"),
        ("quick", "yes", "neither true nor false"),
        ("quick", 1, "not true or false"),
        ("weights", [1], "not a mapping"),
    ],
)
def test_a_bad_value_is_refused_naming_the_parameter(name, given, reason):
    with pytest.raises(ParameterError, match=reason) as caught:
        resolve({"01_probe": read()}, {name: given})
    assert f"'{name}'" in str(caught.value)


def test_an_unknown_name_is_refused_with_the_nearest_known_one():
    with pytest.raises(ParameterError, match=r"'stepz' \(did you mean 'steps'\?\)"):
        resolve({"01_probe": read()}, {"stepz": [1]})
    with pytest.raises(ParameterError, match="no notebook is called '01_prob'"):
        resolve({"01_probe": read()}, {"01_prob.steps": [1]})
    with pytest.raises(ParameterError, match="'step'"):
        resolve({"01_probe": read()}, {"01_probe.step": [1]})


def test_a_name_may_be_given_for_all_notebooks_or_for_one():
    books = {"a": read("n: int = 1"), "b": read("n: int = 1"), "c": read("m: int = 1")}
    assert resolve(books, {"b.n": 3, "n": 2}) == {"a": {"n": 2}, "b": {"n": 3}, "c": {"m": 1}}


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("n = 1", "move other statements"),
        ("import os", "move other statements"),
        ("n: int = len('ab')", "not a literal"),
        ("n: complex = 1", "change the annotation"),
        ("n: list = [1]", "change the annotation"),
        ("n: int = 0  # count; range 1..9", "below 1"),
        ("n: int = 1  # count; range one..two", "write `range LOW..HIGH`"),
        ("n: int = (", "not Python"),
    ],
)
def test_a_malformed_declaration_is_refused(source, message):
    with pytest.raises(ParameterError, match=message):
        read(source)


def test_the_tag_is_unique():
    twice = {"cells": [cell("n: int = 1", "parameters"), cell("m: int = 1", "parameters")]}
    with pytest.raises(ParameterError, match="exactly one code cell"):
        declared(twice, "01_probe")
