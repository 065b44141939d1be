"""The environment's files agree with one another, and with what is installed."""

from __future__ import annotations

import re
import subprocess
import tomllib
from fnmatch import fnmatch
from importlib import metadata

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import analysis
from analysis.paths import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def requirements(name: str) -> dict[str, Requirement]:
    lines = [
        re.sub(r"(^|\s)#.*", "", line).strip()
        for line in (ROOT / name).read_text(encoding="utf-8").splitlines()
    ]
    parsed = [Requirement(line) for line in lines if line]
    found = {canonicalize_name(item.name): item for item in parsed}
    assert len(found) == len(parsed), f"{name} names a package twice"
    return found


LOCK = requirements("requirements.txt")
ASKED = requirements("requirements.in")


def version_of(item: Requirement) -> str:
    (pin,) = item.specifier
    assert pin.operator == "=="
    return pin.version


def test_the_lock_pins_every_package_to_a_public_version():
    for item in LOCK.values():
        assert re.fullmatch(r"[0-9][0-9a-z.]*", version_of(item)), f"{item} carries a local or open version"
        assert not item.url


def test_what_we_ask_for_is_in_the_lock_with_the_same_version_and_marker():
    assert {name: str(LOCK.get(name)) for name in ASKED} == {name: str(item) for name, item in ASKED.items()}


def test_the_lock_is_complete():
    missing, queue, seen = [], [str(item) for item in ASKED.values()], set()
    while queue:
        item = Requirement(queue.pop())
        name = canonicalize_name(item.name)
        if (name, *sorted(item.extras)) in seen:
            continue
        seen.add((name, *sorted(item.extras)))
        if item.marker and not any(item.marker.evaluate({"extra": extra}) for extra in (item.extras or {""})):
            continue
        if name not in LOCK and name not in ("setuptools", "pip"):
            missing.append(name)
            continue
        for text in metadata.requires(name) or []:
            child = Requirement(text)
            if not child.marker or any(
                child.marker.evaluate({"extra": extra}) for extra in (item.extras or {""})
            ):
                child.marker = None
                queue.append(str(child))
    assert not missing, f"requirements.txt lacks {sorted(set(missing))}"


def test_the_installed_packages_are_the_locked_ones():
    wrong = {}
    for name, item in LOCK.items():
        if item.marker is None or item.marker.evaluate():
            installed = metadata.version(name).split("+")[0]
            if installed != version_of(item):
                wrong[name] = (installed, version_of(item))
    assert not wrong, "run `make setup`: " + str(wrong)


def test_the_lower_bounds_admit_the_locked_versions():
    extras = PROJECT["project"]["optional-dependencies"]["dev"]
    for text in [*PROJECT["project"]["dependencies"], *extras]:
        item = Requirement(text)
        name = canonicalize_name(item.name)
        assert name in ASKED, f"{item} is not in requirements.in"
        assert item.specifier.contains(version_of(LOCK[name])), f"{item} refuses the locked {LOCK[name]}"


IMPORT_NAMES = {"scikit-learn": "sklearn", "pillow": "PIL", "pyyaml": "yaml"}
TOOLS = {
    "jupyterlab": "make lab",
    "ipykernel": "the notebooks' kernel",
    "pytest-xdist": "make test runs two processes",
    "pytest-timeout": "pyproject.toml sets a limit per test",
    "mypy": "make typecheck",
    "ruff": "make lint",
    "pre-commit": ".pre-commit-config.yaml",
    "jsonschema": "our pin of what papermill brings along",
    "quickjs": "our pin of what quickjax brings along",
}


def test_everything_we_ask_for_is_used():
    folders = (ROOT / "analysis", ROOT / "tests", ROOT / "notebooks")
    files = [path for folder in folders for kind in ("*.py", "*.ipynb") for path in folder.rglob(kind)]
    text = "\n".join(path.read_text(encoding="utf-8") for path in files)
    unused = [
        name
        for name in ASKED
        if name not in TOOLS
        and not re.search(
            rf"(import|from) {IMPORT_NAMES.get(name, name)}\b|\"{IMPORT_NAMES.get(name, name)}\"", text
        )
    ]
    assert not unused


def test_users_get_what_the_library_needs():
    dependencies = [*PROJECT["project"]["dependencies"], *PROJECT["project"]["optional-dependencies"]["dev"]]
    named = {canonicalize_name(Requirement(text).name) for text in dependencies}
    assert set(ASKED) - named == {"jsonschema", "quickjs"}  # theirs to resolve; ours to pin


def test_conda_installs_the_same_lock_and_a_python_that_we_support():
    environment = yaml.safe_load((ROOT / "environment.yml").read_text(encoding="utf-8"))
    assert environment["dependencies"] == ["python=3.11", "pip", {"pip": ["-r requirements.txt"]}]
    assert PROJECT["project"]["requires-python"] == ">=3.11"
    assert (ROOT / "requirements.txt").is_file()


def test_the_citation_names_the_version():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert citation["version"] == analysis.__version__
    assert citation["license"] == PROJECT["project"]["license"]


def test_every_data_file_of_the_package_is_installed_with_it():
    globs = PROJECT["tool"]["setuptools"]["package-data"]["analysis"]
    files = [
        path for path in (ROOT / "analysis").rglob("*") if path.is_file() and "__pycache__" not in path.parts
    ]
    left_out = [
        path.name
        for path in files
        if path.suffix != ".py" and not any(fnmatch(path.name, glob.removeprefix("**/")) for glob in globs)
    ]
    assert not left_out


def test_every_folder_of_code_is_a_package():
    folders = {path.parent for path in (ROOT / "analysis").rglob("*.py")}
    assert not [folder.name for folder in folders if not (folder / "__init__.py").is_file()]


def test_every_make_target_explains_itself():
    text = (ROOT / "Makefile").read_text(encoding="utf-8")
    phony = set(re.search(r"^\.PHONY: (.*)$", text, re.MULTILINE).group(1).split())
    done = subprocess.run(["make", "-C", str(ROOT), "help"], capture_output=True, text=True, check=True)
    listed = set(re.findall(r"^  ([a-z-]+)  ", done.stdout, re.MULTILINE))
    assert listed == phony - {"chromium"}
    assert {
        "setup",
        "report",
        "figures",
        "lab",
        "train",
        "test",
        "test-gpu",
        "verify",
        "bench",
        "clean",
        "distclean",
    } <= listed


def test_the_list_of_shipped_checkpoints_is_the_folder():
    text = (ROOT / "checkpoints" / "README.md").read_text(encoding="utf-8")
    listed = {
        f"{family}-{variant}-s0"
        for family, variants in re.findall(r"^\| `(\w+)` \| (.*) \|$", text, re.MULTILINE)
        for variant in re.findall(r"`(\w+)`", variants)
    }
    assert listed == {file.parent.name for file in (ROOT / "checkpoints").glob("*-s0/manifest.json")}


def test_cleaning_keeps_what_was_measured_and_nothing_of_jupyter(tmp_path):
    (tmp_path / "Makefile").write_text((ROOT / "Makefile").read_text(encoding="utf-8"))
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    kept, gone = (
        tmp_path / ".cache" / "records",
        (
            tmp_path / "notebooks" / ".ipynb_checkpoints",
            tmp_path / ".cache" / "executed",
        ),
    )
    for folder in (kept, *gone, tmp_path / "figures", tmp_path / "report"):
        folder.mkdir(parents=True)
    subprocess.run(["make", "-C", str(tmp_path), "clean"], check=True)
    assert kept.is_dir() and not any(folder.exists() for folder in gone)
    subprocess.run(["make", "-C", str(tmp_path), "distclean"], check=True)
    assert not (tmp_path / ".cache").exists()


def test_make_refuses_an_old_python_in_one_sentence(tmp_path):
    old = tmp_path / "python3"
    old.write_text('#!/bin/sh\necho "error: Python 3.11 or newer is needed" >&2\nexit 1\n')
    old.chmod(0o755)
    run = ["make", "-C", str(ROOT), "setup", f"PYTHON={old}", f"VENV={tmp_path / 'venv'}"]
    done = subprocess.run(run, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert "Python 3.11 or newer" in done.stderr
    assert not (tmp_path / "venv").exists()


@pytest.mark.parametrize(
    ("path", "ignored"),
    [
        ("figures/ladder.svg", True),
        ("figures/README.md", False),
        ("report/index.html", True),
        ("report/README.md", False),
        ("report/records/0123.json", False),
        ("report/records/runs/0123.json", True),
        (".cache/records/0123.json", True),
        ("checkpoints/lact_lm-baseline-s0/model.safetensors", False),
    ],
)
def test_output_is_ignored_and_gpu_records_are_not(path, ignored):
    if not (ROOT / ".git").exists():
        pytest.skip("an unpacked source archive has no ignore rules")
    done = subprocess.run(["git", "-C", str(ROOT), "check-ignore", "-q", "--no-index", path], check=False)
    assert (done.returncode == 0) == ignored
