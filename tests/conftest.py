"""Fixtures that every test may use. Nothing here imports torch before a test needs it."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from hypothesis import settings

from analysis.paths import ROOT

# one thread per process: two test processes share two cores, and tiny matrices gain nothing from more
for _name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ.setdefault(_name, "1")
os.environ.setdefault("MPLBACKEND", "Agg")
# Triton reads this when a kernel is defined, which any test may come to first; without a device its interpreter runs them.
if not shutil.which("nvidia-smi") and not Path("/dev/nvidiactl").exists():
    os.environ.setdefault("TRITON_INTERPRET", "1")

settings.register_profile("suite", deadline=None, derandomize=True, print_blob=True)
settings.load_profile("suite")

CHROMIUM_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
CHROMIUM_FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
]


@pytest.fixture(scope="session")
def parity_folder() -> Path:
    """Golden tensors of the published implementations: beside the checkout, or where TTT_ANALYSIS_PARITY says."""
    folder = Path(os.environ.get("TTT_ANALYSIS_PARITY", ROOT.parent / "shared" / "parity"))
    if not folder.is_dir():
        pytest.skip("the golden tensors are not on this machine")
    return folder


@pytest.fixture
def poisoned_memory():
    """Fill every uninitialised float tensor with NaN, so that a kernel that reads what nobody wrote is found out."""
    import torch

    before = (
        torch.are_deterministic_algorithms_enabled(),
        torch.is_deterministic_algorithms_warn_only_enabled(),
    )
    torch.use_deterministic_algorithms(True, warn_only=True)
    torch.utils.deterministic.fill_uninitialized_memory = True
    yield
    torch.use_deterministic_algorithms(before[0], warn_only=before[1])


@pytest.fixture(scope="session")
def chromium_path() -> str:
    """The browser of this machine; its absence skips, but under CI=true it fails."""
    for name in CHROMIUM_NAMES:
        if path := shutil.which(name):
            return path
    if os.environ.get("CI") == "true":
        pytest.fail("no Chromium was found, and under CI=true the browser tests must run")
    pytest.skip("no Chromium on this machine")


@pytest.fixture(autouse=True)
def _cuda_for_gpu_tests(request):
    if request.node.get_closest_marker("gpu"):
        import torch

        if not torch.cuda.is_available():
            pytest.skip("no CUDA device")
