"""What a panel says in numbers: the edit, the metrics beside those as trained, and a chart of the edits visited so far."""

from __future__ import annotations

import html
from collections.abc import Sequence

from analysis.lab.outcome import Outcome
from analysis.lab.pictures import drawing, titled
from analysis.models.evaluation import Estimate, Evaluation
from analysis.models.host import EditedHost
from analysis.publish.style import INK, look

METRICS = {"perplexity": "perplexity", "psnr": "PSNR", "top1": "top-1", "bits_per_byte": "bits per byte"}
INNER = {
    "inner_loss_before": "inner loss before",
    "inner_loss_after": "inner loss after",
    "update_norm": "size of the update",
}
REMEMBERED = 9  # edits that the chart shows


def metric_name(name: str) -> str:
    """Return the name of a metric as it is printed."""
    return METRICS.get(name, name.replace("_", " "))


def summary(edited: EditedHost, outcome: Outcome, trained: Outcome, samples: int) -> str:
    """Return the table of an edit beside the host as trained, on the same examples."""
    here, before = outcome.evaluation, trained.evaluation
    rows = [_row(here.metric, here, before)]
    rows += [_row(name, found, before.others[name]) for name, found in here.others.items()]
    for kind, text in INNER.items():
        now, then = outcome.inner.get(kind), trained.inner.get(kind)
        rows.append(
            (text, _plain(then), _plain(now), "" if now is None or then is None else f"{now - then:+.3g}")
        )
    body = "".join(
        f"<tr><th scope='row' style='text-align:left;font-weight:400;white-space:nowrap'>{name}</th>"
        + "".join(
            f"<td style='text-align:right;padding-left:1em;white-space:nowrap'>{html.escape(cell)}</td>"
            for cell in cells
        )
        + "</tr>"
        for name, *cells in rows
    )
    head = "".join(
        f"<th scope='col' style='text-align:right;padding-left:1em'>{one}</th>"
        for one in ("as trained", "with the edit", "change")
    )
    style = "border-collapse:collapse;font-size:inherit;line-height:1.7;font-variant-numeric:tabular-nums"
    head = f"<thead><tr><td></td>{head}</tr></thead>"
    table = f"<div style='overflow-x:auto'><table style='{style}'>{head}<tbody>{body}</tbody></table></div>"
    changed = edited.difference()
    run = "Run as trained" if changed.startswith("none") else f"Run with {html.escape(changed)}"
    note = f"{run}. {samples} examples, 95 % bootstrap interval over them: a first look, not a measurement."
    return titled("Metrics", note, table)


def _row(name: str, here: Evaluation | Estimate, before: Evaluation | Estimate) -> tuple[str, ...]:
    label = metric_name(name) + (f", {here.unit}" if here.unit and here.unit not in metric_name(name) else "")
    return (label, _with_interval(before), _with_interval(here), f"{here.value - before.value:+.3g}")


def _with_interval(found: Evaluation | Estimate) -> str:
    return f"{found.value:.4g} [{found.ci_low:.4g}, {found.ci_high:.4g}]"


def _plain(value: float | None) -> str:
    return "none moves" if value is None else f"{value:.4g}"


def chart(visited: Sequence[Outcome], current: Outcome) -> str:
    """Return the task metric of the edits visited so far, the newest below."""
    shown = list(visited)[-REMEMBERED:]
    name = current.evaluation.metric
    texts = ", ".join(f"{one.text} {one.evaluation.value:.4g}" for one in shown)
    alt = f"{metric_name(name)} of the edits visited so far: {texts}."
    height = 0.75 + 0.24 * len(shown)
    note = "Every edit you have looked at, on these examples; the filled mark is the present one."
    return titled(
        "Visited edits", note, drawing(lambda figure: _draw_chart(figure, shown, current), alt, (5.6, height))
    )


def _draw_chart(figure, shown: Sequence[Outcome], current: Outcome) -> None:
    axes = figure.add_subplot()
    style = look("task metric")
    for place, one in enumerate(shown):
        found = one.evaluation
        bars = [[max(found.value - found.ci_low, 0)], [max(found.ci_high - found.value, 0)]]
        bars = bars if all(side[0] == side[0] for side in bars) else None
        axes.errorbar(
            [found.value], [place], xerr=bars, color=style.color, marker=style.marker, linestyle="none",
            markerfacecolor=style.color if one is current else "white", markersize=6,
        )  # fmt: skip
    axes.axvline(shown[0].evaluation.value, color=INK, linewidth=0.6, linestyle=":")
    axes.set_yticks(range(len(shown)), [_clipped(one.text) for one in shown])
    axes.set_ylim(len(shown) - 0.5, -0.5)
    unit = current.evaluation.unit
    axes.set_xlabel(f"{metric_name(current.evaluation.metric)}" + (f" ({unit})" if unit else ""))


def _clipped(text: str) -> str:
    return text if len(text) <= 46 else f"{text[:45]}…"
