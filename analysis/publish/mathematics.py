"""Formulas set at build time: TeX in, SVG out, so that the page needs neither script nor font for them."""

from __future__ import annotations

import functools
import html
import re
from typing import Any

from analysis.errors import DependencyError, ReportError

_DATA = re.compile(r' data-[a-z-]+="[^"]*"')
_ERROR = re.compile(r'data-mjx-error="([^"]*)"')
_UNKNOWN = re.compile(
    r'"mtext" fill="red" stroke="red" data-latex="(\\[^"]+)"'
)  # MathJax prints an unknown macro in red
PER_RENDERER = 400  # formulas; the memory of a renderer is bounded


class Formulas:
    """Set the formulas of one document; every SVG carries ids of its own and its TeX source as a label."""

    def __init__(self) -> None:
        self._count = 0

    def inline(self, tex: str) -> str:
        """Return a formula for running text; raise ReportError when TeX refuses it."""
        return f'<span class="formula">{self._svg(tex, display=False)}</span>'

    def display(self, tex: str) -> str:
        """Return a displayed formula in a block of its own; raise ReportError when TeX refuses it."""
        return f'<div class="formula-block">{self._svg(tex, display=True)}</div>'

    def _svg(self, tex: str, *, display: bool) -> str:
        source = tex.strip()
        svg = re.sub(r"MJX-\d+-", f"tex{self._count}-", _drawn(source, display))
        self._count += 1
        return svg.replace("<svg ", f'<svg aria-label="{html.escape(source)}" ', 1)


@functools.lru_cache(maxsize=4096)
def _drawn(source: str, display: bool) -> str:
    """Draw a formula once for the page and for paper; ids are those of the renderer."""
    try:
        svg = _renderer(_drawn.cache_info().misses // PER_RENDERER).render(source, display=display)
    except DependencyError:
        raise
    except Exception as error:  # the package raises its own and the engine's types
        raise ReportError(f"expected a TeX formula, received {source} ({error}); correct it") from error
    if unknown := _UNKNOWN.search(svg):
        raise ReportError(
            f"expected a TeX formula, received {source} ({unknown.group(1)} is unknown); correct it"
        )
    if "merror" in svg or "data-mjx-error" in svg:
        reason = _ERROR.search(svg)
        detail = html.unescape(reason.group(1)) if reason else "not understood"
        raise ReportError(f"expected a TeX formula, received {source} ({detail}); correct it")
    if 'width="100%"' in svg:
        raise ReportError(
            f"expected a formula without \\tag or numbering, received {source}; number equations in the text"
        )
    return _DATA.sub("", svg).replace(' focusable="false"', "")


@functools.lru_cache(maxsize=1)
def _renderer(number: int) -> Any:
    try:
        import quickjax
    except ImportError as error:
        raise DependencyError(
            "setting formulas needs quickjax, which is not installed; run `make setup`"
        ) from error
    return quickjax.MathJaxRenderer()
