"""`bench`: tokens per second of every backend on every rung, each only after it agreed with the reference."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

AGREEMENT = 1e-8
"""Largest relative error, in float64, up to which a backend's speed is worth telling."""


@dataclass(frozen=True, kw_only=True)
class Shape:
    """The sizes that are measured: a small language-model layer over several chunks."""

    tokens: int = 1024
    chunk: int = 64
    heads: int = 4
    width: int = 32
    repeats: int = 5


def bench(device: str, shape: Shape) -> Any:
    """Return a table with one row per rung of the LaCT-LM ladder and backend: error against the reference, speed, reason.

    A backend that cannot run a rung shows why; one that disagrees shows its error and no speed.
    """
    from rich.table import Table

    from analysis.commands.device import usable
    from analysis.inner.backends import BACKENDS
    from analysis.spec import Family, ladder

    table = Table(
        title=f"{shape.tokens} tokens, chunks of {shape.chunk}, {shape.heads} heads of {shape.width}, {device}"
    )
    for title in ("rung", "backend", "relative error", "tokens/s", "note"):
        table.add_column(title, overflow="fold")
    for rung, loops in ladder(Family.LACT_LM, chunk=shape.chunk).items():
        (spec,) = loops.values()
        for name in BACKENDS:
            if name != "reference":
                table.add_row(rung, name, *_row(spec, name, usable(device), shape))
    return table


def _row(spec: Any, backend: str, device: str, shape: Shape) -> tuple[str, str, str]:
    import torch

    from analysis.inner import run
    from analysis.inner.backends import BACKENDS

    inputs, weights = _draw(spec, device, shape, torch.float64)
    capability = BACKENDS[backend].capability(spec, inputs)
    if not capability.is_capable:
        return "", "", capability.reason
    truth = run(spec, inputs, weights, backend="reference").outputs.detach()
    found = run(spec, inputs, weights, backend=backend).outputs.detach()
    error = float((found - truth).norm() / truth.norm())
    if not error <= AGREEMENT:
        return f"{error:.1e}", "", f"disagrees with the reference (limit {AGREEMENT:g}), so no speed is given"
    inputs, weights = _draw(spec, device, shape, torch.float32)
    seconds = sorted(_seconds(spec, inputs, weights, backend) for _ in range(shape.repeats))[
        shape.repeats // 2
    ]
    return f"{error:.1e}", f"{shape.tokens / seconds:,.0f}", ""


def _seconds(spec: Any, inputs: Any, weights: Any, backend: str) -> float:
    import torch

    from analysis.inner import run

    with torch.no_grad():
        start = time.perf_counter()
        outputs = run(spec, inputs, weights, backend=backend).outputs
        if outputs.device.type == "cuda":
            torch.cuda.synchronize(outputs.device)
        return time.perf_counter() - start


def _draw(spec: Any, device: str, shape: Shape, dtype: Any) -> tuple[Any, dict[str, Any]]:
    import torch

    from analysis.inner import Inputs

    generator = torch.Generator().manual_seed(0)

    def normal(*size: int) -> Any:
        return torch.randn(1, shape.heads, *size, generator=generator, dtype=torch.float64).to(device, dtype)

    def gate() -> Any:
        drawn = torch.rand(1, shape.heads, shape.tokens, 1, generator=generator, dtype=torch.float64)
        return drawn.to(device, dtype)

    weights = {
        name: normal(shape.width, shape.width) / shape.width**0.5 for name in spec.network.fast_weights
    }
    q, k, v = (normal(shape.tokens, shape.width) for _ in range(3))
    rates = {name: 0.02 * gate() for name in spec.rate_names}
    return Inputs(q, k, v, rates=rates, momentum=gate() if spec.needs_momentum_input else None), weights
