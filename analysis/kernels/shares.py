"""Cutting a call into shares of its sequences.

Sequences never exchange anything, so shares run beside each other: where the last tiles of one share leave multiprocessors
idle, or a launch waits for the one before, another share fills the pause.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import product

from analysis.kernels import signature
from analysis.kernels.plan import Plan
from analysis.kernels.signature import ROW, Signature

ALIGNED = (*range(signature.MOMENTUM), *range(signature.WEIGHTS, len(signature.SLOTS)))
"""Slots whose tensors kernels load 16 bytes at a time, so that every share must start on 16; rates and gates need not."""


def cut(plan: Plan, sign: Signature, most: int) -> tuple[Signature, list[list[int]]]:
    """Cut a call into at most `most` equal shares: whole batch entries, or heads of one.

    Returns the signature that all shares have, and for each the bytes from the address of a tensor in the call to the
    address in the share, one row of the table of addresses. One share where the shape or the alignment allows no more.
    """
    for count in range(min(most, sign.total_z), 1, -1):
        if sign.batch % count == 0:
            batches, heads = sign.batch // count, sign.heads
        elif count % sign.batch == 0 and sign.heads % (count // sign.batch) == 0:
            batches, heads = 1, sign.heads * sign.batch // count
        else:
            continue
        starts = product(range(0, sign.batch, batches), range(0, sign.heads, heads))
        offsets = [_offsets(plan, sign, *start) for start in starts]
        if all(row[slot] % 16 == 0 for row in offsets for slot in ALIGNED):
            return replace(sign, batch=batches, heads=heads), offsets
    return sign, [[0] * ROW]


def _offsets(plan: Plan, sign: Signature, batch: int, head: int) -> list[int]:
    """Return the offsets of a share that starts at this batch entry and head, in the order of the table's slots."""
    at = lambda strides, size: (batch * strides[0] + head * strides[1]) * size  # noqa: E731
    size = sign.dtype.itemsize
    out = (batch * sign.heads + head) * sign.tokens * sign.values * size
    rates = [at(sign.rate, 4)] * len(plan.rates)
    weights = [at(strides, sign.weight_dtype.itemsize) for strides in sign.weights]
    unused = [0] * (3 - len(rates)), [0] * (3 - len(weights))
    row = [at(sign.q, size), at(sign.k, size), at(sign.v, size), out, at(sign.momentum, 4)]
    row += [*unused[0], *rates, *weights, *unused[1]]
    return row + [0] * (ROW - len(row))
