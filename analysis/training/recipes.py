"""Recipes as data: everything that decides a training run, generated from families, variants and two scales.

    recipe = find("lact_lm-v1")            small: minutes on one accelerator
    recipe = find("vittt-v6-paper")        the paper's setting (appendix A), for several devices under torchrun

A name of a ladder rung that changes nothing for its family resolves to the recipe it equals, with a note that says so.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from analysis.errors import ParameterError, closest
from analysis.spec import Family, InnerLoop, to_dict
from analysis.training.scales import SCALES, Data, ImageData, SceneData, TextData
from analysis.training.variants import VARIANTS, Variant, equal_to

PRECISIONS = ("bfloat16", "float16", "float32")
_LEAST = {
    **{"steps": 1, "batch": 1, "warmup": 0, "seed": 0},  # whole numbers
    **{"lr": 0.0, "clip": 0.0, "final_lr": 0.0, "weight_decay": 0.0},
}
_NOT = {"lr": 0.0, "clip": 0.0}  # these must be above the least
_MOST = 2**63


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """One training run: host, inner loops, data, and the outer optimisation (AdamW, warm-up, cosine, clipping).

    batch: examples of one step over all processes together. warmup: steps of linear warm-up; the rate then follows a
    cosine down to `final_lr` times the peak. weight_decay acts on matrices and fast weights, not on norms and biases.
    precision: autocast type on an accelerator; a CPU always trains in float32. note: what `find` has to tell.
    """

    name: str
    family: Family
    variant: str
    config: Any
    inner_loops: tuple[tuple[str, InnerLoop], ...]
    data: Data
    steps: int
    batch: int
    lr: float
    warmup: int
    final_lr: float = 0.05
    betas: tuple[float, float] = (0.9, 0.95)
    weight_decay: float = 0.05
    clip: float = 1.0
    precision: str = "bfloat16"
    seed: int = 0
    note: str = ""

    def __post_init__(self) -> None:
        """Refuse a number with which no run makes sense."""
        for name, least in _LEAST.items():
            value, is_whole = getattr(self, name), type(least) is int
            is_number = isinstance(value, int if is_whole else (int, float)) and not isinstance(value, bool)
            if not is_number or not least <= value < _MOST or value == _NOT.get(name):
                kind = "whole" if is_whole else "finite"
                bound = f"above {least:g}" if name in _NOT else f"from {least:g}"
                raise ParameterError(
                    f"{name} of a recipe must be a {kind} number {bound}, received {value!r}; pass such a number."
                )
        if self.precision not in PRECISIONS:
            raise ParameterError(
                f"precision of a recipe must be one of {', '.join(PRECISIONS)}, received {self.precision!r}; pass one of those."
            )

    @property
    def loops(self) -> dict[str, InnerLoop]:
        """The inner loops by name."""
        return dict(self.inner_loops)

    @property
    def folder(self) -> str:
        """Name of the checkpoint folder, `<family>-<variant>-s<seed>`."""
        return f"{self.name}-s{self.seed}"

    def edit(self, **changes: Any) -> Recipe:
        """Return a copy with other fields.

        Raises:
            ParameterError: unknown field, with the nearest known one, or a value out of range.
        """
        known = [item.name for item in dataclasses.fields(self)]
        for name in changes:
            if name not in known:
                raise ParameterError(
                    f"Recipe has no field {name!r}{closest(name, known)}; known: {', '.join(known)}."
                )
        return dataclasses.replace(self, **changes)

    def to_dict(self) -> dict[str, Any]:
        """Return everything that decides the run as JSON-ready values."""
        values = {item.name: getattr(self, item.name) for item in dataclasses.fields(self)}
        config = self.config.to_dict() if hasattr(self.config, "to_dict") else dataclasses.asdict(self.config)
        return {
            **values,
            "family": self.family.value,
            "config": config,
            "inner_loops": {name: to_dict(loop) for name, loop in self.inner_loops},
            "data": {"kind": type(self.data).__name__, **dataclasses.asdict(self.data)},
            "betas": list(self.betas),
        }


def _recipe(family: Family, variant: Variant, scale: str) -> Recipe:
    settings = dict(SCALES[scale][family])
    config = settings.pop("config")
    loops = variant.loops(family, getattr(config, "lact_chunk_size", 2048))
    return Recipe(
        name=_name(family, variant.key, scale),
        family=family,
        variant=variant.key,
        config=variant.host(config),
        inner_loops=tuple(loops.items()),
        **settings,
    )


def _name(family: Family, key: str, scale: str) -> str:
    return f"{family.value}-{key}" + ("" if scale == "small" else f"-{scale}")


def _generate() -> Iterator[tuple[str, str]]:
    for scale in SCALES:
        for family in Family:
            for variant in VARIANTS:
                if family in variant.families:
                    yield (
                        _name(family, variant.key, scale),
                        _name(family, equal_to(family, variant.key), scale),
                    )


ALIASES: dict[str, str] = {name: target for name, target in _generate() if name != target}
"""Names of rungs that change nothing for their family, and the recipe that each equals."""

RECIPES: dict[str, Recipe] = {
    recipe.name: recipe
    for scale in SCALES
    for family in Family
    for variant in VARIANTS
    if family in variant.families
    for recipe in [_recipe(family, variant, scale)]
    if recipe.name not in ALIASES
}
"""Every distinct recipe by name."""


def find(name: str) -> Recipe:
    """Return the recipe called `name`; a rung without effect gives the recipe it equals, and its note says so.

    Raises:
        ParameterError: no such recipe, with the nearest known name.
    """
    target = ALIASES.get(name, name)
    if target not in RECIPES:
        known = [*RECIPES, *ALIASES]
        raise ParameterError(
            f"expected a recipe named <family>-<variant> or <family>-<variant>-paper, received {name!r}"
            f"{closest(name, known)}; `ttt-analysis recipes` lists all names."
        )
    recipe = RECIPES[target]
    if target == name:
        return recipe
    return recipe.edit(note=f"{name} changes nothing for {recipe.family.title}: this is {target}")


def scaled(recipe: Recipe, fraction: float) -> Recipe:
    """Return the recipe with its steps and warm-up multiplied by `fraction`, at least one step.

    Raises:
        ParameterError: the fraction is not positive.
    """
    if not fraction > 0:
        raise ParameterError(
            f"expected a positive fraction of the steps, received {fraction!r}; pass for example 0.1."
        )
    return recipe.edit(steps=max(1, round(recipe.steps * fraction)), warmup=round(recipe.warmup * fraction))


_TINY_DATA: dict[Family, Data] = {
    Family.LACT_LM: TextData(length=48, crops=4),
    Family.LACT_NVS: SceneData(
        scenes=8, views=4, size=16, targets=2, evaluation_scenes=4, evaluation_targets=1
    ),
    Family.VITTT: ImageData(images=32, size=16, evaluation_images=16),
}


def smoke(recipe: Recipe, steps: int = 4) -> Recipe:
    """Return the same variant at toy size (two narrow layers, a few examples), which runs on a CPU in about a second."""
    if recipe.family is Family.LACT_LM:
        size: dict[str, Any] = {
            "hidden_size": 32, "num_hidden_layers": 2, "num_attn_heads": 2, "num_lact_heads": 2,
            "intermediate_size": 32, "window_size": 16, "lact_chunk_size": 16,
        }  # fmt: skip
    elif recipe.family is Family.LACT_NVS:
        widths = {
            "FastWeights": {"head_dim": 32},
            "SelfAttention": {"head_dim": 16},
            "FeedForward": {"inter_multi": 2},
        }
        blocks = tuple(dataclasses.replace(e, **widths[type(e).__name__]) for e in recipe.config.block_config)
        size = {"dim": 32, "layers": 2, "block_config": blocks}
    else:
        size = {
            "embed_dim": 32,
            "depth": 2,
            "num_heads": 2,
            "img_size": 16,
            "patch_size": 4,
            "num_classes": 16,
        }
    chunk = {"chunk": 16} if recipe.family is Family.LACT_LM else {}
    return recipe.edit(
        config=dataclasses.replace(recipe.config, **size),
        inner_loops=tuple((name, loop.edit(**chunk)) for name, loop in recipe.inner_loops),
        data=_TINY_DATA[recipe.family],
        steps=steps,
        batch=4,
        warmup=1,
    )
