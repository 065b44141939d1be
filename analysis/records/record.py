"""One result row: what was asked of which checkpoint, what came out, and where it was made."""

from __future__ import annotations

import dataclasses
import hashlib
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from enum import StrEnum
from typing import Any

from analysis.errors import RecordError, closest
from analysis.records.plain import decode, encode, is_finite, plain
from analysis.spec import difference_text, from_dict


class Kind(StrEnum):
    """Where a number comes from."""

    MEASURED = "measured"
    PUBLISHED = "published"


INPUTS = (
    "question",
    "kind",
    "metric",
    "unit",
    "checkpoint",
    "trained_spec",
    "run_spec",
    "data",
    "seeds",
    "samples",
    "device",
    "parameters",
    "source",
)
"""The fields that say what was asked. They alone make the key; values, versions and commit do not."""


@dataclass(frozen=True, kw_only=True)
class Record:
    """One measured or published number with everything needed to ask for it again.

    `checkpoint` and `data` are digests ('' where none took part), `trained_spec` and `run_spec` map loop names to
    specifications, `parameters` are further inputs of the question, `extra` are further outputs. `ci_low` and `ci_high`
    bound the value with the confidence named in `parameters` or 95 %. A non-finite number is admitted only with
    `diverged=True`, so that a blow-up is a finding and never an accident. A published row names its `source`.

    Raises:
        RecordError: a field is missing, ill-typed, out of order or not finite.
    """

    question: str
    metric: str
    value: float
    kind: Kind = Kind.MEASURED
    unit: str = ""
    ci_low: float | None = None
    ci_high: float | None = None
    checkpoint: str = ""
    trained_spec: Mapping[str, Any] = field(default_factory=dict)
    run_spec: Mapping[str, Any] = field(default_factory=dict)
    data: str = ""
    seeds: tuple[int, ...] = ()
    samples: int | None = None
    device: str = ""
    parameters: Mapping[str, Any] = field(default_factory=dict)
    source: str = ""
    diverged: bool = False
    versions: Mapping[str, str] = field(default_factory=dict)
    commit: str = ""
    command: str = ""
    extra: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name, value in normalise({item.name: getattr(self, item.name) for item in fields(self)}).items():
            object.__setattr__(self, name, value)
        _check(self)

    @property
    def key(self) -> str:
        """The content address: sha256 over the canonical JSON of the input fields (`INPUTS`)."""
        return key_of({name: getattr(self, name) for name in INPUTS})

    def __hash__(self) -> int:
        return hash(self.key)

    def __str__(self) -> str:
        """Return the record in one line; `repr` shows every field."""
        from analysis.records.table import format_value

        return f"{self.question}: {self.metric} {format_value(self)}; {difference(self)}"

    def edit(self, **changes: Any) -> Record:
        """Return a copy with the named fields replaced."""
        return dataclasses.replace(self, **changes)

    def to_dict(self) -> dict[str, Any]:
        """Return every field as plain values."""
        return {item.name: plain(getattr(self, item.name), item.name) for item in fields(self)}

    def to_json(self) -> str:
        """Return the record as JSON, one field a line, keys sorted; the same record always gives the same text.

        A model run as it was trained has one specification: `run_spec` is left out where it equals `trained_spec`.
        """
        values = self.to_dict()
        if values["run_spec"] == values["trained_spec"]:
            del values["run_spec"]
        lines = (f" {encode(name)}: {encode(value)}" for name, value in sorted(values.items()))
        return "{\n" + ",\n".join(lines) + "\n}\n"

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Record:
        """Restore a record from `to_dict`.

        Raises:
            RecordError: a field is unknown or missing, or a value is not admitted.
        """
        known = [item.name for item in fields(cls)]
        for name in data:
            if name not in known:
                raise RecordError(f"a record has no field {name!r}{closest(name, known)}; drop or rename it.")
        missing = [name for name in ("question", "metric", "value", "kind") if name not in data]
        if missing:
            raise RecordError(f"a record needs the fields {', '.join(missing)}; add them.")
        return cls(**data)

    @classmethod
    def from_json(cls, text: str) -> Record:
        """Restore a record from `to_json`; text without a `run_spec` is of a run as trained.

        Raises:
            RecordError: not JSON, not an object, or not a valid record.
        """
        data = decode(text)
        if not isinstance(data, dict):
            raise RecordError(
                f"expected a record as a JSON object, received {type(data).__name__}; write it again."
            )
        return cls.from_dict({"run_spec": data.get("trained_spec", {}), **data})

    def _repr_html_(self) -> str:
        from analysis.records.table import RecordTable

        return RecordTable([self])._repr_html_()


def normalise(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return record fields in their stored form: plain dictionaries, seeds as a tuple, a `Kind`.

    Raises:
        RecordError: a value that JSON cannot hold, or an unknown kind.
    """
    result = {name: plain(value, name) for name, value in values.items()}
    if "kind" in result:
        if result["kind"] not in list(Kind):
            raise RecordError(
                f"kind must be measured or published, received {result['kind']!r}; pass one of those."
            )
        result["kind"] = Kind(result["kind"])
    if "seeds" in result:
        seeds = result["seeds"]
        result["seeds"] = tuple(seeds) if isinstance(seeds, list) else seeds
    return result


def key_of(inputs: Mapping[str, Any]) -> str:
    """Return the content address of a mapping of inputs: sha256 over its canonical JSON (64 hexadecimal digits)."""
    return hashlib.sha256(encode(plain(inputs, "inputs")).encode()).hexdigest()


def published(question: str, metric: str, value: float, *, source: str, **others: Any) -> Record:
    """Return a row that somebody printed; `source` names paper and table."""
    return Record(question=question, metric=metric, value=value, kind=Kind.PUBLISHED, source=source, **others)


def difference(record: Record) -> str:
    """Return in one line what the run changed in the loops that the checkpoint was trained with.

    Retraining with an edited loop and editing a frozen model give different texts: the first changes nothing here.

    Raises:
        RecordError: the record names loops on one side only.
    """
    if not record.trained_spec and not record.run_spec:
        return "no inner loop took part"
    if set(record.trained_spec) != set(record.run_spec):
        raise RecordError(
            f"trained and run specification must name the same loops, received {sorted(record.trained_spec)} and "
            f"{sorted(record.run_spec)}; record both sides in full."
        )
    trained = {name: from_dict(spec) for name, spec in record.trained_spec.items()}
    run = {name: from_dict(spec) for name, spec in record.run_spec.items()}
    return difference_text(trained, run)


_TEXT = ("unit", "checkpoint", "data", "device", "source", "commit", "command")
_MAPPINGS = ("trained_spec", "run_spec", "parameters", "versions", "extra")


def _check(record: Record) -> None:
    for name in ("question", "metric", *_TEXT):
        if not isinstance(getattr(record, name), str):
            raise RecordError(f"{name} must be text, received {getattr(record, name)!r}; pass a string.")
    for name in ("question", "metric"):
        if not getattr(record, name).strip():
            raise RecordError(f"{name} must not be empty; name it.")
    for name in _MAPPINGS:
        if not isinstance(getattr(record, name), dict):
            raise RecordError(
                f"{name} must be a mapping, received {getattr(record, name)!r}; pass a dictionary."
            )
    if not isinstance(record.diverged, bool):
        raise RecordError(f"diverged must be True or False, received {record.diverged!r}; pass one of those.")
    if not isinstance(record.seeds, tuple) or not all(_is_count(seed) for seed in record.seeds):
        raise RecordError(f"seeds must be whole numbers, received {record.seeds!r}; pass a tuple of them.")
    if record.samples is not None and not _is_count(record.samples):
        raise RecordError(
            f"samples must be a whole number or None, received {record.samples!r}; pass how many."
        )
    _check_numbers(record)
    if record.kind is Kind.PUBLISHED and not record.source:
        raise RecordError("a published row must name its source; pass source='paper, table'.")


def _check_numbers(record: Record) -> None:
    for name in ("value", "ci_low", "ci_high"):
        value = getattr(record, name)
        if value is None and name != "value":
            continue
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise RecordError(f"{name} must be a number, received {value!r}; pass a float.")
        object.__setattr__(record, name, float(value))
    if not record.diverged and not is_finite(record.to_dict()):
        raise RecordError(
            f"{record.question}/{record.metric} must be finite, received value={record.value}, ci=({record.ci_low}, "
            f"{record.ci_high}) or a non-finite number in its mappings; set diverged=True if the run blew up."
        )
    low, high = record.ci_low, record.ci_high
    if (low is None) != (high is None):
        raise RecordError(
            f"ci_low and ci_high must come together, received {low} and {high}; pass both or none."
        )
    if low is None or high is None or any(math.isnan(number) for number in (low, record.value, high)):
        return
    slack = 1e-9 * max(1.0, abs(record.value))  # the mean of equal numbers may be one rounding away from them
    if not low - slack <= record.value <= high + slack:
        raise RecordError(
            f"the interval must hold the value, received {low} <= {record.value} <= {high}; mend it."
        )


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0
