"""Figures of the recorded times: Table 2's speeds, sweeps, the achieved fraction of the floor, and training (Figure 4)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from analysis.publish import published
from analysis.publish.marks import mark_rows
from analysis.publish.plots import Rows
from analysis.publish.speed import (
    FORMS,
    REDUCIBLE,
    RUNG_NAMES,
    STANDARD,
    TRAINED,
    Ratio,
    by_shape,
    kernel_times,
    one_time,
    published_ratios,
    ratios,
    speed,
    training_steps,
)
from analysis.publish.style import DOUBLE_COLUMN, INK, look
from analysis.records import Record, select
from analysis.spec import RUNGS, Family

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SHORT = {rung.key: "B" if rung.key == "baseline" else f"V{index}" for index, rung in enumerate(RUNGS)}
AXES = {"tokens": "tokens of the sequence", "chunk": "tokens of a chunk", "width": "width of a head"}
SPEED, MEMORY = "million tokens per second", "peak memory (GiB)"
SWEPT = (("baseline", "recurrent"), ("v2", "recurrent"), ("v2", "parallel"), ("v6", "parallel"))


def ladder(records: Sequence[Record], on_processor: Sequence[Record] = ()) -> tuple[Figure, Rows]:
    """Draw Table 2's speeds: million tokens per second by rung and form, and parallel over recurrent; published in grey.

    on_processor: times of both forms on a processor; the ratio at the first of its shapes is drawn beside the device's.
    """
    from matplotlib import pyplot as plt

    figure, (left, right) = plt.subplots(1, 2, figsize=(DOUBLE_COLUMN, 2.7))
    times = kernel_times(records, **STANDARD)
    rows: Rows = []
    printed = {(r.parameters["variant"], r.parameters["form"]): r.value for r in published.table_2_speed()}
    for form in FORMS:
        own = {r.key: speed(found) for r in RUNGS if (found := one_time(times, r.key, form)) is not None}
        paper = {rung: value for (rung, of_form), value in printed.items() if of_form == form}
        shape = {"marker": "o", "fillstyle": "none", "linestyle": "--"} if form == "recurrent" else {}
        _speeds(left, own, rows, f"{form}, measured", look(form).line())
        _speeds(left, paper, rows, f"{form}, published", look("published").line() | shape)
    _logarithmic(left)
    left.set_ylabel(SPEED)
    left.set_xticks(range(len(RUNGS)), SHORT.values())
    where = times[0].device if times else ""
    sides = (
        (f"measured, {where}", "triton", ratios(times)),
        ("measured, this processor", "Baseline", ratios(next(iter(by_shape(on_processor).values()), []))),
    )
    for name, style, by_rung in sides:
        _ratios(right, by_rung, rows, name, look(style).line())
    paper_ratios = {rung: Ratio(value, None, None) for rung, value in published_ratios().items()}
    _ratios(right, paper_ratios, rows, "published", look("published").line())
    right.axhline(1, color=INK, linewidth=0.6, linestyle=":")
    right.set_ylabel("parallel / recurrent speed")
    right.set_xticks(range(len(REDUCIBLE)), [SHORT[rung] for rung in REDUCIBLE])
    for axes in (left, right):
        axes.legend(fontsize=7, loc="upper center", bbox_to_anchor=(0.5, -0.12), ncols=2)
    return figure, rows


def _logarithmic(axes: Axes) -> None:
    """Set a logarithmic axis with plain numbers, between the decades too where there are few of those."""
    from matplotlib.ticker import LogFormatter

    class Plain(LogFormatter):  # it knows which numbers have room, but writes 0.4 as 4e-01
        def __call__(self, x: float, pos: int | None = None) -> str:
            return f"{x:g}" if super().__call__(x, pos) else ""

    axes.set_yscale("log")
    axes.yaxis.set_major_formatter("{x:g}")
    axes.yaxis.set_minor_formatter(Plain(minor_thresholds=(1.5, 0.5)))


def _speeds(axes: Axes, values: dict[str, float], rows: Rows, name: str, style: dict[str, Any]) -> None:
    if not values:
        return
    places = [list(SHORT).index(rung) for rung in values]
    (line,) = axes.plot(places, list(values.values()), **style | {"label": name})
    mark_rows(line, len(rows), len(rows) + len(values))
    rows += [
        {"quantity": SPEED, "series": name, "rung": RUNG_NAMES[rung], "value": value}
        for rung, value in values.items()
    ]


def _ratios(axes: Axes, found: dict[str, Ratio], rows: Rows, name: str, style: dict[str, Any]) -> None:
    if not found:
        return
    values = [one.value for one in found.values()]
    low = [0.0 if one.low is None else one.value - one.low for one in found.values()]
    high = [0.0 if one.high is None else one.high - one.value for one in found.values()]
    drawn = axes.errorbar(
        [REDUCIBLE.index(rung) for rung in found], values, yerr=[low, high], **style | {"label": name}
    )
    mark_rows(drawn, len(rows), len(rows) + len(found))
    rows += [
        {"quantity": "parallel / recurrent", "series": name, "rung": RUNG_NAMES[rung], "value": one.value}
        | {"low": one.low, "high": one.high}
        for rung, one in found.items()
    ]


def sweep(records: Sequence[Record], axis: str) -> tuple[Figure, Rows]:
    """Draw speed and peak memory against one size of the layer, the others at the standard shape."""
    from matplotlib import pyplot as plt

    figure, (left, right) = plt.subplots(1, 2, figsize=(DOUBLE_COLUMN, 2.6), sharex=True)
    times = swept(records, axis)
    rows: Rows = []
    for variant, form in SWEPT:
        mine = select(times, parameters={"variant": variant, "form": form})
        found = sorted(mine, key=lambda record: record.parameters[axis])
        if not found:
            continue
        style = look(variant).line() | {"label": f"{SHORT[variant]} {form}", "markersize": 3}
        style |= {"fillstyle": "none", "linestyle": ":"} if form == "recurrent" else {"linestyle": "-"}
        sizes = [record.parameters[axis] for record in found]
        for axes, quantity, value in ((left, SPEED, speed), (right, MEMORY, lambda r: r.extra["peak_gib"])):
            (line,) = axes.plot(sizes, [value(record) for record in found], **style)
            mark_rows(line, len(rows), len(rows) + len(found))
            rows += [_swept_row(record, axis, quantity, value(record)) for record in found]
    for axes, name in ((left, SPEED), (right, MEMORY)):
        axes.set_xscale("log", base=2)
        _logarithmic(axes)
        axes.xaxis.set_major_formatter("{x:g}")
        axes.set_xlabel(AXES[axis])
        axes.set_ylabel(name)
    if rows:
        figure.legend(*left.get_legend_handles_labels(), loc="outside lower center", ncols=4)
    return figure, rows


def swept(records: Sequence[Record], axis: str) -> list[Record]:
    """Return the times of the swept rungs at every size along an axis."""
    others = {name: value for name, value in STANDARD.items() if name != axis}
    times = kernel_times(records, **others)
    return [r for r in times if (r.parameters["variant"], r.parameters["form"]) in SWEPT]


def _swept_row(record: Record, axis: str, quantity: str, value: float) -> dict[str, Any]:
    named = {"rung": RUNG_NAMES[record.parameters["variant"]], "form": record.parameters["form"]}
    return named | {axis: record.parameters[axis], "quantity": quantity, "value": value, "ms": record.value}


def achieved(records: Sequence[Record]) -> tuple[Figure, Rows]:
    """Draw which fraction of the floor's speed every rung and form reaches, at the standard shape."""
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(figsize=(DOUBLE_COLUMN * 0.7, 2.4))
    times = kernel_times(records, **STANDARD)
    rows: Rows = []
    for offset, form in ((-0.2, "recurrent"), (0.2, "parallel")):
        found = [r for rung in RUNGS if (r := one_time(times, rung.key, form)) is not None]
        places = [list(SHORT).index(record.parameters["variant"]) + offset for record in found]
        bars = axes.bar(places, [100 * r.extra["achieved"] for r in found], width=0.36, **look(form).fill())
        for bar, record in zip(bars, found, strict=True):
            mark_rows(bar, len(rows), len(rows) + 1)
            rows.append(
                {
                    "rung": RUNG_NAMES[record.parameters["variant"]],
                    "form": form,
                    "achieved": record.extra["achieved"],
                    "floor (ms)": record.extra["floor_ms"],
                    "ms": record.value,
                }
            )
    axes.axhline(100, color=INK, linewidth=0.8, linestyle=":")
    axes.set_xticks(range(len(SHORT)), SHORT.values())
    axes.set_ylabel("% of the floor's speed")
    if rows:
        figure.legend(loc="outside right center")
    return figure, rows


def training(records: Sequence[Record]) -> tuple[Figure, Rows]:
    """Draw Figure 4, baseline and Variant 2: the time of a training step, and the loss by steps and by the time they take."""
    from matplotlib import pyplot as plt

    figure, (left, middle, right) = plt.subplots(
        1, 3, figsize=(DOUBLE_COLUMN, 2.7), width_ratios=(0.8, 2, 2), layout="constrained"
    )
    right.sharey(middle)
    rows: Rows = []
    steps = training_steps(records)
    for place, variant in enumerate(TRAINED):
        if variant in steps:
            _step(left, place, steps[variant], rows)
    for record in trained(records):
        _curve(middle, record, rows)
        if record.parameters["variant"] in steps:
            _curve(right, record, rows, steps[record.parameters["variant"]].value / 1e3)
    left.set_xticks(range(len(TRAINED)), [SHORT[variant] for variant in TRAINED])
    left.set_ylabel("ms per training step")
    for axes in (left, right) if not steps else ():
        axes.text(0.5, 0.5, "not measured yet", ha="center", va="center", transform=axes.transAxes)
    if not steps:
        left.set_yticks([])
    middle.set_xlabel("training steps")
    right.set_xlabel("seconds of training")
    middle.set_ylabel("training loss")
    _logarithmic(middle)
    if middle.lines:
        figure.legend(*middle.get_legend_handles_labels(), loc="outside lower center", ncols=2)
    return figure, rows


def _step(axes: Axes, place: int, record: Record, rows: Rows) -> None:
    low, high = (record.value if end is None else end for end in (record.ci_low, record.ci_high))
    variant = record.parameters["variant"]
    bars = axes.bar(
        [place], [record.value], yerr=[[record.value - low], [high - record.value]], **look(variant).fill()
    )
    mark_rows(bars[0], len(rows), len(rows) + 1)
    rows.append(
        {"quantity": "ms per training step", "variant": RUNG_NAMES[variant], "value": record.value}
        | {"low": low, "high": high}
    )


def trained(records: Sequence[Record]) -> list[Record]:
    """Return the longest retrained language models with their curves, baseline and Variant 2, one a seed."""
    chosen = []
    for variant in TRAINED:
        where = {"family": Family.LACT_LM.value, "variant": variant}
        runs = select(records, question="retrained", kind="measured", parameters=where)
        found = [record for record in runs if "curve" in record.extra]
        longest = max((record.parameters["training_steps"] for record in found), default=0)
        chosen += [record for record in found if record.parameters["training_steps"] == longest]
    return chosen


def _curve(axes: Axes, record: Record, rows: Rows, seconds: float | None = None) -> None:
    """Draw one run by its steps, or by the time they take at so many seconds each; the first of a variant names it."""
    variant, curve = record.parameters["variant"], record.extra["curve"]
    name = f"{RUNG_NAMES[variant]}, {record.parameters['training_steps']} steps"
    is_first = name not in axes.get_legend_handles_labels()[1]
    style = look(variant).line() | {"label": name if is_first else None, "marker": "", "linewidth": 0.9}
    places = [step * (1 if seconds is None else seconds) for step in curve["steps"]]
    (line,) = axes.plot(places, curve["outer_loss"], **style)
    mark_rows(line, len(rows), len(rows) + len(places))
    against = "step" if seconds is None else "seconds"
    rows += [
        {
            "quantity": "training loss",
            "variant": name,
            "seed": record.seeds[0],
            against: place,
            "value": value,
        }
        for place, value in zip(places, curve["outer_loss"], strict=True)
    ]
