"""Tables over training seeds, from recorded measurements: frozen models under an intervention, inner losses at test time."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from analysis.publish.ladder_plots import over_seeds
from analysis.publish.plots import ARM_LOOKS, Rows, task_records
from analysis.publish.published import METRIC, quantity
from analysis.records import Record, select
from analysis.records.comparison import change
from analysis.spec import Family

REFERENCE = "as trained"
DIRECTIONS = {"baseline": "descent", "ascent": "ascent"}


def frozen_rows(
    records: Sequence[Record], questions: Sequence[str], families: Sequence[Family] = tuple(Family)
) -> Rows:
    """Return one row per family and arm of the recorded interventions on frozen baselines: the paired change over seeds.

    Changes of perplexity are averaged as ratios, so that one seed that breaks does not carry the mean.
    """
    rows: Rows = []
    for family in families:
        seen: set[str] = set()
        for question in questions:
            where = {"family": family.value, "variant": "baseline"}
            runs = _by_run(task_records(select(records, question=question, parameters=where)))
            named = {arm for arms in runs for arm in arms} - {REFERENCE} - seen
            rows += [_frozen_row(family, arm, runs) for arm in ARM_LOOKS if arm in named]
            seen |= named
    return rows


def _by_run(found: Sequence[Record]) -> list[Mapping[str, Record]]:
    """The arms of every checkpoint that has the run as trained to compare with, seeds in order."""
    runs: dict[tuple[Any, ...], dict[str, Record]] = {}
    for record in sorted(found, key=lambda row: row.seeds):
        runs.setdefault((record.seeds, record.checkpoint, record.data), {})[record.parameters["arm"]] = record
    return [arms for arms in runs.values() if REFERENCE in arms]


def _frozen_row(family: Family, arm: str, runs: Sequence[Mapping[str, Record]]) -> dict[str, Any]:
    shown = [arms for arms in runs if arm in arms]
    moved = [change(arms[REFERENCE], arms[arm]) for arms in shown]
    values = [one.value for one in moved]
    if shown[0][arm].metric == "perplexity":
        mean, low, high = (
            100 * math.expm1(end) for end in over_seeds([math.log1p(value / 100) for value in values])
        )
    else:
        mean, low, high = over_seeds(values)
    return {
        "family": family.title,
        "arm": arm,
        "metric": shown[0][arm].metric,
        "unit": shown[0][arm].unit,
        "value": sum(arms[arm].value for arms in shown) / len(shown),
        "by seed": values,
        "change": mean,
        "low": low,
        "high": high,
        "change unit": moved[0].unit,
        "clear": sum(one.excludes_zero for one in moved),
        "seeds": len(shown),
    }


def frozen_table(rows: Rows) -> Any:
    """Return the rows of `frozen_rows` as a readable table."""
    import pandas as pd

    cells = [
        {
            "model": row["family"],
            "run": row["arm"],
            "task metric": quantity(row["metric"], row["value"], row["unit"]),
            "change, paired": f"{_spanned((row['change'], row['low'], row['high']), '{:+.1f}')} {row['change unit']}",
            "seeds with a change": f"{row['clear']} of {row['seeds']}",
        }
        for row in rows
    ]
    return _indexed(pd.DataFrame(cells), "run")


def inner_loss_rows(records: Sequence[Record], families: Sequence[Family] = tuple(Family)) -> Rows:
    """Return the inner losses at test time of models trained with descent and with ascent, the task metric beside them."""
    rows: Rows = []
    for family in families:
        metric, unit = METRIC[family]
        for variant, direction in DIRECTIONS.items():
            where = {"family": family.value, "variant": variant}
            mine = select(records, question="evaluation", parameters=where)
            before, after, task = (
                {row.seeds: row.value for row in select(mine, metric=name)}
                for name in ("inner_loss_before", "inner_loss_after", metric)
            )
            seeds = sorted(before.keys() & after.keys() & task.keys())
            if not seeds:
                continue
            rows.append(
                {
                    "family": family.title,
                    "trained with": direction,
                    "before": [before[seed] for seed in seeds],
                    "after": [after[seed] for seed in seeds],
                    "metric": metric,
                    "unit": unit,
                    "task": [task[seed] for seed in seeds],
                    "samples": max(row.samples or 0 for row in mine),
                }
            )
    return rows


def inner_loss_table(rows: Rows) -> Any:
    """Return the rows of `inner_loss_rows` as a readable table: means over seeds with their 95 % intervals."""
    import pandas as pd

    cells = [
        {
            "model": row["family"],
            "trained with": row["trained with"],
            "inner loss before": _spanned(over_seeds(row["before"])),
            "after": _spanned(over_seeds(row["after"])),
            "the update raises it in": f"{sum(_risen(row))} of {len(row['before'])} seeds",
            "task metric": f"{_named(row)}{_spanned(over_seeds(row['task']))}{_unit(row)}",
        }
        for row in rows
    ]
    return _indexed(pd.DataFrame(cells), "trained with")


def inner_loss_sentence(rows: Rows) -> str:
    """Return in how many models the update moves the inner loss the way that its sign says."""
    said = []
    for direction, told in (("descent", "the update lowers the inner loss"), ("ascent", "it raises it")):
        risen = [up for row in rows if row["trained with"] == direction for up in _risen(row)]
        if risen:
            right = sum(risen) if direction == "ascent" else len(risen) - sum(risen)
            said.append(f"under {direction} {told} in {right} of {len(risen)} trained models")
    text = ", ".join(said)
    return f"{text[0].upper()}{text[1:]}." if said else "No inner loss at test time is recorded."


def _indexed(frame: Any, name: str) -> Any:
    """Name the rows by model and run, where there are any."""
    return frame.set_index(["model", name]) if len(frame) else frame


def _risen(row: Mapping[str, Any]) -> list[bool]:
    return [after > before for before, after in zip(row["before"], row["after"], strict=True)]


def _named(row: Mapping[str, Any]) -> str:
    return "perplexity " if row["metric"] == "perplexity" else ""


def _unit(row: Mapping[str, Any]) -> str:
    return "" if row["metric"] == "perplexity" else f" {row['unit']}"


def _spanned(points: tuple[float, float, float], form: str = "{:.2f}") -> str:
    """The mean with the ends of its interval, which one seed does not have."""
    mean, low, high = points
    interval = "" if math.isnan(low) else f" [{form.format(low)}, {form.format(high)}]"
    return form.format(mean) + interval
