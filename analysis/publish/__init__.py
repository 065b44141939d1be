"""From records to figures, from notebooks to pages: nothing here imports torch.

Notebook authors need five names: `use_style`, `look`, `caption`, `save_figure`, and `mark_rows` for points that name their rows.
"""

from analysis.publish.captions import Caption, caption
from analysis.publish.figures import Shown, save_figure
from analysis.publish.marks import mark_rows
from analysis.publish.style import DOUBLE_COLUMN, SINGLE_COLUMN, Look, look, styled, use_style

__all__ = [
    "DOUBLE_COLUMN",
    "SINGLE_COLUMN",
    "Caption",
    "Look",
    "Shown",
    "caption",
    "look",
    "mark_rows",
    "save_figure",
    "styled",
    "use_style",
]
