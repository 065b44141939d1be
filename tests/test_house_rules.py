"""House rules on the tracked files: lengths, names, docstrings, notebooks without outputs, skips with a reason."""

from __future__ import annotations

import ast
import json
import re
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from analysis.paths import ROOT

MAX_FILE_LINES = 300
MAX_FUNCTION_LINES = 50
MAX_TREE_BYTES = 55 * 2**20
VAGUE_NAMES = {"utils", "util", "helpers", "helper", "misc", "common", "temp", "stuff"}
UNFINISHED = re.compile(r"\b(" + "|".join(("TO" + "DO", "FIX" + "ME", "X" * 3, "HA" + "CK")) + r")\b")
MAY_PRINT = {"analysis/cli.py", "analysis/commands"}
TEXT = {".py", ".md", ".toml", ".yml", ".yaml", ".cff", ".j2", ".css", ".js", ".ipynb", ""}
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


@cache
def tracked() -> tuple[Path, ...]:
    """Tracked files that exist, or, in an unpacked source archive, every file outside hidden folders."""
    done = subprocess.run(
        ["git", "-C", str(ROOT), "ls-files", "-z"], capture_output=True, text=True, check=False
    )
    names = done.stdout.split("\0") if done.returncode == 0 else []
    paths = [ROOT / name for name in names if name] or [
        path
        for path in ROOT.rglob("*")
        if not any(part.startswith(".") for part in path.relative_to(ROOT).parts)
    ]
    return tuple(path for path in paths if path.is_file())


def shown(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def python_files(below: str = "") -> Iterator[tuple[str, ast.Module]]:
    for path in tracked():
        if path.suffix == ".py" and shown(path).startswith(below):
            yield shown(path), ast.parse(path.read_text(encoding="utf-8"))


def notebooks() -> Iterator[tuple[str, dict]]:
    for path in tracked():
        if path.suffix == ".ipynb":
            yield shown(path), json.loads(path.read_text(encoding="utf-8"))


def code_cells(notebook: dict) -> Iterator[ast.Module]:
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            lines = "".join(cell["source"]).splitlines()
            yield ast.parse("\n".join(line for line in lines if not line.lstrip().startswith(("%", "!"))))


def listed(found: list[str]) -> str:
    return "\n" + "\n".join(found)


def test_files_are_short():
    counts = [
        (len(path.read_text(encoding="utf-8").splitlines()), shown(path))
        for path in tracked()
        if path.suffix == ".py"
    ]
    long = [f"{name}: {count} lines" for count, name in counts if count >= MAX_FILE_LINES]
    assert not long, listed(long)


def test_functions_are_short():
    long = []
    for name, tree in python_files():
        for node in ast.walk(tree):
            if isinstance(node, FUNCTIONS) and node.end_lineno - node.lineno + 1 >= MAX_FUNCTION_LINES:
                long.append(f"{name}:{node.lineno} {node.name}: {node.end_lineno - node.lineno + 1} lines")
    assert not long, listed(long)


def test_no_module_has_a_vague_name():
    vague = [
        shown(path)
        for path in tracked()
        if VAGUE_NAMES & {Path(part).stem for part in path.relative_to(ROOT).parts}
    ]
    assert not vague, listed(vague)


def test_nothing_is_marked_unfinished():
    found = []
    for path in tracked():
        if path.suffix in TEXT:
            for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
                if UNFINISHED.search(line):
                    found.append(f"{shown(path)}:{number}: {line.strip()[:80]}")
    assert not found, listed(found)


def test_the_library_does_not_print():
    found = [
        f"{name}:{node.lineno}"
        for name, tree in python_files("analysis/")
        if not any(name.startswith(prefix) for prefix in MAY_PRINT)
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "print"
    ]
    assert not found, listed(found)


def undocumented(body: list[ast.stmt], where: str) -> Iterator[str]:
    """Public functions and classes without a docstring; overloads and property setters share their first one's."""
    for node in body:
        if not isinstance(node, (*FUNCTIONS, ast.ClassDef)) or node.name.startswith("_"):
            continue
        marks = {getattr(mark, "id", getattr(mark, "attr", "")) for mark in node.decorator_list}
        if ast.get_docstring(node) is None and not marks & {"overload", "override", "setter"}:
            yield f"{where}:{node.lineno} {node.name}"
        if isinstance(node, ast.ClassDef):
            yield from undocumented(node.body, where)


def test_public_functions_and_classes_have_docstrings():
    found = [item for name, tree in python_files("analysis/") for item in undocumented(tree.body, name)]
    found += [
        f"{name}: module"
        for name, tree in python_files("analysis/")
        if tree.body and not ast.get_docstring(tree)
    ]
    assert not found, listed(found)


def test_no_error_is_swallowed():
    found = []
    for name, tree in python_files("analysis/"):
        for node in ast.walk(tree):
            if isinstance(node, ast.ExceptHandler):
                caught = (
                    {getattr(item, "id", "") for item in ast.walk(node.type)} if node.type else {"Exception"}
                )
                broad = caught & {"Exception", "BaseException"}
                if broad and not any(isinstance(item, ast.Raise) for item in ast.walk(node)):
                    found.append(f"{name}:{node.lineno} catches {', '.join(broad)} and does not raise")
    assert not found, listed(found)


def test_notebooks_are_committed_without_outputs():
    found = [
        f"{name}: cell {index}"
        for name, notebook in notebooks()
        for index, cell in enumerate(notebook["cells"])
        if cell.get("outputs") or cell.get("execution_count") is not None
    ]
    assert not found, listed(found)


def test_notebooks_define_no_functions():
    found = [
        f"{name}: {node.name}"
        for name, notebook in notebooks()
        for tree in code_cells(notebook)
        for node in ast.walk(tree)
        if isinstance(node, (*FUNCTIONS, ast.ClassDef))
    ]
    assert not found, listed(found)


def test_every_notebook_has_one_parameters_cell():
    found = []
    for name, notebook in notebooks():
        tagged = [
            cell for cell in notebook["cells"] if "parameters" in cell.get("metadata", {}).get("tags", [])
        ]
        if len(tagged) != 1:
            found.append(f"{name}: {len(tagged)}")
    assert not found, listed(found)


def test_the_tracked_tree_is_small():
    size = sum(path.stat().st_size for path in tracked())
    assert size < MAX_TREE_BYTES, f"{size / 2**20:.1f} MiB"


SKIPPING = {"skip", "skipif", "xfail", "importorskip", "skip_module"}


def skips(tree: ast.Module, name: str) -> Iterator[str]:
    """Return 'file::function' for every place that can skip a test or expect it to fail."""

    def walk(node: ast.AST, inside: str) -> Iterator[str]:
        for child in ast.iter_child_nodes(node):
            where = inside or (child.name if isinstance(child, (*FUNCTIONS, ast.ClassDef)) else "")
            if isinstance(child, ast.Attribute) and child.attr in SKIPPING and "pytest" in ast.unparse(child):
                yield f"{name}::{inside}" if inside else name
            yield from walk(child, where)

    return walk(tree, "")


def test_every_skip_has_a_reason_and_every_reason_a_skip():
    table = (ROOT / "tests" / "SKIPS.md").read_text(encoding="utf-8")
    rows = set(re.findall(r"^\| `([^`]+)` \|[^|]+\|[^|]+\|$", table, flags=re.MULTILINE))
    found = {where for name, tree in python_files("tests/") for where in skips(tree, name)}
    assert found == rows, f"\nwithout a row: {sorted(found - rows)}\nwithout a skip: {sorted(rows - found)}"


def test_the_rules_find_what_they_forbid():
    bad = ast.parse("import pytest\n@pytest.mark.skip\ndef test_x():\n    pytest.importorskip('y')\n")
    assert set(skips(bad, "t.py")) == {"t.py::test_x"}
    assert list(undocumented(ast.parse("class A:\n    def b(self): ...\n").body, "m")) == ["m:1 A", "m:2 b"]
    assert UNFINISHED.search("# TO" + "DO later")
    assert not UNFINISHED.search("# the method of this name")
