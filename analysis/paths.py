"""The fixed top-level folders, and the one way to put a file into place; importing this module creates nothing.

The root is the folder above the package (a checkout), or `TTT_ANALYSIS_ROOT` when the package is installed elsewhere.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(os.environ.get("TTT_ANALYSIS_ROOT", Path(__file__).resolve().parent.parent))
NOTEBOOKS = ROOT / "notebooks"
CHECKPOINTS = ROOT / "checkpoints"
FIGURES = ROOT / "figures"
REPORT = ROOT / "report"
RECORDS = REPORT / "records"
CACHE = Path(os.environ.get("TTT_ANALYSIS_CACHE", ROOT / ".cache"))


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a temporary name beside `path` to write to; it becomes `path` when the block ends well, and is gone otherwise.

    No reader ever sees half a file, and an interruption leaves the former one.
    """
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
