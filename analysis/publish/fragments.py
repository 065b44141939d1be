"""One executed notebook as an HTML fragment, by nbconvert with the report's own template."""

from __future__ import annotations

import html
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from analysis.errors import ReportError
from analysis.publish.executed import Executed
from analysis.publish.markdown import Heading, Text
from analysis.publish.mathematics import Formulas
from analysis.publish.outputs import Outputs, code_html, parameters_html, plain_text
from analysis.publish.parameters import declared
from analysis.publish.provenance import STAMP

TEMPLATES = Path(__file__).resolve().parent / "templates"
SHOWN = (  # the form of an output that the report takes, best first
    "image/svg+xml",
    "text/html",
    "text/markdown",
    "text/latex",
    "image/png",
    "image/jpeg",
    "text/plain",
)
TITLE_TAG = "title-page"  # its outputs are copied to the title page of the PDF


@dataclass(frozen=True, kw_only=True)
class Fragment:
    """The HTML of one notebook with what the page around it needs to know."""

    name: str
    body: str
    headings: tuple[Heading, ...]
    figures: tuple[str, ...]
    title_page: str
    provenance: Mapping[str, Any]
    failure: str = ""
    claims: tuple[Mapping[str, str], ...] = ()


def render(executed: Executed, formulas: Formulas, *, printed: bool) -> Fragment:
    """Return the fragment of an executed notebook; `printed` leaves out the code and keeps colours as they are.

    Raises ReportError when the notebook has no title, or for a formula, picture or figure that cannot be shown.
    """
    text = Text(name=executed.name, folder=executed.folder, formulas=formulas)
    outputs = Outputs(name=executed.name, printed=printed, command=_command(executed))
    exporter = _exporter(executed, text, outputs)
    notebook = executed.notebook
    body, _ = exporter.from_notebook_node(notebook, resources={"report": {"code": not printed}})
    if not text.headings or text.headings[0].level != 1:
        raise ReportError(
            f"expected notebook {executed.name!r} to open with a '# Title', received none; add it"
        )
    return Fragment(
        name=executed.name,
        body=body.strip(),
        headings=tuple(text.headings),
        figures=tuple(outputs.figures),
        title_page=_title_page(notebook, outputs),
        provenance=notebook.metadata.get(STAMP, {}),
        failure=describe_failure(executed),
        claims=_claims(notebook),
    )


def _claims(notebook: Any) -> tuple[Mapping[str, str], ...]:
    """Return what the claim tables of a notebook say, as values."""
    return tuple(
        claim
        for cell in notebook.cells
        for output in cell.get("outputs", [])
        for claim in output.get("metadata", {}).get("claims", ())
    )


def _command(executed: Executed) -> str:
    """Return the command that draws this notebook's figures again with the parameters of this run."""
    values = executed.notebook.metadata.get(STAMP, {}).get("parameters", {})
    declarations = declared({"cells": executed.notebook.cells}, executed.name)
    changed = {
        name: value
        for name, value in values.items()
        if name in declarations and value != declarations[name].default
    }
    written = {
        name: value if isinstance(value, str) else repr(value).replace("'", '"')
        for name, value in changed.items()
    }
    settings = "".join(f" --set {shlex.quote(f'{name}={text}')}" for name, text in written.items())
    place = (
        " --output own-figures" if "checkpoint" in changed else ""
    )  # figures/ holds those of the shipped models
    return f"ttt-analysis figures --only {executed.name} --fresh{place}{settings}"


def describe_failure(executed: Executed) -> str:
    """Return one sentence naming notebook, code cell and cause, or '' for a complete notebook."""
    if executed.failure is None:
        return ""
    cause = executed.failure.text.strip().splitlines()
    text = f"{executed.failure.name}: {cause[0]}" if cause else executed.failure.name
    return f"notebook {executed.name!r} stopped in code cell {executed.failure.cell} with {text}"


def _exporter(executed: Executed, text: Text, outputs: Outputs) -> Any:
    from nbconvert import HTMLExporter
    from traitlets.config import Config

    exporter: Any = HTMLExporter(  # type: ignore[no-untyped-call]
        config=Config({"NbConvertBase": {"display_data_priority": list(SHOWN)}}),
        template_name="fragment",
        extra_template_basedirs=[str(TEMPLATES)],
    )
    values = executed.notebook.metadata.get(STAMP, {}).get("parameters", {})
    filters = {
        "has_tag": lambda cell, tag: tag in cell.get("metadata", {}).get("tags", []),
        "cell_text": text.render,
        "code_html": code_html,
        "plain_text": plain_text,
        "figure_html": outputs.figure,
        "image_html": outputs.image,
        "table_html": outputs.table,
        "latex_html": partial(_latex, text),
        "parameters_html": lambda cell: parameters_html(cell, executed.name, values),
    }
    for name, function in filters.items():
        exporter.register_filter(name, function)
    return exporter


def _latex(text: Text, source: str | list[str]) -> str:
    tex = (source if isinstance(source, str) else "".join(source)).strip()
    return text.formulas.display(tex.strip("$").replace("\\displaystyle", "", 1))


def _title_page(notebook: Any, outputs: Outputs) -> str:
    found = []
    for cell in notebook.cells:
        if TITLE_TAG not in cell.metadata.get("tags", []):
            continue
        for output in cell.get("outputs", []):
            data = output.get("data", {})
            if "text/html" in data:
                found.append(outputs.table(data["text/html"]))
            elif output.get("name") == "stdout":
                found.append(f"<p>{html.escape(''.join(output['text']).strip())}</p>")
    return "".join(found)
