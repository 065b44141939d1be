"""Run the notebooks and assemble one self-contained HTML page and its PDF; a good report is never replaced by a bad one."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from analysis import paths
from analysis.errors import DependencyError, ReportError
from analysis.publish import provenance
from analysis.publish.executed import Executed
from analysis.publish.fragments import Fragment, describe_failure, render
from analysis.publish.mathematics import Formulas
from analysis.publish.notebooks import require_titles, run_notebooks
from analysis.publish.page import Build, render_page
from analysis.publish.pdf import choose_engine, write_pdf

TITLE = "Test-time training with key-value binding, examined as linear attention"
SUBTITLE = "Every figure, table and verdict of this report is computed by the notebooks that it is made of."
MAX_BYTES = 8_000_000
GENERATOR = '<meta name="generator" content="ttt-analysis">'
"""What the page template says of its origin."""


@dataclass(frozen=True, kw_only=True)
class ReportPaths:
    """Where the report lies: `pdf` is None when none was made, and `note` then says why."""

    html: Path
    pdf: Path | None
    note: str = ""
    reused: int = 0
    executed: int = 0


def build_report(
    notebooks: Sequence[Path] | None = None,
    parameters: Mapping[str, Any] | None = None,
    output: Path | None = None,
    *,
    jobs: int = 2,
    pdf_engine: str = "auto",
    require_pdf: bool = True,
    timeout: int = 1800,
    fresh: bool = False,
    extra_inputs: Sequence[Path] = (),
    title: str = TITLE,
    subtitle: str = SUBTITLE,
) -> ReportPaths:
    """Run the notebooks, or reuse their cached runs, and write `index.html` and `report.pdf` into `output`.

    The HTML is written in any case; `require_pdf` decides whether a PDF that cannot be made is an error after that.
    When a notebook fails, the others still run, the marked partial report goes to `output/failed/`, and the former stays.

    Figures go to `figures/` beside a report in a folder of its own, and to the repository's for its own report.

    Raises ParameterError before anything runs; ReportError naming notebook, cell and cause, or a page at `output` that is
    no report; DependencyError for a required PDF without an engine.
    """
    require_titles(notebooks)
    target = (output or paths.REPORT).resolve()
    _require_own_pages(target)
    with _staging(target) as stage:
        engine, note = _engine(pdf_engine)
        how: dict[str, Any] = {"jobs": jobs, "timeout": timeout, "fresh": fresh, "extra_inputs": extra_inputs}
        executed = run_notebooks(notebooks, parameters, figures=_figures_of(target), **how)
        failures = [sentence for entry in executed if (sentence := describe_failure(entry))]
        build = Build(title=title, subtitle=subtitle, line=_line(executed), warning="; ".join(failures))
        if failures:
            _keep_partial(executed, build, stage, target)
            raise ReportError(
                f"{'; '.join(failures)}; the partial report is {target / 'failed' / 'index.html'}"
            )
        made = _write(executed, build, stage, engine)
        _place(made, stage, target)
    if note and require_pdf:
        raise DependencyError(f"{note} (the HTML report was written)")
    reused = sum(entry.cached for entry in executed)
    pdf = target / "report.pdf" if "report.pdf" in made else None
    return ReportPaths(
        html=target / "index.html", pdf=pdf, note=note, reused=reused, executed=len(executed) - reused
    )


def regenerate_figures(
    notebooks: Sequence[Path] | None = None,
    parameters: Mapping[str, Any] | None = None,
    *,
    figures: Path | None = None,
    **options: Any,
) -> list[Path]:
    """Write every figure again by running the same notebooks, into `figures` or the usual folder; return the SVG files.

    `options` are those of `run_notebooks`. Raises ReportError naming the notebooks that failed.
    """
    folder = paths.FIGURES if figures is None else figures.resolve()
    executed = run_notebooks(notebooks, parameters, figures=folder, **options)
    failures = [sentence for entry in executed if (sentence := describe_failure(entry))]
    if failures:
        raise ReportError("; ".join(failures))
    names = [
        output["metadata"]["figure"]["name"]
        for entry in executed
        for cell in entry.notebook.cells
        for output in cell.get("outputs", [])
        if output.get("metadata", {}).get("figure")
    ]
    return [folder / f"{name}.svg" for name in names]


def _figures_of(target: Path) -> Path:
    """Return the folder of a report's figures: the repository's for its own report, else one beside the report."""
    return paths.FIGURES if target == paths.REPORT.resolve() else target / "figures"


def _place(made: Sequence[str], stage: Path, target: Path) -> None:
    """Move the finished files of a report to where they are read, and remove what belongs to a former one."""
    for file in made:
        os.replace(stage / file, target / file)
    if "report.pdf" not in made:
        (target / "report.pdf").unlink(missing_ok=True)
    shutil.rmtree(target / "failed", ignore_errors=True)


def _engine(pdf_engine: str) -> tuple[str, str]:
    try:
        return choose_engine(pdf_engine), ""
    except DependencyError as error:
        return "none", str(error)


def _write(executed: Sequence[Executed], build: Build, stage: Path, engine: str) -> list[str]:
    """Write the report's files into the staging folder and return their names."""
    page = render_page(_fragments(executed, printed=False), build, printed=False)
    size = len(page.encode())
    if size > MAX_BYTES:
        raise ReportError(
            f"expected a report under {MAX_BYTES / 1e6:.0f} MB, received {size / 1e6:.1f} MB; draw figures with fewer points"
        )
    (stage / "index.html").write_text(page, encoding="utf-8")
    if engine == "none":
        return ["index.html"]
    printed = _fragments(executed, printed=True)
    write_pdf(
        lambda pages: render_page(printed, build, printed=True, pages=pages),
        printed,
        engine,
        stage / "report.pdf",
        title=build.title,
    )
    return ["index.html", "report.pdf"]


def _fragments(executed: Sequence[Executed], *, printed: bool) -> list[Fragment]:
    formulas = Formulas()
    return [render(entry, formulas, printed=printed) for entry in executed]


def _keep_partial(executed: Sequence[Executed], build: Build, stage: Path, target: Path) -> None:
    """Put what could be computed, clearly marked, into `failed/`: the whole page and every failed notebook."""
    import nbformat

    folder = stage / "failed"
    folder.mkdir()
    for entry in executed:
        if entry.failure is None:
            continue
        nbformat.write(entry.notebook, folder / f"{entry.name}.ipynb")  # type: ignore[no-untyped-call]
        _write_page([entry], build, folder / f"{entry.name}.html")
    _write_page(executed, build, folder / "index.html")
    shutil.rmtree(target / "failed", ignore_errors=True)
    os.replace(folder, target / "failed")


def _write_page(executed: Sequence[Executed], build: Build, file: Path) -> None:
    page = render_page(_fragments(executed, printed=False), build, printed=False)
    file.write_text(page, encoding="utf-8")


def _line(executed: Sequence[Executed]) -> str:
    """Return the one line that may differ between two builds: time, commit, duration."""
    moment = time.gmtime(int(os.environ.get("SOURCE_DATE_EPOCH", time.time())))
    seconds = sum(entry.notebook.metadata.get(provenance.STAMP, {}).get("seconds", 0) for entry in executed)
    commit = provenance.commit()
    return (
        f"Built {time.strftime('%d %B %Y, %H:%M', moment)} UTC from commit {commit[:10]}"
        f"{' with changes' if commit.endswith('+') else ''}; {len(executed)} notebooks, {seconds:.0f} s of computing."
    )


def _require_own_pages(target: Path) -> None:
    """Raise ReportError where the pages to be replaced were not made here, say the front page of a site."""
    page = target / "index.html"
    if target == paths.REPORT.resolve() or not page.is_file():
        return
    try:
        start = page.read_text(encoding="utf-8", errors="replace")[:4096]
    except OSError as error:
        raise ReportError(
            f"expected a readable {page}, received {error.strerror}; choose another folder"
        ) from error
    if GENERATOR not in start:
        raise ReportError(
            f"expected a new or an earlier report at {target}, received an index.html of another origin; choose another folder"
        )


@contextlib.contextmanager
def _staging(target: Path) -> Iterator[Path]:
    """Give a temporary folder inside the report folder, on the same file system; raise ReportError when not writable.

    A report folder that was made for this and stays empty is removed again.
    """
    is_new = not target.exists()
    if file := next((part for part in (target, *target.parents) if part.is_file()), None):
        raise ReportError(
            f"expected a folder for the report, received {target}, where {file} is a file; pass a folder, or move the file"
            if file != target
            else f"expected a folder for the report, received the file {target}; pass a folder, or move the file"
        )
    try:
        target.mkdir(parents=True, exist_ok=True)
        stage = Path(tempfile.mkdtemp(prefix=".build-", dir=target))
    except OSError as error:
        raise ReportError(
            f"expected a writable report folder, received {target} ({error.strerror}); change its permissions or pass another"
        ) from error
    try:
        yield stage
    finally:
        shutil.rmtree(stage, ignore_errors=True)
        if is_new and not any(target.iterdir()):
            target.rmdir()
