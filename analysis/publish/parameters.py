"""The parameters of a notebook: read from its one tagged cell, and checked before any kernel starts.

The cell tagged `parameters` holds annotated assignments alone, each with a literal default and a comment:

    steps: list[int] = [0, 1, 2, 4]  # inner steps at test time; range 0..64
    device: str = "cpu"  # where to run; one of cpu, cuda

After the description come, separated by semicolons, `range LOW..HIGH` (either end may be left out; both belong to the
range; it applies to every number of a list) and `one of A, B`.
"""

from __future__ import annotations

import ast
import io
import math
import re
import tokenize
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from analysis.errors import ParameterError, closest

TAG = "parameters"
_SCALARS = {"int": "a whole number", "float": "a number", "bool": "true or false", "str": "text"}
_RANGE = re.compile(r"range\s+(?P<low>[^\s.]\S*?)?\.\.(?P<high>\S+)?$")


@dataclass(frozen=True, kw_only=True)
class Parameter:
    """One declared parameter: name, type, default, description, and what its values must satisfy."""

    name: str
    annotation: str
    default: Any
    description: str = ""
    low: float | None = None
    high: float | None = None
    choices: tuple[str, ...] = ()

    def expected(self) -> str:
        """Return the type and the constraints as error messages and help texts print them."""
        text = self.annotation
        if self.low is not None or self.high is not None:
            low = "" if self.low is None else f"{self.low:g}"
            text += f" in {low}..{'' if self.high is None else f'{self.high:g}'}"
        return f"{text}, one of {', '.join(self.choices)}" if self.choices else text

    def read(self, value: Any) -> Any:
        """Return `value` in the declared type; text for another type is parsed strictly.

        Raises ParameterError naming the parameter for an ill-typed, non-finite or out-of-range value.
        """
        try:
            typed = _convert(ast.parse(self.annotation, mode="eval").body, value)
            self._constrain(typed)
        except _RejectedError as reason:
            raise ParameterError(
                f"parameter {self.name!r} expects {self.expected()}, received {value!r} ({reason}); pass such a value"
            ) from None
        return typed

    def _constrain(self, value: Any) -> None:
        if isinstance(value, (list, dict)):
            for item in value.values() if isinstance(value, dict) else value:
                self._constrain(item)
            return
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            if self.low is not None and value < self.low:
                raise _RejectedError(f"{value:g} is below {self.low:g}")
            if self.high is not None and value > self.high:
                raise _RejectedError(f"{value:g} is above {self.high:g}")
        if self.choices and value is not None and str(value) not in self.choices:
            raise _RejectedError(f"{str(value)!r} is not among them{closest(str(value), self.choices)}")


class _RejectedError(Exception):
    """Why a value does not fit its declaration."""


def _convert(kind: ast.expr, value: Any) -> Any:
    if isinstance(kind, ast.BinOp):  # T | None
        options = [kind.left, kind.right]
        if _is_none(value):
            return None
        return _convert(next(option for option in options if ast.unparse(option) != "None"), value)
    if isinstance(kind, ast.Subscript):
        return _container(kind, value)
    return _scalar(ast.unparse(kind), value)


def _is_none(value: Any) -> bool:
    return value is None or (isinstance(value, str) and value.strip() in ("None", "null", "none"))


def _container(kind: ast.Subscript, value: Any) -> Any:
    name = ast.unparse(kind.value)
    if isinstance(value, str):
        value = _literal(value, name)
    if name == "list":
        if not isinstance(value, (list, tuple)):
            raise _RejectedError(f"{type(value).__name__} is not a list")
        return [_convert(kind.slice, item) for item in value]
    if not isinstance(value, Mapping):
        raise _RejectedError(f"{type(value).__name__} is not a mapping")
    if not isinstance(kind.slice, ast.Tuple):
        raise _RejectedError("the declaration needs dict[key, value]")
    key, item = kind.slice.elts
    return {_convert(key, name): _convert(item, content) for name, content in value.items()}


def _literal(text: str, name: str) -> Any:
    try:
        return ast.literal_eval(text.strip())
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        raise _RejectedError(f"the text cannot be read as a {name}") from None


def _scalar(kind: str, value: Any) -> Any:
    if kind == "str":
        if not isinstance(value, str):
            raise _RejectedError(f"{type(value).__name__} is not text; quote it")
        return value
    if isinstance(value, str):
        value = _from_text(kind, value.strip())
    if kind == "bool":
        if not isinstance(value, bool):
            raise _RejectedError(f"{type(value).__name__} is not true or false")
        return value
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise _RejectedError(f"{type(value).__name__} is not {_SCALARS[kind]}")
    if isinstance(value, float) and not math.isfinite(value):
        raise _RejectedError("it is not finite")
    if kind == "int" and isinstance(value, float):
        raise _RejectedError("it is not a whole number")
    return float(value) if kind == "float" else value


def _from_text(kind: str, text: str) -> Any:
    if kind == "bool":
        known = {"true": True, "false": False}
        if text.lower() not in known:
            raise _RejectedError("the text is neither true nor false")
        return known[text.lower()]
    try:
        return int(text) if kind == "int" else float(text)
    except ValueError:
        raise _RejectedError(f"the text is not {_SCALARS[kind]}") from None


def declared(notebook: Mapping[str, Any], name: str) -> dict[str, Parameter]:
    """Return the parameters that a notebook declares, in order; {} when it has no tagged cell.

    `notebook` is the parsed file, `name` its name for messages. Raises ParameterError when the cell is not unique or
    holds anything but annotated assignments with literal defaults that satisfy their own constraints.
    """
    tagged = [cell for cell in notebook["cells"] if TAG in cell.get("metadata", {}).get("tags", [])]
    if not tagged:
        return {}
    if len(tagged) > 1 or tagged[0]["cell_type"] != "code":
        raise ParameterError(
            f"notebook {name!r} must tag exactly one code cell {TAG!r}; remove the other tags"
        )
    source = tagged[0]["source"]
    source = source if isinstance(source, str) else "".join(source)
    try:
        tree, comments = ast.parse(source), _comments(source)
    except (SyntaxError, tokenize.TokenError) as error:
        raise ParameterError(
            f"notebook {name!r} has a parameters cell that is not Python ({error}); repair it"
        ) from None
    found = [_declaration(statement, comments, name) for statement in tree.body]
    return {parameter.name: parameter for parameter in found}


def _comments(source: str) -> dict[int, str]:
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    return {
        token.start[0]: token.string.lstrip("# ").strip()
        for token in tokens
        if token.type == tokenize.COMMENT
    }


def _declaration(statement: ast.stmt, comments: Mapping[int, str], notebook: str) -> Parameter:
    if not (
        isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name) and statement.value
    ):
        raise ParameterError(
            f"notebook {notebook!r} expects `name: type = default  # description` alone in its parameters cell, "
            f"received {ast.unparse(statement)!r}; move other statements to another cell"
        )
    name, annotation = statement.target.id, ast.unparse(statement.annotation)
    if not _known_type(statement.annotation):
        raise ParameterError(
            f"notebook {notebook!r} declares {name!r} as {annotation}; expected int, float, bool, str, list[T], "
            "dict[str, T] or T | None; change the annotation"
        )
    try:
        default = ast.literal_eval(statement.value)
    except ValueError:
        raise ParameterError(
            f"notebook {notebook!r} gives {name!r} a default that is not a literal; write the value out"
        ) from None
    text = comments.get(statement.end_lineno or statement.lineno, "")
    parameter = Parameter(
        name=name, annotation=annotation, default=default, **_constraints(text, name, notebook)
    )
    parameter.read(default)
    return parameter


def _known_type(node: ast.expr) -> bool:
    if isinstance(node, ast.BinOp):
        parts = [node.left, node.right]
        plain = [part for part in parts if ast.unparse(part) != "None"]
        return isinstance(node.op, ast.BitOr) and len(plain) == 1 and _known_type(plain[0])
    if isinstance(node, ast.Subscript):
        inner = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        size = {"list": 1, "dict": 2}.get(ast.unparse(node.value))
        return size == len(inner) and all(_known_type(item) for item in inner)
    return isinstance(node, ast.Name) and node.id in _SCALARS


def _constraints(comment: str, name: str, notebook: str) -> dict[str, Any]:
    description, *rules = [part.strip() for part in comment.split(";")]
    result: dict[str, Any] = {"description": description}
    for rule in rules:
        if rule.startswith("one of "):
            result["choices"] = tuple(item.strip() for item in rule.removeprefix("one of ").split(","))
        elif rule.startswith("range "):
            match = _RANGE.match(rule)
            try:
                bounds = match.groupdict() if match else {}
                numbers = {key: float(text) for key, text in bounds.items() if text}
            except ValueError:
                numbers = {}
            if not numbers:
                raise ParameterError(
                    f"notebook {notebook!r} gives {name!r} the rule {rule!r}; write `range LOW..HIGH`"
                )
            result.update(numbers)
        else:
            result["description"] += f"; {rule}"
    return result


def resolve(
    declarations: Mapping[str, Mapping[str, Parameter]], values: Mapping[str, Any]
) -> dict[str, dict[str, Any]]:
    """Return for every notebook its full, typed parameters: defaults, overridden by `values`.

    A key of `values` is `name` (every notebook that declares it) or `notebook.name` (that notebook alone).
    Raises ParameterError for a name that no notebook declares, with the closest one, and for a bad value.
    """
    resolved = {book: {p.name: p.read(p.default) for p in own.values()} for book, own in declarations.items()}
    for key in sorted(values, key=lambda key: "." in key):  # the specific ones override the general ones
        book, _, name = key.rpartition(".")
        books = [book] if book else [title for title, own in declarations.items() if key in own]
        if book and book not in declarations:
            raise ParameterError(
                f"no notebook is called {book!r}{closest(book, declarations)}; correct {key!r}"
            )
        if not books or name not in declarations[books[0]]:
            known = sorted({name for title in (books or declarations) for name in declarations[title]})
            raise ParameterError(
                f"no notebook declares a parameter {name!r}{closest(name, known)}; known: {', '.join(known) or 'none'}"
            )
        for title in books:
            resolved[title][name] = declarations[title][name].read(values[key])
    return resolved
