"""One example seen through an edited host: loss coloured over text, rendered beside true views, images with predictions."""

from __future__ import annotations

import html
import math
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor

from analysis.lab.edits import Choice
from analysis.lab.examples import Batch
from analysis.lab.latest import Wanted
from analysis.lab.passes import Pass, Passes
from analysis.lab.pictures import MUTED, picture, titled
from analysis.models.host import EditedHost
from analysis.spec import Family

SHOWN_IMAGES = 12
LOSS_BINS = (  # upper end in nats, ground, ink: one hue from light to dark, each pair with a contrast above 4.5
    (0.25, "#ffffff", "#16181b"),
    (1.0, "#dcebf8", "#16181b"),
    (2.0, "#b3d2ec", "#16181b"),
    (3.5, "#7db0da", "#16181b"),
    (5.5, "#2a6fab", "#ffffff"),
    (float("inf"), "#0a3a69", "#ffffff"),
)
CHANGE_BINS = (  # blue where the edit helps, orange where it hurts
    (-1.0, "#0a5a8a", "#ffffff"),
    (-0.2, "#a9d3ea", "#16181b"),
    (0.2, "#ffffff", "#16181b"),
    (1.0, "#f7cfa8", "#16181b"),
    (float("inf"), "#a84600", "#ffffff"),
)


@dataclass(frozen=True)
class Losses:
    """The tokens of one text with the loss of each in nats, under an edit and as trained."""

    tokens: tuple[str, ...]
    here: tuple[float, ...]
    trained: tuple[float, ...]


def losses(passes: Passes, edited: EditedHost, choice: Choice, wanted: Wanted) -> Losses:
    """Return the loss of every token of the chosen text."""
    bench = passes.bench
    batch = bench.example(choice.example)
    tokens = (batch["tokens"][0, 1:] if "tokens" in batch else batch["input_ids"][0, 1:]).tolist()

    def nll(seen: Pass) -> tuple[float, ...]:
        found = bench.host.metrics(seen.outputs(choice.example), batch)["nll_by_position"][0]
        return tuple(found.tolist())

    here = nll(passes.showing(edited, choice, wanted))
    return Losses(tuple(map(bench.decode, tokens)), here, nll(passes.trained(choice, wanted)))


def text_view(found: Losses, colour: str, chosen: int) -> str:
    """Return the text with every token on the colour of its loss ('loss') or of its change; one token is read out."""
    bins, change = (LOSS_BINS, False) if colour == "loss" else (CHANGE_BINS, True)
    spans, said = [], ""
    for place, (text, here, trained) in enumerate(
        zip(found.tokens, found.here, found.trained, strict=False), start=1
    ):
        line = f"{text!r}: {here:.2f} nats, as trained {trained:.2f}"
        said = f"Token {place} of {len(found.here)}, {line}" if place == chosen else said
        spans.append(_token(text, here - trained if change else here, line, bins, marked=place == chosen))
    body = (
        f'<p role="status" aria-live="polite" style="margin:.3em 0">{html.escape(said)}</p>'
        '<div tabindex="0" role="region" aria-label="Text coloured by loss" style="max-height:300px;overflow:auto;'
        "font:12.5px/1.75 var(--jp-code-font-family,monospace);white-space:pre-wrap;border:1px solid #c9cdd2;"
        f'padding:6px 8px;background:#fff;color:#16181b">{"".join(spans)}</div>'
    )
    mean, before = (_mean(one) for one in (found.here, found.trained))
    what = "Change of every token's loss against the model as trained" if change else "Loss of every token"
    note = (
        f"{what}, in nats; hover over one for its numbers, or choose it with Token. This text: mean {mean:.3f}, as trained "
        f"{before:.3f}."
    )
    return titled("Text", f"{note} {_legend(bins)}", body)


def _mean(values: tuple[float, ...]) -> float:
    """The mean of the scored tokens; one that is not scored has no number."""
    scored = [value for value in values if not math.isnan(value)]
    return sum(scored) / len(scored) if scored else math.nan


def picture_view(passes: Passes, edited: EditedHost, choice: Choice, wanted: Wanted) -> str:
    """Return rendered and true views, or images with their prediction; '' for a host whose task has no picture."""
    family, index = passes.bench.host.family, choice.example
    if family not in (Family.LACT_NVS, Family.VITTT):
        return ""
    count = 1 if family is Family.LACT_NVS else min(SHOWN_IMAGES, passes.bench.size - index)
    here, trained = (
        seen.outputs(index, count).float()
        for seen in (passes.showing(edited, choice, wanted, count), passes.trained(choice, wanted, count))
    )
    batch = passes.bench.example(index, count)
    if family is Family.LACT_NVS:
        return _views(batch, here[0], trained[0], dict(edited.loops) != dict(edited.trained_loops))
    return _images(batch, here, trained, passes.bench.classes)


def _bin(value: float, bins: tuple[tuple[float, str, str], ...]) -> tuple[str, str]:
    return next(((ground, ink) for end, ground, ink in bins if value <= end), bins[-1][1:])


def _token(
    text: str, value: float, said: str, bins: tuple[tuple[float, str, str], ...], *, marked: bool
) -> str:
    ground, ink = _bin(value, bins)
    ring = ";outline:2px solid #16181b;outline-offset:1px" if marked else ""
    # a character whose bytes are spread over tokens cannot be shown in one of them
    shown = html.escape(text).replace("\n", "⏎\n").replace("\ufffd", "·")
    return f'<span title="{html.escape(said)}" style="background:{ground};color:{ink}{ring}">{shown}</span>'


def _legend(bins: tuple[tuple[float, str, str], ...]) -> str:
    """A key with the numbers written on the colours."""
    ends = [end for end, _, _ in bins[:-1]]
    labels = [
        f"≤ {ends[0]:g}",
        *(f"{a:g} to {b:g}" for a, b in pairwise(ends)),
        f"> {ends[-1]:g}",
    ]
    cells = "".join(
        f'<span style="background:{ground};color:{ink};border:1px solid #c9cdd2;padding:0 .5em;white-space:nowrap">{label}</span>'
        for (_, ground, ink), label in zip(bins, labels, strict=True)
    )
    return f'<span style="font-size:11px">{cells}</span>'


def _views(batch: Batch, rendered: Tensor, trained: Tensor, is_edited: bool) -> str:
    rows = []
    for number, (here, before, true) in enumerate(
        zip(rendered, trained, batch["target_images"][0], strict=True), start=1
    ):
        cells = [
            (before, f"view {number} as trained, {_psnr(before, true):.2f} dB"),
            (here, f"view {number} with the edit, {_psnr(here, true):.2f} dB"),
            (true, f"view {number}, true"),
        ]
        rows.append(
            "".join(_captioned(image, text) for image, text in (cells if is_edited else (cells[0], cells[2])))
        )
    inputs = "".join(_captioned(image, f"input {i}") for i, image in enumerate(batch["images"][0], start=1))
    grid = "".join(f'<div style="display:flex;gap:10px;margin:6px 0">{row}</div>' for row in rows)
    head = f'<div style="display:flex;gap:10px;margin:6px 0">{inputs}</div>'
    return titled("Rendered and true views", "PSNR of each rendered view against the true one.", grid + head)


def _psnr(image: Tensor, true: Tensor) -> float:
    error = float(((image.clamp(0, 1) - true.to(image.device)) ** 2).double().mean())
    return -10 * torch.log10(torch.tensor(max(error, 1e-12))).item()


def _captioned(image: Tensor, text: str, width: int = 112) -> str:
    caption = f'<figcaption style="font-size:11px;line-height:1.3;{MUTED};width:{width}px">{html.escape(text)}</figcaption>'
    return f'<figure style="margin:0">{picture(image, "", width)}{caption}</figure>'


def _displayable(image: Tensor) -> Tensor:
    """Undo the usual normalisation of -1..1; other ranges are stretched to what can be shown."""
    low, high = float(image.min()), float(image.max())
    if low >= -1.001 and high <= 1.001:
        return image * 0.5 + 0.5
    return (image - low) / max(high - low, 1e-6)


def _images(batch: Batch, logits: Tensor, logits_trained: Tensor, classes: tuple[str, ...]) -> str:
    chances, trained = logits.softmax(-1), logits_trained.argmax(-1)
    names = classes or tuple(map(str, range(chances.shape[-1])))
    cells = []
    for image, chance, before, label in zip(batch["images"], chances, trained, batch["labels"], strict=True):
        best, true = int(chance.argmax()), int(label)
        mark = "✓" if best == true else "✗"
        said = f"{mark} {names[best]} ({float(chance[best]):.0%})"
        truth = "" if best == true else f"; true: {names[true]}"
        moved = "" if int(before) == best else f"; as trained: {names[int(before)]}"
        cells.append(_captioned(_displayable(image), said + truth + moved, 88))
    grid = f'<div style="display:grid;grid-template-columns:repeat(auto-fill,92px);gap:8px;margin:6px 0">{"".join(cells)}</div>'
    return titled(
        "Images with their prediction",
        "✓ right, ✗ wrong; the probability of the predicted class in brackets.",
        grid,
    )
