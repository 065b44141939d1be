"""The printed report: the same fragments with page style, by PlutoPrint or by a Chromium on the machine."""

from __future__ import annotations

import importlib.util
import io
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from analysis.errors import DependencyError, ParameterError, ReportError, closest
from analysis.publish.fragments import Fragment
from analysis.publish.markdown import plain

ENGINES = ("auto", "plutoprint", "chromium", "none")
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
CHROMIUM_FLAGS = (
    "--headless",
    "--no-sandbox",  # containers run as root
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-pdf-header-footer",
    "--generate-pdf-document-outline",
)
SECONDS = 300  # for one run of a browser

Render = Callable[[Mapping[str, int]], str]


def choose_engine(engine: str) -> str:
    """Return the engine to use; `auto` prefers PlutoPrint, then a browser.

    Raises ParameterError for an unknown name, DependencyError when nothing on this machine can make a PDF.
    """
    if engine not in ENGINES:
        raise ParameterError(
            f"pdf_engine must be one of {', '.join(ENGINES)}, received {engine!r}{closest(engine, ENGINES)}; choose one"
        )
    available = {
        "plutoprint": importlib.util.find_spec("plutoprint") is not None,
        "chromium": find_browser() is not None,
        "none": True,
    }
    if engine != "auto" and available[engine]:
        return engine
    wanted = [name for name in ("plutoprint", "chromium") if available[name]] if engine == "auto" else []
    if not wanted:
        missing = "PlutoPrint or a Chromium browser" if engine == "auto" else engine
        raise DependencyError(
            f"the PDF needs {missing}, which this machine does not have; run `pip install plutoprint`, install Chromium, "
            "or read report/index.html"
        )
    return wanted[0]


def find_browser() -> str | None:
    """Return the path of a Chromium-like browser, or None."""
    return next((path for name in BROWSERS if (path := shutil.which(name))), None)


def write_pdf(
    render: Render, fragments: Sequence[Fragment], engine: str, target: Path, *, title: str
) -> None:
    """Write the printed report to `target` with page numbers in the contents and an outline.

    `render` returns the printed page for given page numbers of anchors: it is laid out once to learn them, and once
    more to print them. Raises ReportError when the engine fails.
    """
    make = {"plutoprint": _plutoprint, "chromium": _chromium}[engine]
    first = make(render({}))
    pages = _destinations(first)
    final = make(render(pages))
    _write_outlined(final, fragments, target, title)


def _plutoprint(page: str) -> bytes:
    import plutoprint

    try:
        book = plutoprint.Book(plutoprint.PAGE_SIZE_A4)
        book.load_html(page, base_url="report:/page.html")
        stream = io.BytesIO()
        book.write_to_pdf_stream(stream)
    except plutoprint.Error as error:
        raise ReportError(
            f"PlutoPrint could not lay out the report ({error}); try --pdf-engine chromium"
        ) from error
    return stream.getvalue()


def _chromium(page: str) -> bytes:
    browser = find_browser()
    with tempfile.TemporaryDirectory() as folder:
        source, output = Path(folder, "page.html"), Path(folder, "page.pdf")
        source.write_text(page, encoding="utf-8")
        command = [
            str(browser),
            *CHROMIUM_FLAGS,
            f"--user-data-dir={folder}/profile",
            f"--print-to-pdf={output}",
        ]
        try:
            done = subprocess.run(
                [*command, source.as_uri()], capture_output=True, text=True, timeout=SECONDS
            )
        except subprocess.TimeoutExpired:
            raise ReportError(
                f"{browser} took longer than {SECONDS} s; try --pdf-engine plutoprint"
            ) from None
        if not output.is_file():
            last = (done.stderr.strip().splitlines() or ["no message"])[-1]
            raise ReportError(f"{browser} made no PDF ({last}); try --pdf-engine plutoprint")
        return output.read_bytes()


def _destinations(content: bytes) -> dict[str, int]:
    """Return the page number, from 1, of every anchor."""
    from pypdf import PdfReader

    reader = PdfReader(io.BytesIO(content))
    found = {}
    for name, destination in reader.named_destinations.items():
        number = reader.get_destination_page_number(destination)
        if number is not None:
            found[name.lstrip("/")] = number + 1
    return found


def _write_outlined(content: bytes, fragments: Sequence[Fragment], target: Path, title: str) -> None:
    from pypdf import PdfReader, PdfWriter
    from pypdf.generic import Fit

    reader = PdfReader(io.BytesIO(content))
    places = {name.lstrip("/"): place for name, place in reader.named_destinations.items()}
    writer = PdfWriter(clone_from=reader)
    if not reader.outline:
        for part in fragments:
            parent: Any = None
            for heading in part.headings:
                place = places.get(heading.anchor)
                if heading.level > 2 or place is None:
                    continue
                number = reader.get_destination_page_number(place)
                spot = Fit.xyz(left=0, top=float(place.top)) if place.top is not None else Fit.fit()
                owner = parent if heading.level == 2 else None
                entry = writer.add_outline_item(
                    title=plain(heading.html), page_number=number, parent=owner, fit=spot
                )
                parent = entry if heading.level == 1 else parent
    writer.add_metadata({"/Title": title})
    writer.write(target)
