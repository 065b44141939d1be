"""The paper's statements as named claims, each checked in float64 on random tensors, with a verdict that the code computes."""

from analysis.theorems.claims import Claim, Counterexample, Judgement, Sides, Verdict, judge
from analysis.theorems.corrections import growth
from analysis.theorems.costs import cost_table
from analysis.theorems.draws import DRAWS, Problem, Sizes, draw
from analysis.theorems.explore import explore, loop_of
from analysis.theorems.precision import error_table
from analysis.theorems.verify import CLAIMS, VerdictTable, verify

__all__ = [
    "CLAIMS",
    "DRAWS",
    "Claim",
    "Counterexample",
    "Judgement",
    "Problem",
    "Sides",
    "Sizes",
    "Verdict",
    "VerdictTable",
    "cost_table",
    "draw",
    "error_table",
    "explore",
    "growth",
    "judge",
    "loop_of",
    "verify",
]
