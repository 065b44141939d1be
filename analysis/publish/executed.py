"""An executed notebook: complete or failed, kept in the cache under the key of its inputs."""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import nbformat

from analysis import paths
from analysis.publish.figures import write_figure
from analysis.publish.provenance import STAMP

KEPT = 4  # executed versions of one notebook that stay in the cache
ERROR_MARKER = "papermill-error-cell-tag"
INJECTED = "injected-parameters"


@dataclass(frozen=True, kw_only=True)
class Failure:
    """The first error of a notebook: which code cell (counted from 1), the error's name and its text."""

    cell: int
    name: str
    text: str


@dataclass(frozen=True, kw_only=True)
class Executed:
    """A notebook after its run: complete, or with the failure that stopped it."""

    name: str
    folder: Path
    notebook: Any
    key: str
    cached: bool = False
    failure: Failure | None = None


def read_output(output: Path, source: Path) -> Any:
    """Read the executed notebook, or the source when nothing was saved, without the marker cells of the runner."""
    notebook = nbformat.read(output if output.is_file() else source, as_version=4)  # type: ignore[no-untyped-call]
    notebook.cells = [cell for cell in notebook.cells if ERROR_MARKER not in _tags(cell)]
    return notebook


def _tags(cell: Any) -> Sequence[str]:
    return cell.get("metadata", {}).get("tags", [])


def last_started(notebook: Any) -> int:
    """Return the position, among the author's code cells from 1, of the last cell that began to run."""
    position, last = 0, 0
    for cell in notebook.cells:
        if cell.cell_type != "code":
            continue
        position += INJECTED not in _tags(cell)
        if cell.metadata.get("papermill", {}).get("start_time"):
            last = position
    return max(last, 1)


def forget_run_details(notebook: Any) -> None:
    """Drop times and paths of this run: an executed notebook depends on its inputs alone, but for its stamp."""
    notebook.metadata.pop("papermill", None)
    notebook.metadata.pop("widgets", None)
    for cell in notebook.cells:
        for name in ("papermill", "execution"):
            cell.metadata.pop(name, None)


def store(executed: Executed, output: Path) -> None:
    """Put a complete notebook into the cache by way of `output`, and drop all but the newest versions of it."""
    folder = paths.CACHE / "executed"
    folder.mkdir(parents=True, exist_ok=True)
    nbformat.write(executed.notebook, output)  # type: ignore[no-untyped-call]
    os.replace(output, folder / f"{executed.name}-{executed.key[:20]}.ipynb")
    versions = sorted(folder.glob(f"{executed.name}-{'?' * 20}.ipynb"), key=lambda file: file.stat().st_mtime)
    for old in versions[:-KEPT]:
        old.unlink(missing_ok=True)


def load(path: Path, key: str) -> Executed | None:
    """Return the complete notebook that was executed under `key`, or None; a damaged one counts as none."""
    file = paths.CACHE / "executed" / f"{path.stem}-{key[:20]}.ipynb"
    if not file.is_file():
        return None
    try:
        text = file.read_text(encoding="utf-8")
        if json.loads(text)["metadata"][STAMP]["key"] != key:
            return None
    except (ValueError, LookupError, TypeError, RecursionError):
        return None
    notebook = nbformat.reads(text, as_version=4)  # type: ignore[no-untyped-call]
    return Executed(name=path.stem, folder=path.parent, notebook=notebook, key=key, cached=True)


def restore_figures(executed: Executed, folder: Path) -> None:
    """Write the figure files that a reused notebook carries into a folder, where they are missing or another run's."""
    for cell in executed.notebook.cells:
        for output in cell.get("outputs", []):
            figure = output.get("metadata", {}).get("figure")
            if not figure:
                continue
            name, svg, text = figure["name"], output["data"]["image/svg+xml"], figure["csv"]
            carried = {"svg": svg, "csv": text}
            if not all(_holds(folder / f"{name}.{kind}", content) for kind, content in carried.items()):
                write_figure(name, svg, base64.b64decode(output["data"]["image/png"]), text, folder)


def _holds(file: Path, content: str) -> bool:
    return file.is_file() and file.read_bytes() == content.encode()
