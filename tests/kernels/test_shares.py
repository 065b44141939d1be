"""Shares of a call: which there are, where their tensors start, and that a wrong start is noticed."""

import dataclasses

import pytest
import torch

from analysis.kernels import forward, shares, signature
from analysis.kernels.arithmetic import write_table_kernel
from analysis.kernels.plan import plan_of
from tests.kernels.agreement import LADDER, LIMITS, all_errors, case, error, errors, named, run_form

SHAPES = {(1, 4): 4, (1, 6): 3, (2, 2): 4, (2, 3): 2, (3, 1): 3, (4, 1): 4, (8, 3): 4, (1, 1): 1, (1, 7): 1}
"""Shares of a call with so many batch entries and heads, where at most four may run at once."""
ALIGNED = {"width": 16, "hidden": 8, "values": 24}
"""Widths at which every head starts on 16 bytes."""


def operands(batch, heads, *, tokens_first=False):
    spec = LADDER["baseline"]
    (inputs, weights), _ = case(spec, torch.bfloat16, batch=batch, heads=heads, width=16, values=16)
    if tokens_first:
        turned = {
            name: getattr(inputs, name).transpose(1, 2).contiguous().transpose(1, 2)
            for name in ("q", "k", "v")
        }
        inputs = dataclasses.replace(inputs, **turned)
    plan = plan_of(spec)
    rates = {name: inputs.rates[name] for name in plan.rates}
    return plan, signature.prepare(plan, inputs.q, inputs.k, inputs.v, rates, inputs.momentum, weights, 16)


@pytest.mark.parametrize("tokens_first", [False, True])
@pytest.mark.parametrize(("batch", "heads"), SHAPES)
def test_every_share_starts_where_its_sequences_do(batch, heads, tokens_first):
    plan, call = operands(batch, heads, tokens_first=tokens_first)
    out = torch.empty(batch, heads, call.q.shape[2], 16, dtype=torch.bfloat16)
    share, count = shares.cut(plan, call.signature(), 4)
    assert count == SHAPES[batch, heads] and share.total_z * count == batch * heads
    table = torch.zeros(count, signature.ROW, dtype=torch.int64)
    steps = [step for pair in shares.steps_of(plan, call.signature()) for step in pair]
    write_table_kernel[(count,)](table, heads, share.total_z, *call.addresses(out), *steps, ROW=signature.ROW)
    tensors = [call.q, call.k, call.v, out, call.momentum, *call.rates, *call.weights.values()]
    for place, row in enumerate(table.tolist()):
        b, h = divmod(place * share.total_z, heads)
        assert row[: len(tensors)] == [tensor[b, h].data_ptr() for tensor in tensors]


def test_a_share_that_would_start_between_two_loads_is_not_cut_off():
    plan, call = operands(1, 4)
    sign = dataclasses.replace(call.signature(), q=(64, 9, 16))
    assert shares.cut(plan, sign, 4) == (sign, 1)


@pytest.mark.parametrize("most", [1, 2, 4])
@pytest.mark.parametrize(("key", "is_parallel"), [("baseline", False), ("v2", True), ("v6", True)])
def test_any_number_of_shares_agrees_with_the_reference(key, is_parallel, most, monkeypatch):
    monkeypatch.setattr(forward, "MOST_SHARES", most)
    found = errors(LADDER[key], torch.float32, is_parallel=is_parallel, batch=2, heads=2, **ALIGNED)
    assert max(found.values()) < LIMITS[torch.float32]
    assert [len(made.layers) for made in forward._RUNNERS.values()] == [most]


@pytest.mark.parametrize(("key", "is_parallel"), [("baseline", False), ("v2", True), ("v6", True)])
def test_gradients_go_back_through_shares_of_heads(key, is_parallel):
    values, gradients = all_errors(LADDER[key], torch.float32, is_parallel=is_parallel, heads=4, **ALIGNED)
    assert max(values.values()) < LIMITS[torch.float32] and max(gradients.values()) < 2e-3
    assert max(len(made.layers) for made in forward._RUNNERS.values()) == 4


@pytest.mark.parametrize("slot", [name for name in signature.SLOTS])
def test_a_share_that_starts_at_the_wrong_place_is_found(slot, monkeypatch):
    right, at, spec = shares.steps_of, signature.SLOTS.index(slot), LADDER["baseline"]
    (inputs, weights), _ = case(spec, torch.float32, heads=4, **ALIGNED)
    exact = named(spec, run_form(spec, inputs, weights, False))
    monkeypatch.setattr(
        forward, "steps_of", lambda *call: [(0, 0) if n == at else x for n, x in enumerate(right(*call))]
    )
    forward.forget()
    found = named(spec, run_form(spec, inputs, weights, False))
    assert not max(error(found[name], exact[name].double()) for name in exact) < 1e-2
