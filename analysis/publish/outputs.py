"""Cell outputs as HTML: figures with captions, tables, code and text, free of anything that differs between runs."""

from __future__ import annotations

import html
import re
import zlib
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

from analysis.errors import ReportError
from analysis.publish.marks import slim
from analysis.publish.style import INK, RULE, SINGLE_COLUMN
from analysis.publish.tables import set_tables

_ANSI = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
_ADDRESS = re.compile(r"\b0x[0-9a-f]{6,}\b")
_SCRIPT = re.compile(r"<script\b.*?</script>", re.DOTALL | re.IGNORECASE)
_STYLER = re.compile(r"T_[0-9a-f]{5}(?=[_\s\"'>])")
OFTEN = 100  # uses of a mark from which on the length of its id weighs
_SVG_ID = re.compile(r'(\bid="|href="#|url\(#)([^")]+)')


@dataclass(kw_only=True)
class Outputs:
    """Renders the outputs of one notebook; `printed` leaves colours as they are, for paper."""

    name: str
    printed: bool = False
    command: str = ""  # draws the figures of this notebook again
    figures: list[str] = field(default_factory=list)
    tables: int = 0

    def figure(self, output: Mapping[str, Any]) -> str:
        """Return an SVG output: with caption, anchor and data when it came from `save_figure`, bare otherwise."""
        described = output.get("metadata", {}).get("figure")
        svg = output["data"]["image/svg+xml"]
        svg = svg if isinstance(svg, str) else "".join(svg)
        if not described:
            alt = output["data"].get("text/plain", "figure")
            return self._plain_figure(self._svg(svg, f"{self.name}-image{len(self.figures)}"), alt)
        anchor = f"fig-{described['name']}"
        if anchor in self.figures:
            raise ReportError(
                f"notebook {self.name!r} shows figure {described['name']!r} twice; rename one of them"
            )
        self.figures.append(anchor)
        alt = html.escape(described["alt"])
        link = f'<a class="number" href="#{anchor}">Figure <span data-number="{anchor}"></span></a>'
        parts = "".join(_part(label, text) for label, text in described["caption"] if label != "Measured")
        measured = self._measured(dict(described["caption"]).get("Measured", ""))
        address = f"data:text/csv;charset=utf-8,{quote(described['csv'], safe=' ,.;:/()+*=-_')}"
        download = (
            f'<p class="detail"><a download="{described["name"]}.csv" href="{address}">Data (CSV)</a></p>'
        )
        return (
            f'<figure id="{anchor}"><div class="{_kind(svg)}" role="img" aria-label="{alt}">{self._svg(svg, anchor)}</div>'
            f"<figcaption><p>{link} {parts}{measured}{'' if self.printed else download}</figcaption></figure>"
        )

    def _measured(self, text: str) -> str:
        """Return how a figure was measured and the command that draws it again: folded on the screen, open on paper."""
        again = _part("Draw it again", self.command, kind="code") if self.command else ""
        body = (_part("Measured", text) if text else "") + again
        if self.printed or not body:
            return body
        return f'<details class="measured"><summary>How this was measured</summary>{body}</details>'

    def image(self, output: Mapping[str, Any], kind: str) -> str:
        """Return a bitmap output as an embedded picture."""
        alt = html.escape(output["data"].get("text/plain", "image"))
        return f'<figure><img alt="{alt}" src="data:{kind};base64,{output["data"][kind].strip()}"></figure>'

    def table(self, content: str | list[str]) -> str:
        """Return an HTML output without scripts and random ids; tables scroll in a box of their own."""
        content = content if isinstance(content, str) else "".join(content)
        content = _SCRIPT.sub("", content)
        for random_id in dict.fromkeys(_STYLER.findall(content)):
            self.tables += 1
            content = content.replace(random_id, f"{self.name}-table{self.tables}")
        if self.printed:  # a fold cannot be opened on paper
            content = content.replace("<details ", "<details open ")
        return set_tables(content) if "<table" in content else f'<div class="html">{content}</div>'

    def _plain_figure(self, svg: str, alt: str) -> str:
        return f'<figure><div class="{_kind(svg)}" role="img" aria-label="{html.escape(alt)}">{svg}</div></figure>'

    def _svg(self, svg: str, prefix: str) -> str:
        """Make an SVG file part of the page: no prologue, ids of its own, neutral colours that follow the theme."""
        if "<svg" not in svg:
            raise ReportError(
                f"notebook {self.name!r} shows a picture without an <svg> element; draw it again"
            )
        svg = svg[svg.index("<svg") :]
        svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
        svg = svg if self.printed else slim(svg)  # printing engines read the older form of links only
        svg = _SVG_ID.sub(rf"\1{prefix}-\2", svg).replace("<svg ", '<svg aria-hidden="true" ', 1)
        if not self.printed:
            svg = _short_marks(svg)
            svg = svg.replace(INK, f"var(--ink, {INK})").replace(RULE, f"var(--rule, {RULE})")
        return svg


def _short_marks(svg: str) -> str:
    """Give marks that are drawn hundreds of times a short id, still one that no other figure has."""
    for name, times in Counter(re.findall(r'<use href="#([^"]+)"', svg)).items():
        if times > OFTEN:
            short = f"m{zlib.crc32(name.encode()):08x}"
            svg = svg.replace(f'"#{name}"', f'"#{short}"').replace(f'id="{name}"', f'id="{short}"')
    return svg


def _kind(svg: str) -> str:
    """A two-column drawing keeps a readable width on a narrow screen and scrolls in its box."""
    width = re.search(r'<svg\b[^>]*\bwidth="([\d.]+)pt"', svg)
    return "drawing wide" if width and float(width.group(1)) > 72 * SINGLE_COLUMN * 1.5 else "drawing"


def _part(label: str, text: str, *, kind: str = "") -> str:
    said = f"<{kind}>{html.escape(text)}</{kind}>" if kind else html.escape(text)
    return f"{said}</p>" if label == "Shown" else f'<p class="detail"><b>{html.escape(label)}</b> {said}</p>'


def plain_text(text: str | list[str]) -> str:
    """Return terminal text as HTML: no colour codes, only the last state of a rewritten line, no memory addresses."""
    text = _ANSI.sub("", text if isinstance(text, str) else "".join(text))
    lines = [line.rstrip("\r").rsplit("\r", 1)[-1] for line in text.split("\n")]
    return html.escape(_ADDRESS.sub("0x…", "\n".join(lines)).strip("\n"))


def code_html(source: str) -> str:
    """Return Python source as highlighted HTML."""
    from pygments import highlight
    from pygments.formatters import HtmlFormatter
    from pygments.lexers import get_lexer_by_name

    return highlight(source, get_lexer_by_name("ipython3"), HtmlFormatter(nowrap=False, cssclass="highlight"))


def parameters_html(cell: Mapping[str, Any], name: str, values: Mapping[str, Any]) -> str:
    """Return the parameters cell as a table: name, type, the value of this run, meaning."""
    from analysis.publish.parameters import declared

    rows = "".join(
        f"<tr><th scope='row'><code>{parameter.name}</code></th><td>{html.escape(parameter.expected())}</td>"
        f"<td><code>{html.escape(repr(values.get(parameter.name, parameter.default)))}</code></td>"
        f"<td>{html.escape(parameter.description)}</td></tr>"
        for parameter in declared({"cells": [cell]}, name).values()
    )
    head = "<tr><th scope='col'>name</th><th scope='col'>type</th><th scope='col'>value</th><th scope='col'>meaning</th></tr>"
    return (
        "<details class='code parameters'><summary>Parameters</summary><div class='scroll' tabindex='0' role='region' "
        f"aria-label='Parameters'><table class='unsorted'><thead>{head}</thead><tbody>{rows}</tbody></table></div></details>"
    )
