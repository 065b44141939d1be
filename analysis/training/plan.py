"""Which runs a queue makes, in which order, and how long each is expected to take."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from analysis.errors import ParameterError
from analysis.spec import Family
from analysis.training.recipes import ALIASES, RECIPES, Recipe, find, scaled

CORE = ("baseline", "frozen", "none")
"""Variants that come first, on every seed: the reference and the two that say what the inner loop is worth."""

LAST = ("steps2", "steps4")
"""Variants that come last of all: they take two and four times as long as the baseline."""

MILLISECONDS: dict[Family, dict[str, float]] = {
    Family.LACT_LM: {
        "": 14.0,
        "baseline": 37.0,
        "ascent": 37.0,
        "q_is_k": 37.0,
        "v1": 30.0,
        "none": 9.0,
        "steps2": 70.0,
        "steps4": 135.0,
    },
    Family.LACT_NVS: {"": 5.5, "baseline": 6.0, "ascent": 6.0, "q_is_k": 6.0},
    Family.VITTT: {"": 3.5},
}
"""Milliseconds of a step of the small recipes, compiled and alone on one H200; '' stands for all other variants.

Rough on purpose: a running queue measures its own steps and scales the table by what it sees.
"""

OVERHEAD = 15.0
"""Seconds of a run beside its steps: building, capturing, evaluating, writing."""


@dataclass(frozen=True)
class Job:
    """One run of a queue; `block` is its priority, 0 first."""

    recipe: Recipe
    block: int = 0

    @property
    def name(self) -> str:
        """The checkpoint folder's name."""
        return self.recipe.folder

    @property
    def milliseconds(self) -> float:
        """Expected time of a step, alone on a device."""
        table = MILLISECONDS[self.recipe.family]
        return table.get(self.recipe.variant, table[""])

    def seconds(self, slowdown: float = 1.0) -> float:
        """Expected time of the run when a step takes `slowdown` times what it takes alone."""
        return OVERHEAD + self.recipe.steps * self.milliseconds * slowdown / 1000


def in_order(jobs: Iterable[Job]) -> list[Job]:
    """Sort by block, and within a block the longest first."""
    return sorted(jobs, key=lambda job: (job.block, -job.seconds()))


def standard_plan(seeds: Sequence[int] = (0, 1, 2), families: Sequence[Family] = tuple(Family)) -> list[Job]:
    """All small recipes: the core variants on every seed first, everything else seed by seed, the slow ones last."""
    small = [r for r in RECIPES.values() if r.family in families and not r.name.endswith("-paper")]
    jobs = [Job(r.edit(seed=seed)) for seed in seeds for r in small if r.variant in CORE]
    for block, seed in enumerate(seeds, start=1):
        jobs += [Job(r.edit(seed=seed), block) for r in small if r.variant not in (*CORE, *LAST)]
    for block, seed in enumerate(seeds, start=1 + len(seeds)):
        jobs += [Job(r.edit(seed=seed), block) for r in small if r.variant in LAST]
    return in_order(jobs)


def parse_jobs(text: str) -> list[Job]:
    """Read 'lact_lm-v1:0,1 vittt-*:2 ...': names or patterns with seeds; earlier entries have priority.

    Raises:
        ParameterError: an entry without a colon, an unknown name, or a pattern that matches nothing.
    """
    jobs: dict[str, Job] = {}
    for block, entry in enumerate(text.split()):
        name, colon, seeds = entry.partition(":")
        if not colon or not re.fullmatch(r"\d+(,\d+)*", seeds):
            raise ParameterError(
                f"expected jobs as NAME:SEED,SEED ..., received {entry!r}; write for example vittt-v1:0,1."
            )
        for recipe in _matching(name):
            for seed in seeds.split(","):
                job = Job(recipe.edit(seed=int(seed)), block)
                jobs.setdefault(job.name, job)
    return in_order(jobs.values())


def _matching(name: str) -> list[Recipe]:
    if "*" not in name:
        return [find(name)]
    expression = re.compile(re.escape(name).replace(r"\*", r"[a-z0-9_]*"))
    found = [recipe for key, recipe in RECIPES.items() if expression.fullmatch(key)]
    if not found:
        raise ParameterError(
            f"expected a pattern that matches a recipe, received {name!r}; names look like "
            f"{', '.join(list(RECIPES)[:3])} (also known by another name: {', '.join(list(ALIASES)[:2])})."
        )
    return found


def shortened(jobs: Iterable[Job], fraction: float) -> list[Job]:
    """Return the same jobs with `fraction` of their steps."""
    return [job if fraction == 1 else Job(scaled(job.recipe, fraction), job.block) for job in jobs]
