"""The reader's own loop: which form holds follows from the loop, and a refusal is not a number."""

import pytest

from analysis.errors import SpecError
from analysis.theorems import Sizes, explore, loop_of

SIZES = Sizes(chunks=3, chunk=5, width=4, hidden=6, values=3)


def verdicts(**fields):
    return [
        row["verdict"]
        for row in explore(loop_of(SIZES, lr={"kind": "constant", "value": 0.1}, **fields), SIZES)
    ]


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"trained": "last"}, ["identity", "identity", "identity"]),
        ({"trained": "last", "steps": 3, "momentum": "per_token"}, ["identity", "identity", "identity"]),
        ({"network": "glu", "trained": "last"}, ["identity", "identity", "identity"]),
        (
            {"trained": "last", "loss": {"kind": "dot_product", "reduction": "mean", "scale": 0.5}},
            ["identity", "identity", "identity"],
        ),
        ({"network": "depthwise_conv3x3"}, ["identity", "identity", "identity"]),
        ({"trained": "all"}, ["identity", "refused", "false"]),
        ({"trained": "last", "weight_norm": "initial_norm"}, ["identity", "refused", "false"]),
        ({"network": "linear", "loss": "squared_error"}, ["identity", "identity", "false"]),
        ({"trained": "last", "transform": "newton_schulz"}, ["identity", "identity", "false", "identity"]),
        (
            {"trained": "last", "transform": "newton_schulz", "momentum": "constant"},
            ["identity", "identity", "false", "false"],
        ),
    ],
)
def test_forms_hold_where_the_theory_says(fields, expected):
    assert verdicts(**fields) == expected


def test_unknown_choices_name_the_nearest():
    with pytest.raises(SpecError, match="did you mean 'swiglu'"):
        loop_of(SIZES, network="swiglo")
