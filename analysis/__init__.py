"""Test-time training layers as linear attention: load a checkpoint, edit its inner loop, measure, plot, report.

    import analysis
    host = analysis.load("checkpoints/lact_lm-baseline-s0")
    edited = host.edit(steps=4)                              # the inner loop is data; a notebook shows the difference
    both = analysis.compare(host, edited, samples=8)         # the same examples, paired; the table has intervals
    both.plot()

Importing the package imports neither torch nor anything else that is slow: every name arrives when it is first used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from analysis.errors import AnalysisError
    from analysis.inner import Inputs, run
    from analysis.lab import compare
    from analysis.models.checkpoints import load
    from analysis.models.sites import Tape
    from analysis.probes import run as probe
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
    "compare",
    "difference",
    "interval",
    "ladder",
    "load",
    "probe",
    "reducibility",
    "run",
    "to_frame",
    "tost",
]

_HOMES = {
    "AnalysisError": "analysis.errors:AnalysisError",
    "Direction": "analysis.spec:Direction",
    "Family": "analysis.spec:Family",
    "InnerLoop": "analysis.spec:InnerLoop",
    "Inputs": "analysis.inner:Inputs",
    "Order": "analysis.spec:Order",
    "QuerySource": "analysis.spec:QuerySource",
    "Record": "analysis.records:Record",
    "RecordTable": "analysis.records:RecordTable",
    "Store": "analysis.records:Store",
    "Tape": "analysis.models.sites:Tape",
    "Trained": "analysis.spec:Trained",
    "compare": "analysis.lab:compare",
    "difference": "analysis.spec:difference",
    "interval": "analysis.statistics:interval",
    "ladder": "analysis.spec:ladder",
    "load": "analysis.models.checkpoints:load",
    "probe": "analysis.probes:run",
    "reducibility": "analysis.spec:reducibility",
    "run": "analysis.inner:run",
    "to_frame": "analysis.records:to_frame",
    "tost": "analysis.statistics:tost",
}
_PACKAGES = (
    "data",
    "inner",
    "lab",
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
        home, _, attribute = _HOMES[name].partition(":")
        value = getattr(importlib.import_module(home), attribute)
        globals()[name] = value  # found without this function from now on
        return value
    if name in _PACKAGES:
        return importlib.import_module(f"analysis.{name}")
    from analysis.errors import closest

    raise AttributeError(
        f"module 'analysis' has no attribute {name!r}{closest(name, [*__all__, *_PACKAGES])}"
    )


def __dir__() -> list[str]:
    return sorted(
        {*__all__, *_PACKAGES, "__version__"}
    )  # what a reader may use, without the imports of this file
