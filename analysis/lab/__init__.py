"""The laboratory: control panels for notebooks, and hosts made of a reader's own layer.

from analysis import lab
lab.panel("steps", studied)   # controls and live views; nothing when a notebook runs without a reader
lab.compare(host, edited)     # both on the same examples
lab.adopt(model, ...)         # a host around a layer of your own
"""

from analysis.lab.comparison import Comparison, compare
from analysis.lab.own_layer import InnerLoopModel, adopt
from analysis.lab.panels import Panel, panel
from analysis.lab.provenance import Provenance, provenance
from analysis.models.evaluation import Metric

__all__ = [
    "Comparison",
    "InnerLoopModel",
    "Metric",
    "Panel",
    "Provenance",
    "adopt",
    "compare",
    "panel",
    "provenance",
]
