"""What recorded and live times come to, in sentences for notebook 08: every number computed, nothing where none was measured."""

from __future__ import annotations

from collections.abc import Sequence

from analysis.publish.captions import joined
from analysis.publish.speed import (
    REDUCIBLE,
    RUNG_NAMES,
    STANDARD,
    by_shape,
    kernel_times,
    one_time,
    ratio,
    ratios,
    rival,
)
from analysis.records import Record

FLASH = "flash-linear-attention"
_KINDS = {True: "faster", False: "slower", None: "not told apart from the recurrent form"}


def beside_flash(records: Sequence[Record]) -> str:
    """Say how the kernels compare with flash-linear-attention on Variant 6's sum, and what that computes otherwise."""
    ours = one_time(kernel_times(records, **STANDARD), "v6", "parallel")
    other = None if ours is None else rival(records, ours, FLASH)
    if ours is None or other is None:
        return ""
    note = other.extra.get("note")
    return (
        f"{FLASH} takes {other.value:.3f} ms for the sum of {RUNG_NAMES['v6']}{f' ({note})' if note else ''}; in parallel "
        f"form the kernels are {ratio(other, ours)} times as fast."
    )


def on_processor(live: Sequence[Record]) -> str:
    """Say for every shape whether the parallel form was faster, as far as the intervals tell."""
    said = []
    for shape, times in by_shape(live).items():
        found = ratios(times)
        kinds: dict[str, list[str]] = {kind: [] for kind in _KINDS.values()}
        for rung, one in found.items():
            kinds[_KINDS[one.is_above_one]].append(RUNG_NAMES[rung])
        values = [one.value for one in found.values()]
        told = "; ".join(
            f"{kind}: {'all' if len(names) == len(REDUCIBLE) else joined(names)}"
            for kind, names in kinds.items()
            if names
        )
        said.append(
            f"- {shape}: {min(values):.2f} to {max(values):.2f} times as fast in parallel form ({told})."
        )
    return "\n".join(said)


def built_apart(steps: Sequence[Record], times: Sequence[Record]) -> str:
    """Say of which commit the training steps are, and from how many windows, where the kernels' times are of another one."""
    if not steps:
        return ""
    builds = joined(list(dict.fromkeys(record.commit[:10] for record in steps)))
    counts = joined([f"{len(record.extra['samples'])}" for record in steps])
    said = (
        f"The two times are of commit {builds}, medians over {counts} windows of steps of two separate runs."
    )
    if {record.commit for record in steps} == {record.commit for record in times}:
        return said
    return f"{said} The times of single layers above are of another commit, and the backends have changed in between."
