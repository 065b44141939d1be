"""What a retrained variant changes: an edit of the inner loops, an edit of the host around them, or both.

The rungs of the ladder come from `analysis.spec.ladder`; a rung that changes nothing for a family is no variant of its own
but another name for the rung above (`equal_to`).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from analysis.models.lact_lm_config import LaCTLMConfig
from analysis.models.lact_nvs_config import FastWeights, LaCTNVSConfig
from analysis.spec import (
    RUNGS,
    ConstantRate,
    Direction,
    Family,
    InnerLoop,
    Loops,
    QuerySource,
    Trained,
    equal_rung,
    ladder,
    map_loops,
)


@dataclass(frozen=True)
class Variant:
    """One retrained variant: its key, what it asks, and the edits of loops and host that make it."""

    key: str
    asks: str
    edit: Callable[[InnerLoop], InnerLoop] | None = None
    rung: str = "baseline"
    has_loops: bool = True
    config: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    families: frozenset[Family] = frozenset(Family)

    def loops(self, family: Family, chunk: int) -> dict[str, InnerLoop]:
        """The inner loops that this variant trains with; `chunk` applies to the language model."""
        if not self.has_loops:
            return {}
        loops: Loops = ladder(family, chunk=chunk)[self.rung]
        return map_loops(loops, self.edit) if self.edit is not None else dict(loops)

    def host(self, config: Any) -> Any:
        """The configuration of the host, without its inner loops where the variant has none."""
        if self.has_loops:
            return config
        if isinstance(config, LaCTNVSConfig):
            kept = tuple(entry for entry in config.block_config if not isinstance(entry, FastWeights))
            return dataclasses.replace(config, block_config=kept)
        changes = dict(self.config) if isinstance(config, LaCTLMConfig) else {}
        return dataclasses.replace(config, ttt_branch=False, **changes)


def _retrained_frozen(loop: InnerLoop) -> InnerLoop:
    # Nothing moves, so the projections for rates and momentum would be parameters without a gradient.
    return loop.edit(trained=Trained.NONE, lr=ConstantRate(), momentum=None)


_LM = frozenset({Family.LACT_LM})

VARIANTS: tuple[Variant, ...] = (
    Variant("baseline", "the inner loop as published"),
    Variant("frozen", "are the updates needed? no fast weight moves", _retrained_frozen),
    Variant("none", "is the branch needed? the host without an inner loop", has_loops=False),
    Variant(
        "ascent",
        "does the sign matter? gradient ascent (section 4.2)",
        lambda s: s.edit(direction=Direction.ASCENT),
    ),
    Variant(
        "q_is_k",
        "do queries matter? keys in their place (section 4.4)",
        lambda s: s.edit(query=QuerySource.KEY),
    ),
    *(Variant(rung.key, f"{rung.name}: without {rung.removes}", rung=rung.key) for rung in RUNGS[1:]),
    Variant(
        "full_attention",
        "the ceiling: every query sees all earlier keys, no inner loop",
        has_loops=False,
        config={"full_attention": True},
        families=_LM,
    ),
    Variant("steps2", "trained with two inner steps (section 4.1)", lambda s: s.edit(steps=2), families=_LM),
    Variant("steps4", "trained with four inner steps (section 4.1)", lambda s: s.edit(steps=4), families=_LM),
)


def equal_to(family: Family, key: str) -> str:
    """Return the variant that `key` is another name for: the last rung above it that changes something, or `key` itself."""
    return equal_rung(family, key) if key in {rung.key for rung in RUNGS} else key
