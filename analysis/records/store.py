"""A folder of records: one file per row, written atomically, and nothing computed twice."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from analysis.errors import RecordError
from analysis.paths import CACHE, replacing
from analysis.records.plain import decode, encode, plain
from analysis.records.provenance import code_digest, versions
from analysis.records.record import Record, key_of


class Store:
    """Records in one folder (default `.cache/records`); the folder is created by the first write.

    `environment` says under which code and package versions a cached result may be taken; by default that is the code
    of this checkout and the installed versions, so that an upgrade recomputes instead of quoting the past.
    """

    def __init__(
        self, folder: Path | str | None = None, environment: Mapping[str, Any] | None = None
    ) -> None:
        self.folder = Path(folder) if folder is not None else CACHE / "records"
        self._environment = environment

    def __repr__(self) -> str:
        return f"Store({str(self.folder)!r}, {sum(1 for _ in self.folder.glob('*.json'))} records)"

    @property
    def environment(self) -> dict[str, Any]:
        """Code digest and package versions that a cached result must have been made with."""
        if self._environment is None:
            self._environment = {"code": code_digest(), "versions": versions()}
        return dict(plain(self._environment, "environment"))

    def path(self, key: str) -> Path:
        """Return where the record with this key lies."""
        return self.folder / f"{key}.json"

    def put(self, record: Record) -> Record:
        """Write a record under its key and return it; an older one with the same inputs is replaced."""
        _write(self.path(record.key), record.to_json())
        return record

    def get(self, key: str) -> Record:
        """Return the record with this key.

        Raises:
            RecordError: there is none, or the file was damaged or edited by hand.
        """
        if key not in self:
            raise RecordError(f"no record {key[:12]} in {self.folder}; run the probe that measures it.")
        return _read(self.path(key))

    def __contains__(self, key: object) -> bool:
        return isinstance(key, str) and self.path(key).is_file()

    def __iter__(self) -> Iterator[Record]:
        """Iterate over every record, in the order of their keys."""
        for path in sorted(self.folder.glob("*.json")):
            yield _read(path)

    def __len__(self) -> int:
        return sum(1 for _ in self.folder.glob("*.json"))

    def __bool__(self) -> bool:
        return True  # an empty store is a store: `store or Store()` must not send records elsewhere

    def select(self, **equal: Any) -> list[Record]:
        """Return the records whose fields equal the given values; see `select`."""
        return select(self, **equal)

    def cached(self, inputs: Mapping[str, Any], compute: Callable[[], Record]) -> Record:
        """Return the record stored for these inputs, or compute and store it.

        Raises:
            RecordError: the stored record is damaged, or `compute` returned something else than a record.
        """
        return self.cached_all(inputs, lambda: [compute()])[0]

    def cached_all(
        self, inputs: Mapping[str, Any], compute: Callable[[], Sequence[Record]]
    ) -> tuple[Record, ...]:
        """Return the records stored for these inputs, or compute and store them; for runs that yield several rows.

        A record that was measured again since, under other code or versions, is not this run's: the run is repeated.

        Raises:
            RecordError: a stored record is damaged, or `compute` returned no record.
        """
        entry = self.folder / "runs" / f"{key_of({'inputs': inputs, 'environment': self.environment})}.json"
        if entry.is_file():
            written = _written(entry)
            if all(key in self for key, _ in written):
                found = tuple(self.get(key) for key, _ in written)
                if [_digest(record) for record in found] == [digest for _, digest in written]:
                    return found
        records = tuple(compute())
        if not records or not all(isinstance(record, Record) for record in records):
            raise RecordError(
                f"a cached computation must return records, received {records!r}; return Record(...)."
            )
        for record in records:
            self.put(record)
        run = {
            "inputs": plain(inputs, "inputs"),
            "environment": self.environment,
            "records": [r.key for r in records],
            "contents": [_digest(r) for r in records],
        }
        _write(entry, encode(run, indent=1) + "\n")
        return records


def select(records: Iterable[Record], **equal: Any) -> list[Record]:
    """Return the records whose fields equal the given values; `parameters={...}` matches when it holds those pairs.

    Raises:
        RecordError: no record field has that name.
    """
    for name in equal:
        if name not in Record.__dataclass_fields__:
            raise RecordError(
                f"a record has no field {name!r}; filter by one of {', '.join(Record.__dataclass_fields__)}."
            )
    return [
        record
        for record in records
        if all(_matches(getattr(record, name), want) for name, want in equal.items())
    ]


def _matches(value: Any, want: Any) -> bool:
    want = plain(want)
    if isinstance(value, dict) and isinstance(want, dict):
        return all(key in value and value[key] == item for key, item in want.items())
    return bool(plain(value) == want)


def _digest(record: Record) -> str:
    return hashlib.sha256(record.to_json().encode()).hexdigest()


def _written(entry: Path) -> list[tuple[str, str | None]]:
    """Return key and digest of every record that a run wrote, in order; None where an older entry holds no digest."""
    try:
        run = decode(entry.read_text(encoding="utf-8"))
        keys = list(run["records"])
        return list(zip(keys, run.get("contents", [None] * len(keys)), strict=True))
    except (OSError, UnicodeDecodeError, RecordError, KeyError, TypeError, ValueError) as error:
        raise RecordError(
            f"the cache entry {entry} is damaged ({error}); delete it and run again."
        ) from error


def _read(path: Path) -> Record:
    try:
        record = Record.from_json(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, RecordError) as error:
        raise RecordError(
            f"the record {path} is damaged ({error}); delete it and run its probe again."
        ) from error
    if record.key != path.stem:
        raise RecordError(
            f"the record {path} has the inputs of {record.key[:12]}: it was edited or renamed; delete it and run "
            "its probe again."
        )
    return record


def _write(path: Path, text: str) -> None:
    with replacing(path) as partial:
        partial.write_text(text, encoding="utf-8")
