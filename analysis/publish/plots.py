"""One function per kind of figure; each reads records (or points) and returns the figure with the rows it was drawn from."""

from __future__ import annotations

import itertools
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


def arms(records_by_family: Mapping[str, Sequence[Record]]) -> tuple[Figure, Rows]:
    """Draw the task metric of every arm of an intervention beside the model as trained, one panel a family."""
    from matplotlib import pyplot as plt

    figure, panels = plt.subplots(1, len(records_by_family), figsize=(DOUBLE_COLUMN, 2.6), squeeze=False)
    rows: Rows = []
    for axes, (family, records) in zip(panels[0], records_by_family.items(), strict=True):
        found = task_records(records)
        for place, record in enumerate(found):
            name = ARM_LOOKS[record.parameters["arm"]]
            drawn = axes.errorbar(
                [record.value], [place], xerr=_bars([record]), **{**look(name).line(), "label": None}
            )
            mark_rows(drawn, len(rows), len(rows) + 1)
            rows.append(_arm_row(found[0], record))
        axes.set_yticks(range(len(found)), [_wrapped(record.parameters["arm"]) for record in found])
        axes.set_ylim(len(found) - 0.5, -0.5)
        axes.set_title(TITLES.get(family, family))
        axes.set_xlabel(METRICS.get(found[0].metric, found[0].metric))
        if found[0].metric == "perplexity" and max(r.value for r in found) > SPREAD * min(
            r.value for r in found
        ):
            axes.set_xscale("log")
            axes.xaxis.set_major_formatter("{x:g}")
            axes.xaxis.set_minor_formatter("")
        axes.axvline(found[0].value, color=INK, linewidth=0.6, linestyle=":")
    return figure, rows


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
    """Draw the four mismatch measures of Q/K and V/O against the layer; the dotted line is "no difference"."""
    from matplotlib import pyplot as plt

    figure, panels = plt.subplots(1, len(MEASURES), figsize=(DOUBLE_COLUMN, 2.1), squeeze=False)
    rows: Rows = []
    for axes, (metric, (label, none)) in zip(panels[0], MEASURES.items(), strict=True):
        for pair, name in (("Q/K", "q"), ("V/O", "v")):
            found = select(records, metric=metric, parameters={"pair": pair})
            layers = [record.parameters["layer"] for record in found]
            (line,) = axes.plot(
                layers, [record.value for record in found], **{**look(name).line(), "label": pair}
            )
            mark_rows(line, len(rows), len(rows) + len(found))
            rows += [
                {"layer": r.parameters["layer"], "pair": pair, "measure": metric, "value": r.value}
                for r in found
            ]
            axes.set_xticks(layers)
        axes.axhline(none, color=INK, linewidth=0.8, linestyle=":")
        axes.set_title(label)
        axes.set_xlabel("layer")
    panels[0][0].legend()
    return figure, rows


def embeddings(layers: Mapping[str, Mapping[str, Any]]) -> tuple[Figure, Rows]:
    """Draw the t-SNE of every layer: Q with K above, V with O below; a skipped panel shows its reason (Figure 2).

    `layers` maps a layer's name to {pair: embedding}, an embedding having `points` by cloud name and `skipped`.
    """
    from matplotlib import pyplot as plt

    figure, panels = plt.subplots(
        2, len(layers), figsize=(DOUBLE_COLUMN, 2 * DOUBLE_COLUMN / max(len(layers), 3) * 0.95), squeeze=False
    )
    rows: Rows = []
    for column, (layer, pairs) in enumerate(layers.items()):
        for axes, (pair, embedding) in zip(panels[:, column], pairs.items(), strict=True):
            axes.set_xticks([])
            axes.set_yticks([])
            axes.grid(False)
            if embedding.skipped:
                axes.text(
                    0.5, 0.5, embedding.skipped, ha="center", va="center", wrap=True, transform=axes.transAxes
                )
            for name, points in embedding.points.items():
                style = look(name)
                drawn = axes.scatter(
                    *points.T,
                    s=3,
                    color=style.color,
                    marker=style.marker,
                    alpha=0.6,
                    linewidths=0,
                    label=name.upper(),
                )
                mark_rows(drawn, len(rows), len(rows) + len(points))
                rows += _embedded(embedding, points, {"layer": layer, "pair": pair, "cloud": name})
        panels[0, column].set_title(layer)
    shown: dict[str, Any] = {}  # one mark a cloud, from the first layer that shows it
    for axes in panels.flat:
        for mark, name in zip(*axes.get_legend_handles_labels(), strict=True):
            shown.setdefault(name, mark)
    if shown:
        figure.legend(
            shown.values(), shown, loc="outside lower center", ncols=4, markerscale=3, handletextpad=0.1
        )
    return figure, rows


def _embedded(embedding: Any, points: Any, named: dict[str, Any]) -> Rows:
    """Rows of a cloud: where each point lies and, when the embedding knows, which example, head and token it is."""
    places = getattr(embedding, "places", None)
    known = (
        [{}] * len(points)
        if places is None
        else [dict(zip(("example", "head", "token"), p, strict=True)) for p in places]
    )
    return [
        named | place | {"x": x, "y": y}
        for place, (x, y) in zip(known, points.astype(float).round(2), strict=True)
    ]


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
