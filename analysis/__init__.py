"""Test-time training layers as linear attention: load a checkpoint, edit its inner loop, measure, plot, report.

    import analysis
    host = analysis.load("checkpoints/lact_lm-baseline-s0")
    host.loops["fast_weights"]                       # the inner loop as data
    analysis.evaluate(host.edit(steps=4))            # records with their provenance

Importing the package imports neither torch nor anything else that is slow: every name arrives when it is first used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from analysis.errors import AnalysisError
    from analysis.inner import Inputs, run
    from analysis.models.checkpoints import load
    from analysis.models.sites import Tape
    from analysis.records import Record, RecordTable, Store, to_frame
    from analysis.spec import (
        Direction,
        Family,
        InnerLoop,
        Order,
        QuerySource,
        Trained,
        difference,
        ladder,
        reducibility,
    )
    from analysis.statistics import interval, tost

__version__ = "0.1.0"

__all__ = [
    "AnalysisError",
    "Direction",
    "Family",
    "InnerLoop",
    "Inputs",
    "Order",
    "QuerySource",
    "Record",
    "RecordTable",
    "Store",
    "Tape",
    "Trained",
    "difference",
    "interval",
    "ladder",
    "load",
    "reducibility",
    "run",
    "to_frame",
    "tost",
]

_HOMES = {
    "AnalysisError": "analysis.errors",
    "Direction": "analysis.spec",
    "Family": "analysis.spec",
    "InnerLoop": "analysis.spec",
    "Inputs": "analysis.inner",
    "Order": "analysis.spec",
    "QuerySource": "analysis.spec",
    "Record": "analysis.records",
    "RecordTable": "analysis.records",
    "Store": "analysis.records",
    "Tape": "analysis.models.sites",
    "Trained": "analysis.spec",
    "difference": "analysis.spec",
    "interval": "analysis.statistics",
    "ladder": "analysis.spec",
    "load": "analysis.models.checkpoints",
    "reducibility": "analysis.spec",
    "run": "analysis.inner",
    "to_frame": "analysis.records",
    "tost": "analysis.statistics",
}
_PACKAGES = (
    "data",
    "inner",
    "models",
    "probes",
    "publish",
    "records",
    "spec",
    "statistics",
    "theorems",
    "training",
)


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        value = getattr(importlib.import_module(_HOMES[name]), name)
        globals()[name] = value  # found without this function from now on
        return value
    if name in _PACKAGES:
        return importlib.import_module(f"analysis.{name}")
    from analysis.errors import closest

    raise AttributeError(
        f"module 'analysis' has no attribute {name!r}{closest(name, [*__all__, *_PACKAGES])}"
    )


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *_PACKAGES})
