"""Shares of a call: which there are, where their tensors start, and that a wrong start is noticed."""

import dataclasses

import pytest
import torch

from analysis.kernels import forward, shares, signature
from analysis.kernels.plan import plan_of
from tests.kernels.agreement import LADDER, LIMITS, case, error, errors, named, run_form

SHAPES = {(1, 4): 4, (1, 6): 3, (2, 2): 4, (2, 3): 2, (3, 1): 3, (4, 1): 4, (8, 3): 4, (1, 1): 1, (1, 7): 1}
"""Shares of a call with so many batch entries and heads, where at most four may run at once."""


def operands(batch, heads, *, key="baseline", tokens_first=False):
    spec = LADDER[key]
    (inputs, weights), _ = case(spec, torch.bfloat16, batch=batch, heads=heads, width=16, values=16)
    if tokens_first:
        turned = {name: getattr(inputs, name).mT.contiguous().mT for name in ("q", "k", "v")}
        inputs = dataclasses.replace(inputs, **turned)
    plan = plan_of(spec)
    rates = {name: inputs.rates[name] for name in plan.rates}
    return plan, signature.prepare(plan, inputs.q, inputs.k, inputs.v, rates, inputs.momentum, weights, 16)


@pytest.mark.parametrize(("batch", "heads"), SHAPES)
def test_every_share_starts_where_its_sequences_do(batch, heads):
    plan, call = operands(batch, heads)
    out = torch.empty(batch, heads, call.q.shape[2], 16, dtype=torch.bfloat16)
    share, offsets = shares.cut(plan, call.signature(), 4)
    assert len(offsets) == SHAPES[batch, heads] and share.total_z * len(offsets) == batch * heads
    starts = [(z // heads, z % heads) for z in range(0, batch * heads, share.total_z)]
    tensors = [call.q, call.k, call.v, out, call.momentum, *call.rates, *call.weights.values()]
    for (b, h), row in zip(starts, offsets, strict=True):
        begins = [tensor[b, h].data_ptr() for tensor in tensors]
        assert [at + more for at, more in zip(call.addresses(out), row, strict=False)] == begins


def test_a_share_that_would_start_between_two_loads_is_not_cut_off():
    plan, call = operands(1, 4)
    sign = dataclasses.replace(call.signature(), q=(64, 9, 16))
    assert shares.cut(plan, sign, 4) == (sign, [[0] * signature.ROW])


@pytest.mark.parametrize("most", [1, 2, 4])
@pytest.mark.parametrize(("key", "is_parallel"), [("baseline", False), ("v2", True), ("v6", True)])
def test_any_number_of_shares_agrees_with_the_reference(key, is_parallel, most, monkeypatch):
    monkeypatch.setattr(forward, "MOST_SHARES", most)
    forward.forget()
    sizes = {"batch": 2, "heads": 2, "width": 16, "hidden": 8, "values": 24}
    found = errors(LADDER[key], torch.float32, is_parallel=is_parallel, **sizes)
    assert max(found.values()) < LIMITS[torch.float32]
    assert [len(made.layers) for made in forward._RUNNERS.values()] == [most]
    forward.forget()


@pytest.mark.parametrize("slot", ["q", "k", "v", "out", "momentum", "rate_0", "w_2"])
def test_a_share_that_starts_at_the_wrong_place_is_found(slot, monkeypatch):
    right, at = shares._offsets, signature.SLOTS.index(slot)

    def wrong(plan, sign, batch, head):
        row = right(plan, sign, batch, head)
        row[at] = 0
        return row

    (inputs, weights), _ = case(LADDER["baseline"], torch.float32, heads=4, width=16, hidden=8)
    exact = named(LADDER["baseline"], run_form(LADDER["baseline"], inputs, weights, False))
    monkeypatch.setattr(shares, "_offsets", wrong)
    forward.forget()
    found = named(LADDER["baseline"], run_form(LADDER["baseline"], inputs, weights, False))
    assert not max(error(found[name], exact[name].double()) for name in exact) < 1e-2
    forward.forget()
