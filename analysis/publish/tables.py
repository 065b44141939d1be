"""HTML tables as the report prints them: no row numbers, figures to the right, a box of their own to scroll in."""

from __future__ import annotations

import html
import re

_SCOPED = re.compile(r"<style scoped>.*?</style>", re.DOTALL)
_TABLE = re.compile(r"<table\b[^>]*>.*?</table>", re.DOTALL | re.IGNORECASE)
_ROW = re.compile(r"<tr\b[^>]*>.*?</tr>", re.DOTALL)
_CELL = re.compile(r"<(t[hd])\b([^>]*)>(.*?)</\1>", re.DOTALL)
_NUMBER = re.compile(r"[-+−±]?(\d[\d,]*\.?\d*|\.\d+)(e[-+]?\d+)?\s*%?", re.IGNORECASE)
_BLANK = {"", "—", "–", "-", "nan", "none", "n/a"}
WIDE = 8  # columns; wider tables are set smaller on paper
LONG = 12  # rows; longer tables may go on over the page


def set_tables(content: str) -> str:
    """Return HTML in which every table is set in the report's way; what is not a table stays as it is."""
    content = _SCOPED.sub("", content).replace(' border="1"', "").replace(' style="text-align: right;"', "")
    return _TABLE.sub(
        lambda match: _boxed(_aligned(_without_row_numbers(_one_head(_headed(match.group()))))), content
    )


def _headed(table: str) -> str:
    """Give a table whose first row holds heads alone the <thead> that paper repeats and scripts look for."""
    first = _ROW.search(table)
    if "<thead" in table or first is None or {tag for tag, *_ in _CELL.findall(first.group())} != {"th"}:
        return table
    return table.replace(first.group(), f"<thead>{first.group()}</thead>", 1)


def _one_head(table: str) -> str:
    """Put the names of the index, which pandas sets in a row of their own, into the blank cells of the row above."""
    head = re.search(r"<thead\b[^>]*>.*?</thead>", table, re.DOTALL)
    rows = _ROW.findall(head.group()) if head else []
    if head is None or len(rows) != 2 or "span=" in head.group():
        return table
    upper, lower = ([_text(cell[2]) for cell in _CELL.findall(row)] for row in rows)
    if len(upper) != len(lower) or any(
        bool(over) == bool(under) for over, under in zip(upper, lower, strict=True)
    ):
        return table
    cells = "".join(
        f"<th>{html.escape(over or under)}</th>" for over, under in zip(upper, lower, strict=True)
    )
    return table.replace(head.group(), f"<thead><tr>{cells}</tr></thead>", 1)


def _boxed(table: str) -> str:
    rows = _ROW.findall(table)
    columns = max((len(_CELL.findall(row)) for row in rows), default=0)
    kind = "scroll" + " wide" * (columns > WIDE) + " long" * (len(rows) > LONG)
    return f'<div class="{kind}" role="region" aria-label="Table" tabindex="0">{table}</div>'


def _without_row_numbers(table: str) -> str:
    """Drop pandas' default index 0, 1, 2, …: it says nothing about the rows."""
    rows = _ROW.findall(table)
    first = [cells[0] for row in rows if (cells := _CELL.findall(row))]
    if len(first) < 2 or len(first) != len(rows) or "span=" in table:
        return re.sub(r"<th>(\s*)</th>", r"<td>\1</td>", table)  # an empty head announces nothing
    counted = [("th", str(number)) for number in range(len(first) - 1)]
    if first[0][2].strip() or [(tag, text.strip()) for tag, _, text in first[1:]] != counted:
        return re.sub(r"<th>(\s*)</th>", r"<td>\1</td>", table)
    return _ROW.sub(lambda match: _CELL.sub("", match.group(), count=1), table)


def _aligned(table: str) -> str:
    """Mark the columns that hold numbers alone, so that their digits stand under each other."""
    if "span=" in table:
        return table
    rows = [_CELL.findall(row) for row in _ROW.findall(table)]
    body = [
        [_text(cell[2]) for cell in row]
        for row in rows
        if any(cell[0] == "td" and cell[2].strip() for cell in row)
    ]
    if not body or len({len(row) for row in body}) != 1:
        return table
    columns = list(zip(*body, strict=True))
    numeric = {
        index
        for index, column in enumerate(columns)
        if any(_NUMBER.fullmatch(text) for text in column)
        and all(_NUMBER.fullmatch(text) or text.lower() in _BLANK for text in column)
    }
    return _ROW.sub(lambda match: _mark(match.group(), numeric), table)


def _mark(row: str, numeric: set[int]) -> str:
    cells = iter(range(len(row)))

    def marked(match: re.Match[str]) -> str:
        tag, attributes, text = match.groups()
        if next(cells) not in numeric or "class=" in attributes:
            return match.group()
        return f'<{tag}{attributes} class="number">{text}</{tag}>'

    return _CELL.sub(marked, row)


def _text(cell: str) -> str:
    return html.unescape(re.sub(r"<[^>]+>", "", cell)).strip()
