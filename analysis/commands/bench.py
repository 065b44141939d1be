"""`bench`: the kernels on a CUDA device; on a processor every backend on every rung, each only after it agreed with the
reference.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from analysis.errors import ParameterError


@dataclass(frozen=True)
class Choice:
    """What the command line said; None is the default of the device."""

    device: str | None = None
    tokens: int | None = None
    chunk: int | None = None
    suite: str | None = None
    budget: float | None = None
    records: Path | None = None
    jobs: int = 0
    corpus: Path | None = None

    @property
    def for_kernels(self) -> list[str]:
        """The options given that mean something on a CUDA device alone."""
        named = {
            "--suite": self.suite,
            "--budget": self.budget,
            "--records": self.records,
            "--jobs": self.jobs or None,
            "--corpus": self.corpus,
        }
        return [name for name, value in named.items() if value is not None]


def run(choice: Choice) -> int:
    """Measure on the chosen device, show what was found, and return the exit code.

    Raises:
        ParameterError: no such device, or an option for the kernels on a processor.
    """
    import torch

    from analysis.commands import show
    from analysis.commands.bench_gpu import bench_gpu
    from analysis.commands.device import usable

    device = usable(choice.device or ("cuda" if torch.cuda.is_available() else "cpu"))
    if device != "cpu":
        return bench_gpu(
            suite=choice.suite or "all",
            device=device,
            tokens=choice.tokens,
            chunk=choice.chunk,
            budget=choice.budget,
            records=choice.records,
            jobs=choice.jobs,
            corpus=choice.corpus,
        )
    if choice.for_kernels:
        raise ParameterError(
            f"{', '.join(choice.for_kernels)} expects a CUDA device, received a run on the cpu; leave it out, or run where "
            "there is one."
        )
    try:
        table = bench(choice.tokens, choice.chunk)
    except (MemoryError, RuntimeError) as error:
        if isinstance(error, RuntimeError) and "can't allocate memory" not in str(error):
            raise
        raise ParameterError(
            f"expected a layer that fits into memory, received --tokens {choice.tokens}; pass fewer tokens."
        ) from error
    show.show(table)
    return 0


def bench(tokens: int | None, chunk: int | None, repeats: int = 5) -> Any:
    """Return a table with one row per rung of the LaCT-LM ladder and backend: error against the reference, speed, reason.

    A backend that cannot run a rung shows why; one that disagrees shows its error and no speed. What the parallel form is
    worth stands beside it, as a ratio to the recurrent form that was called in turn with it.
    """
    from dataclasses import replace

    from rich.table import Table

    from analysis.spec import RUNGS
    from analysis.speed.processor import SMALL

    case = replace(SMALL, tokens=tokens or SMALL.tokens, chunk=chunk or SMALL.chunk)
    table = Table(
        title=f"{case.tokens} tokens, chunks of {case.chunk}, {case.heads} heads of {case.width}, cpu"
    )
    for title in ("rung", "backend", "relative error", "tokens/s", "against recurrent", "note"):
        table.add_column(title, overflow="fold")
    for rung in RUNGS:
        for cells in _rows(replace(case, rung=rung.key), repeats):
            table.add_row(rung.key, *cells)
    return table


def _rows(case: Any, repeats: int) -> list[tuple[str, ...]]:
    from statistics import median

    from analysis.inner import BACKENDS
    from analysis.speed import processor
    from analysis.speed.suites import loop_of

    spec, notes = loop_of(case), {}
    errors: dict[str, float] = {}
    for name in BACKENDS:
        reason = "the yardstick" if name == "reference" else processor.refusal(spec, case, name)
        if reason is None:
            errors[name] = processor.error(spec, case, name)
        if name != "reference":
            notes[name] = reason or ""
    good = [name for name, found in errors.items() if found <= processor.AGREEMENT]
    times = processor.times(spec, case, good, repeats)
    rows: list[tuple[str, ...]] = []
    for name, note in notes.items():
        shown = f"{errors[name]:.1e}" if name in errors else ""
        if name in errors and name not in good:
            note = f"disagrees with the reference (limit {processor.AGREEMENT:g}), so no speed is given"
        speed = f"{1e3 * case.tokens / median(times[name]):,.0f}" if name in good else ""
        ratio = ""
        if name in good and "recurrent" in good:
            pairs = zip(times["recurrent"], times[name], strict=True)
            ratio = f"{median(before / after for before, after in pairs):.2f} x"
        rows.append((name, shown, speed, ratio, note))
    return rows
