"""Every page of the documentation is linked, and every link and named command leads somewhere."""

import re

import pytest
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


def test_recipes_named_in_the_documents_exist():
    from analysis.training.recipes import find

    for page in PAGES:
        for name in re.findall(
            r"\b((?:lact_lm|lact_nvs|vittt)-[a-z0-9_]+-paper)\b", page.read_text(encoding="utf-8")
        ):
            assert find(name)
