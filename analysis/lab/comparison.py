"""Several hosts or edits on the same examples: evaluated, compared in pairs, shown as a table and as a figure."""

from __future__ import annotations

import html
from collections.abc import Sequence
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING

from analysis.errors import ParameterError
from analysis.lab.edits import as_trained, short_text
from analysis.models.host import EditedHost, Host, unwrap
from analysis.probes.measure import measure
from analysis.probes.task import Task, evaluation_task
from analysis.publish.step_verdicts import update_size
from analysis.publish.style import INK, SINGLE_COLUMN, look, styled
from analysis.records import Record, Store
from analysis.records.comparison import change
from analysis.records.table import aligned

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class Comparison:
    """The records of every host in the order given; the first is the one that the others are compared with."""

    names: tuple[str, ...]
    rows: tuple[tuple[Record, ...], ...]

    @property
    def task(self) -> tuple[Record, ...]:
        """The record of the task metric of every host."""
        return tuple(row[0] for row in self.rows)

    @property
    def records(self) -> tuple[Record, ...]:
        """All records, for captions and tables."""
        return tuple(record for row in self.rows for record in row)

    def _cells(self) -> list[tuple[str, ...]]:
        first = self.task[0]
        return [
            (
                name,
                f"{one.value:.4g} [{one.ci_low:.4g}, {one.ci_high:.4g}]",
                "" if one is first else str(change(first, one)),
                *(
                    f"{shown(found):.4g}" if (found := _named(row, kind)) else "none moves"
                    for kind, shown in (
                        ("inner_loss_after", attrgetter("value")),
                        ("update_norm", update_size),
                    )
                ),
            )
            for name, one, row in zip(self.names, self.task, self.rows, strict=True)
        ]

    def _titles(self) -> tuple[str, ...]:
        first = self.task[0]
        measured = f"{first.metric}, {first.unit}" if first.unit else first.metric
        return ("", measured, "change, paired", "inner loss after", "size of the update")

    def _note(self) -> str:
        return f"{self.task[0].samples} examples; 95 % bootstrap intervals over them."

    def _repr_html_(self) -> str:
        head = "".join(f"<th style='text-align:left'>{title}</th>" for title in self._titles())
        body = "".join(
            "<tr>"
            + "".join(f"<td style='text-align:left'>{html.escape(cell)}</td>" for cell in cells)
            + "</tr>"
            for cells in self._cells()
        )
        return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table><p>{self._note()}</p>"

    def __repr__(self) -> str:
        return f"{aligned([self._titles(), *self._cells()])}\n{self._note()}"

    def plot(self) -> Figure:
        """Return a figure of the task metric with its intervals, one line a host."""
        from matplotlib import pyplot as plt  # its import is what lets a notebook show a figure

        with styled():
            figure, axes = plt.subplots(figsize=(SINGLE_COLUMN * 1.35, 0.9 + 0.26 * len(self.names)))
            plt.close(figure)  # the returned figure is shown once, not a second time at the end of the cell
            figure.set_facecolor("white")
            style = look("task metric")
            for place, one in enumerate(self.task):
                low, high = (one.value if end is None else end for end in (one.ci_low, one.ci_high))
                axes.errorbar(
                    [one.value], [place], xerr=[[one.value - low], [high - one.value]], color=style.color, marker=style.marker
                )  # fmt: skip
            axes.axvline(self.task[0].value, color=INK, linewidth=0.6, linestyle=":")
            axes.set_yticks(range(len(self.names)), list(self.names))
            axes.set_ylim(len(self.names) - 0.5, -0.5)
            axes.set_xlabel(f"{self.task[0].metric} ({self.task[0].unit})")
        return figure


def _named(row: Sequence[Record], metric: str) -> Record | None:
    return next((record for record in row if record.metric == metric), None)


def compare(
    *hosts: Host | EditedHost,
    names: Sequence[str] = (),
    samples: int | None = None,
    data: Path | str | None = None,
    task: Task | None = None,
    store: Store | None = None,
) -> Comparison:
    """Evaluate hosts or edits on the same examples; the first is what the others are compared with.

        compare(host, host.edit(steps=4), samples=100).plot()

    names: what the rows are called; by default what each edit changes. samples, data, task: as in `probe`.

    Raises:
        ParameterError: no host, hosts of different families, or another number of names.
        DataError: the data are missing or do not fit.
    """
    if strange := [type(host).__name__ for host in hosts if not isinstance(unwrap(host), Host | EditedHost)]:
        raise ParameterError(f"compare needs loaded hosts, received {strange[0]}; pass analysis.load(path).")
    if not hosts or len({host.family for host in hosts}) > 1:
        found = ", ".join(sorted({host.family.title for host in hosts})) or "none"
        raise ParameterError(f"compare needs one or more hosts of one family, received {found}; pass those.")
    names = tuple(names) or tuple(short_text(as_trained(host)) for host in hosts)
    if len(names) != len(hosts):
        raise ParameterError(
            f"compare needs a name for each of the {len(hosts)} hosts, received {len(names)}; name all or none."
        )
    chosen = task or evaluation_task(hosts[0], samples, data)
    rows = tuple(
        measure("evaluation", host, chosen, store=store, command="probe evaluation") for host in hosts
    )
    return Comparison(tuple(names), rows)
