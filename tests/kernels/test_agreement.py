"""The Triton kernels compute the specification: outputs, state and gradients against the float64 reference."""

import dataclasses

import pytest
import torch

from analysis.kernels.tiles import Tile
from analysis.spec import (
    ConstantMomentum,
    Direction,
    DotProduct,
    FrobeniusScaling,
    Identity,
    NormMode,
    Order,
    PerTokenRate,
    QuerySource,
    Reduction,
    Tail,
    WeightNorm,
    presets,
)
from tests.inner.cases import draw
from tests.kernels.agreement import LADDER, LIMITS, all_errors, errors, forms

CASES = [(key, form) for key, spec in LADDER.items() for form in forms(spec)]
BASE = LADDER["baseline"].edit(tail=Tail.UPDATE, order=Order.UPDATE_THEN_APPLY)
EDITS = {
    "two steps": BASE.edit(steps=2, chunk=16),
    "pre-norm": BASE.edit(weight_norm=WeightNorm(NormMode.PRE)),
    "keys as queries, whole sequence": BASE.edit(
        weight_norm=WeightNorm(NormMode.POST, detach_target=True), chunk=None, query=QuerySource.KEY
    ),
    "ascent on a mean with shared rate": BASE.edit(
        direction=Direction.ASCENT,
        lr=PerTokenRate(shared=True),
        momentum=ConstantMomentum(0.7),
        loss=DotProduct(scale=0.5, reduction=Reduction.MEAN),
    ),
    "parallel mean with a tail": LADDER["v2"].edit(
        tail=Tail.UPDATE,
        order=Order.UPDATE_THEN_APPLY,
        loss=DotProduct(scale=0.4, reduction=Reduction.MEAN),
        step_size=0.3,
    ),
    "frobenius": BASE.edit(transform=FrobeniusScaling(), momentum=None),
    "momentum of plain gradients": LADDER["v4"].edit(transform=Identity(), tail=Tail.UPDATE),
    "whole sequence at once": LADDER["v2"].edit(chunk=None, tail=Tail.UPDATE, order=Order.UPDATE_THEN_APPLY),
    "whole sequence read before it is learned": LADDER["v2"].edit(chunk=None, tail=Tail.UPDATE),
    "keys, all at once": LADDER["v2"].edit(query=QuerySource.KEY),
    "novel views": presets.lact_nvs(),
}


def within(found: dict[str, float], limit: float) -> None:
    late = {name: value for name, value in found.items() if not value < limit}
    assert not late, f"beyond {limit}: {late}; all: {found}"


@pytest.mark.parametrize(("key", "form"), CASES)
def test_every_rung_in_float32(key, form):
    spec = LADDER[key]
    values, gradients = all_errors(spec, torch.float32, is_parallel=form)
    within(values, LIMITS[torch.float32])
    within(gradients, 2e-3)


@pytest.mark.parametrize("name", EDITS)
def test_every_field_in_float32(name):
    spec = EDITS[name]
    for form in forms(spec):
        values, gradients = all_errors(spec, torch.float32, is_parallel=form)
        within(values, LIMITS[torch.float32])
        within(gradients, 2e-3)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("key", ["baseline", "v3", "v6"])
def test_half_precision(key, dtype):
    # Sixteen columns average rounding less than the hundreds of a real head do, so the limit is three times as wide.
    within(errors(LADDER[key], dtype), 3 * LIMITS[dtype])


@pytest.mark.parametrize("sizes", [(20, 24, 18), (30, 17, 20), (5, 3, 9)])
def test_awkward_widths(sizes):
    width, hidden, values = sizes
    for key in ("baseline", "v2"):
        found = errors(LADDER[key], torch.float32, width=width, hidden=hidden, values=values)
        within(found, LIMITS[torch.float32])


@pytest.mark.parametrize("tokens", [1, 8, 9, 16])
def test_awkward_lengths(tokens):
    for key in ("baseline", "v2", "v6"):
        within(errors(LADDER[key], torch.float32, tokens=tokens), LIMITS[torch.float32])
        spec = LADDER[key].edit(tail=Tail.UPDATE, order=Order.UPDATE_THEN_APPLY)
        within(errors(spec, torch.float32, tokens=tokens), LIMITS[torch.float32])


@pytest.mark.parametrize(("key", "form"), [("baseline", False), ("v2", False), ("v2", True), ("v3", True)])
def test_batch_and_heads_keep_to_themselves(key, form):
    found = all_errors(LADDER[key], torch.float32, is_parallel=form, batch=2, heads=2, tokens=17)
    for each, limit in zip(found, (LIMITS[torch.float32], 2e-3), strict=True):
        within(each, limit)


@pytest.mark.parametrize("at_once", [3, 8, 16])
@pytest.mark.parametrize(
    "name", ["parallel mean with a tail", "keys as queries, whole sequence", "keys, all at once"]
)
def test_features_of_any_number_of_tokens_at_once(name, at_once, monkeypatch):
    monkeypatch.setattr("analysis.kernels.plan.LEAST_AT_ONCE", at_once)
    monkeypatch.setattr("analysis.kernels.plan.ROWS_AT_ONCE", 2 * at_once)
    values, gradients = all_errors(EDITS[name], torch.float32, heads=2)
    within(values, LIMITS[torch.float32])
    within(gradients, 2e-3)


@pytest.mark.parametrize("key", ["v2", "v3"])
def test_a_full_last_chunk_that_reads_the_state_of_the_one_before(key):
    spec = LADDER[key].edit(order=Order.UPDATE_THEN_APPLY)
    values, gradients = all_errors(spec, torch.float32, is_parallel=True, tokens=16)
    within(values, LIMITS[torch.float32])
    within(gradients, 2e-3)


@pytest.mark.parametrize("at_once", [1, 2, 3])
@pytest.mark.parametrize("key", ["v2", "v3", "v6"])
def test_more_chunks_than_one_launch_takes(key, at_once, monkeypatch):
    monkeypatch.setattr("analysis.kernels.layer.MOST_CHUNKS", at_once)
    for spec in (LADDER[key], LADDER[key].edit(tail=Tail.UPDATE, order=Order.UPDATE_THEN_APPLY)):
        within(errors(spec, torch.float32, is_parallel=True, tokens=29), LIMITS[torch.float32])


@pytest.mark.parametrize("programs", [1, 2, 3])
@pytest.mark.parametrize(("key", "form"), [("baseline", False), ("v2", True), ("v6", True)])
def test_programs_that_take_tile_after_tile(programs, key, form, monkeypatch):
    monkeypatch.setattr("analysis.kernels.tokens.PROGRAMS", programs)
    spec = LADDER[key].edit(tail=Tail.UPDATE, order=Order.UPDATE_THEN_APPLY)
    within(errors(spec, torch.float32, is_parallel=form, tokens=37, values=20), LIMITS[torch.float32])


def redrawn(change):
    """Return a draw of random inputs with a change."""

    def changed(*args, **sizes):
        inputs, weights = draw(*args, **sizes)
        return change(inputs), weights

    return changed


@pytest.mark.parametrize("name", ["novel views", "whole sequence at once"])
def test_tokens_that_are_only_read(name, monkeypatch):
    split = redrawn(lambda inputs: dataclasses.replace(inputs, update_tokens=13))
    monkeypatch.setattr("tests.kernels.agreement.draw", split)
    for limit in ("LEAST_AT_ONCE", "ROWS_AT_ONCE"):
        monkeypatch.setattr(f"analysis.kernels.plan.{limit}", 8)
    for form in forms(EDITS[name]):
        values, gradients = all_errors(EDITS[name], torch.float32, is_parallel=form, heads=2)
        within(values, LIMITS[torch.float32])
        within(gradients, 2e-3)


def test_rates_whose_tokens_lie_apart(monkeypatch):
    def apart(x):
        return x.transpose(1, 2).contiguous().transpose(1, 2)

    strided = redrawn(
        lambda inputs: dataclasses.replace(
            inputs, rates={name: apart(rate) for name, rate in inputs.rates.items()}
        )
    )
    monkeypatch.setattr("tests.kernels.agreement.draw", strided)
    _, gradients = all_errors(LADDER["v2"], torch.float32, heads=3)
    within(gradients, 2e-3)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize(("key", "form"), [("baseline", False), ("v2", True), ("v3", True), ("v6", True)])
def test_gradients_in_half_precision(key, form, dtype):
    # without Newton-Schulz, which on so few columns lifts the rounding of the operands beyond any limit
    spec = LADDER[key].edit(transform=Identity())
    _, gradients = all_errors(spec, dtype, is_parallel=form, width=24, hidden=32, values=24)
    within(gradients, 3 * LIMITS[dtype])


@pytest.mark.parametrize("parts", [2, 3])
def test_programs_that_compute_several_tiles(parts, monkeypatch):
    monkeypatch.setattr("analysis.kernels.tokens.choose", lambda *_: Tile(16, 16, 16, 1, 1, parts=parts))
    width = 16 * parts
    for key in ("baseline", "v3", "v6"):
        spec = LADDER[key].edit(transform=Identity())
        within(errors(spec, torch.float32, width=width, hidden=width, values=width), LIMITS[torch.float32])
