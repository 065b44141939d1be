"""Every page of the documentation is linked, and every link and named command leads somewhere."""

import re
import subprocess
import sys
from types import SimpleNamespace

import pytest
import torch
import typer

from analysis.cli import app
from analysis.paths import ROOT

PAGES = sorted((ROOT / "docs").rglob("*.md"))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_links_lead_somewhere(page):
    text = page.read_text(encoding="utf-8")
    broken = [
        link
        for link in re.findall(r"\]\(([^)#]+)\)", text)
        if not link.startswith("https://") and not (page.parent / link).exists()
    ]
    assert not broken


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_commands_exist(page):
    verbs = typer.main.get_command(app).commands
    known = {(name, inner) for name, verb in verbs.items() for inner in ("", *getattr(verb, "commands", {}))}
    text = page.read_text(encoding="utf-8")
    named = re.findall(r"ttt-analysis ([a-z]+)(?: (diff)\b)?", text)
    assert set(named) <= known


def test_the_index_names_every_page():
    index = (ROOT / "docs" / "README.md").read_text(encoding="utf-8")
    missing = [
        page
        for page in PAGES
        if page.name != "README.md" and page.relative_to(ROOT / "docs").as_posix() not in index
    ]
    assert not missing


def test_every_notebook_has_a_page():
    questions = "".join(page.read_text(encoding="utf-8") for page in PAGES if page.parent.name == "questions")
    missing = [
        file.stem
        for file in (ROOT / "notebooks").glob("*.ipynb")
        if f"notebooks/{file.name}" not in questions
    ]
    assert not missing


def test_the_overview_leads_to_every_section():
    overview = (ROOT / "notebooks" / "00_overview.ipynb").read_text(encoding="utf-8")
    sections = {path.stem for path in (ROOT / "notebooks").glob("*.ipynb")} - {"00_overview"}
    assert set(re.findall(r"\]\(#(\d\d_\w+)\)", overview)) == sections


def test_recipes_named_in_the_documents_exist():
    from analysis.training.recipes import find

    for page in PAGES:
        for name in re.findall(
            r"\b((?:lact_lm|lact_nvs|vittt)-[a-z0-9_]+-paper)\b", page.read_text(encoding="utf-8")
        ):
            assert find(name)


def python_of(page):
    return re.findall(
        r"^```python\n(.*?)^```", (ROOT / "docs" / page).read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE
    )


@pytest.mark.parametrize("page", ["add-a-probe.md", "your-own-layer.md"])
def test_what_is_pasted_is_formatted(page):
    for source in python_of(page):
        check = [sys.executable, "-m", "ruff", "format", "--check", "--stdin-filename", "pasted.py", "-"]
        done = subprocess.run(check, input=source, cwd=ROOT, capture_output=True, text=True)
        assert done.returncode == 0, source


def test_the_layer_of_the_guide_is_adopted_and_probed(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("analysis.records.store.CACHE", tmp_path)
    scope = {"__name__": "guide"}
    torch.manual_seed(0)  # the guide's model is untrained, and other weights move by other sizes
    for source in python_of("your-own-layer.md"):
        exec(source, scope)
    printed = capsys.readouterr().out
    assert re.search(r"as trained +\d", printed) and "inner_steps=4" in printed
    assert len(printed) < 2500 and len(repr(scope["swapped"])) < 2500
    sizes = [row.value for row in scope["swept"] if row.metric == "update_norm"]
    assert len(sizes) == 3 and all(0 < size < 100 for size in sizes)
    assert {row.data for row in scope["swapped"]} == {scope["task"].digest}


def test_the_probe_of_the_guide_runs_and_is_drawn(studied, store, tmp_path, monkeypatch):
    from analysis.probes import paradoxes
    from analysis.publish import caption, plots, save_figure

    probe, figure = python_of("add-a-probe.md")
    scope = dict(vars(paradoxes))
    exec(probe, scope)
    there = SimpleNamespace(half_steps=lambda host, task: scope["half_steps"](host, task, store=store))
    monkeypatch.setitem(plots.ARM_LOOKS, "half steps", "task metric")
    monkeypatch.setattr("analysis.paths.FIGURES", tmp_path)
    known = {"plots": plots, "studied": studied, "save_figure": save_figure, "caption": caption}
    exec(figure, {"paradoxes": there, **known})
    assert (tmp_path / "half-steps-frozen.svg").is_file()


def test_activations_are_read_as_the_guide_says(studied):
    import analysis

    scope = {"analysis": analysis, "host": studied["vittt"].host}
    source = python_of("notebook-use.md")[1]
    exec(source, scope)
    assert scope["tape"]["layers.0.glu.q"].ndim == 4
