"""What makes a drawn figure explorable in the report: marks that name the rows they were drawn from, written compactly.

A mark is an id inside the SVG and nothing else, so a printed figure and one without scripts look as they always did:

    rows-START-STOP     this artist's points are the rows START..STOP-1 of the figure's CSV, in that order
    slider-COLUMN       the figure gets a slider over the values of that column
"""

from __future__ import annotations

import re
from typing import Any

_POINTS = re.compile(r"<g( clip-path=\"[^\"]+\")?>\s*((?:<use [^>]*/>\s*)+)</g>")
_USE = re.compile(r'<use xlink:href="([^"]+)" x="([^"]+)" y="([^"]+)" style="([^"]+)"/>')
FEW = 8  # points; a group this small is left as it was drawn


def mark_rows(artist: Any, start: int, stop: int) -> None:
    """Say that an artist's points are the rows start..stop-1 of the table.

    Takes what `scatter` or `errorbar` returns, a line (with markers or without), or one bar.
    """
    drawn = artist.lines[0] if hasattr(artist, "lines") and hasattr(artist, "has_yerr") else artist
    drawn.set_gid(f"rows-{start}-{stop}")


def mark_slider(figure: Any, column: str) -> None:
    """Give a figure a slider over the values of one column of its table."""
    figure.set_gid(f"slider-{slug(column)}")


def slug(column: str) -> str:
    """Return a column's name as it stands in an id."""
    return re.sub(r"[^a-z0-9]+", "_", column.lower()).strip("_")


def slim(svg: str) -> str:
    """Return an SVG whose clouds of equal points carry their style once, with coordinates to a hundredth of a point."""
    return _POINTS.sub(_slim_group, svg)


def _slim_group(match: re.Match[str]) -> str:
    clip, body = match.group(1) or "", match.group(2)
    uses = _USE.findall(body)
    if len(uses) < FEW or len(uses) != body.count("<use ") or len({(use[0], use[3]) for use in uses}) != 1:
        return match.group()
    points = "".join(f'<use href="{href}" x="{float(x):.2f}" y="{float(y):.2f}"/>' for href, x, y, _ in uses)
    return f'<g{clip} style="{uses[0][3]}">{points}</g>'
