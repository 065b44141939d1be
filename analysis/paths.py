"""The fixed top-level folders; importing this module creates nothing.

The root is the folder above the package (a checkout), or `TTT_ANALYSIS_ROOT` when the package is installed elsewhere.
"""

from __future__ import annotations

import os
from pathlib import Path

ROOT = Path(os.environ.get("TTT_ANALYSIS_ROOT", Path(__file__).resolve().parent.parent))
NOTEBOOKS = ROOT / "notebooks"
CHECKPOINTS = ROOT / "checkpoints"
FIGURES = ROOT / "figures"
REPORT = ROOT / "report"
RECORDS = REPORT / "records"
CACHE = Path(os.environ.get("TTT_ANALYSIS_CACHE", ROOT / ".cache"))
