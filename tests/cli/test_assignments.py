"""`--set name=value`: typed when it is JSON, text otherwise, and never silently half understood."""

from __future__ import annotations

import pytest

from analysis.commands.assignments import parse_assignments, split_assignments
from analysis.errors import ParameterError


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("4", 4),
        ("1e-3", 1e-3),
        ("true", True),
        ("[1, 2]", [1, 2]),
        ("null", None),
        ("ascent", "ascent"),
        ("007", "007"),
        ("no", "no"),
        ("a=b", "a=b"),
        ("", ""),
        ('{"kind": "newton_schulz"}', {"kind": "newton_schulz"}),
    ],
)
def test_values(text, value):
    (found,) = parse_assignments([f"x={text}"]).values()
    assert found == value
    assert type(found) is type(value)
    assert split_assignments([f" x ={text}"]) == {"x": text}


@pytest.mark.parametrize(
    ("items", "sentence"),
    [
        (["steps"], "expects name=value"),
        (["=4"], "expects name=value"),
        (["a=1", "a=2"], "twice"),
        (["lr=NaN"], "finite number"),
        (["lr=-Infinity"], "finite number"),
    ],
)
def test_malformed_ones_are_refused(items, sentence):
    with pytest.raises(ParameterError, match=sentence):
        parse_assignments(items)
