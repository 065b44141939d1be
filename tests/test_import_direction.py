"""Imports inside `analysis` point one way: a walk over the syntax trees fails on every edge outside the table."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from analysis.paths import ROOT

PACKAGE = ROOT / "analysis"
BASE = {"errors", "paths"}
ALLOWED = {
    "errors": set(),
    "paths": {"errors"},
    "statistics": {"errors"},
    "spec": {"errors"},
    "kernels": {"errors"},
    "inner": {"spec", "errors"},
    "models": {"inner", "spec"} | BASE,
    "data": BASE,
    "records": {"spec", "statistics"} | BASE,
    "training": {"models", "inner", "data", "records", "spec", "statistics"} | BASE,
    "probes": {"models", "inner", "spec", "data", "records", "statistics"} | BASE,
    "theorems": {"inner", "spec", "records", "statistics"} | BASE,
    "speed": {"kernels", "inner", "spec", "records", "training", "statistics"} | BASE,
    "publish": {"records", "spec", "statistics"} | BASE,
}
ALLOWED["lab"] = set(ALLOWED)
LAZY = {"inner.backends": {"kernels"}, "inner.orthogonalise": {"kernels"}}
"""Edges that are allowed inside functions alone, by importing module."""
EVERYTHING = {"cli", "commands", "__main__", ""}
"""The command line and the package's front door reach everything, but at import only what is named here."""
AT_IMPORT = {"errors", "cli", "commands"}
TORCH_FREE = {"errors", "paths", "statistics", "spec", "records", "publish", *EVERYTHING}


def module_name(path: Path) -> str:
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imported(node: ast.AST, module: str, is_package: bool) -> list[str]:
    """Absolute names that one import statement, or one call of an import function, brings in."""
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom):
        base = node.module or ""
        if node.level:
            here = ["analysis", *filter(None, module.split("."))]
            kept = len(here) - node.level + (1 if is_package else 0)
            base = ".".join([*here[:kept], *filter(None, [base])])
        return [f"{base}.{alias.name}" for alias in node.names]
    if isinstance(node, ast.Call) and getattr(node.func, "attr", getattr(node.func, "id", "")) in (
        "import_module",
        "__import__",
    ):
        return [
            item.value for item in node.args if isinstance(item, ast.Constant) and isinstance(item.value, str)
        ]
    return []


def edges(source: str, module: str, is_package: bool = False) -> list[tuple[str, bool]]:
    """Return (imported name, inside a function) for every import of a module."""
    found = []

    def walk(node: ast.AST, lazy: bool) -> None:
        for child in ast.iter_child_nodes(node):
            found.extend((name, lazy) for name in imported(child, module, is_package))
            walk(child, lazy or isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda))

    walk(ast.parse(source), False)
    return found


def violations(source: str, module: str, is_package: bool = False) -> list[str]:
    """Return a sentence for every import of a module that the table does not allow."""
    top = module.split(".")[0]
    wrong = []
    for name, lazy in edges(source, module, is_package):
        root, _, rest = name.partition(".")
        if root in ("torch", "triton") and top in TORCH_FREE and not (lazy and top in EVERYTHING):
            wrong.append(f"{module or 'analysis'} imports {name}, but must not need torch")
        if root != "analysis":
            continue
        target = rest.split(".")[0]
        if top in EVERYTHING:
            allowed = lazy or target in AT_IMPORT or type_checking_only(source, name)
        else:
            assert top in ALLOWED, (
                f"analysis.{top} has no row in the table of imports; decide where it stands"
            )
            reach = ALLOWED[top] | {top} | (LAZY.get(module, set()) if lazy else set())
            allowed = target in reach
        if not allowed:
            wrong.append(f"{module or 'analysis'} imports {name}{' (inside a function)' if lazy else ''}")
    return wrong


def type_checking_only(source: str, name: str) -> bool:
    """Whether a name is imported under `if TYPE_CHECKING:`, which costs nothing at run time."""
    blocks = [
        node
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"
    ]
    return any(name in imported(child, "", True) for block in blocks for child in ast.walk(block))


def test_every_import_is_in_the_table():
    wrong = []
    for path in sorted(PACKAGE.rglob("*.py")):
        wrong += violations(path.read_text(encoding="utf-8"), module_name(path), path.name == "__init__.py")
    assert not wrong, "\n" + "\n".join(wrong)


@pytest.mark.parametrize(
    ("source", "module"),
    [
        ("from analysis.models import host", "spec.ladder"),
        ("def f():\n    import analysis.kernels.chunk", "inner.parallel"),
        ("import analysis.kernels", "inner.backends"),
        ("from ..models import host", "inner.types"),
        ("from analysis import models", "theorems.claims"),
        ("import importlib\nimportlib.import_module('analysis.probes')", "models.host"),
        ("def f():\n    import torch", "publish.figures"),
        ("import torch", "records.store"),
        ("from analysis.models import host", "cli"),
        ("import torch", ""),
    ],
)
def test_a_planted_edge_is_found(source, module):
    assert violations(source, module)


@pytest.mark.parametrize(
    ("source", "module"),
    [
        ("def f():\n    import analysis.kernels.chunk", "inner.backends"),
        ("from .errors import closest", ""),
        ("from . import choices", "spec.ladder"),
        ("def f():\n    from analysis.models import host", "cli"),
        ("import torch", "data.text"),
        ("if TYPE_CHECKING:\n    from analysis.models import host", ""),
    ],
)
def test_an_allowed_edge_passes(source, module):
    assert not violations(source, module)


INDEPENDENT = {
    "inner/reference.py": ("analysis.inner.types.", "analysis.spec."),
    "theorems/formulas.py": ("analysis.spec.", "analysis.theorems.draws."),
}
"""Files that a comparison rests on, and all that they may take from this package: types and data, no formula."""


def shared(source: str, file: str) -> list[str]:
    names = [name for node in ast.walk(ast.parse(source)) for name in imported(node, "", False)]
    return [name for name in names if name.startswith("analysis.") and not name.startswith(INDEPENDENT[file])]


@pytest.mark.parametrize("file", INDEPENDENT)
def test_what_others_are_compared_with_shares_no_formula_with_them(file):
    source = (PACKAGE / file).read_text(encoding="utf-8")
    assert not shared(source, file)
    assert shared(source + "\nfrom analysis.inner.networks import value", file)
    assert shared(source + "\ndef f():\n    import analysis.inner.updates", file)


@pytest.mark.parametrize(
    "module", ["analysis", "analysis.cli", "analysis.records", "analysis.statistics", "analysis.publish"]
)
def test_importing_it_does_not_import_torch(module):
    code = f"import sys, {module}; sys.exit('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"importing {module} imports torch\n{done.stderr}"


def test_importing_creates_nothing(tmp_path):
    code = "import analysis.records, analysis.publish, analysis.cli, analysis.data"
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        env={"TTT_ANALYSIS_ROOT": str(tmp_path), "HOME": str(tmp_path), "PYTHONPATH": str(ROOT), "PATH": ""},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert not list(tmp_path.iterdir())
