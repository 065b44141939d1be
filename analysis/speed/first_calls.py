"""How long the first call takes in a new process, with an empty Triton cache and again with the cache it left."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import torch

from analysis.errors import ParameterError
from analysis.kernels.bench import LIMITS, first_call, first_tokens, run_kernels
from analysis.kernels.cases import Case, draw
from analysis.records import Record, provenance
from analysis.speed.comparisons import truth
from analysis.speed.rows import parameters
from analysis.speed.suites import loop_of, title

QUESTION = "first call"
CACHES = ("empty", "filled")
TIMEOUT_SECONDS = 180


def first_call_records(case: Case, command: str) -> list[Record]:
    """Start two processes after each other on one new cache folder, and return the seconds of each one's first call.

    Raises:
        ParameterError: a process failed, or the result of the call disagreed with float64.
    """
    with tempfile.TemporaryDirectory() as cache:
        found = [_in_new_process(case, cache) for _ in CACHES]
    return [
        Record(
            question=QUESTION,
            metric="seconds",
            unit="s",
            value=one["seconds"],
            parameters={**parameters(case, "triton"), "cache": name},
            **(provenance(torch.cuda.get_device_name()) | {"command": command}),
            extra={"error": one["error"]},
        )
        for name, one in zip(CACHES, found, strict=True)
    ]


def _in_new_process(case: Case, cache: str) -> dict[str, float]:
    surroundings = {**os.environ, "TRITON_CACHE_DIR": cache}
    command = [sys.executable, "-m", "analysis.speed.first_calls", json.dumps(asdict(case))]
    try:
        done = subprocess.run(
            command, env=surroundings, capture_output=True, text=True, timeout=TIMEOUT_SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        raise ParameterError(
            f"expected a first call of {title(case)} within {TIMEOUT_SECONDS} s, received none; run it alone to see more."
        ) from None
    if done.returncode:
        last = done.stderr.strip().splitlines()[-1:]
        raise ParameterError(
            f"expected a first call of {title(case)}, received an error: {' '.join(last)}; run it alone to see more."
        )
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    if not found["error"] <= LIMITS[case.dtype]:
        raise ParameterError(
            f"expected an error of at most {LIMITS[case.dtype]:g} against float64, received {found['error']:.1e}; mend the "
            "kernels before timing."
        )
    return found


def main(arguments: Sequence[str]) -> None:
    """Make one call of a case, given as JSON, and write its seconds and the error of its first chunks as JSON."""
    case = Case(**json.loads(arguments[0]))
    spec = loop_of(case)
    tensors = draw(spec, case, seed=97)
    with torch.no_grad():
        found, milliseconds = first_call(lambda: run_kernels(spec, case, tensors))
        exact, _ = truth(spec, tensors.each(lambda x: x.double()))
        first, exact = (outputs[:, :, : first_tokens(case)] for outputs in (found.outputs.double(), exact))
        error: Any = (first - exact).norm() / exact.norm()
    sys.stdout.write(json.dumps({"seconds": milliseconds / 1e3, "error": float(error)}) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
