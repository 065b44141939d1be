"""All fragments as one self-contained page: contents, numbered figures, style and script inside."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

from analysis.errors import ReportError
from analysis.publish.claims import Origin
from analysis.publish.fragments import TEMPLATES, Fragment
from analysis.publish.markdown import Heading, localise_links
from analysis.publish.typeface import font_faces

SCRIPTS = ("report.js", "figures.js")
_LOADING = {"src", "srcset", "poster", "data", "xlink:href", "action", "background"}
_CSS_ADDRESS = re.compile(r"""url\(\s*["']?(?!data:|#)[^)]+\)|@import\b""", re.IGNORECASE)


@dataclass(frozen=True, kw_only=True)
class Build:
    """What the page says about itself; `line` alone may differ between two builds of the same inputs."""

    title: str
    subtitle: str
    line: str
    warning: str = ""


def render_page(
    fragments: Sequence[Fragment], build: Build, *, printed: bool, pages: Mapping[str, int] | None = None
) -> str:
    """Return the report as one HTML text; `pages` are the page numbers of anchors, for the printed contents.

    Raises ReportError when two fragments show the same figure, a link leads nowhere, or anything would be fetched
    from an address.
    """
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    numbers = _number_figures(fragments)
    claims = _claims(fragments)
    anchors = {heading.anchor for part in fragments for heading in part.headings} | set(numbers)
    anchors |= {f"claim-{key}" for key in claims}
    placed: set[str] = set()
    folder = TEMPLATES / "page"
    sheets = ["report.css", "print.css"] if printed else ["report.css"]
    jinja = Environment(loader=FileSystemLoader(folder), undefined=StrictUndefined, autoescape=False)
    page = jinja.get_template("page.html.j2").render(
        build=build,
        sections=[
            {
                "part": part,
                "body": _place_claims(_finish(part.body, part.name, numbers, anchors), placed),
                "contents": [_entry(heading) for heading in part.headings if heading.level <= 2],
            }
            for part in fragments
        ],
        title_page="".join(
            _place_claims(_finish(part.title_page, part.name, numbers, anchors), placed) for part in fragments
        ),
        claims=json.dumps({"claims": list(claims.values())}, ensure_ascii=False, indent=0).replace(
            "</", "<\\/"
        ),
        style="\n".join([font_faces(), *(_read(folder / sheet) for sheet in sheets)]),
        script="\n".join(_read(folder / name) for name in SCRIPTS),
        printed=printed,
        pages=pages or {},
    )
    check_self_contained(page)
    return page


def _read(file: Path) -> str:
    return file.read_text(encoding="utf-8")


def _number_figures(fragments: Sequence[Fragment]) -> dict[str, int]:
    numbers: dict[str, int] = {}
    for part in fragments:
        for anchor in part.figures:
            if anchor in numbers:
                raise ReportError(
                    f"notebook {part.name!r} shows figure {anchor.removeprefix('fig-')!r}, which another one shows too; "
                    "give every figure its own name"
                )
            numbers[anchor] = len(numbers) + 1
    return numbers


def _finish(body: str, name: str, numbers: Mapping[str, int], anchors: set[str]) -> str:
    """Resolve the links of a fragment and print the numbers of its figures."""
    body = localise_links(body, name, anchors)
    body = re.sub(r'<span data-number="([^"]+)"></span>', lambda match: str(numbers[match.group(1)]), body)
    return re.sub(
        r'<a href="#(fig-[^"]+)">(Figure|Fig\.|figure)</a>',
        lambda match: f'<a href="#{match.group(1)}">{match.group(2)} {numbers[match.group(1)]}</a>',
        body,
    )


def _claims(fragments: Sequence[Fragment]) -> dict[str, Mapping[str, str]]:
    """Return every claim by its key, as the first notebook that shows it says.

    What a notebook measured on a checkpoint that was passed in is told apart from what it measured on a shipped one.
    """
    found: dict[str, Mapping[str, str]] = {}
    for part in fragments:
        is_own = bool(part.provenance.get("parameters", {}).get("checkpoint"))
        for claim in part.claims:
            if is_own and claim.get("origin") == Origin.HERE.value:
                claim = {**claim, "origin": Origin.OWN.value}
            found.setdefault(claim["key"], claim)
    return found


def _place_claims(body: str, placed: set[str]) -> str:
    """Keep the anchor of a claim where it is shown first; other tables that show it link there."""

    def place(match: re.Match[str]) -> str:
        if match.group(1) in placed:
            return ""
        placed.add(match.group(1))
        return match.group()

    return re.sub(r""" id=["'](claim-[^"']+)["']""", place, body)


def _entry(heading: Heading) -> dict[str, Any]:
    """A heading for the contents: its formulas get ids of their own, its links lose their target."""
    content = re.sub(r'(\bid="|href="#)tex', r"\1toc-tex", heading.html)
    return {"anchor": heading.anchor, "level": heading.level, "html": re.sub(r"</?a\b[^>]*>", "", content)}


class _Inspector(HTMLParser):
    """Collects whatever would make a browser fetch something, and ids that occur twice."""

    def __init__(self) -> None:
        super().__init__()
        self.fetched: list[str] = []
        self.ids: set[str] = set()
        self.doubled: list[str] = []
        self._style = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._style = tag == "style"
        for name, value in attrs:
            value = value or ""
            fetching = name in _LOADING or (name == "href" and tag in ("link", "image", "use", "base"))
            if fetching and not value.startswith(("data:", "#")):
                self.fetched.append(f'<{tag} {name}="{value[:80]}">')
            if name == "style" and _CSS_ADDRESS.search(value):
                self.fetched.append(f'<{tag} style="{value[:80]}">')
            if name == "id":
                (self.doubled.append if value in self.ids else self.ids.add)(value)
        if tag in ("iframe", "object", "embed"):
            self.fetched.append(f"<{tag}>")

    def handle_endtag(self, tag: str) -> None:
        self._style = False

    def handle_data(self, data: str) -> None:
        if self._style and (found := _CSS_ADDRESS.search(data)):
            self.fetched.append(found.group()[:80])


def check_self_contained(page: str) -> None:
    """Raise ReportError when the page would fetch anything, or uses an id twice."""
    inspector = _Inspector()
    inspector.feed(page)
    if inspector.fetched:
        raise ReportError(
            f"expected a report that opens without a network, received {inspector.fetched[0]}; embed it in the notebook"
        )
    if inspector.doubled:
        raise ReportError(
            f"expected every id once in the report, received {inspector.doubled[0]!r} twice; rename one"
        )
