"""Timing warm calls with device events."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch

from analysis.kernels.cases import Tensors
from analysis.kernels.roofline import event_milliseconds

ISSUING_CYCLES = 4_000_000
"""About two milliseconds of the device's clock, in which a processor issues a call of the kernels."""


@dataclass
class Timing:
    """Milliseconds of the warm calls of one implementation on one case, and the peak GiB beyond the inputs."""

    median_ms: float
    fastest_ms: float
    slowest_ms: float
    peak_gib: float
    samples: list[float] = field(repr=False)


def clock(call: Callable[[Tensors], Any], sets: list[Tensors], repeats: int = 25) -> Timing:
    """Time a call with device events, warm, over rotating inputs.

    The device is kept busy while the processor issues the call, as it is in a network of many layers; what takes longer to
    issue than that, launch by launch, still waits for the processor.
    """
    torch.cuda.synchronize()
    held = torch.cuda.memory_allocated()
    for index in range(5):
        call(sets[index % len(sets)])
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    samples = []
    for index in range(repeats):
        torch.cuda._sleep(ISSUING_CYCLES)
        samples.append(event_milliseconds(partial(call, sets[index % len(sets)])))
    peak = (torch.cuda.max_memory_allocated() - held) / 2**30
    return Timing(statistics.median(samples), min(samples), max(samples), peak, samples)
