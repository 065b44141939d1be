"""The real notebooks on the shipped checkpoints, with few samples: one command, and the page as a colleague opens it."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from analysis.paths import ROOT
from tests.conftest import CHROMIUM_FLAGS

FEW = '{"lact_lm": 2, "lact_nvs": 3, "vittt": 20}'
SETTINGS = {
    "02_inner_steps.samples": FEW,
    "02_inner_steps.steps": "[1, 2]",
    "03_gradient_ascent.samples": FEW,
    "04_qkvo_distributions.samples": FEW,
    "04_qkvo_distributions.vectors": "60",
    "04_qkvo_distributions.permutations": "100",
    "05_query_to_key.samples": FEW,
    "06_theorems.chunk_counts": "[1, 2, 3]",
    "07_reduction_ladder.samples": FEW,
    "08_parallel_throughput.tokens": "128",
    "08_parallel_throughput.chunk": "16",
    "08_parallel_throughput.repeats": "3",
    "09_your_checkpoint.samples": FEW,
    "09_your_checkpoint.steps": "[1, 2]",
    "09_your_checkpoint.vectors": "40",
}
LARGEST = 8 * 2**20

pytestmark = [pytest.mark.browser, pytest.mark.slow, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    """The folder of a report built in a root of its own, so that no output of the reader is touched."""
    root = tmp_path_factory.mktemp("whole")
    for name in ("analysis", "notebooks", "checkpoints", "requirements.txt"):
        (root / name).symlink_to(ROOT / name)
    (root / "report").mkdir()
    (root / "report" / "records").symlink_to(ROOT / "report" / "records")
    command = [sys.executable, "-m", "analysis", "report", "--output", str(root / "page"), "--jobs", "2"]
    for name, value in SETTINGS.items():
        command += ["--set", f"{name}={value}"]
    surroundings = {**os.environ, "TTT_ANALYSIS_ROOT": str(root), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, cwd=ROOT, env=surroundings, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    return root / "page"


def test_the_command_writes_page_and_paper(report):
    page = report / "index.html"
    assert page.stat().st_size < LARGEST
    assert (report / "report.pdf").read_bytes().startswith(b"%PDF")


def test_every_figure_and_formula_is_drawn_without_a_request(report, chromium_path):
    from playwright.sync_api import sync_playwright

    problems: list[str] = []
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=chromium_path, args=CHROMIUM_FLAGS)
        page = browser.new_context(offline=True).new_page()
        page.on("request", lambda request: problems.append(request.url) if _is_foreign(request.url) else None)
        page.on("console", lambda message: problems.append(message.text) if message.type == "error" else None)
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.goto((report / "index.html").as_uri())
        drawn = (
            "all => all.map(one => one.getBoundingClientRect()).map(box => box.width > 0 && box.height > 0)"
        )
        figures = page.eval_on_selector_all("article figure svg, article figure img", drawn)
        formulas = page.eval_on_selector_all("article svg[role=img]", drawn)
        browser.close()
    assert not problems
    assert len(figures) >= 15 and all(figures)
    assert len(formulas) > len(figures) and all(formulas)


def _is_foreign(url: str) -> bool:
    return not url.startswith(("file:", "data:"))
