"""How the paper's claims about speed are decided, from recorded times alone."""

from __future__ import annotations

from collections.abc import Sequence

from analysis.publish.retrained_verdicts import equal
from analysis.publish.speed import (
    REDUCIBLE,
    STANDARD,
    kernel_times,
    published_ratios,
    ratio,
    ratios,
    training_steps,
)
from analysis.publish.verdicts import FAILED, MISSING, OPEN, REPRODUCED, Verdict
from analysis.records import Record
from analysis.spec import Family

TRAINING_SPEEDUP = 1.19
"""What the paper reports for Variant 2 in parallel form against the baseline, end to end (section 6.2, Figure 4)."""

_FEW = "too few calls for an interval"


def printed_ratios() -> str:
    """Return the paper's ratios of parallel to recurrent speed in one line."""
    return ", ".join(f"{value:.1f}" for value in published_ratios().values()) + " times (V2 to V6)"


def parallel_is_faster(records: Sequence[Record]) -> Verdict:
    """The kernels' parallel form beats their recurrent form on every reducible rung, at the shape of the paper's layer."""
    times = kernel_times(records, **STANDARD)
    found = ratios(times)
    if set(found) != set(REDUCIBLE):
        missing = ", ".join(rung for rung in REDUCIBLE if rung not in found)
        return Verdict(MISSING, reason=f"no times of {missing}" if found else "")
    listed = ", ".join(f"{one.value:.1f}" for one in found.values())
    measured = f"{listed} times (V2 to V6) on {times[0].device}"
    if any(one.low is None for one in found.values()):
        return Verdict(OPEN, measured, _FEW)
    if all(one.is_above_one for one in found.values()):
        return Verdict(REPRODUCED, measured, "every interval lies above one")
    slower = ", ".join(rung for rung, one in found.items() if one.is_above_one is False)
    if slower:
        return Verdict(FAILED, measured, f"slower in parallel form: {slower}")
    return Verdict(OPEN, measured, "an interval includes one")


def training_is_faster(records: Sequence[Record]) -> Verdict:
    """A training step of Variant 2 in parallel form takes at most 1/1.19 of the baseline's, whole hosts compared."""
    steps = training_steps(records)
    if not steps:
        return Verdict(MISSING)
    slow, fast = steps.values()
    found = ratio(slow, fast)
    measured = f"{found} times as fast on {slow.device}, in the small language model"
    note = _quality(records)
    if found.low is None or found.high is None:
        return Verdict(OPEN, measured, _FEW, note=note)
    if found.low >= TRAINING_SPEEDUP:
        reason = f"the whole interval lies at or above {TRAINING_SPEEDUP}"
        return Verdict(REPRODUCED, measured, reason, note=note)
    if found.high < TRAINING_SPEEDUP:
        return Verdict(FAILED, measured, f"the whole interval lies below {TRAINING_SPEEDUP}", note=note)
    return Verdict(OPEN, measured, f"the interval includes {TRAINING_SPEEDUP}", note=note)


def _quality(records: Sequence[Record]) -> str:
    """What is known of the other half of the paper's sentence, that quality does not suffer."""
    quality = equal(Family.LACT_LM, "v2")(records)
    said = f"{quality.verdict}{f' ({quality.measured})' if quality.measured else ''}"
    return (
        f"About speed alone; that quality does not suffer has its own row (Variant 2, section 6.1): {said}."
    )
