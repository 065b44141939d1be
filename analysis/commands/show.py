"""Tables on the terminal: the ablation ladder, and what a checkpoint holds."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any


def ladder_table(chunks: int) -> Any:
    """Return Table 2's rungs with, per family, the reducibility class on a sequence of `chunks` chunks."""
    from rich.table import Table

    from analysis.spec import LADDER_NOTE, ladder_rows

    rows = ladder_rows(chunks)
    table = Table(title=f"The ablation ladder; reducibility for {chunks} chunks", caption=LADDER_NOTE)
    for title in rows[0]:
        table.add_column(title, overflow="fold")
    for row in rows:
        table.add_row(*row.values())
    return table


def checkpoint_table(path: Path, weights: str | None, config: Path | None) -> Any:
    """Return what a checkpoint holds: family, layout, digest, size, notes, and the inner loops it was trained with."""
    from rich.table import Table

    from analysis.models.checkpoints import inspect
    from analysis.spec import describe, reducibility

    summary = inspect(path, weights, config=config)
    table = Table(title=str(path), show_header=False)
    table.add_column(overflow="fold")
    table.add_column(overflow="fold")
    table.add_row("family", summary.family.title)
    table.add_row("layout", summary.layout)
    table.add_row("parameters", f"{summary.num_parameters:,}")
    table.add_row("weights", summary.weights)
    table.add_row("sha256", summary.digest)
    for name, told in origin_rows(summary.manifest):
        table.add_row(name, told)
    for name, loop in summary.loops.items():
        table.add_row(f"inner loop {name}", describe(loop))
        kind = reducibility(loop, 2 if loop.chunk else 1)
        table.add_row("", f"{kind.kind.value}: {kind.reason}")
    for note in summary.notes:
        table.add_row("note", note)
    return table


def origin_rows(manifest: Any) -> list[tuple[str, str]]:
    """Return the run that trained a checkpoint, in rows of name and text, as far as its manifest tells; none without one."""
    from analysis.records import format_value
    from analysis.training.results import training_records

    if manifest is None:
        return []
    recipe = manifest.recipe if isinstance(manifest.recipe, dict) else {}
    rows = [
        ("recipe", recipe.get("name") or manifest.recipe),
        ("variant", recipe.get("variant")),
        ("seed", manifest.seed),
        ("training steps", None if manifest.step is None else f"{manifest.step:,}"),
        ("trained on", manifest.metrics.get("device")),
        ("commit", manifest.commit),
        ("training data", manifest.data_digest),
    ]
    with suppress(KeyError, TypeError, ValueError):  # metrics of another program, or none
        found = training_records(manifest)[0]
        rows.append((found.metric, f"{format_value(found)} on {found.samples:,} examples"))
        rows.append(("evaluation data", found.data))
    return [(name, str(value)) for name, value in rows if value not in (None, "", {})]


def records_table(rows: Any, title: str) -> Any:
    """Return records as a terminal table: what all share above it, then metric, value with interval, what the run changed."""
    from rich.table import Table

    from analysis.records import difference, format_value
    from analysis.records.table import condense, metric_text, split_parameters

    shared, own = split_parameters(rows)
    columns = {
        "metric": [metric_text(row) for row in rows],
        "value": [format_value(row) for row in rows],
        "parameters": own,
        "changed at run time": [difference(row) for row in rows],
        "source": [f"{row.kind.value}: {row.source or row.device}" for row in rows],
    }
    kept, constant = condense(columns)
    table = Table(title="\n".join([title, "; ".join([*constant, shared])]))
    for name in kept:
        table.add_column(name, overflow="fold")
    for cells in zip(*kept.values(), strict=True):
        table.add_row(*cells)
    return table


def verdict_table(found: Any) -> Any:
    """Return the judgements on the paper's statements: verdict, worst relative error, and whether that was expected."""
    from rich.table import Table

    table = Table(title="The paper's statements in float64 on random tensors")
    for name in ("claim", "statement", "source", "verdict", "worst error", "tolerance", "as recorded"):
        table.add_column(name, overflow="fold")
    for judgement in found:
        claim = judgement.claim
        numbers = (judgement.verdict.value, f"{judgement.worst:.1e}", f"{claim.tolerance:.0e}")
        table.add_row(
            claim.id, claim.statement, claim.source, *numbers, "yes" if judgement.as_recorded else "NO"
        )
    return table


def show(table: Any) -> None:
    """Write a table to standard output, as wide as the terminal, or 120 columns into a pipe."""
    import sys

    from rich.console import Console

    # a path or the name of a tensor may look like markup
    is_terminal = sys.stdout is not None and sys.stdout.isatty()
    Console(width=None if is_terminal else 120, markup=False, emoji=False).print(table)
