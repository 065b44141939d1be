"""Figures of how queries differ from keys and outputs from values: t-SNE of every layer, and the measures over seeds."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from analysis.publish.captions import joined
from analysis.publish.ladder_plots import bars_of, over_seeds
from analysis.publish.marks import mark_rows
from analysis.publish.plots import MEASURES, Rows, loops_of
from analysis.publish.style import DOUBLE_COLUMN, INK, look
from analysis.records import Record, select
from analysis.spec import Family

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

BOUNDS = {
    "classifier_accuracy": (0.0, 1.0),
    "mmd": (0.0, 2.0),
    "centroid_cosine": (-1.0, 1.0),
    "neighbour_overlap": (0.0, 2.0),
}
"""What a measure of mismatch can be: a t-interval knows nothing of it, and is drawn no further."""
ASIDE = 0.06
"""How far a pair stands beside its layer, so that no interval hides another."""


MOST_POINTS = 12_000
"""Points of one figure: each is an element of its own in the page, so more are thinned out evenly."""


def thinning(layers: Mapping[str, Mapping[str, Any]]) -> int:
    """Return that one point in so many is drawn: 1 for all, more where a figure would have more than `MOST_POINTS`."""
    clouds = [points for pairs in layers.values() for one in pairs.values() for points in one.points.values()]
    return max(1, math.ceil(sum(map(len, clouds)) / MOST_POINTS))


def embeddings(layers: Mapping[str, Mapping[str, Any]]) -> tuple[Figure, Rows]:
    """Draw the t-SNE of every layer, a row a pair: Q with K, V with O; a skipped panel shows its reason (Figure 2).

    `layers` maps a layer's name to {pair: embedding}, an embedding having `points` by cloud name and `skipped`.
    """
    from matplotlib import pyplot as plt

    named, step = list(dict.fromkeys(pair for pairs in layers.values() for pair in pairs)), thinning(layers)
    side = DOUBLE_COLUMN / max(len(layers), 3) * 0.95
    figure, panels = plt.subplots(
        len(named), len(layers), figsize=(DOUBLE_COLUMN, len(named) * side), squeeze=False
    )
    rows: Rows = []
    for axes, pair in zip(panels[:, 0], named, strict=True):
        axes.set_ylabel(pair)
    for column, (layer, pairs) in enumerate(layers.items()):
        for axes, (pair, embedding) in zip(panels[:, column], pairs.items(), strict=True):
            axes.set_xticks([])
            axes.set_yticks([])
            axes.grid(False)
            if embedding.skipped:
                axes.text(
                    0.5, 0.5, embedding.skipped, ha="center", va="center", wrap=True, transform=axes.transAxes
                )
            for name, every in embedding.points.items():
                points = every[::step]
                drawn = axes.scatter(*points.T, s=3, **look(name).cloud())
                mark_rows(drawn, len(rows), len(rows) + len(points))
                rows += _embedded(embedding, points, step, {"layer": layer, "pair": pair, "cloud": name})
        panels[0, column].set_title(layer)
    _legend(figure, panels, markerscale=3, handletextpad=0.1)
    return figure, rows


def _embedded(embedding: Any, points: Any, step: int, named: dict[str, Any]) -> Rows:
    """Rows of a cloud: where each point lies and, when the embedding knows, which example, head and token it is."""
    places = getattr(embedding, "places", None)
    known = (
        [{}] * len(points)
        if places is None
        else [dict(zip(("example", "head", "token"), p, strict=True)) for p in places[::step]]
    )
    return [
        named | place | {"x": x, "y": y}
        for place, (x, y) in zip(known, points.astype(float).round(2), strict=True)
    ]


def over_training_seeds(
    records: Sequence[Record], families: Sequence[Family] = tuple(Family)
) -> tuple[Figure, Rows]:
    """Draw the four mismatch measures of Q/K and V/O by layer, a row an inner loop of a family.

    Points are means over seeds with their 95 % t-interval, as far as the measure reaches: an accuracy does not pass 1.
    """
    from matplotlib import pyplot as plt

    mine = select(records, question="distribution mismatch", parameters={"variant": "baseline"})
    parts = [
        (family, loop, select(mine, parameters={"family": family.value, **where}))
        for family in families
        for loop, where in loops_of(select(mine, parameters={"family": family.value})).items()
    ]
    size = (DOUBLE_COLUMN, 0.4 + 1.5 * len(parts))
    figure, panels = plt.subplots(len(parts), len(MEASURES), figsize=size, squeeze=False)
    rows: Rows = []
    for line, (family, loop, of_loop) in zip(panels, parts, strict=True):
        for axes, (metric, (label, none)) in zip(line, MEASURES.items(), strict=True):
            start = len(rows)
            for pair, name, aside in (("Q/K", "q", -ASIDE), ("V/O", "v", ASIDE)):
                found = _by(select(of_loop, metric=metric, parameters={"pair": pair}), "layer")
                where = {"family": family.title, "loop": loop.removeprefix("loop "), "variant": pair}
                where |= {"metric": label, "against": "layer"}
                rows += _means(found, where, BOUNDS[metric])
                _with_intervals(axes, rows, len(rows) - len(found), look(name).line(), aside)
            axes.axhline(none, color=INK, linewidth=0.8, linestyle=":")
            _frame(axes, rows[start:], none)
        line[0].set_ylabel("\n".join(filter(None, (family.title, loop))))
    for axes, (label, _) in zip(panels[0], MEASURES.values(), strict=True):
        axes.set_title(label)
    for axes in panels[-1]:
        axes.set_xlabel("layer")
    _legend(figure, panels)
    return figure, rows


def loops_text(records: Sequence[Record]) -> str:
    """Return which inner loops the rows of a figure are about, to be added to its caption; '' where there is one."""
    named = [loop for loop in loops_of(records) if loop]
    return f", in {joined(named)}" if named else ""


def _by(records: Sequence[Record], parameter: str) -> dict[int, list[float]]:
    """Return the values of all seeds by a parameter, in its order."""
    found: dict[int, list[float]] = {}
    for record in records:
        found.setdefault(record.parameters[parameter], []).append(record.value)
    return dict(sorted(found.items()))


def _means(
    found: Mapping[int, Sequence[float]], where: Mapping[str, Any], bounds: tuple[float, float]
) -> Rows:
    """Rows of means over seeds, with their intervals inside the bounds of the measure."""
    rows: Rows = []
    for place, values in found.items():
        mean, low, high = _inside(*over_seeds(values), bounds)
        rows.append({**where, "at": place, "by seed": list(values), "mean": mean, "low": low, "high": high})
    return rows


def _with_intervals(axes: Axes, rows: Rows, start: int, style: Mapping[str, Any], aside: float) -> None:
    """Draw the rows from `start` on: means with their intervals, and a dot a seed, a little aside of their place."""
    drawn = rows[start:]
    if not drawn:
        return
    bars = bars_of(drawn)
    style = {**style, "label": drawn[0]["variant"], "markersize": 3}
    places = [row["at"] + aside for row in drawn]
    line = axes.errorbar(
        places, [row["mean"] for row in drawn], yerr=bars, linewidth=1, elinewidth=0.8, **style
    )
    mark_rows(line, start, len(rows))
    seeds = [
        (row["at"] + aside, value) for row in drawn if len(row["by seed"]) > 1 for value in row["by seed"]
    ]
    if seeds:
        at, by_seed = zip(*seeds, strict=True)
        axes.scatter(at, by_seed, s=4, color=style["color"], linewidths=0, alpha=0.7)
    axes.set_xticks([row["at"] for row in drawn])


def _inside(mean: float, low: float, high: float, bounds: tuple[float, float]) -> tuple[float, float, float]:
    """Cut an interval at the bounds, but hold the mean: an unbiased estimate of a distance of zero may be below it."""
    if math.isnan(low):
        return mean, low, high
    return mean, min(mean, max(low, bounds[0])), max(mean, min(high, bounds[1]))


def _frame(axes: Axes, rows: Rows, none: float) -> None:
    """Show every seed, every interval and what no difference would give."""
    shown = [
        value for row in rows for value in (row["low"], row["high"], *row["by seed"]) if not math.isnan(value)
    ]
    if shown:
        least, most = min(none, *shown), max(none, *shown)
        room = 0.08 * (most - least) or 1.0
        axes.set_ylim(least - room, most + room)


def _legend(figure: Figure, panels: Any, **style: Any) -> None:
    """One legend for all panels, every label once, from the first panel that shows it."""
    shown: dict[str, Any] = {}
    for axes in panels.flat:
        for mark, name in zip(*axes.get_legend_handles_labels(), strict=True):
            shown.setdefault(name, mark)
    if shown:
        figure.legend(shown.values(), shown, loc="outside lower center", ncols=4, **style)
