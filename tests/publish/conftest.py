"""A project of its own for every test of the report, so that nothing touches the real folders, and strict rules for figures."""

from __future__ import annotations

import warnings

import matplotlib as mpl
import pytest

from analysis import paths
from analysis.publish import provenance, use_style
from tests.conftest import CHROMIUM_FLAGS
from tests.publish import toys


def _redirect(patch, root):
    for name, folder in {
        "ROOT": ".",
        "NOTEBOOKS": "notebooks",
        "CHECKPOINTS": "checkpoints",
        "FIGURES": "figures",
        "REPORT": "report",
        "RECORDS": "report/records",
        "CACHE": ".cache",
    }.items():
        patch.setattr(paths, name, root / folder)
    patch.setattr(
        provenance, "PACKAGE", root / "analysis"
    )  # keys must not change while the package is edited
    (root / "notebooks").mkdir(parents=True, exist_ok=True)
    (root / "notebooks" / "pixel.png").write_bytes(toys.PIXEL)


@pytest.fixture
def strict_figures():
    """The report's style, warnings as errors, and no figure left open."""
    from matplotlib import pyplot as plt

    with warnings.catch_warnings(), mpl.rc_context():
        use_style()
        warnings.simplefilter("error")
        warnings.simplefilter("ignore", ResourceWarning)  # what earlier tests left open is not ours to judge
        yield
        plt.close("all")


@pytest.fixture
def project(tmp_path, monkeypatch):
    """An empty project folder that `analysis.paths` points at."""
    _redirect(monkeypatch, tmp_path)
    return tmp_path


@pytest.fixture(scope="session")
def built(tmp_path_factory):
    """A report built once from two good notebooks, with a PDF."""
    from analysis.publish.report import build_report

    root = tmp_path_factory.mktemp("built")
    with pytest.MonkeyPatch.context() as patch:
        _redirect(patch, root)
        toys.write(root / "notebooks", "00_overview", *toys.OVERVIEW)
        toys.write(root / "notebooks", "01_method", *toys.METHOD, kernel=None)
        return build_report(output=root / "report")


@pytest.fixture(scope="module")
def browser(chromium_path):
    """Chromium, opened once for all tests of a file."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as driver:
        opened = driver.chromium.launch(executable_path=chromium_path, args=CHROMIUM_FLAGS)
        yield opened
        opened.close()
