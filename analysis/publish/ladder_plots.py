"""Figures of the retrained models: the ladder, losses by position, and training curves."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from analysis.publish import published
from analysis.publish.marks import mark_rows
from analysis.publish.plots import METRICS, TITLES, Rows
from analysis.publish.retrained_verdicts import by_variant, margin
from analysis.publish.style import DASHDOT, DASHED, DOTTED, DOUBLE_COLUMN, GREY, INK, RULE, look
from analysis.records import Record, select
from analysis.spec import RUNGS, Family, equal_rung
from analysis.statistics import interval, tost

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

NAMES = {
    **{rung.key: rung.name for rung in RUNGS},
    "ascent": "Gradient ascent",
    "q_is_k": "K for Q",
    "frozen": "Fast weights frozen",
    "none": "No inner loop",
    "full_attention": "Full attention",
    "steps2": "Two inner steps",
    "steps4": "Four inner steps",
}


def quality_rows(records: Sequence[Record], variants: Sequence[str], printed: Sequence[Record]) -> Rows:
    """Return one row per family and variant: mean and interval over seeds, difference to the baseline, the paper's value."""
    rows: Rows = []
    for family in Family:
        base = by_variant(records, family, "baseline")
        paper = {r.parameters["variant"]: r.value for r in printed if r.parameters["family"] == family.value}
        for variant in variants:
            source = equal_rung(family, variant) if variant in {rung.key for rung in RUNGS} else variant
            rows.append(
                _quality_row(
                    family, variant, source, by_variant(records, family, source), base, paper.get(variant)
                )
            )
    return rows


def over_seeds(values: Sequence[float]) -> tuple[float, float, float]:
    """Return the mean and the ends of its 95 % t-interval; one seed has no interval, none has no mean: they are NaN."""
    if len(values) > 1:
        found = interval(list(values), "t")
        return found.mean, found.low, found.high
    return (values[0] if values else math.nan), math.nan, math.nan


def bars_of(rows: Sequence[Mapping[str, Any]], prefix: str = "") -> list[list[float]]:
    """Return how far down and up the intervals of rows reach from their means, as `Axes.errorbar` wants it; 0 without one."""
    return [
        [
            0.0 if math.isnan(row[prefix + end]) else abs(row[prefix + end] - row[f"{prefix}mean"])
            for row in rows
        ]
        for end in ("low", "high")
    ]


def _quality_row(
    family: Family, variant: str, source: str, values: list[float], base: list[float], paper: float | None
) -> dict[str, Any]:
    mean, low, high = over_seeds(values)
    compared = bool(values and base) and source != "baseline"
    moved = tost(values, base, 1e9, alpha=0.025) if compared and min(len(values), len(base)) > 1 else None
    return {
        "family": family.value,
        "variant": variant,
        "trained as": source,
        "metric": published.METRIC[family][0],
        "seeds": len(values),
        "mean": mean,
        "low": low,
        "high": high,
        "by seed": [round(value, 4) for value in values],
        "difference": sum(values) / len(values) - sum(base) / len(base) if compared else math.nan,
        "difference low": moved.low if moved else math.nan,
        "difference high": moved.high if moved else math.nan,
        "published": math.nan if paper is None else paper,
    }


def quality_table(rows: Rows) -> Any:
    """Return the rows as a readable table; a declared no-op says which rung it equals, and is not trained twice."""
    import pandas as pd

    def text(value: float, form: str = "{:.2f}") -> str:
        return "" if math.isnan(value) else form.format(value)

    def between(row: Mapping[str, Any], name: str, form: str) -> str:
        ends = [row[f"{name} low" if name else "low"], row[f"{name} high" if name else "high"]]
        return (
            ""
            if any(math.isnan(end) for end in ends)
            else f" [{form.format(ends[0])}, {form.format(ends[1])}]"
        )

    return pd.DataFrame(
        {
            "model": f"{TITLES[row['family']]}, {METRICS[row['metric']]}",
            "variant": NAMES[row["variant"]] + ("" if row["variant"] == row["trained as"] else " †"),
            "measured here": (text(row["mean"]) or "not trained") + between(row, "", "{:.2f}"),
            "difference to the baseline": text(row["difference"], "{:+.2f}")
            + between(row, "difference", "{:+.2f}"),
            "seeds": row["seeds"],
            "published": text(row["published"]),
        }
        for row in rows
    ).set_index(["model", "variant"])


def ladder(records: Sequence[Record], rows: Rows) -> tuple[Figure, Rows]:
    """Draw the ladder: metric by rung with every seed and their interval, the margin around the baseline, frozen weights.

    Returned with the rows of the variants that were trained, which are the points.
    """
    from matplotlib import pyplot as plt

    shown: Rows = []
    figure, panels = plt.subplots(1, len(Family), figsize=(DOUBLE_COLUMN, 2.7), squeeze=False)
    for axes, family in zip(panels[0], Family, strict=True):
        mine = [row for row in rows if row["family"] == family.value and row["seeds"]]
        for row in mine:
            place = [rung.key for rung in RUNGS].index(row["variant"])
            bars = (
                None if math.isnan(row["low"]) else [[row["mean"] - row["low"]], [row["high"] - row["mean"]]]
            )
            style = {**look(row["variant"]).line(), "label": None}
            filled = "full" if row["variant"] == row["trained as"] else "none"
            drawn = axes.errorbar([place], [row["mean"]], yerr=bars, **style, fillstyle=filled)
            mark_rows(drawn, len(shown), len(shown) + 1)
            if row["seeds"] > 1:
                beside = [place + 0.24] * row["seeds"]
                axes.scatter(beside, row["by seed"], s=5, color=style["color"], linewidths=0, zorder=3)
            shown.append(row)
        base, bound = by_variant(records, family, "baseline"), margin(records, family)
        ends: list[float] = []
        if base and bound:
            middle = sum(base) / len(base)
            ends = [middle - bound, middle + bound]
            axes.axhspan(*ends, color=RULE, linewidth=0, zorder=0)
        ends += [
            end for row in mine for end in (row["low"], row["high"], *row["by seed"]) if math.isfinite(end)
        ]
        _frozen(axes, by_variant(records, family, "frozen"), ends)
        axes.set_xticks(range(len(RUNGS)), ["B", *(f"V{i}" for i in range(1, len(RUNGS)))])
        axes.set_xlim(-0.5, len(RUNGS) - 0.5)
        axes.set_title(family.title)
        axes.set_ylabel(METRICS[published.METRIC[family][0]])
    return figure, shown


def _frozen(axes: Axes, values: Sequence[float], ends: Sequence[float]) -> None:
    """Draw the model without updates as a dotted line, or tell its value at the edge where the line would squash the rungs."""
    if not values or not ends:
        return
    value, low, high = sum(values) / len(values), min(ends), max(ends)
    if max(high, value) - min(low, value) <= 2 * (high - low):
        axes.axhline(value, color=INK, linewidth=0.8, linestyle=":")
        return
    room = 0.12 * (high - low)
    axes.set_ylim(low - room, high + room)
    edge, arrow, side = (0.02, r"\downarrow", "bottom") if value < low else (0.98, r"\uparrow", "top")
    text = f"${arrow}$ without updates {value:.1f}"
    axes.text(0.03, edge, text, transform=axes.transAxes, fontsize=8, va=side)


WIDTH = 128
"""Tokens in one window of positions: a loss averaged over it is smooth enough to compare eight models."""
REFERENCES = {"frozen": DOTTED, "none": DASHDOT, "full_attention": DASHED}
_RUNGS = tuple(rung.key for rung in RUNGS)
Points = list[tuple[float, ...]]


def position_records(records: Sequence[Record], variant: str) -> dict[int, Record]:
    """Return by seed the recorded losses by position of a language model, where the baseline has them on the same text.

    Only runs of the full schedule count, as in the tables.
    """
    mine = select(records, question="evaluation", metric="loss", parameters={"family": "lact_lm"})
    mine = [record for record in mine if "by_position" in record.extra]
    longest = max((record.parameters["training_steps"] or 0 for record in mine), default=0)
    full = select(mine, parameters={"training_steps": longest})
    base = {(row.data, row.seeds) for row in select(full, parameters={"variant": "baseline"})}
    found = select(full, parameters={"variant": variant})
    return {
        row.seeds[0]: row for row in sorted(found, key=lambda r: r.seeds) if (row.data, row.seeds) in base
    }


def changes(records: Sequence[Record], variant: str, width: int = WIDTH) -> Points:
    """Return (position, change of perplexity in %, ends of its interval) against the baseline, a point for every window.

    The losses of the two models are paired by seed on the same text, so that what is hard for both cancels; the mean over
    seeds has its 95 % t-interval, one seed has none.
    """
    base = position_records(records, "baseline")
    moved = []
    for seed, row in position_records(records, variant).items():
        pair = zip(_windows(row, width), _windows(base[seed], width), strict=True)
        moved.append([ours - its for ours, its in pair])
    return [(x, *(100 * math.expm1(end) for end in ends)) for x, *ends in _means(moved, width)]


def quarters(records: Sequence[Record], variant: str) -> Points:
    """Return `changes` for the quarters of the sequence; nothing without records."""
    found = position_records(records, variant)
    lengths = [len(row.extra["by_position"]) for row in found.values()]
    return changes(records, variant, min(lengths) // 4) if lengths else []


def by_position(records: Sequence[Record], width: int = WIDTH) -> tuple[Figure, Rows]:
    """Draw the language model's perplexity against the position in the sequence (Figure 3), and below it every rung's change.

    Above: mean perplexity of all rungs and of the references. Below, a panel a rung: the paired change against the baseline
    with its interval over seeds as a band, and the model without updates as a dotted line. Rungs without records are left out.
    """
    from matplotlib import pyplot as plt

    figure = plt.figure(figsize=(DOUBLE_COLUMN, 4.4))
    (above,), (below,) = figure.subfigures(2, 1, height_ratios=[1.25, 1], squeeze=False)
    rows: Rows = []
    mine = select(records, question="evaluation", metric="loss")
    _perplexities(above.subplots(), mine, width, rows)
    if rows:
        above.legend(loc="outside right center")
    rungs = [rung for rung in _RUNGS[1:] if position_records(mine, rung)]
    panels = below.subplots(1, max(1, len(rungs)), sharex=True, sharey=True, squeeze=False)[0]
    for axes, rung in zip(panels, rungs, strict=False):
        _change(axes, rung, mine, width, rows)
    panels[0].set_ylabel("change of perplexity\nin % of the baseline")
    below.supxlabel("position in the sequence (tokens)", fontsize=9)
    return figure, rows


def _perplexities(axes: Axes, records: Sequence[Record], width: int, rows: Rows) -> None:
    """Draw the mean perplexity of every model by position; the baseline with the seeds that the rungs have."""
    shared = {seed for rung in _RUNGS[1:] for seed in position_records(records, rung)}
    for variant in (*_RUNGS, *REFERENCES):
        found = position_records(records, variant)
        curves = [_windows(row, width) for seed, row in found.items() if seed in shared or not shared]
        if not curves:
            continue
        label = NAMES[variant] + (" (one seed)" if len(curves) == 1 else "")
        grey = variant in REFERENCES
        style = {"color": GREY, "linestyle": REFERENCES[variant]} if grey else look(variant).line()
        points: Points = [(x, *(math.exp(end) for end in ends)) for x, *ends in _means(curves, width)]
        where = {"variant": NAMES[variant], "quantity": "perplexity", "seeds": len(curves)}
        _line(axes, points, {**style, "label": label}, where, rows)
    axes.set_ylabel("perplexity")


def _change(axes: Axes, rung: str, records: Sequence[Record], width: int, rows: Rows) -> None:
    """Draw one rung's paired change against the baseline by position, with its band."""
    points = changes(records, rung, width)
    places, _, low, high = zip(*points, strict=True)
    axes.fill_between(places, low, high, color=look(rung).color, alpha=0.2, linewidth=0)
    seeds = len(position_records(records, rung))
    where = {"variant": NAMES[rung], "quantity": "change in %", "seeds": seeds}
    _line(axes, points, {**look(rung).line(), "markersize": 3}, where, rows)
    axes.axhline(0, color=INK, linewidth=0.6)
    frozen = changes(records, "frozen", width)
    axes.plot([row[0] for row in frozen], [row[1] for row in frozen], color=GREY, linestyle=DOTTED)
    axes.set_title(NAMES[rung])


def _line(axes: Axes, points: Points, style: Mapping[str, Any], where: Mapping[str, Any], rows: Rows) -> None:
    """Draw points as a line, and add a row for each."""
    (line,) = axes.plot([point[0] for point in points], [point[1] for point in points], **style)
    mark_rows(line, len(rows), len(rows) + len(points))
    names = ("position", "mean", "low", "high")
    rows += [{**where, **dict(zip(names, point, strict=True))} for point in points]


def _means(curves: Sequence[Sequence[float]], width: int) -> Points:
    """Return the middle of every window with the mean over curves and the ends of its interval."""
    return [((i + 0.5) * width, *over_seeds(values)) for i, values in enumerate(zip(*curves, strict=True))]


def _windows(record: Record, width: int) -> list[float]:
    """Return the mean loss in every window of positions."""
    curve = record.extra["by_position"]
    return [sum(curve[at : at + width]) / width for at in range(0, len(curve) - width + 1, width)]
