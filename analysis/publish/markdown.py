"""The text of a notebook as HTML: headings with permanent anchors, formulas as SVG, pictures embedded."""

from __future__ import annotations

import base64
import html
import mimetypes
import re
import urllib.parse
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from nbconvert.filters.markdown_mistune import IPythonRenderer, MarkdownWithMath

from analysis import paths
from analysis.errors import ReportError
from analysis.publish.mathematics import Formulas

_IMG = re.compile(r"<img\b[^>]*>", re.IGNORECASE)
_SRC = re.compile(r"""\bsrc\s*=\s*("([^"]*)"|'([^']*)')""", re.IGNORECASE)
_ALT = re.compile(r"""\balt\s*=\s*("[^"]+"|'[^']+')""", re.IGNORECASE)
_LOCAL_LINK = re.compile(r'<a href="#([^"]+)"')


@dataclass(frozen=True, kw_only=True)
class Heading:
    """One entry of the table of contents."""

    anchor: str
    level: int
    html: str


@dataclass(kw_only=True)
class Text:
    """Renders the markdown cells of one notebook and collects its headings."""

    name: str
    folder: Path
    formulas: Formulas
    headings: list[Heading] = field(default_factory=list)

    def render(self, source: str, attachments: Mapping[str, Any] | None = None) -> str:
        """Return a markdown cell as HTML; raise ReportError for a bad formula or a picture that cannot be embedded."""
        try:
            body = MarkdownWithMath(renderer=_Renderer(self)).render(source)
        except ReportError as error:
            raise ReportError(f"notebook {self.name!r}: {error}") from None
        body = re.sub(r"<p>(\s*<div class=\"formula-block\">.*?</div>\s*)</p>", r"\1", body, flags=re.DOTALL)
        return _IMG.sub(lambda match: self._embed(match.group(), attachments or {}), body)

    def heading(self, content: str, level: int) -> str:
        """Return a heading with an anchor that is unique in the report and a visible link to it."""
        slug = slugify(content)
        anchor = self.name if level == 1 and not self.headings else f"{self.name}-{slug}"
        taken = {entry.anchor for entry in self.headings}
        number = 2
        while anchor in taken:
            anchor, number = f"{self.name}-{slug}-{number}", number + 1
        self.headings.append(Heading(anchor=anchor, level=level, html=content))
        label = html.escape(plain(content))
        link = f'<a class="anchor" href="#{anchor}" aria-label="Link to {label}">#</a>'
        return f'<h{level} id="{anchor}">{content} {link}</h{level}>\n'

    def _embed(self, tag: str, attachments: Mapping[str, Any]) -> str:
        found = _SRC.search(tag)
        if not found:
            return tag
        if not _ALT.search(tag):
            raise ReportError(
                f"notebook {self.name!r}: expected a picture with alternative text, received {tag}; add it"
            )
        address = html.unescape(found.group(2) or found.group(3) or "")
        if address.startswith("data:"):
            return tag
        data = self._attachment(address, attachments) or self._file(address)
        return tag[: found.start()] + f'src="{data}"' + tag[found.end() :]

    def _attachment(self, address: str, attachments: Mapping[str, Any]) -> str | None:
        if not address.startswith("attachment:"):
            return None
        content = attachments.get(urllib.parse.unquote(address.removeprefix("attachment:")))
        if not content:
            raise ReportError(
                f"notebook {self.name!r}: expected the attached picture {address!r}, received none; attach it"
            )
        kind, data = next(iter(content.items()))
        return f"data:{kind};base64,{''.join(data).strip()}"

    def _file(self, address: str) -> str:
        path = self.folder / urllib.parse.unquote(address)
        if urllib.parse.urlsplit(address).scheme or not path.is_file():
            raise ReportError(
                f"notebook {self.name!r}: expected a picture file beside the notebook, received {address!r}; "
                "store it there, since the report must open without a network"
            )
        kind = mimetypes.guess_type(path.name)[0] or "application/octet-stream"
        return f"data:{kind};base64,{base64.b64encode(path.read_bytes()).decode()}"


class _Renderer(IPythonRenderer):
    """nbconvert's markdown renderer with our headings and formulas."""

    def __init__(self, text: Text) -> None:
        super().__init__(escape=False, exclude_anchor_links=True)
        self._text = text

    def heading(self, text: str, level: int, **attrs: Any) -> str:
        return self._text.heading(text, level)

    def block_math(self, body: str) -> str:
        return self._text.formulas.display(body)

    def inline_math(self, body: str) -> str:
        return self._text.formulas.inline(body)

    def latex_environment(self, name: str, body: str) -> str:
        return self._text.formulas.display(f"\\begin{{{name}}}{body}\\end{{{name}}}")


def slugify(content: str) -> str:
    """Return the anchor of a heading: its words in lower case, joined by hyphens."""
    return re.sub(r"[^\w]+", "-", plain(content).lower()).strip("-") or "section"


def plain(content: str) -> str:
    """Return HTML as plain text, formulas by their TeX source."""
    content = re.sub(
        r'<svg aria-label="([^"]*)".*?</svg>',
        lambda m: m.group(1).replace("\\", ""),
        content,
        flags=re.DOTALL,
    )
    return html.unescape(re.sub(r"<[^>]+>", "", content)).strip()


def localise_links(body: str, name: str, anchors: set[str]) -> str:
    """Point `#slug` links of one notebook at its own anchors, and drop those to notebooks that this report leaves out.

    Raises ReportError for a link that leads nowhere.
    """

    def target(match: re.Match[str]) -> str:
        address = html.unescape(urllib.parse.unquote(match.group(1)))
        own = f"{name}-{address.lower()}"
        for candidate in (address, own, f"{name}-{slugify(address)}"):
            if candidate in anchors:
                return f'<a href="#{candidate}"'
        if (paths.NOTEBOOKS / f"{address}.ipynb").is_file():
            return "<a"  # a placeholder link: the text stays, nothing to click
        raise ReportError(
            f"notebook {name!r}: expected a link to a heading or figure, received '#{address}'; correct it"
        )

    return _LOCAL_LINK.sub(target, body)
