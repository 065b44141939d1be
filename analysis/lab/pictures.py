"""Small pictures inside HTML: arrays and drawings as embedded PNGs, drawn without pyplot so that a thread may do it."""

from __future__ import annotations

import base64
import html
import io
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
from torch import Tensor

from analysis.publish.style import styled

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MUTED = "color:var(--jp-ui-font-color2,#50565d)"


def picture(image: Tensor, alt: str, width: int = 112) -> str:
    """Return an image [3, h, w] in 0..1 as an <img>, enlarged without smoothing."""
    from PIL import Image

    pixels = (image.detach().float().clamp(0, 1) * 255).round().byte().permute(1, 2, 0).cpu().numpy()
    stream = io.BytesIO()
    Image.fromarray(np.ascontiguousarray(pixels)).save(stream, "PNG")
    return _img(stream.getvalue(), alt, f"width:{width}px;image-rendering:pixelated;display:block")


def drawing(draw: Callable[[Figure], Any], alt: str, size: tuple[float, float]) -> str:
    """Return what `draw` puts on a figure of `size` inches as an <img> in the style of the report."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    with styled():
        figure = Figure(figsize=size, layout="constrained")
        FigureCanvasAgg(figure)
        draw(figure)
        stream = io.BytesIO()
        figure.savefig(stream, format="png", dpi=144, facecolor="white")
    return _img(
        stream.getvalue(), alt, f"width:{size[0] * 100:.0f}px;max-width:100%;display:block;background:#fff"
    )


def _img(png: bytes, alt: str, style: str) -> str:
    source = base64.b64encode(png).decode()
    return f'<img alt="{html.escape(alt)}" style="{style}" src="data:image/png;base64,{source}">'


def titled(title: str, note: str, content: str) -> str:
    """Return one view of the panel: its title, a line of explanation, its content."""
    said = f'<div style="{MUTED};max-width:68ch;line-height:1.4">{note}</div>' if note else ""
    return f'<div style="margin:0 0 14px"><div style="font-weight:600;line-height:1.8">{title}</div>{said}{content}</div>'
