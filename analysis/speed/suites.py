"""What the benchmark measures, as data: the ladder at one shape, training passes, sweeps, first calls."""

from __future__ import annotations

from dataclasses import replace

from analysis.kernels.cases import Case, sweep
from analysis.spec import RUNGS, Family, InnerLoop, ladder, reducibility

SUITES = ("ladder", "training", "first", "sweeps", "steps")
"""In the order in which `all` runs them: what decides most comes first."""
AXES = {
    "tokens": tuple(2**power for power in range(11, 19)),
    "chunk": (256, 512, 1024, 2048, 4096, 8192),
    "width": (64, 128, 256, 384, 512),
}
SWEPT = (("baseline", "recurrent"), ("v2", "parallel"), ("v2", "recurrent"), ("v6", "parallel"))
TRAINED = (("baseline", "recurrent"), ("v2", "parallel"))
STEPS = ("lact_lm-baseline", "lact_lm-v2")
"""Recipes whose training steps are timed (Figure 4)."""
FIRST_CALLS = (("baseline", "recurrent"), ("v2", "parallel"), ("v6", "parallel"))


def loop_of(case: Case) -> InnerLoop:
    """Return the inner loop of the language model at a case's rung and chunk size."""
    (loop,) = ladder(Family.LACT_LM, chunk=case.chunk)[case.rung].values()
    return loop


def forms(rung: str) -> tuple[str, ...]:
    """Return the forms in which a rung can run over many chunks."""
    (loop,) = ladder(Family.LACT_LM)[rung].values()
    return ("recurrent", "parallel") if reducibility(loop, 4).is_parallel else ("recurrent",)


def cases(suite: str, base: Case) -> list[Case]:
    """Return the shapes of a suite; the shape of `base` itself is the ladder's, so that nothing is measured twice."""
    if suite == "ladder":
        return [replace(base, rung=rung.key, form=form) for rung in RUNGS for form in forms(rung.key)]
    if suite == "sweeps":
        swept = (sweep(replace(base, rung=rung, form=form), **AXES) for rung, form in SWEPT)
        return [
            case for found in swept for case in found if replace(case, rung=base.rung, form=base.form) != base
        ]
    pairs = {"training": TRAINED, "first": FIRST_CALLS}.get(suite, ())
    passes = "training" if suite == "training" else "forward"
    return [replace(base, rung=rung, form=form, passes=passes) for rung, form in pairs]


def title(case: Case) -> str:
    """Return a case in one line."""
    size = f"{case.tokens} tokens, chunk {case.chunk}, {case.heads} x {case.width}, {case.dtype}"
    return f"{case.rung} {case.form}, {size}, {case.passes}"
