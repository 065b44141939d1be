"""Whole hosts run through their extracted linear attention, and the view of a layer taken from a tape."""

import dataclasses

import pytest
import torch

from analysis.inner.attention_map import attention_map, mask_text, visible
from analysis.inner.effective import effective, evaluate
from analysis.models.sites import Tape
from analysis.models.vittt import build_vittt
from analysis.models.vittt_config import ViTTTConfig
from analysis.theorems.claims import relative_error
from tests.models.lact_nvs_cases import make_batch, make_host
from tests.models.lm_cases import small_lm, tokens, trained


def language_model():
    host = trained(small_lm()).double()
    return host, {"tokens": tokens(length=41)}


def view_synthesis():
    return make_host().eval(), make_batch()


def classifier():
    torch.manual_seed(0)
    config = ViTTTConfig(img_size=24, patch_size=4, num_classes=5, embed_dim=24, depth=2, num_heads=3)
    host = trained(build_vittt(config)).double().eval()
    images = torch.randn(2, 3, 24, 24, generator=torch.Generator().manual_seed(1)).double()
    return host, {"images": images, "labels": torch.tensor([0, 1])}


HOSTS = {"lact_lm": language_model, "lact_nvs": view_synthesis, "vittt": classifier}


def outputs(host, batch, backend):
    host.backend = backend
    with torch.no_grad():
        return host(batch)


def as_single(batch):
    return {name: x.float() if x.is_floating_point() else x for name, x in batch.items()}


@pytest.mark.parametrize("name", HOSTS)
def test_a_host_gives_the_same_outputs_through_its_linear_attention(name):
    host, batch = HOSTS[name]()
    expected = outputs(host, batch, "auto")
    assert relative_error(outputs(host, batch, "effective"), expected) < 1e-10
    host, batch = host.float(), as_single(batch)
    assert relative_error(outputs(host, batch, "effective"), outputs(host, batch, "auto")) < 1e-5


@pytest.mark.parametrize("name", HOSTS)
def test_the_inner_loops_matter_to_these_hosts(name):
    host, batch = HOSTS[name]()
    with torch.no_grad():
        frozen = host.edit(lambda loop: loop.frozen())(batch)
    assert relative_error(frozen, outputs(host, batch, "effective")) > 1e-4


@pytest.mark.parametrize(
    ("name", "site", "output", "words"),
    [
        ("lact_lm", "layers.1.inner", "layers.1.o", "block-shifted"),
        ("lact_nvs", "layers.1.inner", "layers.1.o", "input views"),
        ("vittt", "layers.1.glu.inner", "layers.1.glu.o", "full set"),
        ("vittt", "layers.0.conv.inner", "layers.0.conv.o", "full set"),
    ],
)
def test_the_view_of_a_recorded_layer_gives_its_output(name, site, output, words):
    host, batch = HOSTS[name]()
    tape = Tape([site, output])
    with torch.no_grad():
        host(batch, tape=tape)
    inputs, weights = tape[site]
    loop = host.loops[site.split(".")[2] if name == "vittt" else "fast_weights"]
    view = effective(loop, inputs, weights)
    assert relative_error(evaluate(view), tape[output]) < 1e-10
    assert words in mask_text(loop, inputs)
    found = attention_map(view, 0)
    assert found.shape[1:] == visible(view).shape and (found[:, ~visible(view)] == 0).all()
    broken = dataclasses.replace(view, k_eff=view.k_eff.roll(1, 2))
    assert relative_error(evaluate(broken), tape[output]) > 1e-6
