"""Cutting a call into shares of its sequences.

Sequences never exchange anything, so shares run beside each other: where the last tiles of one share leave multiprocessors
idle, or a launch waits for the one before, another share fills the pause.
"""

from __future__ import annotations

from dataclasses import replace

from analysis.kernels import signature
from analysis.kernels.plan import Plan
from analysis.kernels.signature import Signature

Steps = list[tuple[int, int]]
"""Bytes from one batch entry, and from one head, to the next in every slot of the table of addresses."""
ALIGNED = (*range(signature.MOMENTUM), *range(signature.WEIGHTS, len(signature.SLOTS)))
"""Slots whose tensors kernels load 16 bytes at a time, so that every share must start on 16; rates and gates need not."""


def cut(plan: Plan, sign: Signature, most: int) -> tuple[Signature, int]:
    """Cut a call into at most `most` equal shares: whole batch entries, or heads of one.

    Returns the signature that all shares have, and how many there are: one where the shape or the alignment allows no more.
    """
    steps = steps_of(plan, sign)
    for count in range(min(most, sign.total_z), 1, -1):
        if sign.batch % count == 0:
            share = replace(sign, batch=sign.batch // count)
        elif count % sign.batch == 0 and sign.heads % (count // sign.batch) == 0:
            share = replace(sign, batch=1, heads=sign.heads * sign.batch // count)
        else:
            continue
        starts = [divmod(z, sign.heads) for z in range(0, sign.total_z, share.total_z)]
        found = (b * steps[slot][0] + h * steps[slot][1] for b, h in starts for slot in ALIGNED)
        if all(offset % 16 == 0 for offset in found):
            return share, count
    return sign, 1


def steps_of(plan: Plan, sign: Signature) -> Steps:
    """Return the steps in bytes, in the order of the table's slots; a slot that a call does not use has none."""

    def in_bytes(strides: tuple[int, ...], size: int) -> tuple[int, int]:
        return strides[0] * size, strides[1] * size

    size, one_out = sign.dtype.itemsize, sign.tokens * sign.values
    rates = [in_bytes(sign.rate, 4)] * len(plan.rates)
    weights = [in_bytes(strides, sign.weight_dtype.itemsize) for strides in sign.weights]
    return [
        *(in_bytes(strides, size) for strides in (sign.q, sign.k, sign.v, (sign.heads * one_out, one_out))),
        in_bytes(sign.momentum, 4),
        *([(0, 0)] * (3 - len(rates)) + rates),
        *(weights + [(0, 0)] * (3 - len(weights))),
    ]
