"""Which backend a host's inner loops run on, with and without recording, and that the sites name it."""

from __future__ import annotations

import pytest
import torch

from analysis import kernels
from analysis.errors import UnsupportedSpecError
from analysis.inner import BACKENDS, run
from analysis.models.inner_call import MEASURING
from analysis.models.sites import Tape
from tests.models import kernels_stand_in
from tests.models.lm_cases import small_lm, tokens

BATCH = {"tokens": tokens(2, 41)}
INNER = ["layers.*.inner_loss_before", "layers.*.inner_loss_after", "layers.*.update_norm"]


def recorded(host):
    """The output of a pass that records inner losses, the losses, and the names at both sites of each kind."""
    tape = Tape([*INNER, "layers.*.backend", "layers.*.measured_by"])
    with torch.no_grad():
        output = host(BATCH, tape=tape)
    found = dict(tape.items())
    names = [{found.pop(f"layers.{i}.{kind}") for i in range(2)} for kind in ("backend", "measured_by")]
    return output, found, *names


def refuses_to_measure(name, monkeypatch) -> bool:
    tape = Tape("layers.0.inner")
    host = small_lm()
    host(BATCH, tape=tape)
    inputs, weights = tape["layers.0.inner"]
    loop = host.loops["fast_weights"]
    if name == "triton":
        monkeypatch.setattr(kernels, "INTERPRETED", True)
        return "measure=True" in (
            kernels.reason_against(loop, inputs.q, inputs.k, inputs.v, measure=True) or ""
        )
    try:
        run(loop if name != "parallel" else loop.frozen(), inputs, weights, name, measure=True)
    except UnsupportedSpecError as error:
        return "measure=False" in str(error)
    return False


@pytest.mark.parametrize("name", BACKENDS)
def test_the_backends_said_to_keep_inner_losses_do_and_every_other_refuses(name, monkeypatch):
    assert refuses_to_measure(name, monkeypatch) == (name not in MEASURING)


def test_where_one_backend_does_both_a_loop_runs_once(monkeypatch):
    log = kernels_stand_in.log_runs(monkeypatch)
    _, _, gave, measured = recorded(small_lm())
    assert log == [("recurrent", True)] * 2
    assert gave == measured == {"recurrent"}


def test_recording_inner_losses_does_not_decide_what_gives_the_outputs(monkeypatch):
    host = small_lm()
    _, losses, _, _ = recorded(host)
    kernels_stand_in.stand_in(monkeypatch)
    log = kernels_stand_in.log_runs(monkeypatch)
    with torch.no_grad():
        plain = host(BATCH)
    assert log == [("triton", False)] * 2
    output, found, gave, measured = recorded(host)
    assert log[2:] == [("triton", False), ("recurrent", True)] * 2
    assert torch.equal(output, plain) and (gave, measured) == ({"triton"}, {"recurrent"})
    assert found.keys() == losses.keys()
    for name, values in losses.items():
        assert torch.allclose(found[name], values, rtol=1e-4, atol=1e-6), name


def test_a_named_backend_gives_the_outputs_and_another_the_losses_that_it_does_not_keep():
    host = small_lm()
    host.backend = "reference"
    _, _, gave, measured = recorded(host)
    assert (gave, measured) == ({"reference"}, {"recurrent"})


def test_a_backend_that_measures_but_refuses_the_loop_still_refuses():
    host = small_lm()
    host.backend = "parallel"
    with pytest.raises(UnsupportedSpecError):
        recorded(host)
