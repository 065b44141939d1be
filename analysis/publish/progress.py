"""How a reader sees that notebooks run: one bar each on a terminal, one line for every start and end elsewhere."""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Iterator, Mapping
from typing import Any, Protocol


class Progress(Protocol):
    """What a run of notebooks tells while it goes on; called from several threads."""

    def started(self, name: str) -> None:
        """A notebook begins."""

    def advanced(self, name: str) -> None:
        """A code cell of it has run."""

    def finished(self, name: str, seconds: float, failure: str) -> None:
        """It is over; `failure` says why it stopped, '' where it is complete."""


@contextlib.contextmanager
def progress(cells: Mapping[str, int]) -> Iterator[Progress]:
    """Show the progress of notebooks, given by name with their number of code cells, on standard error."""
    from rich.console import Console

    console = Console(stderr=True)
    if not console.is_terminal:
        yield Lines(len(cells))
        return
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as Display

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Display(*columns, console=console) as display:
        yield Bars(display, {name: display.add_task(name, total=total) for name, total in cells.items()})


class Bars:
    """One bar a notebook, counted in code cells."""

    def __init__(self, display: Any, rows: Mapping[str, Any]) -> None:
        self.display, self.rows = display, rows

    def started(self, name: str) -> None:
        """Nothing to add: the bar is there from the start."""

    def advanced(self, name: str) -> None:
        """Advance the bar by one cell."""
        self.display.advance(self.rows[name])

    def finished(self, name: str, seconds: float, failure: str) -> None:
        """Stop the clock of the bar."""
        self.display.stop_task(self.rows[name])


class Lines:
    """One line when a notebook starts and one when it ends, for logs and pipes."""

    def __init__(self, total: int) -> None:
        self.total, self.done = total, 0
        self.lock = threading.Lock()

    def started(self, name: str) -> None:
        """Say that a notebook starts."""
        self._say(f"{name}: started")

    def advanced(self, name: str) -> None:
        """Say nothing: a line a cell would be too much."""

    def finished(self, name: str, seconds: float, failure: str) -> None:
        """Say how long it took, and how many of all are done."""
        with self.lock:
            self.done += 1
            count = f"{self.done} of {self.total}"
        end = f"stopped ({failure})" if failure else "finished"
        self._say(f"{name}: {end} after {seconds:.0f} s, {count}")

    def _say(self, text: str) -> None:
        sys.stderr.write(f"{text}\n")
        sys.stderr.flush()
