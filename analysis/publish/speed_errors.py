"""How exact the timed kernels are: errors against float64 that their records hold, beside those of plain arithmetic."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from analysis.publish.speed import COMPILED, RUNG_NAMES, as_table, in_order, rival
from analysis.records import Record

PLAIN = "torch's mixed precision"
FIRST_GRADIENTS = "gradients, loss on the first chunks alone (largest)"
GRADIENTS = "gradients (largest)"
KINDS = ("outputs of the first chunks", "outputs", "final state (largest)", FIRST_GRADIENTS, GRADIENTS)


def error_table(records: Sequence[Record], passes: str = "forward") -> Any:
    """Return the errors with which these times were taken, beside those of torch's mixed precision; None without any."""
    return as_table([_errors(found) for found in in_order(records, passes)])


def _errors(ours: Record) -> dict[str, str]:
    found, plain = ours.extra["errors"], ours.extra["errors_of_plain"]
    return {
        "rung": RUNG_NAMES[ours.parameters["variant"]],
        "form": ours.parameters["form"],
        "first chunks": percent(found["first outputs"]),
        "largest": percent(max(found.values())),
        "first chunks, mixed precision": percent(plain["first outputs"]),
        "largest, mixed precision": percent(max(plain.values())),
    }


def percent(error: float) -> str:
    """Return a relative error in per cent, with two digits or as many as a whole number needs."""
    return f"{100 * error:.0f} %" if error >= 1 else f"{100 * error:.2g} %"


def gradient_table(records: Sequence[Record]) -> Any:
    """Return the errors of the times of training by what they are of, ours beside the other ways'; None without any."""
    rows = []
    for ours in in_order(records, "training"):
        compiled = rival(records, ours, COMPILED)
        sides = {
            "kernels": largest(ours.extra["errors"]),
            PLAIN: largest(ours.extra["errors_of_plain"]),
            COMPILED: largest(compiled.extra["errors"]) if compiled else {},
        }
        named = {"rung": RUNG_NAMES[ours.parameters["variant"]], "form": ours.parameters["form"]}
        rows += [
            {**named, "error of": kind}
            | {name: percent(x[kind]) if kind in x else "not kept" if x else "" for name, x in sides.items()}
            for kind in KINDS
            if kind in sides["kernels"]
        ]
    return as_table(rows, ("rung", "form", "error of"))


def largest(errors: Mapping[str, float]) -> dict[str, float]:
    """Return the largest of the recorded errors of each kind that is there."""
    found: dict[str, float] = {}
    for name, error in errors.items():
        kind = _kind(name)
        found[kind] = max(error, found.get(kind, 0.0))
    return found


def _kind(name: str) -> str:
    for start, kind in (("first gradient", FIRST_GRADIENTS), ("gradient", GRADIENTS)):
        if name.startswith(start):
            return kind
    return {"outputs": "outputs", "first outputs": KINDS[0]}.get(name, KINDS[2])


def gradients_held(records: Sequence[Record], limit: float, room: float, first: int) -> str:
    """Say how strictly the gradients of each recorded time of training were held to float64; nothing without any.

    limit: the largest error that passes by itself; room: times the error of plain arithmetic that passes beyond it; first: how
    many chunks are the first ones.
    """
    times = in_order(records, "training")
    return " ".join(
        _held(ours, limit, room, first) for ours in times if GRADIENTS in largest(ours.extra["errors"])
    )


def _held(ours: Record, limit: float, room: float, first: int) -> str:
    where = ours.parameters
    name = f"{RUNG_NAMES[where['variant']]} in {where['form']} form"
    found, plain = largest(ours.extra["errors"]), largest(ours.extra["errors_of_plain"])
    chunks = -(-where["tokens"] // where["chunk"])
    if found[GRADIENTS] <= limit:
        said = [
            f"the largest error over {chunks} chunks is {percent(found[GRADIENTS])}, below the limit of {percent(limit)}"
        ]
    else:
        said = [
            f"over {chunks} chunks the largest error is {percent(found[GRADIENTS])} and that of plain arithmetic "
            f"{percent(plain[GRADIENTS])}, so that the check is loose: no worse than {room:g} times plain arithmetic"
        ]
    if FIRST_GRADIENTS in found:
        side = (
            "below the limit" if found[FIRST_GRADIENTS] <= limit else f"beyond the limit of {percent(limit)}"
        )
        said.append(
            f"with a loss on the first {first} chunks alone it is {percent(found[FIRST_GRADIENTS])}, {side}"
        )
    elif found[GRADIENTS] > limit:
        said.append("this record was made before gradients of the first chunks were checked by themselves")
    return f"**{name}**: {'; '.join(said)}."
