"""The three families of hosts and the named inner loops that their layers hold."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum

from analysis.errors import SpecError
from analysis.spec.inner_loop import InnerLoop

Loops = Mapping[str, InnerLoop]


class Family(Enum):
    """A published architecture with an inner loop."""

    LACT_LM = "lact_lm"
    LACT_NVS = "lact_nvs"
    VITTT = "vittt"

    @property
    def title(self) -> str:
        """The family's name as the report prints it."""
        return {"lact_lm": "LaCT-LM", "lact_nvs": "LaCT-NVS", "vittt": "ViTTT"}[self.value]


def map_loops(loops: Loops, edit: Callable[[InnerLoop], InnerLoop]) -> dict[str, InnerLoop]:
    """Apply one edit to every inner loop of a layer."""
    return {name: edit(loop) for name, loop in loops.items()}


def parse_family(name: str) -> Family:
    """Return the family called `name`.

    Raises:
        SpecError: no such family.
    """
    known = {member.value: member for member in Family}
    if not isinstance(name, str) or name not in known:
        raise SpecError(f"family must be one of {', '.join(known)}, received {name!r}; pass one of those.")
    return known[name]
