"""The fixed top-level folders, and the one way to put a file into place; importing this module creates nothing.

The root is the folder above the package (a checkout), or `TTT_ANALYSIS_ROOT` when the package is installed elsewhere.
`TTT_ANALYSIS_CACHE` and `TTT_ANALYSIS_FIGURES` place those two folders alone; a report elsewhere sets the latter for its kernels.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from analysis.errors import StorageError

ROOT = Path(os.environ.get("TTT_ANALYSIS_ROOT") or Path(__file__).resolve().parent.parent).absolute()
NOTEBOOKS = ROOT / "notebooks"
CHECKPOINTS = ROOT / "checkpoints"
FIGURES = Path(os.environ.get("TTT_ANALYSIS_FIGURES") or ROOT / "figures").absolute()
REPORT = ROOT / "report"
RECORDS = REPORT / "records"
CACHE = Path(os.environ.get("TTT_ANALYSIS_CACHE") or ROOT / ".cache").absolute()


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Within the block `path` is written: a refusal of the file system becomes a StorageError that names it."""
    try:
        yield
    except OSError as error:
        raise StorageError(
            f"expected to write {path}, received: {error.strerror or error}; free space, change the permissions, or name "
            "another place"
        ) from error


def require_writable(folder: Path) -> None:
    """Create a folder and write into it, so that hours of work do not end in a refusal; raises StorageError."""
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=folder).close()


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a temporary name beside `path` to write to; it becomes `path` when the block ends well, and is gone otherwise.

    No reader ever sees half a file, and an interruption leaves the former one.

    Raises:
        StorageError: the file cannot be written.
    """
    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".tmp")
        os.close(handle)
        temporary = Path(name)
        try:
            yield temporary
            temporary.chmod(0o644)  # mkstemp keeps the file to its owner
            os.replace(temporary, path)
        finally:
            temporary.unlink(missing_ok=True)
