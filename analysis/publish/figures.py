"""Write a figure as SVG, PNG and CSV, and hand back an object that a notebook and the report both display."""

from __future__ import annotations

import base64
import csv
import html
import io
import math
import os
import re
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from analysis import paths
from analysis.errors import ReportError
from analysis.publish.captions import Caption

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NAME = re.compile(r"[a-z0-9]+(?:[-_][a-z0-9]+)*")
MIN_ALT = 20  # characters: shorter texts do not describe a figure


@dataclass(frozen=True, kw_only=True)
class Shown:
    """A saved figure; displayed in JupyterLab with its caption, and turned into a <figure> by the report."""

    name: str
    svg: str
    png: bytes
    table: str  # CSV text
    caption: Caption
    alt: str

    @property
    def anchor(self) -> str:
        """The permanent anchor of the figure in the report."""
        return f"fig-{self.name}"

    def metadata(self) -> dict[str, Any]:
        """Return what the report needs beside the image: name, alternative text, caption parts and data."""
        return {
            "figure": {"name": self.name, "alt": self.alt, "caption": self.caption.parts(), "csv": self.table}
        }

    def _repr_mimebundle_(
        self, include: Any = None, exclude: Any = None
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        image = base64.b64encode(self.svg.encode()).decode()
        page = (
            f'<figure style="margin:0"><img alt="{html.escape(self.alt)}" style="background:#fff;max-width:100%" '
            f'src="data:image/svg+xml;base64,{image}"/>'
            f'<figcaption style="max-width:75ch">{self.caption.html()}</figcaption></figure>'
        )
        bundle = {
            "text/html": page,
            "image/svg+xml": self.svg,
            "image/png": base64.b64encode(self.png).decode(),
            "text/plain": f"[figure {self.name}] {self.alt}",
        }
        return bundle, self.metadata()


def save_figure(
    fig: Figure,
    name: str,
    table: Any,
    caption: Caption | str,
    alt: str,
    *,
    folder: Path | None = None,
) -> Shown:
    """Write `<name>.svg`, `<name>.png` and `<name>.csv` under `figures/`, close the figure and return it to display.

    `table` holds the rows the figure was drawn from: a DataFrame, a mapping of columns, or a sequence of mappings.
    The bytes depend on the figure alone: no dates, no random ids. All three files appear, or none.

    Raises ReportError for an unusable name, an empty table, a caption that says nothing or an alternative text
    under 20 characters.
    """
    if not NAME.fullmatch(name):
        raise ReportError(
            f"expected a figure name of lower-case words joined by - or _, received {name!r}; rename it"
        )
    if len(alt.strip()) < MIN_ALT:
        raise ReportError(
            f"expected an alternative text that describes figure {name!r}, received {alt!r}; write it out"
        )
    caption = Caption(shown=caption) if isinstance(caption, str) else caption
    text = csv_text(table, name)
    svg, png = _draw(fig, name)
    shown = Shown(name=name, svg=svg, png=png, table=text, caption=caption, alt=alt.strip())
    write_figure(shown.name, svg, png, text, folder or paths.FIGURES)
    return shown


def write_figure(name: str, svg: str, png: bytes, table: str, folder: Path) -> None:
    """Put the three files of a figure in place together; raise ReportError when the folder cannot be written."""
    files = {f"{name}.svg": svg.encode(), f"{name}.png": png, f"{name}.csv": table.encode()}
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=f".{name}-", dir=folder) as temporary:
            for file, content in files.items():
                Path(temporary, file).write_bytes(content)
            for file in files:
                os.replace(Path(temporary, file), folder / file)
    except OSError as error:
        raise ReportError(
            f"expected a writable folder for figures, received {folder} ({error.strerror}); change its permissions"
        ) from error


def _draw(fig: Figure, name: str) -> tuple[str, bytes]:
    import matplotlib as mpl
    from matplotlib import pyplot as plt

    vector, raster = io.StringIO(), io.BytesIO()
    with mpl.rc_context({"svg.hashsalt": name, "svg.fonttype": "path"}):
        fig.savefig(vector, format="svg", metadata={"Date": None, "Creator": None})
        fig.savefig(raster, format="png", dpi=200, facecolor="white", metadata={"Software": None})
    plt.close(fig)  # otherwise the inline backend would show it a second time
    return vector.getvalue(), raster.getvalue()


def csv_text(table: Any, name: str) -> str:
    """Return a table as CSV with Unix line ends; floats keep 10 significant digits, missing values are empty."""
    header, rows = _columns(table, name)
    if not header or not rows:
        raise ReportError(
            f"expected the rows that figure {name!r} was drawn from, received an empty table; pass them"
        )
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(header)
    writer.writerows([_cell(value) for value in row] for row in rows)
    return stream.getvalue()


def _columns(table: Any, name: str) -> tuple[list[str], list[Sequence[Any]]]:
    if hasattr(table, "to_dict") and hasattr(table, "columns"):  # a DataFrame, without importing pandas here
        named = [level for level in table.index.names if level is not None]
        table = table.reset_index() if named else table
        header = [" ".join(map(str, c)) if isinstance(c, tuple) else str(c) for c in table.columns]
        return header, list(table.itertuples(index=False, name=None))
    if isinstance(table, Mapping):
        columns = [list(column) for column in table.values()]
        if len({len(column) for column in columns}) > 1:
            raise ReportError(
                f"expected columns of one length for figure {name!r}, received unequal ones; pad them"
            )
        return list(map(str, table)), list(zip(*columns, strict=True))
    if isinstance(table, Iterable):
        entries = list(table)
        if all(isinstance(entry, Mapping) for entry in entries):
            header = list(dict.fromkeys(str(key) for entry in entries for key in entry))
            return header, [[entry.get(key) for key in header] for entry in entries]
    raise ReportError(
        f"expected a DataFrame, a mapping of columns or a list of mappings for figure {name!r}, "
        f"received {type(table).__name__}; convert it"
    )


def _cell(value: Any) -> Any:
    if value is None:
        return ""
    number = value.item() if hasattr(value, "item") and getattr(value, "ndim", 1) == 0 else value
    if isinstance(number, float):
        return "" if math.isnan(number) else f"{number:.10g}"
    return number
