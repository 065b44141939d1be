"""Figures over training seeds, from recorded measurements: step sweeps, and inner losses while training."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from analysis.publish import published
from analysis.publish.ladder_plots import NAMES, bars_of, over_seeds
from analysis.publish.marks import mark_rows
from analysis.publish.plots import Rows
from analysis.publish.retrained_verdicts import added_loops
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
    """Draw how inner loss and task metric change from one inner step to others, for variants trained with one (Figure 1).

    Changes are taken seed by seed; points are their means with a 95 % t-interval, which one seed does not have. Rows hold the
    levels as well.
    """
    from matplotlib import pyplot as plt

    figure, panels = plt.subplots(2, len(families), figsize=(DOUBLE_COLUMN, 4.1), sharex=True, squeeze=False)
    rows: Rows = []
    mine = select(records, question="inner steps")
    for (top, bottom), family in zip(panels.T, families, strict=True):
        of_family = select(mine, parameters={"family": family.value, "step_size": 1.0})
        metric = published.METRIC[family][0]
        for place, variant in enumerate(SWEPT):
            chosen = select(of_family, parameters={"variant": variant})
            aside = _ASIDE * (place - (len(SWEPT) - 1) / 2)
            for axes, measured in ((top, "inner_loss_after"), (bottom, metric)):
                where = {"family": family.title, "variant": NAMES[variant], "metric": measured}
                _changes(axes, select(chosen, metric=measured), look(variant).line(), aside, where, rows)
        top.set_title(family.title)
        top.set_ylabel("change of the inner loss\nafter the update")
        bottom.set_ylabel(_CHANGES[metric])
        bottom.set_xlabel("inner steps at test time")
        for axes in (top, bottom):
            axes.axvline(1, color=INK, linewidth=0.6, linestyle=":")
            axes.axhline(0, color=INK, linewidth=0.6)
    _legend(figure, panels)
    return figure, rows


_ASIDE = 0.2
"""How far apart the variants stand beside a number of steps, so that no interval hides another."""
_CHANGES = {
    "perplexity": "change of perplexity\nin %",
    "psnr": "change of PSNR\nin dB",
    "top1": "change of accuracy\nin percentage points",
}


def _changes(
    axes: Axes,
    found: Sequence[Record],
    style: dict[str, Any],
    aside: float,
    where: dict[str, Any],
    rows: Rows,
) -> None:
    """Draw the changes of one variant against one step, seed by seed, and add a row for each number of steps."""
    seeds: dict[Any, dict[int, float]] = {}
    for record in found:
        seeds.setdefault(record.seeds, {})[record.parameters["inner_steps"]] = record.value
    start = len(rows)
    for k in sorted({k for curve in seeds.values() for k in curve if 1 in curve}):
        curves = [curve for curve in seeds.values() if 1 in curve and k in curve]
        levels = [curve[k] for curve in curves]
        moved = [_moved(where["metric"], curve[1], curve[k]) for curve in curves]
        for name, values in (("", levels), ("change ", moved)):
            mean, low, high = over_seeds(values)
            ends = {f"{name}by seed": values, f"{name}mean": mean, f"{name}low": low, f"{name}high": high}
            where = where | {"at": k} | ends
        rows.append(where)
    drawn = rows[start:]
    if not drawn:
        return
    bars = bars_of(drawn, "change ")
    style = style | {"label": where["variant"], "markersize": 3, "linewidth": 1, "elinewidth": 0.8}
    places = [row["at"] + aside for row in drawn]
    mark_rows(
        axes.errorbar(places, [row["change mean"] for row in drawn], yerr=bars, **style), start, len(rows)
    )
    dots = [(row["at"] + aside, one) for row in drawn if row["at"] != 1 for one in row["change by seed"]]
    axes.scatter(
        [x for x, _ in dots], [y for _, y in dots], s=4, color=style["color"], linewidths=0, alpha=0.7
    )
    axes.set_xticks([row["at"] for row in drawn])
    if max(abs(value) for row in drawn for value in row["change by seed"]) > _WIDE:
        axes.set_yscale("symlog", linthresh=_WIDE / 10)


_WIDE = 100.0
"""Changes beyond this are drawn on a scale that is logarithmic away from zero, or the first steps would vanish."""


def _moved(metric: str, before: float, after: float) -> float:
    """Return a change of the perplexity in per cent, of anything else in its own unit."""
    return 100 * (after / before - 1) if metric == "perplexity" else after - before


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

    One line a seed: dotted before the update, solid after it; the loops of a layer added, where the record averages them.
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
                    values = [added_loops(record) * value for value in history["values"]]
                    points = list(zip(history["steps"], values, strict=True))
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


def _legend(figure: Figure, panels: Any) -> None:
    """One legend for all panels, every label once."""
    entries = {
        label: handle
        for axes in panels.flat
        for handle, label in zip(*axes.get_legend_handles_labels(), strict=True)
    }
    if entries:
        figure.legend(list(entries.values()), list(entries), loc="outside lower center", ncols=4)
