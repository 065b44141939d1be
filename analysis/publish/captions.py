"""Captions in labelled parts, generated from the records behind a figure so that no number is typed by hand."""

from __future__ import annotations

import html
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from analysis.errors import ReportError
from analysis.records import Kind, Record
from analysis.spec import Family, InnerLoop, Loops, describe, difference, difference_text, from_dict, ladder

AS_TRAINED = "as trained"


@dataclass(frozen=True, kw_only=True)
class Caption:
    """What is shown, the trained and the run specification with their difference, and how it was measured."""

    shown: str
    model: str = ""
    measured: str = ""

    def __post_init__(self) -> None:
        if not self.shown.strip():
            raise ReportError(
                "expected a caption that says what is shown, received an empty one; write a sentence"
            )

    def parts(self) -> list[list[str]]:
        """Return [label, text] for every part that is present, in reading order."""
        named = (("Shown", self.shown), ("Model", self.model), ("Measured", self.measured))
        return [[label, text.strip()] for label, text in named if text.strip()]

    def html(self) -> str:
        """Return the parts as HTML with bold labels."""
        return " ".join(f"<b>{label}.</b> {html.escape(text)}" for label, text in self.parts())


def caption(
    shown: str,
    records: Iterable[Record] = (),
    *,
    command: str = "",
    notes: Sequence[str] = (),
) -> Caption:
    """Return the caption of a figure drawn from `records`.

    `shown` is the author's sentence; specifications, seeds, samples, device, commit and, unless given, the command
    are read from the records. Raises ReportError when published values stand among measured ones and `shown` does
    not say so.
    """
    rows = list(records)
    measured = [row for row in rows if row.kind is Kind.MEASURED]
    published = [row for row in rows if row.kind is Kind.PUBLISHED]
    if measured and published and "published" not in shown.lower():
        raise ReportError(
            "expected a caption that names the published values among the measured ones, received "
            f"{shown!r}; say which are published"
        )
    sources = _unique(row.source for row in published)
    notes = [*notes, *([f"published values from {_listed(sources)}"] if sources else [])]
    return Caption(
        shown=_sentence(shown), model=_model(measured), measured=_measurement(measured, command, notes)
    )


def _model(rows: list[Record]) -> str:
    if not rows:
        return ""
    runs = [(_loops(row.trained_spec), _loops(row.run_spec), row.parameters.get("arm", "")) for row in rows]
    runs = [(trained, run, arm) for trained, run, arm in runs if trained and run]
    if not runs:
        return ""
    text = f"trained with {_listed(_unique(nearest_name(trained) for trained, *_ in runs))}"
    ways = _ways(runs)
    differences = _unique(
        difference_text(one, run) for one, run, _ in runs if set(one) == set(run) and one != run
    )
    if len(ways) > 1 or len(differences) != 1:
        return _sentence(f"{text}; run {joined(ways)}")
    names = _listed(_unique(nearest_name(run) for _, run, _ in runs))
    return _sentence(f"{text}; run with {names}; difference: {differences[0]}")


def _ways(runs: Sequence[tuple[Loops, Loops, str]]) -> list[str]:
    """Say in which ways the loops were run, each in a few words; numbers of steps are gathered into one.

    A run whose loops are as trained may still have been intervened on, at its activations: then its arm says how.
    """
    edits = [(_edits(trained, run), arm) for trained, run, arm in runs]
    ways = _unique(_way(edit, arm) for edit, arm in edits if set(edit) != {"steps"})
    counts = sorted({int(edit["steps"]) for edit, _ in edits if set(edit) == {"steps"}})
    gathered = [f"with {joined([str(count) for count in counts])} inner steps"] if counts else []
    return sorted(ways, key=lambda way: way != AS_TRAINED) + gathered


def _edits(trained: Loops, run: Loops) -> dict[str, str]:
    """Return {field: value of the run} for what was edited; a field that is not edited alike in all loops names its loop."""
    if set(trained) != set(run):
        return {"loops": ", ".join(run)}
    differences = {name: difference(trained[name], run[name]) for name in trained}
    found: dict[str, str] = {}
    for name, changed in differences.items():
        for field, (_, after) in changed.items():
            alike = all(other.get(field, ("", ""))[1] == after for other in differences.values())
            found[field if alike else f"{name}.{field}"] = after
    return found


def _way(edit: Mapping[str, str], arm: str) -> str:
    if not edit:
        return AS_TRAINED if arm in ("", AS_TRAINED) else f"with {arm}"
    if dict(edit) == {"trained": "none"}:
        return "without updates"
    if set(edit) == {"query"}:
        return f"with the {edit['query']} as query"
    return "with " + ", ".join(f"{field.replace('_', ' ')} {value}" for field, value in edit.items())


def _loops(value: Any) -> dict[str, InnerLoop]:
    """Read what a record carries as a specification: one loop or named loops, typed or as JSON; {} for none."""
    if not value:
        return {}
    if isinstance(value, InnerLoop):
        return {"fast_weights": value}
    if "network" in value:
        return {"fast_weights": from_dict(value)}
    return {name: loop if isinstance(loop, InnerLoop) else from_dict(loop) for name, loop in value.items()}


def nearest_name(loops: Mapping[str, InnerLoop]) -> str:
    """Name a layer's loops by the published rung they equal, or by the nearest one and the fields edited."""
    chunk = next(iter(loops.values())).chunk
    best: tuple[int, str] | None = None
    for family in Family:
        for name, rung in ladder(family, **({} if chunk is None else {"chunk": chunk})).items():
            if set(rung) != set(loops):
                continue
            edits = "" if dict(rung) == dict(loops) else difference_text(rung, loops)
            count = edits.count(" -> ")
            if best is None or count < best[0]:
                if not any(loop.moving for loop in loops.values()):
                    best = (count, f"{family.title} without updates")
                    continue
                shown = edits if count <= 3 else f"in {count} fields"
                best = (count, f"{family.title} {name}" + (f" edited ({shown})" if edits else ""))
    if best is None:  # a layer of no published family is described instead of named
        return "; ".join(f"{name.replace('_', ' ')} ({_described(loop)})" for name, loop in loops.items())
    return best[1]


def _described(loop: InnerLoop) -> str:
    """The fields of a loop that are not the plain ones, in words."""
    told = [one for one in fields(loop) if getattr(loop, one.name) != one.default]
    return ", ".join(f"{one.name.replace('_', ' ')} {describe(getattr(loop, one.name))}" for one in told)


def _measurement(rows: list[Record], command: str, notes: Sequence[str]) -> str:
    commands = [command] if command else _unique(row.command for row in rows if row.command)
    parts = [f"command {_listed(commands)}"] if commands else []
    seeds = [str(seed) for seed in sorted({seed for row in rows for seed in row.seeds})]
    if seeds:
        parts.append(f"{'seed' if len(seeds) == 1 else 'seeds'} {_listed(seeds, limit=8)}")
    samples = sorted({row.samples for row in rows if row.samples is not None})
    if samples:
        span = str(samples[0]) if len(samples) == 1 else f"{samples[0]} to {samples[-1]}"
        parts.append(f"{span} {'sample' if samples == [1] else 'samples'} per point")
    for label, values in (
        ("device", _unique(row.device for row in rows if row.device)),
        ("commit", _unique(row.commit[:10] for row in rows if row.commit)),
    ):
        if values:
            parts.append(f"{label} {_listed(values)}")
    parts.extend(note.strip().rstrip(".") for note in notes)
    return _sentence("; ".join(parts)) if parts else ""


def _listed(items: Sequence[str], limit: int = 4) -> str:
    if len(items) > limit:
        return f"{', '.join(items[:limit])} and {len(items) - limit} more"
    return ", ".join(items)


def joined(items: Sequence[str]) -> str:
    """Return 'a', 'a and b', 'a, b and c'."""
    return " and ".join([part for part in (", ".join(items[:-1]), *items[-1:]) if part])


def _unique(items: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(items))


def _sentence(text: str) -> str:
    text = text.strip()
    return text if not text or text[-1] in ".!?" else f"{text}."
