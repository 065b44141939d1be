"""Where a number was made: commit, package versions, device, command, and digests of the code and of files."""

from __future__ import annotations

import ast
import functools
import hashlib
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

from analysis.errors import RecordError
from analysis.paths import ROOT

PACKAGES = ("torch", "numpy", "scipy", "scikit-learn", "triton", "safetensors", "tokenizers")
NUMERIC_CODE = (
    "spec",
    "kernels",
    "inner",
    "models",
    "data",
    "training",
    "probes",
    "theorems",
    "statistics.py",
)
"""The parts of `analysis` that decide a number; publishing and the command line do not."""


def provenance(device: str = "cpu") -> dict[str, Any]:
    """Return the fields `device`, `versions`, `commit` and `command` of a record made now in this process."""
    return {"device": device, "versions": versions(), "commit": commit(), "command": command()}


def versions() -> dict[str, str]:
    """Return the installed versions of Python and of the packages that decide a number."""
    found = {"python": ".".join(str(part) for part in sys.version_info[:3])}
    for name in PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


@functools.cache
def commit() -> str:
    """Return the git commit of the checkout, marked '+' when tracked files differ from it, or 'unknown'."""
    head = _git("rev-parse", "HEAD")
    if not head:
        return "unknown"
    return head + ("+" if _git("status", "--porcelain", "--untracked-files=no") else "")


def command() -> str:
    """Return the command line of this process without the folders of the machine that it ran on."""
    words = [Path(word).name if word.startswith("/") else word for word in sys.argv]
    return " ".join(words).strip()


@functools.cache
def code_digest(parts: tuple[str, ...] = NUMERIC_CODE) -> str:
    """Return a digest of the named parts of `analysis`; comments, docstrings and formatting do not count."""
    package = Path(__file__).resolve().parent.parent
    digest = hashlib.sha256()
    for part in parts:
        path = package / part
        for file in [path] if path.is_file() else sorted(path.rglob("*.py")):
            digest.update(file.relative_to(package).as_posix().encode())
            digest.update(_meaning(file.read_text(encoding="utf-8")).encode())
    return digest.hexdigest()


def file_digest(path: Path) -> str:
    """Return the sha256 of a file, read in blocks.

    Raises:
        RecordError: no such file.
    """
    if not path.is_file():
        raise RecordError(f"expected a file at {path}, found none; check the path.")
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _meaning(source: str) -> str:
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            node.body = [item for item in node.body if not _is_text(item)]
    return ast.dump(tree)


def _is_text(node: ast.stmt) -> bool:
    return (
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    )


def _git(*arguments: str) -> str:
    try:
        done = subprocess.run(
            ["git", "-C", str(ROOT), *arguments], capture_output=True, text=True, timeout=20, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""
