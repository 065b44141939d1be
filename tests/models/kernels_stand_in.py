"""A backend in the place of the kernels, for machines without a CUDA device, and a log of what the backends were asked."""

from __future__ import annotations

import dataclasses

import pytest

from analysis.errors import UnsupportedSpecError
from analysis.inner import BACKENDS, Backend, Capability, Result, backends
from analysis.inner.reference import run_reference

REFUSAL = "measure=True: the stand-in keeps no inner losses"
Log = list[tuple[str, bool]]


def log_runs(monkeypatch: pytest.MonkeyPatch) -> Log:
    """Return a list that fills with (backend, whether it measured) at each run of an inner loop."""
    log: Log = []

    def logged(backend: Backend) -> Backend:
        def function(*arguments, **options) -> Result:
            log.append((backend.name, options["measure"]))
            return backend.function(*arguments, **options)

        return dataclasses.replace(backend, function=function)

    for name, backend in BACKENDS.items():
        monkeypatch.setitem(BACKENDS, name, logged(backend))
    return log


def stand_in(monkeypatch: pytest.MonkeyPatch, says: str = "triton") -> None:
    """Let `auto` take a backend like the kernels: it refuses to measure, computes by the reference and `says` what it is."""

    def function(spec, inputs, weights, *, measure, newton_schulz_dtype) -> Result:
        if measure:
            raise UnsupportedSpecError(REFUSAL)
        return dataclasses.replace(run_reference(spec, inputs, weights), backend=says)

    def capability(spec, inputs) -> Capability:
        return Capability(True, "stands in for the kernels")

    choose = backends.choose

    def chosen(spec, inputs, *, measure=False, newton_schulz_dtype=None) -> str:
        return choose(spec, inputs, measure=True) if measure else "triton"

    monkeypatch.setitem(BACKENDS, "triton", Backend("triton", capability, function))
    monkeypatch.setattr(backends, "choose", chosen)
