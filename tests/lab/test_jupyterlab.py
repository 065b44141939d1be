"""The panel in a real JupyterLab: run all cells, move a control by the keyboard, see the figures change."""

import json
import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request

import nbformat
import pytest

from analysis.models import save
from analysis.paths import ROOT
from analysis.spec import Family
from tests.conftest import CHROMIUM_FLAGS
from tests.lab.conftest import random_host

pytestmark = [pytest.mark.browser, pytest.mark.slow]
QUIET = {"@jupyterlab/apputils-extension:notification": {"fetchNews": "false", "checkForUpdates": False}}
READY = """async () => {
  const app = window.jupyterapp;
  await app.restored;
  const widget = app.shell.currentWidget;
  await widget.context.ready;
  await widget.sessionContext.ready;
  return widget.context.path;
}"""
CELLS = """
from analysis import lab
from analysis.probes import subjects

studied = subjects("mine", samples={"vittt": 40})
---
lab.panel("steps", studied)
"""


def _free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@pytest.fixture(scope="module")
def laboratory(tmp_path_factory, chromium_path):
    """A JupyterLab server on a folder with one notebook and one checkpoint, without a token because it is a test."""
    folder, private = tmp_path_factory.mktemp("laboratory"), tmp_path_factory.mktemp("jupyter")
    save(random_host(Family.VITTT), folder / "mine")
    notebook = nbformat.v4.new_notebook(
        cells=[nbformat.v4.new_code_cell(source.strip()) for source in CELLS.split("---")]
    )
    notebook.metadata["kernelspec"] = {"name": "python3", "language": "python", "display_name": "Python 3"}
    nbformat.write(notebook, folder / "panel.ipynb")
    (private / "settings").mkdir()
    (private / "settings" / "overrides.json").write_text(json.dumps(QUIET))
    port = _free_port()
    command = [
        sys.executable, "-m", "jupyterlab", "--no-browser", "--allow-root", "--ip=127.0.0.1", f"--port={port}",
        "--ServerApp.port_retries=0", "--IdentityProvider.token=", "--LabApp.expose_app_in_browser=True",
        "--LabApp.check_for_updates_class=jupyterlab.NeverCheckForUpdate", f"--ServerApp.root_dir={folder}",
        f"--LabApp.app_settings_dir={private / 'settings'}",
    ]  # fmt: skip
    variables = {f"JUPYTER_{kind}_DIR": str(private / kind.lower()) for kind in ("CONFIG", "DATA", "RUNTIME")}
    log = (private / "log").open("w")
    server = subprocess.Popen(
        command,
        env={**os.environ, **variables, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
        stdout=log,
        stderr=subprocess.STDOUT,
    )
    try:
        _wait_for(f"http://127.0.0.1:{port}/api", server, private / "log")
        yield f"http://127.0.0.1:{port}/lab/tree/panel.ipynb"
    finally:
        server.terminate()
        server.wait(20)
        log.close()
        shutil.rmtree(private, ignore_errors=True)


def _wait_for(address, server, log):
    for _ in range(200):
        try:
            urllib.request.urlopen(address, timeout=1)
            return
        except (urllib.error.URLError, TimeoutError):
            assert server.poll() is None, log.read_text()
            time.sleep(0.15)
    raise AssertionError(log.read_text())


def test_a_control_moved_by_the_keyboard_changes_the_figures(laboratory, chromium_path, tmp_path):
    from playwright.sync_api import sync_playwright

    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=chromium_path, args=CHROMIUM_FLAGS)
        page = browser.new_page(viewport={"width": 1500, "height": 1300})
        strangers = []
        page.on(
            "request",
            lambda r: (
                None
                if "127.0.0.1" in r.url or r.url.startswith(("data:", "blob:"))
                else strangers.append(r.url)
            ),
        )
        page.goto(laboratory)
        page.wait_for_function("window.jupyterapp?.shell.currentWidget?.context !== undefined")
        page.evaluate(READY)
        page.evaluate("() => window.jupyterapp.commands.execute('notebook:run-all-cells')")
        page.wait_for_selector(".panel-ready", timeout=60_000)
        chart = page.locator("img[alt^='top-1 of the edits visited']")
        before = chart.get_attribute("src")
        handle = page.locator(".widget-slider", has_text="Inner steps").locator(".noUi-handle")
        handle.focus()
        start = time.monotonic()
        page.keyboard.press("ArrowRight")
        page.wait_for_function(
            "(old) => document.querySelector(\"img[alt^='top-1 of the edits visited']\").src !== old",
            arg=before,
        )
        seconds = time.monotonic() - start
        page.wait_for_selector(".panel-ready")
        assert "steps: 1 -> 2" in page.inner_text(".jp-OutputArea-output .widget-vbox >> nth=0")
        assert page.locator("button", has_text="V6").is_disabled()
        page.screenshot(path=str(tmp_path / "panel.png"))
        shutil.copy(tmp_path / "panel.png", os.environ.get("PANEL_SCREENSHOT", tmp_path / "kept.png"))
        page.locator("button", has_text="ascent").press("Enter")
        page.wait_for_function(
            "document.body.innerText.includes('direction: descent -> ascent')", timeout=10_000
        )
        browser.close()
    assert not strangers
    assert seconds < 5, "two seconds on a quiet machine; the rest is room for a busy one"
