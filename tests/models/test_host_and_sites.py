"""Edits of a host, the tape and its patterns: what is recorded, replaced, refused, and kept in memory."""

from __future__ import annotations

import dataclasses
import gc

import pytest
import torch

from analysis.errors import InputError, SpecError, UnsupportedSpecError
from analysis.models.host import unwrap
from analysis.models.lact_lm_config import LOOP
from analysis.models.sites import Tape, pattern_matches
from analysis.spec import (
    ConstantRate,
    Direction,
    Linear,
    PerTokenRate,
    QuerySource,
    Trained,
)
from tests.models.lm_cases import small_lm, tokens

BATCH = {"tokens": tokens(2, 41)}


def test_edit_changes_the_run_and_not_the_host():
    host = small_lm()
    before, names = host(BATCH), {name: p.clone() for name, p in host.named_parameters()}
    edited = host.edit(steps=3).edit(direction=Direction.ASCENT)
    assert not torch.allclose(edited(BATCH), before)
    assert torch.equal(host(BATCH), before)
    assert all(torch.equal(names[name], p) for name, p in host.named_parameters())
    assert edited.trained_loops == host.loops and edited.loops[LOOP].steps == 3
    assert "steps: 1 -> 3" in edited.difference() and "descent -> ascent" in str(edited)
    assert "as trained" in host.edit().difference()
    assert str(host).splitlines()[0] == f"LaCT-LM, {host.num_parameters():,} parameters"
    assert f"inner loop {LOOP}: network=" in str(host) and "(layers): ModuleList" not in str(host)
    assert repr(host).startswith("LaCTLM(") and repr(edited) == str(edited)
    with pytest.raises(dataclasses.FrozenInstanceError):
        edited.loops = {}


def test_edited_host_follows_the_protocol_of_the_host():
    host = small_lm()
    edited = host.edit(steps=2)
    output = edited(BATCH)
    assert torch.equal(edited.loss(output, BATCH), host.loss(output, BATCH))
    assert edited.sites() == host.sites() and edited.config is host.config and edited.family is host.family
    assert (
        edited.num_layers == 2 and edited.metrics(output, BATCH).keys() == host.metrics(output, BATCH).keys()
    )
    assert torch.equal(edited(BATCH, loops=host.loops), host(BATCH))
    assert torch.equal(host(BATCH, loops=edited.loops), output)
    for mine, theirs in zip(
        edited.initial_weights(1)[LOOP].values(), host.initial_weights(1)[LOOP].values(), strict=True
    ):
        assert torch.equal(mine, theirs)


def test_edits_that_need_other_parameters_are_refused():
    host = small_lm()
    with pytest.raises(UnsupportedSpecError, match="network = linear"):
        host.edit(network=Linear())
    with pytest.raises(UnsupportedSpecError, match="lr"):
        host.edit(lr=PerTokenRate(shared=True))
    constant = small_lm(lambda loop: loop.edit(lr=ConstantRate(1.0), momentum=None))
    with pytest.raises(UnsupportedSpecError, match="lr"):
        constant.edit(lr=PerTokenRate())
    with pytest.raises(UnsupportedSpecError, match="momentum"):
        constant.edit(momentum=host.loops[LOOP].momentum)
    with pytest.raises(UnsupportedSpecError, match="lr"):
        small_lm(lambda loop: loop.frozen()).edit(trained=Trained.ALL)
    assert host.edit(lr=ConstantRate(0.1), momentum=None)(BATCH).isfinite().all()


def test_wrong_names_in_edits_are_refused_with_the_nearest():
    host = small_lm()
    with pytest.raises(SpecError, match="did you mean 'steps'"):
        host.edit(stepz=2)
    with pytest.raises(InputError, match="fast_weights"):
        host.edit(steps=2, only="fast_weight")
    with pytest.raises(InputError, match="did you mean 'fast_weights'"):
        host(BATCH, loops={"fast_weigths": host.loops[LOOP]})
    assert host.edit({LOOP: host.loops[LOOP].edit(steps=2)}).loops[LOOP].steps == 2


def test_zero_steps_are_the_frozen_weights():
    host = small_lm()
    assert torch.equal(host.edit(lambda loop: loop.frozen())(BATCH), host.edit(chunk=64)(BATCH))


def test_pattern_star_stays_within_a_segment():
    names = ("layers.0.q", "layers.0.attention.q", "layers.11.q")
    assert pattern_matches("layers.*.q", names) == ["layers.0.q", "layers.11.q"]
    assert pattern_matches("layers.**", names) == list(names)
    assert pattern_matches("layers.1*.q", names) == ["layers.11.q"]
    assert pattern_matches("layers", names) == []


def test_tape_records_every_site_it_announces():
    host = small_lm()
    tape = Tape("**")
    host(BATCH, tape=tape)
    assert set(tape) == set(host.sites()) and len(tape) == len(host.sites())
    assert tape["layers.0.q"].shape == (2, 2, 40, 32)
    assert tape["layers.0.inner_loss_after"].shape == (2, 2)
    assert tape["layers.0.update_norm"].shape == (2, 2, 2)
    named = {tape[f"layers.{i}.{kind}"] for i in range(2) for kind in ("backend", "measured_by")}
    assert named == {"recurrent"}
    assert not any(value.requires_grad for _, value in tape.items() if isinstance(value, torch.Tensor))
    inputs, weights = tape["layers.1.inner"]
    assert torch.equal(inputs.q, tape["layers.1.q"]) and weights["w_out"].shape == (2, 2, 32, 32)
    assert not weights["w_out"].requires_grad


def test_recording_does_not_change_the_output():
    host = small_lm()
    assert torch.equal(host(BATCH, tape=Tape("**")), host(BATCH))


def test_descent_lowers_the_recorded_inner_loss_and_ascent_raises_it():
    host = small_lm()
    for direction, sign in ((Direction.DESCENT, 1), (Direction.ASCENT, -1)):
        tape = Tape(["layers.0.inner_loss_before", "layers.0.inner_loss_after"])
        host.edit(direction=direction)(BATCH, tape=tape)
        change = tape["layers.0.inner_loss_before"] - tape["layers.0.inner_loss_after"]
        assert (sign * change).mean() > 0


@pytest.mark.parametrize("wrong", ["layers.0.quarry", "layers.9.q", "layer.*.q", ""])
def test_unknown_sites_are_refused(wrong):
    with pytest.raises(InputError, match=r"host\.sites\(\)"):
        small_lm()(BATCH, tape=Tape([wrong]))
    with pytest.raises(InputError, match="did you mean"):
        small_lm()(BATCH, tape=Tape(replace={"layers.0.attention.qq": lambda q, _: q}))


def test_partial_capture_is_an_error():
    short = {"tokens": tokens(1, 11)}
    with pytest.raises(InputError, match=r"layers\.0\.update_norm"):
        small_lm()(short, tape=Tape(["layers.0.q", "layers.0.update_norm"]))
    with pytest.raises(InputError, match="recorded site"):
        Tape("layers.0.q")["layers.0.q"]


def test_replacement_swaps_queries_for_keys_in_window_attention_only():
    host = small_lm()
    swap = {"layers.*.attention.q": lambda q, together: together["k"]}
    tape = Tape(["layers.0.attention.*", "layers.0.q"], replace=swap)
    output = host(BATCH, tape=tape)
    assert torch.equal(tape["layers.0.attention.q"], tape["layers.0.attention.k"])
    plain = Tape("layers.0.q")
    assert not torch.allclose(output, host(BATCH, tape=plain))
    assert torch.equal(plain["layers.0.q"], tape["layers.0.q"])


def test_replacing_the_inner_query_equals_the_query_source():
    host = small_lm()
    swapped = host(BATCH, tape=Tape(replace={"layers.*.q": lambda q, together: together["k"]}))
    assert torch.allclose(swapped, host.edit(query=QuerySource.KEY)(BATCH), atol=1e-6)


def test_replacement_must_keep_the_shape():
    with pytest.raises(InputError, match="keep"):
        small_lm()(BATCH, tape=Tape(replace={"layers.0.q": lambda q, _: q[:1]}))
    with pytest.raises(InputError, match="tensor site"):
        small_lm()(BATCH, tape=Tape(replace={"layers.0.inner": lambda q, _: q}))


def test_capture_works_on_a_compiled_and_already_called_host():
    host = small_lm(num_hidden_layers=1)
    compiled = torch.compile(host, backend="eager")
    assert torch.allclose(compiled(BATCH), host(BATCH), atol=1e-5)
    tape = Tape(["layers.*.q", "layers.*.k", "layers.*.v", "layers.*.o"])
    unwrap(compiled)(BATCH, tape=tape)
    assert len(tape) == 4 and unwrap(compiled) is host


def test_only_the_requested_tensor_stays_alive():
    host = small_lm(num_hidden_layers=6)

    def live():
        gc.collect()
        return sum(o.numel() for o in gc.get_objects() if type(o) in (torch.Tensor, torch.nn.Parameter))

    with torch.no_grad():
        host(BATCH)
        before = live()
        for _ in range(50):
            tape = Tape("layers.3.k")
            host(BATCH, tape=tape)
        assert live() - before <= tape["layers.3.k"].numel()
        mean = Tape("layers.3.k", reduce=lambda name, tensor: tensor.mean((0, 2)))
        host(BATCH, tape=mean)
        assert mean["layers.3.k"].shape == (2, 32)
        del tape, mean
        assert live() == before
