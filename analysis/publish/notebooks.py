"""Run notebooks with papermill: parameters checked first, two at a time, executed ones reused while nothing changed.

A notebook that times this machine says so in its metadata, `{"ttt_analysis": {"runs_alone": true}}`, and runs beside no other.
"""

from __future__ import annotations

import contextlib
import json
import logging
import re
import shutil
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from analysis import paths
from analysis.errors import DependencyError, ParameterError, ReportError
from analysis.publish import provenance
from analysis.publish.executed import (
    Executed,
    Failure,
    forget_run_details,
    last_started,
    load,
    read_output,
    restore_figures,
    store,
)
from analysis.publish.kernels import Kernels, environment, kernel_environment
from analysis.publish.parameters import Parameter, declared, resolve
from analysis.publish.progress import Progress, progress

FORMAT = 4
KERNEL = "python3"  # resolves to the running interpreter, whatever kernel the author stored


@dataclass(frozen=True, kw_only=True)
class _Task:
    path: Path
    content: dict[str, Any]
    declarations: dict[str, Parameter]
    parameters: dict[str, Any]
    key: str
    cells: int
    runs_alone: bool


def find_notebooks(notebooks: Sequence[Path] | None = None) -> list[Path]:
    """Return the notebooks to run, sorted by name: those given, or all of `notebooks/`.

    Raises ReportError when there is none, one does not exist, or two share a name.
    """
    found = sorted(notebooks or paths.NOTEBOOKS.glob("*.ipynb"), key=lambda path: path.stem)
    missing = [path for path in found if not path.is_file()]
    if missing:
        raise ReportError(f"expected an existing notebook, received {missing[0]}; correct the path")
    if not found:
        raise ReportError(f"expected notebooks in {paths.NOTEBOOKS}, received none; pass their paths")
    names = [path.stem for path in found]
    double = next((name for name in names if names.count(name) > 1), None)
    if double:
        raise ReportError(f"expected notebooks with different names, received {double!r} twice; rename one")
    return found


def read_notebook(path: Path) -> dict[str, Any]:
    """Return the content of a notebook file; raise ReportError when it is not one."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        if content["nbformat"] != FORMAT or not isinstance(content["metadata"], dict):
            raise TypeError(f"no notebook of format {FORMAT}")
        for number, cell in enumerate(content["cells"]):
            known = isinstance(cell["source"], str | list) and isinstance(cell["cell_type"], str)
            if not known or not isinstance(cell["metadata"], dict):
                raise TypeError(f"cell {number}")
    except (ValueError, RecursionError, KeyError, TypeError) as error:
        raise ReportError(
            f"expected a notebook, received {path} ({error!r:.200}); open and save it in JupyterLab"
        ) from None
    return content


def require_titles(notebooks: Sequence[Path] | None = None) -> None:
    """Raise ReportError for a notebook whose first heading is no '# Title': it could run, but not be shown."""
    for path in find_notebooks(notebooks):
        text = "\n".join(
            "".join(cell["source"])
            for cell in read_notebook(path)["cells"]
            if cell["cell_type"] == "markdown"
        )
        first = re.search(r"^(#{1,6})\s", text, flags=re.MULTILINE)
        if first is None or first.group(1) != "#":
            raise ReportError(
                f"expected notebook {path.stem!r} to open with a '# Title', received none; add it"
            )


def declared_parameters(notebooks: Sequence[Path] | None = None) -> dict[str, dict[str, Parameter]]:
    """Return the declared parameters of every notebook by its name, for help texts and checks."""
    return {path.stem: declared(read_notebook(path), path.stem) for path in find_notebooks(notebooks)}


def run_notebooks(
    notebooks: Sequence[Path] | None = None,
    parameters: Mapping[str, Any] | None = None,
    *,
    jobs: int = 2,
    timeout: int = 1800,
    fresh: bool = False,
    extra_inputs: Sequence[Path] = (),
    figures: Path | None = None,
) -> list[Executed]:
    """Run notebooks in parallel threads, and return them in order of their names, failed ones included.

    `parameters` maps `name` or `notebook.name` to a value; `timeout` is in seconds per cell; `fresh` ignores the
    cache; `extra_inputs` are further files whose content the results depend on; `figures` is the folder that figures are
    written to, None for the usual one.

    Raises ParameterError before anything runs, ReportError for unusable notebooks, KeyboardInterrupt after having
    stopped every kernel and removed every unfinished file.
    """
    if jobs < 1:
        raise ParameterError(
            f"jobs must be at least 1, received {jobs}; pass the number of notebooks run at once"
        )
    tasks, around = _prepare(find_notebooks(notebooks), parameters or {}, extra_inputs)
    done = {} if fresh else {task.path.stem: found for task in tasks if (found := load(task.path, task.key))}
    waiting = [task for task in tasks if task.path.stem not in done]
    cells = {task.path.stem: task.cells for task in waiting}
    with _scratch() as scratch, progress(cells) as shown, environment(kernel_environment(figures)):
        done |= _run_all(waiting, around, jobs, timeout, scratch, shown)
    results = [done[task.path.stem] for task in tasks]
    for executed in results:
        if executed.cached:
            restore_figures(executed, figures or paths.FIGURES)
    return results


def _prepare(
    found: Sequence[Path], values: Mapping[str, Any], extra_inputs: Sequence[Path]
) -> tuple[list[_Task], dict[str, str]]:
    contents = {path.stem: read_notebook(path) for path in found}
    declarations = {name: declared(content, name) for name, content in contents.items()}
    resolved = resolve(declarations, values)
    around = provenance.surroundings(extra_inputs)
    tasks = [
        _Task(
            path=path.resolve(),
            content=contents[path.stem],
            declarations=declarations[path.stem],
            parameters=resolved[path.stem],
            key=provenance.key(contents[path.stem], resolved[path.stem], around),
            cells=sum(cell["cell_type"] == "code" for cell in contents[path.stem]["cells"]),
            runs_alone=_runs_alone(contents[path.stem]["metadata"]),
        )
        for path in found
    ]
    return tasks, around


def _runs_alone(metadata: Mapping[str, Any]) -> bool:
    ours = metadata.get("ttt_analysis")
    return isinstance(ours, dict) and ours.get("runs_alone") is True


def _run_all(
    tasks: Sequence[_Task], around: Mapping[str, str], jobs: int, timeout: int, scratch: Path, shown: Progress
) -> dict[str, Executed]:
    done: dict[str, Executed] = {}
    together, alone = ([task for task in tasks if task.runs_alone == is_alone] for is_alone in (False, True))
    for group, at_once in ((together, jobs), (alone, 1)):
        if group:
            done |= _run_group(group, around, at_once, timeout, scratch, shown)
    return done


def _run_group(
    tasks: Sequence[_Task],
    around: Mapping[str, str],
    at_once: int,
    timeout: int,
    scratch: Path,
    shown: Progress,
) -> dict[str, Executed]:
    kernels = Kernels()
    done: dict[str, Executed] = {}
    pool = ThreadPoolExecutor(max_workers=at_once)
    try:
        futures = {
            pool.submit(_run_one, task, around, timeout, scratch, kernels.manager_class(), shown): task
            for task in tasks
        }
        for future in as_completed(futures):
            done[futures[future].path.stem] = future.result()
    except BaseException:
        pool.shutdown(wait=False, cancel_futures=True)
        kernels.stop()
        raise
    finally:
        pool.shutdown(wait=True)
    return done


def _run_one(
    task: _Task, around: Mapping[str, str], timeout: int, scratch: Path, manager_class: type, shown: Progress
) -> Executed:
    output, started = scratch / f"{task.path.stem}.ipynb", time.monotonic()
    shown.started(task.path.stem)
    problem = _execute(task, output, timeout, manager_class, shown)
    shown.finished(task.path.stem, time.monotonic() - started, problem[0] if problem else "")
    notebook = read_output(output, task.path)
    cell = last_started(notebook)
    forget_run_details(notebook)
    notebook.metadata[provenance.STAMP] = provenance.stamp(
        task.key,
        task.parameters,
        around,
        device=str(task.parameters.get("device", "cpu")),
        seconds=time.monotonic() - started,
    )
    failure = Failure(cell=cell, name=problem[0], text=problem[1]) if problem else None
    executed = Executed(
        name=task.path.stem, folder=task.path.parent, notebook=notebook, key=task.key, failure=failure
    )
    if failure is None:
        store(executed, output)
    return executed


def _execute(
    task: _Task, output: Path, timeout: int, manager_class: type, shown: Progress
) -> tuple[str, str] | None:
    """Run one notebook into `output` with papermill; return the name and text of the error that stopped it."""
    try:
        import papermill
        from nbclient.exceptions import CellTimeoutError, DeadKernelError
        from papermill.exceptions import PapermillExecutionError
    except ImportError as error:
        raise DependencyError(
            f"running notebooks needs papermill ({error.name} is missing); run `make setup`"
        ) from error
    logging.getLogger("papermill").setLevel(logging.CRITICAL)  # our one sentence says what it would
    changed = {
        name: value for name, value in task.parameters.items() if value != task.declarations[name].default
    }
    try:
        papermill.execute_notebook(
            task.path,
            output,
            parameters=changed,
            kernel_name=KERNEL,
            language="python",
            progress_bar=False,
            execution_timeout=timeout,
            kernel_manager_class=manager_class,
            resources={"metadata": {"path": str(task.path.parent)}},
            extra_arguments=["--log-level=CRITICAL"],
            on_cell_executed=lambda **_: shown.advanced(task.path.stem),
        )
    except PapermillExecutionError as error:
        return error.ename, error.evalue
    except CellTimeoutError:
        return "CellTimeoutError", f"the cell ran longer than {timeout} s"
    except DeadKernelError:
        return "DeadKernelError", "the kernel ended without a message (crashed, killed, or out of memory)"
    return None


@contextlib.contextmanager
def _scratch() -> Iterator[Path]:
    with paths.writing(paths.CACHE):
        paths.CACHE.mkdir(parents=True, exist_ok=True)
        folder = Path(tempfile.mkdtemp(prefix="run-", dir=paths.CACHE))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
