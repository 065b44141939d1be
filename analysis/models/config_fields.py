"""What the fields of a configuration must hold: values of the declared type, and numbers that a network can have."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

from analysis.errors import CheckpointError

MOST_LAYERS = 4096
_KINDS = {"int": "a whole number", "float": "a finite number", "bool": "true or false"}


def check_fields(config: Any, **lowest: float) -> None:
    """Check every int, float, bool and list of ints among the fields of a configuration.

    Whole numbers are at least 1 and other numbers above 0, unless `lowest` names the least value of a field.

    Raises:
        CheckpointError: the first field that is not so.
    """
    for item in dataclasses.fields(config):
        value, kind = getattr(config, item.name), str(item.type)
        if value is None and kind.endswith("| None"):
            continue
        kind = kind.removesuffix(" | None")
        if kind == "tuple[int, ...]":
            if not isinstance(value, tuple) or not value:
                _refuse(item.name, "a list of whole numbers", value)
            for entry in value:
                _check(item.name, "int", entry, lowest.get(item.name))
        elif kind in _KINDS:
            _check(item.name, kind, value, lowest.get(item.name))


def check_layers(count: int) -> None:
    """Refuse a number of layers that would take minutes to build before the weights could contradict it."""
    if count > MOST_LAYERS:
        _refuse("the number of layers", f"at most {MOST_LAYERS}", count)


def _check(name: str, kind: str, value: Any, lowest: float | None) -> None:
    types = {"int": (int,), "float": (int, float), "bool": (bool,)}[kind]
    if not isinstance(value, types) or (kind != "bool" and isinstance(value, bool)):
        _refuse(name, _KINDS[kind], value)
    if kind == "bool":
        return
    least = (1 if kind == "int" else 0) if lowest is None else lowest
    is_enough = value > least if kind == "float" and lowest is None else value >= least
    if not math.isfinite(value) or not is_enough:
        _refuse(
            name, f"{_KINDS[kind]} {'above' if kind == 'float' and lowest is None else 'from'} {least}", value
        )


def _refuse(name: str, expected: str, value: Any) -> None:
    raise CheckpointError(
        f"expected {name} in the configuration to be {expected}, received {value!r}; mend the configuration"
    )
