"""How a specification is written down: JSON, one-line text, the difference of two, an HTML table."""

from __future__ import annotations

import dataclasses
import html
from collections.abc import Callable, Mapping
from dataclasses import fields
from enum import Enum
from typing import Any, get_args

from analysis.errors import SpecError, closest
from analysis.spec import choices, enums
from analysis.spec.inner_loop import InnerLoop

_VARIANTS: dict[str, tuple[Any, ...]] = {
    "network": get_args(choices.Network),
    "loss": get_args(choices.Loss),
    "lr": get_args(choices.Rate),
    "momentum": get_args(choices.Momentum),
    "transform": get_args(choices.Transform),
    "weight_norm": (choices.WeightNorm,),
}
_ENUMS: dict[str, type[Enum]] = {
    "direction": enums.Direction,
    "order": enums.Order,
    "trained": enums.Trained,
    "query": enums.QuerySource,
    "tail": enums.Tail,
    "reduction": enums.Reduction,
    "placement": enums.Placement,
    "mode": enums.NormMode,
    "schedule": enums.Schedule,
}


def to_dict(spec: InnerLoop) -> dict[str, Any]:
    """Return a JSON-ready dictionary from which `from_dict` restores an equal specification."""
    return {item.name: _plain(getattr(spec, item.name)) for item in fields(spec)}


def _plain(value: Any) -> Any:
    if isinstance(value, Enum):
        return value.value
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        inner = {item.name: _plain(getattr(value, item.name)) for item in fields(value)}
        return {"kind": _kind(value), **inner}
    return value


def _kind(choice: Any) -> str:
    return str(choice.kind)


def from_dict(data: Mapping[str, Any]) -> InnerLoop:
    """Restore a specification written by `to_dict`; fields left out take their defaults.

    Raises:
        SpecError: no mapping, or an unknown field, kind or value, with the nearest known one.
    """
    if not isinstance(data, Mapping):
        raise SpecError(
            f"an inner loop must be a mapping of field to value, received {data!r}; write it with to_dict."
        )
    return InnerLoop().edit(**{name: parse_field(name, value) for name, value in data.items()})


def parse_field(name: str, value: Any) -> Any:
    """Turn the plain (JSON or command-line) value of field `name` into its typed choice.

    A choice with parameters may be given by its kind alone ('newton_schulz') or as {'kind': ..., parameter: ...}.

    Raises:
        SpecError: the kind, parameter or value is unknown.
    """
    if name in _ENUMS:
        return _member(name, value)
    if name not in _VARIANTS or value is None or dataclasses.is_dataclass(value):
        return value
    given = {"kind": value} if isinstance(value, str) else dict(value) if isinstance(value, Mapping) else None
    kinds = {variant.kind: variant for variant in _VARIANTS[name]}
    kind = given.pop("kind", None) if given is not None else value
    if kind == "none" and name in ("momentum", "weight_norm"):
        return None
    if given is None or not isinstance(kind, str) or kind not in kinds:
        raise SpecError(
            f"InnerLoop.{name} must name one of {', '.join(kinds)}, received {kind!r}{closest(str(kind), kinds)}; "
            "pass one of those."
        )
    known = [item.name for item in fields(kinds[kind])]
    for parameter in given:
        if parameter not in known:
            raise SpecError(
                f"{name} '{kind}' has parameters {', '.join(known) or '(none)'}, received {parameter!r}"
                f"{closest(parameter, known)}; drop or rename it."
            )
    return kinds[kind](**{key: parse_field(key, item) for key, item in given.items()})


def _member(name: str, value: Any) -> Enum:
    if isinstance(value, _ENUMS[name]):
        return value
    members = {str(member.value): member for member in _ENUMS[name]}
    if str(value) not in members:
        raise SpecError(
            f"{name} must be one of {', '.join(members)}, received {value!r}{closest(str(value), members)}; "
            "pass one of those."
        )
    return members[str(value)]


def describe(value: Any) -> str:
    """Return a short readable text for a specification, or for the value of one of its fields."""
    if isinstance(value, InnerLoop):
        return ", ".join(f"{item.name}={describe(getattr(value, item.name))}" for item in fields(value))
    if isinstance(value, Enum):
        return str(value.value).replace("_", " ")
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        changed = [
            f"{item.name}={describe(getattr(value, item.name))}"
            for item in fields(value)
            if getattr(value, item.name) != item.default
        ]
        label = _kind(value).replace("_", " ")
        return f"{label}({', '.join(changed)})" if changed else label
    if isinstance(value, float):
        return f"{value:.4g}"
    return "none" if value is None else str(value)


def _field_text(name: str, value: Any) -> str:
    return "whole sequence" if name == "chunk" and value is None else describe(value)


class Difference(dict[str, tuple[str, str]]):
    """{field: (trained value, run value)}; a plain dictionary that shows itself as a table in a notebook."""

    def _repr_html_(self) -> str:
        return _difference_rows([(name, *sides) for name, sides in self.items()])


def difference(trained: InnerLoop, run: InnerLoop) -> Difference:
    """Return {field: (trained value, run value)} for the fields in which two specifications differ."""
    return Difference(
        {
            item.name: (
                _field_text(item.name, getattr(trained, item.name)),
                _field_text(item.name, getattr(run, item.name)),
            )
            for item in fields(trained)
            if getattr(trained, item.name) != getattr(run, item.name)
        }
    )


def difference_text(trained: Mapping[str, InnerLoop], run: Mapping[str, InnerLoop]) -> str:
    """Return one line naming every edited field of every loop, or 'none: run as trained'."""
    parts = [
        f"{loop}.{name}: {before} -> {after}" if len(trained) > 1 else f"{name}: {before} -> {after}"
        for loop in trained
        for name, (before, after) in difference(trained[loop], run[loop]).items()
    ]
    return "; ".join(parts) or "none: run as trained"


def html_table(spec: InnerLoop) -> str:
    """Return the specification as a two-column HTML table for notebooks."""
    row: Callable[[str], str] = lambda name: (  # noqa: E731 - a local row template reads best in place
        f"<tr><th style='text-align:left'>{name}</th>"
        f"<td style='text-align:left'>{html.escape(_field_text(name, getattr(spec, name)))}</td></tr>"
    )
    return "<table>" + "".join(row(item.name) for item in fields(spec)) + "</table>"


def html_difference(trained: Mapping[str, InnerLoop], run: Mapping[str, InnerLoop]) -> str:
    """Return what the run loops change against the trained ones as an HTML table, or a sentence when nothing differs."""
    return _difference_rows(
        [
            (f"{loop}.{name}" if len(trained) > 1 else name, *sides)
            for loop in trained
            for name, sides in difference(trained[loop], run[loop]).items()
        ]
    )


def _difference_rows(rows: list[tuple[str, str, str]]) -> str:
    if not rows:
        return "<p>No difference: run as trained.</p>"
    body = "".join(
        f"<tr><th style='text-align:left'>{name}</th>"
        + "".join(f"<td style='text-align:left'>{html.escape(side)}</td>" for side in sides)
        + "</tr>"
        for name, *sides in rows
    )
    head = "".join(f"<th style='text-align:left'>{title}</th>" for title in ("field", "trained", "run"))
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
