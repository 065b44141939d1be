"""Figures over training seeds, from recorded measurements: step sweeps, inner losses while training, mismatch by layer."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from analysis.publish import published
from analysis.publish.ladder_plots import NAMES, over_seeds
from analysis.publish.marks import mark_rows
from analysis.publish.plots import MEASURES, METRICS, Rows
from analysis.publish.style import DOUBLE_COLUMN, INK, look
from analysis.publish.trained_steps import Curve, Optimum, optima
from analysis.records import Record, select
from analysis.spec import Family

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SWEPT = ("baseline", "ascent", "v1")
"""Variants trained with one inner step whose sweeps are drawn together; `trained_steps` draws those trained with more."""
SIDES = {"inner_loss_before": ":", "inner_loss_after": "-"}


def sweeps(records: Sequence[Record], families: Sequence[Family] = tuple(Family)) -> tuple[Figure, Rows]:
    """Draw inner loss and task metric against the inner steps at test time for variants trained with one step (Figure 1).

    Points are means over training seeds with their 95 % t-interval; one seed alone has none.
    """
    from matplotlib import pyplot as plt

    figure, panels = plt.subplots(2, len(families), figsize=(DOUBLE_COLUMN, 3.9), sharex=True, squeeze=False)
    rows: Rows = []
    mine = select(records, question="inner steps")
    for (top, bottom), family in zip(panels.T, families, strict=True):
        of_family = select(mine, parameters={"family": family.value, "step_size": 1.0})
        metric = published.METRIC[family][0]
        for variant in SWEPT:
            chosen = select(of_family, parameters={"variant": variant})
            for axes, measured in ((top, "inner_loss_after"), (bottom, metric)):
                where = {"family": family.title, "variant": NAMES[variant], "metric": measured}
                found = _by(select(chosen, metric=measured), "inner_steps")
                _with_intervals(axes, found, variant, {**where, "against": "inner steps"}, rows)
        top.set_title(family.title)
        top.set_ylabel("inner loss\nafter the update")
        bottom.set_ylabel(METRICS[metric])
        bottom.set_xlabel("inner steps at test time")
        for axes, measured in ((top, "inner_loss_after"), (bottom, metric)):
            axes.axvline(1, color=INK, linewidth=0.6, linestyle=":")
            _frame(axes, _seeds(rows, family, measured))
    _legend(figure, panels)
    return figure, rows


def trained_steps(records: Sequence[Record]) -> tuple[Figure, Rows]:
    """Draw the sweep over inner steps of models trained with one, two and four of them, a column each (section 5.2).

    One line a seed: the inner loss above, the paired change of perplexity against the trained number below, without k = 0.
    """
    from matplotlib import pyplot as plt

    found = optima(records)
    figure, panels = plt.subplots(
        2, max(1, len(found)), figsize=(DOUBLE_COLUMN, 3.7), sharex=True, squeeze=False
    )
    rows: Rows = []
    for (top, bottom), one in zip(panels.T, found, strict=False):
        for curve in one.curves:
            _seed_of(top, bottom, one, curve, rows)
        seeds = f"{len(one.curves)} seeds" if len(one.curves) > 1 else "one seed"
        top.set_title(f"trained with k = {one.trained}, {seeds}")
        bottom.axhline(0, color=INK, linewidth=0.6)
        bottom.set_xlabel("inner steps at test time")
        for axes in (top, bottom):
            axes.axvline(one.trained, color=INK, linewidth=0.6, linestyle=":")
    panels[0][0].set_ylabel("inner loss\nafter the update")
    panels[1][0].set_ylabel("change of perplexity in %")
    return figure, rows


def _seed_of(top: Axes, bottom: Axes, one: Optimum, curve: Curve, rows: Rows) -> None:
    """Draw one seed of a model, and add a row for each of its points."""
    style = {**look(one.variant).line(), "markersize": 3, "linewidth": 1}
    where = {"trained with": one.trained, "seed": curve.seed}
    counts = [k for k in curve.tasks if k > 0]
    losses = [k for k in counts if k in curve.losses]
    (line,) = top.plot(losses, [curve.losses[k].value for k in losses], **style)
    mark_rows(line, len(rows), len(rows) + len(losses))
    rows += [
        {**where, "metric": "inner loss", "inner steps": k, "value": curve.losses[k].value} for k in losses
    ]
    moved = [curve.against(curve.trained, k) for k in counts]
    bars = [[one.value - one.low for one in moved], [one.high - one.value for one in moved]]
    drawn = bottom.errorbar(counts, [one.value for one in moved], yerr=bars, elinewidth=0.8, **style)
    mark_rows(drawn, len(rows), len(rows) + len(counts))
    rows += [
        {**where, "metric": change.unit, "inner steps": k, "value": change.value, "low": change.low, "high": change.high}
        for k, change in zip(counts, moved, strict=True)
    ]  # fmt: skip
    bottom.set_xticks(counts)


def inner_losses(
    records: Sequence[Record], families: Sequence[Family] = tuple(Family)
) -> tuple[Figure, Rows]:
    """Draw the inner loss before and after the update while the outer loop trains, for descent and ascent (section 4.2).

    One line a seed: dotted before the update, solid after it.
    """
    from matplotlib import pyplot as plt

    figure, panels = plt.subplots(1, len(families), figsize=(DOUBLE_COLUMN, 2.5), squeeze=False)
    rows: Rows = []
    for axes, family in zip(panels[0], families, strict=True):
        for variant in ("baseline", "ascent"):
            for side, dash in SIDES.items():
                where = {"family": family.value, "variant": variant}
                for record in select(records, question="retrained", metric=side, parameters=where):
                    history = record.extra["history"]
                    points = list(zip(history["steps"], history["values"], strict=True))
                    color, label = (
                        look(variant).color,
                        f"{_DIRECTIONS[variant]}, {side.split('_')[-1]} the update",
                    )
                    (line,) = axes.plot(
                        *zip(*points, strict=True), dash, color=color, linewidth=0.9, label=label
                    )
                    mark_rows(line, len(rows), len(rows) + len(points))
                    rows += [
                        {"family": family.title, "run": label, "seed": record.seeds[0], "training steps": x, "inner loss": y}
                        for x, y in points
                    ]  # fmt: skip
        axes.set_title(family.title)
        axes.set_xlabel("training steps")
        axes.set_ylabel("inner loss")
    _legend(figure, panels)
    return figure, rows


_DIRECTIONS = {"baseline": "descent", "ascent": "ascent"}


def mismatch(records: Sequence[Record], families: Sequence[Family] = tuple(Family)) -> tuple[Figure, Rows]:
    """Draw the four mismatch measures of Q/K and V/O by layer, a row a family: means over seeds with their 95 % t-interval."""
    from matplotlib import pyplot as plt

    size = (DOUBLE_COLUMN, 0.4 + 1.5 * len(families))
    figure, panels = plt.subplots(len(families), len(MEASURES), figsize=size, squeeze=False)
    rows: Rows = []
    mine = select(records, question="distribution mismatch", parameters={"variant": "baseline"})
    for line, family in zip(panels, families, strict=True):
        for axes, (metric, (label, none)) in zip(line, MEASURES.items(), strict=True):
            for pair, name in (("Q/K", "q"), ("V/O", "v")):
                where = {"family": family.value, "pair": pair}
                found = _by(select(mine, metric=metric, parameters=where), "layer")
                _with_intervals(
                    axes, found, name, {"family": family.title, "variant": pair, "metric": label, "against": "layer"}, rows
                )  # fmt: skip
            axes.axhline(none, color=INK, linewidth=0.8, linestyle=":")
            _frame(axes, [none, *_seeds(rows, family, label)])
        line[0].set_ylabel(family.title)
    for axes, (label, _) in zip(panels[0], MEASURES.values(), strict=True):
        axes.set_title(label)
    for axes in panels[-1]:
        axes.set_xlabel("layer")
    _legend(figure, panels)
    return figure, rows


def _by(records: Sequence[Record], parameter: str) -> dict[int, list[float]]:
    """Return the values of all seeds by a parameter, in its order."""
    found: dict[int, list[float]] = {}
    for record in records:
        found.setdefault(record.parameters[parameter], []).append(record.value)
    return dict(sorted(found.items()))


def _with_intervals(
    axes: Axes, found: Mapping[int, Sequence[float]], name: str, where: Mapping[str, Any], rows: Rows
) -> None:
    """Draw means over seeds with their intervals, and add a row for each."""
    if not found:
        return
    points = [over_seeds(values) for values in found.values()]
    middle = [mean for mean, *_ in points]
    bars = [
        [0.0 if math.isnan(low) else mean - low for mean, low, _ in points],
        [0.0 if math.isnan(high) else high - mean for mean, _, high in points],
    ]
    style = {**look(name).line(), "label": where["variant"], "markersize": 3}
    drawn = axes.errorbar(list(found), middle, yerr=bars, linewidth=1, elinewidth=0.8, **style)
    mark_rows(drawn, len(rows), len(rows) + len(points))
    for place, values, (mean, low, high) in zip(found, found.values(), points, strict=True):
        rows.append({**where, "at": place, "by seed": list(values), "mean": mean, "low": low, "high": high})
    axes.set_xticks(list(found))
    seeds = [(place, value) for place, values in found.items() if len(values) > 1 for value in values]
    if seeds:
        axes.scatter(*zip(*seeds, strict=True), s=4, color=style["color"], linewidths=0, alpha=0.7)


def _seeds(rows: Rows, family: Family, metric: str) -> list[float]:
    chosen = (row for row in rows if (row["family"], row["metric"]) == (family.title, metric))
    return [value for row in chosen for value in row["by seed"]]


def _frame(axes: Axes, values: Sequence[float]) -> None:
    """Show the range of the seeds: the interval of two or three may reach far beyond what the quantity can be."""
    if values:
        room = 0.08 * (max(values) - min(values)) or 1.0
        axes.set_ylim(min(values) - room, max(values) + room)


def _legend(figure: Figure, panels: Any) -> None:
    """One legend for all panels, every label once."""
    entries = {
        label: handle
        for axes in panels.flat
        for handle, label in zip(*axes.get_legend_handles_labels(), strict=True)
    }
    if entries:
        figure.legend(list(entries.values()), list(entries), loc="outside lower center", ncols=4)
