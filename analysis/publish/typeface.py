"""The text face of the report: the STIX fonts that come with matplotlib, reduced to the letters a report needs."""

from __future__ import annotations

import base64
import functools
import io
from pathlib import Path

FACES = (
    ("STIXGeneral.ttf", 400, "normal"),
    ("STIXGeneralItalic.ttf", 400, "italic"),
    ("STIXGeneralBol.ttf", 700, "normal"),
    ("STIXGeneralBolIta.ttf", 700, "italic"),
)
ASCENT, DESCENT = 0.89, 0.27  # of the type size
LETTERS = (
    *range(0x20, 0x7F), *range(0xA0, 0x180), *range(0x370, 0x3D7),  # Latin, Greek
    *range(0x2010, 0x2040), *range(0x2070, 0x2095), *range(0x2190, 0x21AA),  # punctuation, small figures, arrows
    *range(0x2200, 0x2270), 0x20AC, 0x2113, 0x211D, 0x2122,  # mathematical operators and letters
)  # fmt: skip


@functools.cache
def font_faces() -> str:
    """Return the @font-face rules of the family `Report Serif` with the fonts inside, the same bytes every time."""
    return "\n".join(
        f'@font-face{{font-family:"Report Serif";font-weight:{weight};font-style:{style};font-display:block;'
        f"src:url(data:font/woff;base64,{_reduced(file)}) format('woff')}}"
        for file, weight, style in FACES
    )


def _reduced(file: str) -> str:
    import matplotlib
    from fontTools import subset

    options = subset.Options(
        flavor="woff", layout_features=["kern", "liga"], hinting=False, recalc_timestamp=False
    )
    options.drop_tables += ["FFTM"]  # editor time stamps
    font = subset.load_font(str(Path(matplotlib.get_data_path(), "fonts", "ttf", file)), options)
    reducer = subset.Subsetter(options)
    reducer.populate(unicodes=LETTERS)
    reducer.subset(font)
    # The originals reserve room for towering symbols; without this a heading's line reaches over the page's edge.
    size = font["head"].unitsPerEm
    line, typographic = font["hhea"], font["OS/2"]
    line.ascent = typographic.sTypoAscender = round(ASCENT * size)
    line.descent = typographic.sTypoDescender = -round(DESCENT * size)
    line.lineGap = typographic.sTypoLineGap = 0
    stream = io.BytesIO()
    subset.save_font(font, stream, options)
    return base64.b64encode(stream.getvalue()).decode()
