"""The measurements of a suite as jobs, and compiling their code beforehand in several processes."""

from __future__ import annotations

import functools
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from analysis.kernels.bench import Implementation, measure, run_kernels, training_call
from analysis.kernels.cases import Case, draw
from analysis.kernels.roofline import ceilings
from analysis.records import Record
from analysis.speed import comparisons, flash
from analysis.speed.first_calls import first_call_records
from analysis.speed.rows import case_records
from analysis.speed.session import Job
from analysis.speed.suites import STEPS, cases, loop_of, title

COMPARED = ("ladder", "training")
"""Suites whose cases are compared with other implementations; a sweep would compile for longer than it measures."""


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What to measure: suites, the shape of the ladder, the text, and the command's name."""

    suites: tuple[str, ...]
    base: Case
    corpus: Path | None = None
    is_prepared: bool = False

    @property
    def command(self) -> str:
        """The command that makes these records again."""
        return f"ttt-analysis bench --suite {','.join(self.suites)}"


@functools.cache
def device_ceilings() -> Mapping[str, float]:
    """Return what this device reaches in products and copies, measured once a process."""
    return ceilings()


def jobs(settings: Settings, say: Callable[[str], None]) -> list[Job]:
    """Return every job of the chosen suites, in order."""
    found: list[Job] = []
    for suite in settings.suites:
        if suite == "steps":
            found += [_step_job(name, settings) for name in STEPS]
        for case in cases(suite, settings.base):
            found.append(
                _first_call_job(case, settings) if suite == "first" else _case_job(suite, case, settings, say)
            )
        if suite == "ladder" and flash.is_installed():
            found.append(_flash_job(settings))
    device = torch.cuda.get_device_name()
    return [Job(job.name, job.seconds, {**job.inputs, "device": device}, job.take) for job in found]


def expected_seconds(suite: str, case: Case, is_prepared: bool) -> float:
    """Return about how long a case takes: drawing, checking, timing, and compiling what it is compared with."""
    size = case.tokens / 32768 * case.width / 384
    seconds = 2.0 + size + (8.0 * size if case.passes == "training" else 0.0)
    if suite in COMPARED:
        compiling = 25.0 * (2.5 if case.passes == "training" else 1.0)
        seconds += compiling * (0.3 if is_prepared else 1.0)
    return seconds


def _case_job(suite: str, case: Case, settings: Settings, say: Callable[[str], None]) -> Job:
    others = comparisons.compiled(case) if suite in COMPARED else {}

    def take() -> list[Record]:
        spec, notes = loop_of(case), []
        arguments = (spec, case, comparisons.truth, comparisons.plain, device_ceilings())
        try:
            row = measure(*arguments, others)
        except RuntimeError as error:
            if not others:
                raise
            reason = f"not compared, for what it is compared with fails: {' '.join(str(error).split())[:300]}"
            say(f"{title(case)}\n  {reason}")
            notes.append(reason)
            row = measure(*arguments)
        return case_records(case, spec, row, device_ceilings(), settings.command, notes)

    inputs = {"case": asdict(case), "others": list(others)}
    return Job(title(case), expected_seconds(suite, case, settings.is_prepared), inputs, take)


def _first_call_job(case: Case, settings: Settings) -> Job:
    inputs = {"first call": asdict(case)}
    return Job(
        f"first call of {title(case)}",
        35.0,
        inputs,
        lambda: first_call_records(case, settings.command),
    )


def _flash_job(settings: Settings) -> Job:
    case = Case(**(asdict(settings.base) | {"rung": "v6", "form": "parallel"}))
    return Job(
        f"{flash.NAME}, {title(case)}",
        10.0,
        {"flash": asdict(case)},
        lambda: flash.flash_records(case, loop_of(case), settings.command),
    )


def _step_job(name: str, settings: Settings) -> Job:
    def take() -> list[Record]:
        from analysis.speed.training_steps import (
            step_records,
        )  # the trainer needs more packages than the kernels

        return step_records(name, settings.corpus, settings.command)

    return Job(f"training step of {name}", 75.0, {"step": name}, take)


def compile_share(settings: Settings, share: int, shares: int) -> None:
    """Call every implementation of each `shares`-th case once, so that its code lies in the caches on disk."""
    wanted = [
        (suite, case) for suite in settings.suites if suite != "first" for case in cases(suite, settings.base)
    ]
    for suite, case in wanted[share::shares]:
        spec, is_training = loop_of(case), case.passes == "training"
        tensors = draw(spec, case, seed=0)
        calls: list[Implementation] = [lambda spec, t, case=case: run_kernels(spec, case, t).outputs]  # type: ignore[misc]
        calls += comparisons.compiled(case).values() if suite in COMPARED else []
        for call in calls:
            bound = functools.partial(call, spec)
            with torch.set_grad_enabled(is_training):
                (training_call(bound) if is_training else bound)(tensors)
        torch.cuda.synchronize()


def compile_beforehand(arguments: Sequence[str], shares: int, seconds: float) -> tuple[int, float]:
    """Start `shares` processes with these arguments and --share I/N; return how many finished in time, and the seconds."""
    begun = time.monotonic()
    surroundings = {**os.environ, "TORCHINDUCTOR_COMPILE_THREADS": "1"}
    running: list[subprocess.Popen[Any]] = []
    try:
        for share in range(shares):
            command = [sys.executable, *arguments, "--share", f"{share}/{shares}"]
            running.append(
                subprocess.Popen(
                    command, env=surroundings, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
                )
            )
        while time.monotonic() - begun < seconds and any(one.poll() is None for one in running):
            time.sleep(0.2)
    finally:
        for one in running:
            if one.poll() is None:
                one.kill()
    return sum(one.wait() == 0 for one in running), time.monotonic() - begun
