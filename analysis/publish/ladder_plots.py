"""Figures of the retrained models: the ladder, losses by position, and training curves."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from analysis.publish import published
from analysis.publish.marks import mark_rows
from analysis.publish.plots import METRICS, TITLES, Rows
from analysis.publish.retrained_verdicts import by_variant, margin
from analysis.publish.style import DOUBLE_COLUMN, INK, RULE, look
from analysis.records import Record, select
from analysis.spec import RUNGS, Family, equal_rung
from analysis.statistics import interval, tost

if TYPE_CHECKING:
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
        if base and bound:
            middle = sum(base) / len(base)
            axes.axhspan(middle - bound, middle + bound, color=RULE, linewidth=0, zorder=0)
        frozen = by_variant(records, family, "frozen")
        if frozen:
            axes.axhline(sum(frozen) / len(frozen), color=INK, linewidth=0.8, linestyle=":")
        axes.set_xticks(range(len(RUNGS)), ["B", *(f"V{i}" for i in range(1, len(RUNGS)))])
        axes.set_xlim(-0.5, len(RUNGS) - 0.5)
        axes.set_title(family.title)
        axes.set_ylabel(METRICS[published.METRIC[family][0]])
    return figure, shown


def by_position(records: Sequence[Record], variants: Sequence[str], width: int = 64) -> tuple[Figure, Rows]:
    """Draw the language model's perplexity against the position in the sequence, seeds averaged (Figure 3).

    Variants without records are left out; one that was trained for fewer steps than the longest says so in its label.
    """
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(figsize=(DOUBLE_COLUMN * 0.85, 2.8))
    mine = select(records, question="evaluation", metric="loss", parameters={"family": "lact_lm"})
    longest = max((record.parameters["training_steps"] or 0 for record in mine), default=0)
    rows: Rows = []
    for variant in variants:
        found = [r for r in select(mine, parameters={"variant": variant}) if "by_position" in r.extra]
        if not found:
            continue
        steps = found[0].parameters["training_steps"]
        label = NAMES[variant] + (f" ({steps} steps)" if steps and steps < longest else "")
        points = list(_windows([record.extra["by_position"] for record in found], width))
        style = look(_LOOKS.get(variant, variant)).line()
        (line,) = axes.plot(*zip(*points, strict=True), **{**style, "label": label, "markersize": 3})
        mark_rows(line, len(rows), len(rows) + len(points))
        rows += [{"variant": label, "position": x, "perplexity": y, "seeds": len(found)} for x, y in points]
    axes.set_xlabel("position in the sequence (tokens)")
    axes.set_ylabel("perplexity")
    if rows:
        figure.legend(loc="outside right center")
    return figure, rows


def gains(rows: Rows, worse: str, better: str) -> tuple[float, float] | None:
    """Return how much lower the perplexity of one variant is than another's, in the first and in the last quarter of windows."""
    curves = {name: [row["perplexity"] for row in rows if row["variant"] == name] for name in (worse, better)}
    if not all(curves.values()):
        return None
    saved = [before - after for before, after in zip(curves[worse], curves[better], strict=True)]
    quarter = max(1, len(saved) // 4)
    return sum(saved[:quarter]) / quarter, sum(saved[-quarter:]) / quarter


_LOOKS = {"frozen": "no update", "ascent": "ascent", "q_is_k": "query from key"}


def _windows(curves: Sequence[Sequence[float]], width: int) -> Iterator[tuple[float, float]]:
    """Yield the middle of every window and the perplexity in it, the losses of all curves averaged."""
    for start in range(0, min(len(curve) for curve in curves) - width + 1, width):
        losses = [sum(curve[start : start + width]) / width for curve in curves]
        yield start + width / 2, math.exp(sum(losses) / len(losses))
