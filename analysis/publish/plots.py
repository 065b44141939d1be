"""One function per kind of figure; each reads records (or points) and returns the figure with the rows it was drawn from."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from analysis.publish.marks import mark_rows, mark_slider
from analysis.publish.published import quantity
from analysis.publish.style import DOUBLE_COLUMN, INK, look
from analysis.records import Record, select
from analysis.records.comparison import change
from analysis.spec import Family

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Rows = list[dict[str, Any]]
TITLES = {family.value: family.title for family in Family}
METRICS = {
    "perplexity": "perplexity (lower is better)",
    "psnr": "PSNR in dB (higher is better)",
    "top1": "top-1 in %",
}


def task_records(records: Sequence[Record]) -> list[Record]:
    """Return the records of the task metric, those with a value per example."""
    return [record for record in records if "per_example" in record.extra]


def step_sweep(records_by_family: Mapping[str, Sequence[Record]]) -> tuple[Figure, Rows]:
    """Draw inner loss and task metric against the number of inner steps, one panel a family (Figure 1)."""
    from matplotlib import pyplot as plt

    figure, panels = plt.subplots(
        2, len(records_by_family), figsize=(DOUBLE_COLUMN, 3.4), sharex=True, squeeze=False
    )
    rows: Rows = []
    mark_slider(figure, "inner steps")
    for column, (family, records) in enumerate(records_by_family.items()):
        top, bottom = panels[:, column]
        top.set_title(TITLES.get(family, family))
        rows += _against_steps(top, select(records, metric="inner_loss_after"), "inner loss", len(rows))
        rows += _against_steps(bottom, task_records(records), "task metric", len(rows))
        metric = task_records(records)[0].metric
        top.set_ylabel("inner loss\nafter the update")
        bottom.set_ylabel(METRICS.get(metric, metric))
        bottom.set_xlabel("inner steps at test time")
    return figure, rows


def _against_steps(axes: Axes, records: Sequence[Record], name: str, first: int) -> Rows:
    steps = [record.parameters["inner_steps"] for record in records]
    values = [record.value for record in records]
    drawn = axes.errorbar(steps, values, yerr=_bars(records), **look(name).line())
    mark_rows(drawn, first, first + len(records))
    for trained in {loop["steps"] for record in records for loop in record.trained_spec.values()}:
        axes.axvline(trained, color=INK, linewidth=0.6, linestyle=":")
    axes.set_xticks(steps)
    return [
        {
            "family": TITLES.get(record.parameters["family"], record.parameters["family"]),
            "inner steps": step,
            "metric": record.metric,
            "value": record.value,
            "low": record.ci_low,
            "high": record.ci_high,
        }
        for step, record in zip(steps, records, strict=True)
    ]


def _bars(records: Sequence[Record]) -> list[list[float]]:
    low = [0.0 if r.ci_low is None else max(r.value - r.ci_low, 0.0) for r in records]
    high = [0.0 if r.ci_high is None else max(r.ci_high - r.value, 0.0) for r in records]
    return [low, high]


SPREAD = 3
"""Perplexities further apart than this factor are drawn on a logarithmic axis."""

ARM_LOOKS = {
    "as trained": "Baseline",
    "ascent": "ascent",
    "no update": "no update",
    "query from key": "query from key",
    "query from key in softmax attention": "published",
    "values of shuffled tokens": "shuffled values",
    "keys and values of another example": "foreign pairs",
}
CHANGES = {
    "perplexity": "change of perplexity in %",
    "psnr": "change of PSNR in dB",
    "top1": "change of top-1 in % points",
}


def arms(records_by_family: Mapping[str, Sequence[Record]]) -> tuple[Figure, Rows]:
    """Draw what every arm of an intervention changes, paired with the model as trained, one panel a family.

    Bars are intervals of the paired change; perplexities far apart are drawn as ratios on a logarithmic axis.
    """
    from matplotlib import pyplot as plt

    figure, panels = plt.subplots(1, len(records_by_family), figsize=(DOUBLE_COLUMN, 2.6), squeeze=False)
    rows: Rows = []
    for axes, (family, records) in zip(panels[0], records_by_family.items(), strict=True):
        found = task_records(records)
        mine = [_arm_row(found[0], record) for record in found]
        metric = found[0].metric
        ratios = metric == "perplexity" and any(row["change"] > 100 * (SPREAD - 1) for row in mine)
        for place, row in enumerate(mine):
            _draw_change(axes, place, row, ratios, len(rows) + place)
        rows += mine
        axes.set_yticks(range(len(found)), [_wrapped(row["arm"]) for row in mine])
        axes.set_ylim(len(found) - 0.5, -0.5)
        axes.set_title(TITLES.get(family, family))
        axes.set_xlabel("perplexity / as trained" if ratios else CHANGES.get(metric, f"change of {metric}"))
        if ratios:
            axes.set_xscale("log")
            axes.xaxis.set_major_formatter("{x:g}")
            axes.xaxis.set_minor_formatter("")
        axes.axvline(1 if ratios else 0, color=INK, linewidth=0.6, linestyle=":")
    return figure, rows


def _draw_change(axes: Axes, place: int, row: Mapping[str, Any], ratios: bool, number: int) -> None:
    """Draw the change of one arm with its interval; a run that diverged has no point and says so."""
    value, low, high = (
        1 + row[name] / 100 if ratios else row[name] for name in ("change", "change low", "change high")
    )
    if not math.isfinite(value):
        axes.annotate(" diverged", (1 if ratios else 0, place), va="center")
        return
    ends = [end if math.isfinite(end) else value for end in (low, high)]
    bars = [[max(value - ends[0], 0.0)], [max(ends[1] - value, 0.0)]]
    style = {**look(ARM_LOOKS[row["arm"]]).line(), "label": None}
    mark_rows(axes.errorbar([value], [place], xerr=bars, **style), number, number + 1)


def _wrapped(arm: str) -> str:
    return arm.replace(" in softmax", "\nin softmax").replace(" of ", "\nof ")


def _arm_row(reference: Record, record: Record) -> dict[str, Any]:
    moved = change(reference, record)
    return {
        "family": TITLES.get(record.parameters["family"], record.parameters["family"]),
        "arm": record.parameters["arm"],
        "metric": record.metric,
        "unit": record.unit,
        "value": record.value,
        "low": record.ci_low,
        "high": record.ci_high,
        "change": moved.value,
        "change low": moved.low,
        "change high": moved.high,
        "change unit": moved.unit,
    }


def arm_table(rows: Rows) -> Any:
    """Return the rows of `arms` as a readable table: value, and the paired change with its interval."""
    import pandas as pd

    def moved(row: Mapping[str, Any]) -> str:
        interval = f"[{row['change low']:+.2f}, {row['change high']:+.2f}]"
        return f"{row['change']:+.2f} {interval} {row['change unit']}"

    cells = [
        {
            "model": row["family"],
            "run": row["arm"],
            "task metric": quantity(row["metric"], row["value"], row["unit"]),
            "change, paired": moved(row),
        }
        for row in rows
    ]
    return pd.DataFrame(cells).set_index(["model", "run"])


MEASURES = {
    "classifier_accuracy": ("classifier accuracy", 0.5),
    "mmd": ("MMD²", 0.0),
    "centroid_cosine": ("centroid cosine", 1.0),
    "neighbour_overlap": ("neighbour overlap", 1.0),
}


def mismatch_by_layer(records: Sequence[Record]) -> tuple[Figure, Rows]:
    """Draw the four mismatch measures of Q/K and V/O against the layer, a row an inner loop; dotted: "no difference"."""
    from matplotlib import pyplot as plt

    loops = loops_of(records)
    size = (DOUBLE_COLUMN, 0.6 + 1.5 * len(loops))
    figure, panels = plt.subplots(len(loops), len(MEASURES), figsize=size, sharex=True, squeeze=False)
    rows: Rows = []
    for line, (loop, where) in zip(panels, loops.items(), strict=True):
        for axes, (metric, (_, none)) in zip(line, MEASURES.items(), strict=True):
            for pair, name in (("Q/K", "q"), ("V/O", "v")):
                found = select(records, metric=metric, parameters={"pair": pair, **where})
                layers = [record.parameters["layer"] for record in found]
                values = [record.value for record in found]
                (drawn,) = axes.plot(layers, values, **{**look(name).line(), "label": pair})
                mark_rows(drawn, len(rows), len(rows) + len(found))
                told = {**where, "pair": pair, "measure": metric}
                rows += [
                    {"layer": at, **told, "value": value} for at, value in zip(layers, values, strict=True)
                ]
                axes.set_xticks(layers)
            axes.axhline(none, color=INK, linewidth=0.8, linestyle=":")
        line[0].set_ylabel(loop)
    for axes, below, (label, _) in zip(panels[0], panels[-1], MEASURES.values(), strict=True):
        axes.set_title(label)
        below.set_xlabel("layer")
    panels[0][0].legend()
    return figure, rows


def loops_of(records: Sequence[Record]) -> dict[str, dict[str, str]]:
    """Return what records of distributions are told apart by, {title: parameters}: their loops, or nothing for one alone."""
    found = sorted({record.parameters["loop"] for record in records if "loop" in record.parameters})
    return {f"loop {name}": {"loop": name} for name in found} if len(found) > 1 else {"": {}}


def costs(table: Mapping[str, Sequence[float]], lengths: Sequence[int], unit: str) -> tuple[Figure, Rows]:
    """Draw measured cost against sequence length, one line a form, both axes logarithmic."""
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(figsize=(DOUBLE_COLUMN * 0.85, 2.6))
    dashes = itertools.cycle(("-", (0, (5, 2)), (0, (1, 1.5))))
    rows: Rows = []
    for (name, values), marker, dash in zip(table.items(), "os^DvPX", dashes, strict=False):
        (line,) = axes.plot(lengths, values, marker=marker, linestyle=dash, label=name)
        mark_rows(line, len(rows), len(rows) + len(lengths))
        rows += [{"form": name, "tokens": n, unit: v} for n, v in zip(lengths, values, strict=True)]
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.set_xlabel("tokens")
    axes.set_ylabel(unit)
    figure.legend(loc="outside right center")
    return figure, rows


def heat_map(axes: Axes, weights: Any, title: str) -> None:
    """Draw a matrix of weights, red positive and blue negative, above a scale of its own that ends at the 99th percentile."""
    bound = float(weights.abs().quantile(0.99)) or 1.0
    drawn = axes.imshow(
        weights.detach().numpy(), cmap="RdBu_r", vmin=-bound, vmax=bound, interpolation="nearest"
    )
    scale = axes.figure.colorbar(drawn, ax=axes, orientation="horizontal", aspect=14)
    end = f"{bound:.2g}" if bound < 100 else f"{bound:,.0f}"
    scale.set_ticks([-bound, 0, bound], labels=[f"−{end}", "0", end])
    axes.set_title(title, fontsize=7)
    axes.grid(False)
