"""`import analysis` is light, and every public name is there when asked for."""

from __future__ import annotations

import ast
import subprocess
import sys

import pytest

import analysis
from analysis.paths import ROOT


@pytest.mark.parametrize("name", analysis.__all__)
def test_every_public_name_arrives_from_its_home(name):
    value = getattr(analysis, name)
    home, _, attribute = analysis._HOMES[name].partition(":")
    assert value is getattr(sys.modules[home], attribute)
    assert value.__doc__


def test_the_three_lists_of_names_agree():
    tree = ast.parse((ROOT / "analysis" / "__init__.py").read_text(encoding="utf-8"))
    (block,) = [node for node in tree.body if isinstance(node, ast.If)]
    typed = {
        alias.asname or alias.name: f"{node.module}:{alias.name}"
        for node in block.body
        for alias in node.names
    }
    assert typed == analysis._HOMES
    assert sorted(analysis._HOMES) == sorted(analysis.__all__)
    assert set(analysis.__all__) <= set(dir(analysis))


@pytest.mark.parametrize("name", analysis._PACKAGES)
def test_packages_are_attributes(name):
    assert getattr(analysis, name).__name__ == f"analysis.{name}"


def test_a_typo_is_answered_with_the_nearest_name():
    with pytest.raises(AttributeError, match="did you mean 'InnerLoop'"):
        _ = analysis.InerLoop


def test_using_a_specification_needs_no_torch():
    code = "import sys, analysis; analysis.InnerLoop(steps=2); analysis.records; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False).returncode == 0
