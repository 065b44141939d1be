"""How fast the backends are on this machine: recurrent and parallel called in turn, after both agreed with autograd.

Two backends are called alternately, so that another program that slows the machine slows both, and their ratio is the median
over the pairs.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Sequence
from statistics import median

import torch

from analysis.errors import ParameterError
from analysis.inner import BACKENDS, Inputs, run
from analysis.inner.compiled import allow_many_graphs
from analysis.kernels.cases import Case, Tensors, draw
from analysis.records import Record
from analysis.spec import RUNGS, InnerLoop
from analysis.speed.rows import INCLUDED, timed
from analysis.speed.suites import forms, loop_of

AGREEMENT = 1e-8
"""Largest relative error, in float64, up to which a backend's speed is worth telling."""
SMALL = Case("baseline", "recurrent", tokens=2048, chunk=64, width=32, dtype="float32")
"""A layer of a small language model over many chunks."""
BATCHED = Case("baseline", "recurrent", tokens=1024, chunk=64, width=64, heads=2, batch=8, dtype="float32")
"""The layer of the shipped language models with eight sequences at once: the recurrent form has enough to do there as well."""


def inputs_of(tensors: Tensors) -> Inputs:
    """Return an input set as an inner loop takes it."""
    return Inputs(tensors.q, tensors.k, tensors.v, tensors.rates, tensors.momentum)


def refusal(spec: InnerLoop, case: Case, backend: str) -> str | None:
    """Return why a backend cannot run a loop in float64, in which it would be checked, or None when it can."""
    tensors = draw(spec, case, 0, "cpu").each(lambda x: x.double())
    capability = BACKENDS[backend].capability(spec, inputs_of(tensors))
    return None if capability.is_capable else capability.reason


def error(spec: InnerLoop, case: Case, backend: str) -> float:
    """Return the relative error of a backend's outputs against the autograd reference, both in float64."""
    allow_many_graphs()
    tensors = draw(spec, case, 97, "cpu").each(lambda x: x.double())
    truth = run(spec, inputs_of(tensors), tensors.weights, backend="reference").outputs.detach()
    with torch.no_grad():
        found = run(spec, inputs_of(tensors), tensors.weights, backend=backend).outputs
    return float((found - truth).norm() / truth.norm())


def times(spec: InnerLoop, case: Case, backends: Sequence[str], repeats: int) -> dict[str, list[float]]:
    """Return milliseconds of every backend, called in turn, after one call of each to warm up."""
    sets = [draw(spec, case, seed, "cpu") for seed in range(2)]
    found: dict[str, list[float]] = {name: [] for name in backends}
    with torch.no_grad():
        for index in range(repeats + 1):
            tensors = sets[index % len(sets)]
            for name in backends:
                start = time.perf_counter()
                run(spec, inputs_of(tensors), tensors.weights, backend=name)
                if index:
                    found[name].append((time.perf_counter() - start) * 1e3)
    return found


@contextlib.contextmanager
def on_threads(count: int | None) -> Iterator[None]:
    """Let operations of torch use so many threads of this process; None leaves them as they are."""
    before = torch.get_num_threads()
    torch.set_num_threads(count or before)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def compare(case: Case = SMALL, *, repeats: int = 25, threads: int | None = None) -> tuple[Record, ...]:
    """Return the records of both forms on every rung that has a parallel one; sizes are those of `case`, forward in float32.

    threads: how many threads are timed; None takes torch's own number.

    Raises:
        ParameterError: a form disagrees with the reference, so its speed means nothing.
    """
    records = []
    for rung in RUNGS:
        if "parallel" not in forms(rung.key):
            continue
        here = Case(**(vars(case) | {"rung": rung.key, "dtype": "float32"}))
        spec = loop_of(here)
        errors = {form: error(spec, here, form) for form in forms(rung.key)}
        for form, found in errors.items():
            if not found <= AGREEMENT:
                raise ParameterError(
                    f"expected {form} and reference to agree to {AGREEMENT:g} on {rung.name}, received {found:.1e}; mend "
                    "the backend before timing it."
                )
        with on_threads(threads):
            for form, samples in times(spec, here, forms(rung.key), repeats).items():
                records.append(_record(here, form, spec, samples, errors[form]))
    return tuple(records)


def _record(case: Case, form: str, spec: InnerLoop, samples: list[float], error: float) -> Record:
    timing = {
        "median_ms": median(samples),
        "fastest_ms": min(samples),
        "slowest_ms": max(samples),
        "samples": samples,
    }
    extra = {"errors": {"outputs": error}, "threads": torch.get_num_threads()}
    shaped = Case(**(vars(case) | {"form": form}))
    return timed(
        shaped, form, spec, timing, device="cpu", command="ttt-analysis bench", extra=extra, issuing=INCLUDED
    )
