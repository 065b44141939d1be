"""What a panel's controls say, as data, and the edit of a host that they amount to."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass

from analysis.errors import UnsupportedSpecError
from analysis.models.host import EditedHost, Host
from analysis.spec import RUNGS, Direction, Loops, QuerySource, difference_text, map_loops

Runnable = dict[str, str]
"""Rung key -> why this host cannot run it, '' where it can."""


@dataclass(frozen=True, kw_only=True)
class Choice:
    """The state of all controls: which host, which edit, and what of it is looked at.

    steps: 0 applies the initial fast weights, None keeps the trained number. direction, query: None keeps the trained one.
    token: counted from 1 in the text that is shown, 0 for none.
    """

    subject: str
    samples: int
    example: int = 0
    rung: str = "baseline"
    steps: int | None = None
    direction: Direction | None = None
    query: QuerySource | None = None
    loop: str = ""
    layer: int = 0
    head: int = 0
    token: int = 0
    colour: str = "loss"

    def apply(self, host: Host) -> EditedHost:
        """Return the host with the edit: the rungs first, then query, direction and steps.

        Raises:
            UnsupportedSpecError: the rung needs parameters that the host does not have.
            InputError: an edit of a host without inner loop.
        """
        edited = host.edit(rung_loops(host.loops, self.rung)) if host.loops else as_trained(host)
        if self.query is not None:
            edited = edited.edit(query=self.query)
        if self.direction is not None:
            edited = edited.edit(direction=self.direction)
        if self.steps == 0:
            return edited.edit(lambda spec: spec.frozen())
        return edited if self.steps is None else edited.edit(steps=self.steps)


def as_trained(host: Host | EditedHost) -> EditedHost:
    """Return the host itself as an edit that changes nothing (also for a host without inner loops)."""
    return host if isinstance(host, EditedHost) else EditedHost(host, dict(host.loops))


def rung_loops(loops: Loops, key: str) -> Loops:
    """Apply every rung up to `key` to trained loops; unlike `climb`, rungs the host was trained with are passed over."""
    for rung in RUNGS:
        loops = map_loops(loops, rung.edit)
        if rung.key == key:
            break
    return loops


def runnable_rungs(host: Host) -> Runnable:
    """Return for every rung why this host cannot be run with it, or ''."""
    found: Runnable = {}
    for rung in RUNGS:
        try:
            host.resolve(rung_loops(host.loops, rung.key))
        except UnsupportedSpecError as error:
            found[rung.key] = str(error)
        else:
            found[rung.key] = "" if host.loops else "the host has no inner loop"
    return found


def edit_key(edited: EditedHost) -> Hashable:
    """Return a key that two edits share exactly when they run the same loops."""
    return tuple(sorted(edited.loops.items()))


def short_text(edited: EditedHost) -> str:
    """Return the edit in a few words, for an axis or a table head."""
    trained, run = edited.trained_loops, edited.loops
    if dict(trained) == dict(run):
        return "as trained"
    if all(not loop.moving for loop in run.values()):
        return "no update"
    if len(run) > 1:  # both loops of a layer get the same edit: name it once where it is the same
        texts = {difference_text({"": trained[name]}, {"": run[name]}) for name in run}
        shared = max(texts, key=lambda text: (not text.startswith("none"), len(text)))
    else:
        shared = difference_text(trained, run)
    if shared.startswith("none"):
        return "as trained"
    return ", ".join(part.replace(" -> ", " → ") for part in shared.split("; "))
