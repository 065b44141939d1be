"""From records to figures, from notebooks to pages: nothing here imports torch.

Notebook authors need four names: `use_style`, `look`, `caption` and `save_figure`.
"""

from analysis.publish.captions import Caption, caption
from analysis.publish.figures import Shown, save_figure
from analysis.publish.style import DOUBLE_COLUMN, SINGLE_COLUMN, Look, look, styled, use_style

__all__ = [
    "DOUBLE_COLUMN",
    "SINGLE_COLUMN",
    "Caption",
    "Look",
    "Shown",
    "caption",
    "look",
    "save_figure",
    "styled",
    "use_style",
]
