"""The kernels of a run: their environment, and stopping them all when the run is interrupted."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from analysis import paths
from analysis.publish.provenance import PACKAGE

PANELS_VARIABLE = (
    "TTT_ANALYSIS_PANELS"  # read by `analysis.lab`: a run without a reader shows no control panels
)
GRACE_SECONDS = 3.0  # after an interrupt, before a kernel is killed


def kernel_environment(figures: Path | None = None) -> dict[str, str]:
    """Return the variables every kernel gets: this package, the same folders, one thread, fixed hashing.

    figures: the folder that figures are written to; None takes the usual one.
    """
    search = [str(PACKAGE.parent), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {
        "OMP_NUM_THREADS": "1",
        "MKL_NUM_THREADS": "1",
        "PYTHONHASHSEED": "0",
        "PYTHONPATH": os.pathsep.join(search),
        "TTT_ANALYSIS_ROOT": str(paths.ROOT),
        "TTT_ANALYSIS_CACHE": str(paths.CACHE),
        "TTT_ANALYSIS_FIGURES": str(figures or paths.FIGURES),
        PANELS_VARIABLE: "off",
    }


@contextlib.contextmanager
def environment(variables: dict[str, str]) -> Iterator[None]:
    """Set environment variables for child processes and restore the former ones afterwards."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


class Kernels:
    """Every kernel manager that a run created, so that an interruption leaves no process behind."""

    def __init__(self) -> None:
        self._managers: list[Any] = []

    def manager_class(self) -> type:
        """Return a kernel-manager class whose instances register here."""
        from jupyter_client.manager import AsyncKernelManager

        managers = self._managers

        class TrackedKernelManager(AsyncKernelManager):
            """A kernel manager known to the run that uses it."""

            def __init__(self, *arguments: Any, **keywords: Any) -> None:
                super().__init__(*arguments, **keywords)
                managers.append(self)

        return TrackedKernelManager

    def stop(self) -> None:
        """Interrupt every running kernel, so that a cell can remove its temporary files; then kill what is left."""
        running = [process for process in map(_process, self._managers) if process is not None]
        for process in running:
            process.send_signal(signal.SIGINT)
        deadline = time.monotonic() + GRACE_SECONDS
        while time.monotonic() < deadline and any(process.poll() is None for process in running):
            time.sleep(0.05)
        for process in running:
            if process.poll() is None:
                process.kill()


def _process(manager: Any) -> Any:
    process = getattr(getattr(manager, "provisioner", None), "process", None)
    return process if process is not None and process.poll() is None else None
