"""Values as JSON: arrays become lists, specifications become dictionaries, non-finite numbers are written as tags."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from enum import Enum
from typing import Any

from analysis.errors import RecordError
from analysis.spec import InnerLoop, to_dict

_TAG = "__float__"


def plain(value: Any, where: str = "value") -> Any:
    """Return `value` as nested dictionaries, lists, strings, numbers, booleans and None.

    Tuples, sets and arrays become lists, enums their value, an `InnerLoop` its dictionary.

    Raises:
        RecordError: something that JSON cannot hold; the message names the place.
    """
    if isinstance(value, Enum):
        return plain(value.value, where)
    if isinstance(value, float):
        return float(value)  # NumPy's float64 is a float too, and would print differently
    if value is None or isinstance(value, str | int):
        return value
    if isinstance(value, InnerLoop):
        return to_dict(value)
    if isinstance(value, Mapping):
        for key in value:
            if not isinstance(key, str):
                raise RecordError(f"{where} must have text keys, received {key!r}; write str(key).")
        return {key: plain(item, f"{where}.{key}") for key, item in value.items()}
    if isinstance(value, set | frozenset):
        return [plain(item, where) for item in sorted(value)]
    if isinstance(value, list | tuple):
        return [plain(item, f"{where}[{index}]") for index, item in enumerate(value)]
    if hasattr(value, "tolist"):  # NumPy arrays and scalars, and tensors, without importing either
        return plain(value.tolist(), where)
    raise RecordError(
        f"{where} must be JSON-ready (text, number, list, dictionary, array), received {type(value).__name__}; "
        "convert it before recording."
    )


def is_finite(value: Any) -> bool:
    """Return whether a plain value holds no NaN and no infinity at any depth."""
    if isinstance(value, float):
        return math.isfinite(value)
    if isinstance(value, dict):
        return all(is_finite(item) for item in value.values())
    return not isinstance(value, list) or all(is_finite(item) for item in value)


def encode(value: Any, *, indent: int | None = None) -> str:
    """Return canonical JSON: sorted keys, no NaN tokens (which are not JSON), the same text for the same value."""
    separators = (",", ":") if indent is None else (",", ": ")
    tagged = _tag(value)
    return json.dumps(
        tagged, sort_keys=True, allow_nan=False, ensure_ascii=False, indent=indent, separators=separators
    )


def decode(text: str) -> Any:
    """Restore what `encode` wrote.

    Raises:
        RecordError: the text is not JSON, or holds NaN tokens.
    """
    try:
        return json.loads(text, object_hook=_untag, parse_constant=_refuse_constant)
    except (json.JSONDecodeError, RecursionError, ValueError) as error:
        raise RecordError(f"expected JSON text, received something that does not parse ({error}).") from error


def _tag(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return {_TAG: repr(value)}
    if isinstance(value, dict):
        return {key: _tag(item) for key, item in value.items()}
    return [_tag(item) for item in value] if isinstance(value, list) else value


def _untag(item: dict[str, Any]) -> Any:
    return float(item[_TAG]) if set(item) == {_TAG} else item


def _refuse_constant(token: str) -> float:
    raise ValueError(f"{token} is not JSON")
