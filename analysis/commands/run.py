"""The verbs that compute: verify, probe, evaluate, train, recipes."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import typer

from analysis.commands import show
from analysis.commands.assignments import parse_assignments
from analysis.commands.device import usable
from analysis.errors import ParameterError, closest


def verify() -> int:
    """Check every theorem, show the verdicts, and return 0 when each is the recorded one, 1 otherwise."""
    from analysis.theorems import verify as check

    found = check()
    show.show(show.verdict_table(found))
    strays = [judgement.claim.id for judgement in found if not judgement.as_recorded]
    typer.echo(
        f"not as recorded: {', '.join(strays)}"
        if strays
        else f"{len(found)} claims, every verdict as recorded"
    )
    return 1 if strays else 0


def probe(
    name: str,
    checkpoint: Path,
    assignments: Sequence[str],
    *,
    data: Path | None,
    samples: int | None,
    device: str,
    store: Path | None,
) -> None:
    """Put a question to a checkpoint; assignments are the probe's parameters or fields of the inner loop.

    Raises:
        ParameterError: an assignment that is neither, or an unknown probe.
        StorageError: the folder of the records cannot be written.
    """
    from analysis.models.checkpoints import load
    from analysis.paths import require_writable
    from analysis.probes import PROBES, run
    from analysis.records import Store

    taken = PROBES[name].parameters if name in PROBES else ()
    edits, parameters = split_fields(parse_assignments(assignments), taken)
    host: Any = load(checkpoint, device=usable(device))
    if edits:
        host = host.edit(**edits)
    records = Store(store)
    require_writable(records.folder)
    _try_parameters(name, host, parameters)
    rows = run(name, host, samples=samples, data=data, store=records, **parameters)
    show.show(show.records_table(rows, f"{name}: {checkpoint.name}"))


def _try_parameters(name: str, host: Any, parameters: Mapping[str, Any]) -> None:
    """Let a probe judge its parameters before any data are rendered: it is stopped where its first measurement would begin.

    Raises:
        ParameterError: the probe refuses one.
    """
    from analysis.probes import PROBES, Task

    class Reached(Exception):
        pass

    class Stop:
        def cached_all(self, inputs: Any, compute: Any) -> None:
            raise Reached

    if name in PROBES:
        with suppress(Reached):
            nothing = Task("none", "no example is read", "", 1, tuple)
            PROBES[name].run(host, nothing, store=Stop(), **parameters)


def split_fields(values: Mapping[str, Any], taken: Sequence[str]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return (edits of the inner loop, parameters of the probe); a name that both know belongs to the probe.

    Raises:
        ParameterError: a name that neither knows.
    """
    from analysis.spec import InnerLoop, parse_field

    fields = tuple(InnerLoop.__dataclass_fields__)
    for name in values:
        if name not in (*fields, *taken):
            known = ", ".join(dict.fromkeys((*taken, *fields)))
            raise ParameterError(f"--set knows {known}; received {name!r}{closest(name, (*taken, *fields))}.")
    edits = {name: parse_field(name, value) for name, value in values.items() if name not in taken}
    return edits, {name: value for name, value in values.items() if name in taken}


def train(
    name: str, assignments: Sequence[str], *, data: Path | None, output: Path | None, device: str | None
) -> None:
    """Train a recipe and show the final evaluation; under torchrun only the leading process speaks.

    A folder that holds this very recipe, finished, is left as it is, and said to be so.

    Raises:
        ParameterError: unknown recipe, or a field that cannot be set so.
        CheckpointError: the folder holds a finished checkpoint of other settings.
    """
    from analysis.paths import CHECKPOINTS
    from analysis.training.recipes import find
    from analysis.training.resume import RESUME_FILE, AlreadyFinishedError
    from analysis.training.trainer import log_to_terminal
    from analysis.training.trainer import train as run

    recipe = edited(find(name), parse_assignments(assignments))
    folder = CHECKPOINTS / recipe.folder if output is None else output
    leads = os.environ.get("RANK", "0") == "0"
    log_to_terminal()
    if recipe.note and leads:
        typer.echo(recipe.note, err=True)
    try:
        evaluation = run(recipe, folder, data=data, device=usable(device) if device else None)
    except AlreadyFinishedError as found:
        if leads:
            typer.echo(str(found))
        return
    except KeyboardInterrupt as stop:
        if leads and (folder / RESUME_FILE).exists():
            typer.echo(str(stop) or f"stopped; the same command continues from {folder}", err=True)
        raise
    if evaluation is not None:
        low, high = evaluation.ci_low, evaluation.ci_high
        typer.echo(
            f"{evaluation.metric}: {evaluation.value:.4g} [{low:.4g}, {high:.4g}] {evaluation.unit}".rstrip()
        )


def edited(recipe: Any, values: Mapping[str, Any]) -> Any:
    """Return a recipe with the named numbers replaced, each by one of the same type; `data.NAME` is a number of its data.

    Raises:
        ParameterError: unknown field, one that is no plain number or text, or a value of another type.
    """
    plain = {name: old for name, old in vars(recipe).items() if name not in ("name", "variant", "note")}
    plain |= {f"data.{name}": old for name, old in vars(recipe.data).items() if name != "source"}
    plain = {name: old for name, old in plain.items() if isinstance(old, int | float | str)}
    for name, value in values.items():
        if name not in plain:
            raise ParameterError(
                f"--set on a recipe knows {', '.join(plain)}; received {name!r}{closest(name, plain)}."
            )
        kind = type(plain[name])
        fits = isinstance(value, int | float) if kind is float else isinstance(value, kind)
        if isinstance(value, bool) or not fits:
            raise ParameterError(f"--set {name} expects a value like {plain[name]!r}, received {value!r}.")
        if name.startswith("data.") and isinstance(value, int) and value < 1:
            raise ParameterError(f"--set {name} expects at least 1, received {value}.")
    data = {name.removeprefix("data."): value for name, value in values.items() if name.startswith("data.")}
    fields = {name: value for name, value in values.items() if not name.startswith("data.")}
    changed = recipe.edit(data=replace(recipe.data, **data), **fields)
    _require_fitting_data(changed)
    return changed


def _require_fitting_data(recipe: Any) -> None:
    """Refuse data that the host or the task cannot take, which would be found after all were rendered."""
    side, patch = getattr(recipe.data, "size", None), getattr(recipe.config, "patch_size", None)
    if side is not None and patch is not None and side % patch:
        raise ParameterError(
            f"--set data.size expects a multiple of the patch size {patch} of {recipe.name}, received {side}."
        )
    views = getattr(recipe.data, "views", None)
    if views is not None and recipe.data.inputs + recipe.data.targets > views:
        raise ParameterError(
            f"--set expects data.inputs and data.targets of at most data.views={views} together, received "
            f"{recipe.data.inputs} and {recipe.data.targets}; lower one, or raise data.views."
        )


def recipes(pattern: str) -> None:
    """List the recipes whose name contains `pattern`, and what each trains."""
    from rich.table import Table

    from analysis.training.recipes import ALIASES, RECIPES

    table = Table(title="Recipes: ttt-analysis train NAME")
    for title in ("name", "family", "variant", "steps", "batch", "rate", "same as"):
        table.add_column(title, overflow="fold")
    for name in sorted([*RECIPES, *ALIASES]):
        if pattern in name:
            recipe = RECIPES[ALIASES.get(name, name)]
            numbers = (f"{recipe.steps:,}", f"{recipe.batch}", f"{recipe.lr:g}")
            table.add_row(name, recipe.family.title, recipe.variant, *numbers, ALIASES.get(name, ""))
    show.show(table)
