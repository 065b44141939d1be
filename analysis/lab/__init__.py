"""The laboratory: control panels for notebooks, and hosts made of a reader's own layer.

from analysis import lab
lab.panel("steps", studied)          # controls and live views; nothing when a notebook runs without a reader
"""

from analysis.lab.comparison import Comparison, compare
from analysis.lab.panels import Panel, panel

__all__ = ["Comparison", "Panel", "compare", "panel"]
