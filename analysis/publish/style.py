"""The one look of all figures: a variant has the same colour, marker and dash pattern everywhere.

Colours are from the Okabe-Ito set, ordered so that neighbours also differ in lightness; every line differs in marker
and dash pattern as well, so that a figure can be read in grey.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from analysis.errors import ReportError, closest

SINGLE_COLUMN = 3.3  # inches
DOUBLE_COLUMN = 6.9  # inches
INK = "#1f2328"  # text and axes; the page recolours exactly this value in its dark theme
RULE = "#d0d4d9"  # grid lines; recoloured likewise

BLUE, VERMILION, GREEN, PURPLE = "#0072b2", "#d55e00", "#009e73", "#b5658f"
ORANGE, SKY, GREY, OLIVE = "#e69f00", "#56b4e9", "#7a7f87", "#8c8c1a"


@dataclass(frozen=True, kw_only=True)
class Look:
    """How one named variant is drawn: colour, marker and dash pattern."""

    name: str
    color: str
    marker: str
    linestyle: Any

    def line(self) -> dict[str, Any]:
        """Return the keyword arguments for `Axes.plot` and `Axes.errorbar`."""
        return {"color": self.color, "marker": self.marker, "linestyle": self.linestyle, "label": self.name}

    def fill(self) -> dict[str, Any]:
        """Return the keyword arguments for bars and bands, with an edge that survives printing in grey."""
        return {"color": self.color, "edgecolor": INK, "linewidth": 0.6, "label": self.name}

    def cloud(self) -> dict[str, Any]:
        """Return the keyword arguments of `Axes.scatter` for many points of a tensor, whose label is its capital letter."""
        marks = {"color": self.color, "marker": self.marker, "alpha": 0.6, "linewidths": 0}
        return {**marks, "label": self.name.upper()}


def _looks(*rows: tuple[str, str, str, Any]) -> tuple[Look, ...]:
    return tuple(
        Look(name=name, color=color, marker=mark, linestyle=dash) for name, color, mark, dash in rows
    )


SOLID, DASHED, DOTTED, DASHDOT = "-", (0, (5, 2)), (0, (1, 1.5)), (0, (5, 1.5, 1, 1.5))

VARIANTS = _looks(
    ("Baseline", INK, "o", SOLID),
    ("Variant 1", BLUE, "s", DASHED),
    ("Variant 2", ORANGE, "^", SOLID),
    ("Variant 3", GREEN, "D", DASHDOT),
    ("Variant 4", VERMILION, "v", DASHED),
    ("Variant 5", SKY, "P", SOLID),
    ("Variant 6", PURPLE, "X", DOTTED),
    ("ascent", VERMILION, "v", DASHED),
    ("descent", INK, "o", SOLID),
    ("query from key", PURPLE, "X", DOTTED),
    ("published", GREY, "*", DOTTED),
    ("no update", OLIVE, "d", DASHDOT),
    ("shuffled values", ORANGE, "^", DASHED),
    ("foreign pairs", SKY, "P", DOTTED),
    ("steps2", GREEN, "D", DASHED),
    ("steps4", PURPLE, "X", DASHDOT),
)

FAMILIES = _looks(
    ("lact_lm", BLUE, "o", SOLID),
    ("lact_nvs", VERMILION, "s", DASHED),
    ("vittt", GREEN, "^", DASHDOT),
)

QUANTITIES = _looks(
    ("q", BLUE, "o", SOLID),
    ("k", VERMILION, "^", DASHED),
    ("v", GREEN, "s", DASHDOT),
    ("o", PURPLE, "D", DOTTED),
    ("task metric", INK, "o", SOLID),
    ("inner loss", VERMILION, "s", DASHED),
)

BACKENDS = _looks(
    ("reference", GREY, "o", SOLID),
    ("recurrent", BLUE, "s", DASHED),
    ("parallel", VERMILION, "^", SOLID),
    ("triton", GREEN, "D", DASHDOT),
)


RUNG_NAMES = {"baseline": "Baseline"} | {f"v{number}": f"Variant {number}" for number in range(1, 7)}
"""The keys of the ladder's rungs, which `look` takes as well."""


def look(name: str) -> Look:
    """Return the look of a named variant, family, recorded quantity or backend.

    Raises ReportError for an unknown name: an improvised colour would differ from figure to figure.
    """
    known = {entry.name: entry for entry in (*VARIANTS, *FAMILIES, *QUANTITIES, *BACKENDS)}
    name = RUNG_NAMES.get(name, name)
    if name not in known:
        raise ReportError(
            f"expected a name that the figure style knows, received {name!r}{closest(name, known)}; "
            "add it to analysis/publish/style.py"
        )
    return known[name]


_RC: dict[str, Any] = {
    "figure.figsize": (SINGLE_COLUMN, 2.3),
    "figure.dpi": 144,
    "figure.facecolor": "none",
    "figure.constrained_layout.use": True,
    "savefig.facecolor": "none",
    "savefig.bbox": None,
    "font.family": "STIXGeneral",
    "font.size": 9,
    "mathtext.fontset": "stix",
    "axes.titlesize": 9.5,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.labelsize": 9,
    "axes.facecolor": "none",
    "axes.edgecolor": INK,
    "axes.labelcolor": INK,
    "axes.titlecolor": INK,
    "axes.linewidth": 0.6,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": RULE,
    "grid.linewidth": 0.5,
    "text.color": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "xtick.labelsize": 8,
    "ytick.labelsize": 8,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "xtick.major.size": 2.5,
    "ytick.major.size": 2.5,
    "xtick.minor.size": 1.5,
    "ytick.minor.size": 1.5,
    "path.simplify": False,  # a line without markers keeps every point that a reader may ask about
    "lines.linewidth": 1.2,
    "lines.markersize": 4,
    "errorbar.capsize": 2,
    "legend.fontsize": 8.5,
    "legend.frameon": False,
    "image.cmap": "cividis",
    "svg.fonttype": "path",  # the same glyphs on every machine
}


def rc() -> Any:
    """Return the matplotlib settings of the style, colour cycle included."""
    from cycler import cycler

    colors = [INK, BLUE, VERMILION, GREEN, PURPLE, ORANGE, SKY]
    return {**_RC, "axes.prop_cycle": cycler(color=colors)}


def use_style() -> None:
    """Apply the style to every figure made from now on, and let pandas print whole cells and every column."""
    import matplotlib as mpl
    import pandas as pd

    mpl.rcParams.update(rc())
    pd.set_option("display.max_colwidth", None, "display.max_columns", None, "display.max_rows", 200)


@contextmanager
def styled() -> Iterator[None]:
    """Apply the style to the figures made inside the `with` block alone."""
    import matplotlib as mpl

    with mpl.rc_context(rc()):
        yield
