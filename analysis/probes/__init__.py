"""Questions put to a trained host: each probe is a family of edits and one measurement, and returns records."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from analysis.errors import ParameterError, closest
from analysis.models.host import EditedHost, Host
from analysis.probes import distributions, paradoxes
from analysis.probes.subjects import Subject, subjects
from analysis.probes.task import Task, evaluation_task
from analysis.records import Record, RecordTable, Store


@dataclass(frozen=True)
class Probe:
    """A question by name, in one sentence, with the function that answers it and the parameters it takes."""

    name: str
    question: str
    run: Callable[..., tuple[Record, ...]]
    parameters: tuple[str, ...] = ()


PROBES: dict[str, Probe] = {
    probe.name: probe
    for probe in (
        Probe("evaluation", "How good is the model as it is?", paradoxes.evaluation),
        Probe("steps", "Do more inner steps help?", paradoxes.inner_steps, ("steps", "step_size")),
        Probe("ascent", "What does the wrong sign of the update do?", paradoxes.gradient_ascent),
        Probe("query_to_key", "Does the model need its queries?", paradoxes.query_to_key),
        Probe("feeding", "Does the state carry the example's own pairs?", paradoxes.feeding),
        Probe(
            "distributions",
            "Do queries look like keys, and outputs like values?",
            distributions.mismatch,
            ("vectors", "permutations", "loop"),
        ),
    )
}


def run(
    name: str,
    host: Host | EditedHost,
    *,
    samples: int | None = None,
    data: Path | str | None = None,
    store: Store | None = None,
    **parameters: Any,
) -> RecordTable:
    """Put one question to a host and return its records, which show themselves as a table.

    Raises:
        ParameterError: unknown probe or parameter, with the nearest known one.
        DataError: the data are missing or do not fit the host.
    """
    if name not in PROBES:
        raise ParameterError(
            f"probe must be one of {', '.join(PROBES)}, received {name!r}{closest(name, PROBES)}."
        )
    probe = PROBES[name]
    for given in parameters:
        if given not in probe.parameters:
            known = ", ".join(("samples", *probe.parameters))
            raise ParameterError(
                f"probe {name!r} takes {known}, received {given!r}{closest(given, ('samples', *probe.parameters))}."
            )
    task = evaluation_task(host, samples, data)
    return RecordTable(probe.run(host, task, store=store, **parameters))


__all__ = ["PROBES", "Probe", "Subject", "Task", "evaluation_task", "run", "subjects"]
