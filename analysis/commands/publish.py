"""The verbs that make pages: figures and report."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import typer

from analysis.commands.assignments import split_assignments
from analysis.errors import CheckpointError, DataError, ParameterError, closest


@dataclass(frozen=True, kw_only=True)
class Selection:
    """What of the report is made: which notebooks, on whose checkpoint and data, with which parameters."""

    checkpoint: Path | None = None
    data: Path | None = None
    only: Sequence[str] = ()
    assignments: Sequence[str] = ()
    jobs: int = 2
    timeout: int = 1800
    fresh: bool = False

    def options(self) -> dict[str, Any]:
        """Return the arguments that `build_report` and `regenerate_figures` share.

        Raises:
            ParameterError: unknown notebook or malformed assignment.
            CheckpointError, DataError: a path that does not exist.
        """
        return {
            "notebooks": chosen_notebooks(self.only),
            "parameters": self._parameters(),
            "jobs": self.jobs,
            "timeout": self.timeout,
            "fresh": self.fresh,
            "extra_inputs": self._inputs(),
        }

    def _parameters(self) -> dict[str, str]:
        if self.checkpoint is not None and not self.checkpoint.exists():
            raise CheckpointError(
                f"expected a checkpoint at {self.checkpoint}, found nothing; check the path."
            )
        if self.data is not None and not self.data.exists():
            raise DataError(f"expected data at {self.data}, found nothing; check the path.")
        own = {"checkpoint": self.checkpoint, "data": self.data}
        named = {name: str(path.resolve()) for name, path in own.items() if path is not None}
        given = split_assignments(self.assignments)
        for name in named.keys() & given.keys():
            raise ParameterError(f"--set {name} and --{name} name the same parameter; keep one.")
        return named | given

    def _inputs(self) -> list[Path]:
        from analysis.paths import RECORDS

        found = sorted(RECORDS.glob("*.json"))  # records of GPU runs appear in the pages too
        for path in (self.checkpoint, self.data):
            if path is not None:
                found += sorted(path.rglob("*")) if path.is_dir() else [path]
        return [path.resolve() for path in found if path.is_file()]


def chosen_notebooks(only: Sequence[str]) -> list[Path] | None:
    """Return the notebooks called so (whole name, or the number in front), or None for all.

    Raises:
        ParameterError: no notebook has that name.
    """
    if not only:
        return None
    from analysis.publish.notebooks import find_notebooks

    names = {path.stem: path for path in find_notebooks()}
    chosen = []
    for name in only:
        stem = Path(name).name.removesuffix(".ipynb")
        found = [path for known, path in names.items() if stem in (known, known.split("_")[0])]
        if not found:
            known = ", ".join(names)
            raise ParameterError(
                f"no notebook is called {name!r}{closest(stem, names)}; choose among {known}."
            )
        chosen += found
    return sorted(set(chosen))


def report(selection: Selection, *, pdf_engine: str, require_pdf: bool, output: Path | None) -> None:
    """Make the report and say where it lies."""
    from analysis.publish.report import build_report

    options = selection.options()
    if selection.checkpoint is not None:
        from analysis.models.checkpoints import inspect

        # what cannot be reported on should not run nine notebooks to say so
        if not inspect(selection.checkpoint).loops:
            raise CheckpointError(
                f"expected a checkpoint with an inner loop, received {selection.checkpoint} without one; there is nothing to "
                "report on beside its metric, which `ttt-analysis evaluate` gives."
            )
        options["subtitle"] = (
            f"What the checkpoint {selection.checkpoint.resolve().name} tells by itself; retrained models, theorems and "
            "speed are those of the shipped report."
        )
    made = build_report(**options, pdf_engine=pdf_engine, require_pdf=require_pdf, output=output)
    typer.echo(f"{made.executed} notebooks executed, {made.reused} taken from the cache")
    typer.echo(f"HTML: {made.html}")
    typer.echo(f"PDF:  {made.pdf}" if made.pdf else f"PDF:  none ({made.note or 'not asked for'})")


def figures(selection: Selection, output: Path | None = None) -> None:
    """Draw the figures again, into `output` or `figures/`, and say where they lie."""
    from analysis.publish.report import regenerate_figures

    for path in regenerate_figures(figures=output, **selection.options()):
        typer.echo(str(path))


def diff(first: Path, second: Path) -> int:
    """Show where two reports differ, the changed claims first; return 0 when they agree in everything, 1 otherwise.

    Raises:
        ReportError: a path holds no report with claims.
    """
    from rich.table import Table

    from analysis.commands.show import show
    from analysis.publish.difference import Kind, compare_reports

    found = compare_reports(first, second)
    for name, path, built in zip(("first", "second"), (first, second), found.built, strict=True):
        typer.echo(f"{name}: {path}  {built}")
    for note in found.notes:
        typer.echo(note)
    changed = [
        cells for row, cells in zip(found.shared, found.cells(), strict=True) if row.kind is not Kind.SAME
    ]
    if changed:
        table = Table(title="Claims that differ")
        for title in ("difference", "model", "claim", "first", "measured", "second", "measured"):
            table.add_column(title, overflow="fold")
        for cells in changed:
            table.add_row(*cells)
        show(table)
    for line in found.folded():
        typer.echo(line)
    typer.echo(", ".join(f"{number} {kind}" for kind, number in found.counts().items()))
    return 0 if all(row.kind is Kind.SAME for row in found.rows) else 1
