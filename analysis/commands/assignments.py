"""`--set name=value` on the command line."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

from analysis.errors import ParameterError


def split_assignments(items: Sequence[str]) -> dict[str, str]:
    """Return {name: text} for a list of `name=value`.

    Raises:
        ParameterError: no '=', no name, or a name given twice.
    """
    found: dict[str, str] = {}
    for item in items:
        name, equals, text = item.partition("=")
        name = name.strip()
        if not equals or not name:
            raise ParameterError(
                f"--set expects name=value, received {item!r}; write for example --set steps=4."
            )
        if name in found:
            raise ParameterError(f"--set gives {name!r} twice ({found[name]!r} and {text!r}); keep one.")
        found[name] = text
    return found


def parse_assignments(items: Sequence[str]) -> dict[str, Any]:
    """Return {name: value} with JSON values where the text is JSON (4, 1e-3, true, [1, 2]) and text elsewhere.

    Numbers with commas between them are a list: `steps=1,2,4`.

    Raises:
        ParameterError: malformed, given twice, or a number that is not finite.
    """
    return {name: _value(name, text) for name, text in split_assignments(items).items()}


def _value(name: str, text: str) -> Any:
    def refuse(token: str) -> None:
        raise ParameterError(f"--set {name} expects a finite number, received {token}; pass another value.")

    numbers = re.fullmatch(r"\s*[-+.\deE]+(\s*,\s*[-+.\deE]+)+\s*", text)
    try:
        return json.loads(f"[{text}]" if numbers else text, parse_constant=refuse)
    except (json.JSONDecodeError, RecursionError):
        return text
