"""Batches, edits and probes that do not fit a host."""

from __future__ import annotations

import pytest
import torch

import analysis
from analysis.errors import InputError, ParameterError
from analysis.models.sites import Tape
from analysis.models.vittt import build_vittt
from analysis.models.vittt_config import ViTTTConfig
from analysis.probes import evaluation_task, paradoxes, run
from analysis.probes.distributions import mismatch
from analysis.statistics import interval
from tests.models.lact_nvs_cases import make_batch, make_host
from tests.models.lm_cases import small_lm, tokens

CONFIG = ViTTTConfig(img_size=16, patch_size=8, embed_dim=32, depth=1, num_heads=4, num_classes=16)


@pytest.fixture(scope="module")
def classifier():
    torch.manual_seed(0)
    return build_vittt(CONFIG).eval()


@pytest.mark.parametrize(
    "batch",
    [None, tokens(), [tokens()], {"tokens": [[1, 2]]}, {"tokens": tokens()[:0]}, {"tokens": tokens()[:, :1]}],
)
def test_a_language_model_refuses_what_is_no_batch(batch):
    with pytest.raises(InputError):
        small_lm()(batch)


@pytest.mark.parametrize(
    "images",
    [
        None,
        torch.rand(2, 3, 16, 16).double(),
        torch.rand(0, 3, 16, 16),
        torch.rand(2, 3, 0, 0),
        torch.ones(2, 3, 16, 16, dtype=torch.uint8),
        torch.rand(2, 3, 16, 16).numpy(),
    ],
)
def test_a_classifier_refuses_other_images(classifier, images):
    with pytest.raises(InputError):
        classifier({"images": images})


def test_a_classifier_refuses_labels_of_other_classes(classifier):
    batch = {"images": torch.rand(2, 3, 16, 16)}
    output = classifier(batch)
    for labels in ([0, 16], [-1, 0]):
        with pytest.raises(InputError, match=r"labels in 0\.\.15"):
            classifier.metrics(output, {**batch, "labels": torch.tensor(labels)})


@pytest.mark.parametrize("name", ["images", "c2w", "fxfycxcy", "target_c2w", "target_fxfycxcy"])
@pytest.mark.parametrize(
    "change",
    [lambda t: t[:, :1], lambda t: t[:, :0], lambda t: t[:0], lambda t: t.flatten(0, 1), lambda t: t.long()],
    ids=["one view", "no view", "no scene", "no views axis", "integers"],
)
def test_view_synthesis_refuses_cameras_that_do_not_belong_to_the_views(name, change):
    batch = make_batch()
    with pytest.raises(InputError):
        make_host()({**batch, name: change(batch[name])})


def test_view_synthesis_refuses_targets_of_fewer_scenes():
    batch = make_batch()
    short = {name: batch[name][:1] for name in ("target_c2w", "target_fxfycxcy")}
    with pytest.raises(InputError, match="same scenes"):
        make_host()({**batch, **short})


@pytest.mark.parametrize("change", [3, "steps", lambda loop: None, {"fast_weights": None}])
def test_an_edit_that_gives_no_loop_is_refused(change):
    with pytest.raises(InputError):
        small_lm().edit(change)


def test_loops_and_tapes_that_are_none_are_refused():
    host, batch = small_lm(), {"tokens": tokens()}
    for loops in ([1], {"fast_weights": None}):
        with pytest.raises(InputError, match="loops as a mapping"):
            host(batch, loops=loops)
    with pytest.raises(InputError, match="reduce to return a tensor"):
        host(batch, tape=Tape(["layers.0.q"], reduce=lambda name, tensor: None))


@pytest.mark.parametrize("host", [None, "checkpoints/vittt-baseline-s0"])
def test_a_probe_needs_a_loaded_host(host):
    with pytest.raises(ParameterError, match=r"analysis\.load"):
        run("evaluation", host)
    with pytest.raises(ParameterError, match=r"analysis\.load"):
        analysis.compare(host)


@pytest.mark.parametrize("samples", ["3", 1.5, True, 0, 10**9])
def test_samples_are_a_whole_number_in_reach(classifier, samples):
    with pytest.raises(ParameterError, match="samples"):
        evaluation_task(classifier, samples)


@pytest.mark.parametrize(
    "parameters",
    [
        *({"steps": steps} for steps in (0, -1, 1.5, None, "1,2", [], [0], [1, True], {})),
        *({"step_size": size} for size in (0, -1, "x", None, [1], True, float("nan"), float("inf"))),
    ],
)
def test_the_sweep_refuses_steps_and_sizes_that_are_none(classifier, parameters):
    with pytest.raises(ParameterError, match=r"(steps|step_size) must be"):
        run("steps", classifier, samples=2, **parameters)


@pytest.mark.parametrize(
    ("parameters", "sentence"),
    [
        *(({"vectors": value}, "vectors must be") for value in (0, 1.5, "x", None, [1], True)),
        *(({"permutations": value}, "permutations must be") for value in (0, -3, 1.5, "x")),
        *(({"loop": value}, "loop must be one of") for value in ("x", 3, [])),
        ({"vectors": 8}, "fewer than the floor"),
    ],
)
def test_the_distributions_refuse_what_they_cannot_draw(classifier, store, parameters, sentence):
    with pytest.raises(ParameterError, match=sentence):
        mismatch(classifier, evaluation_task(classifier, 2), store=store, **parameters)


def test_a_host_without_a_loop_has_no_distributions(store):
    host = build_vittt(ViTTTConfig(**{**vars(CONFIG), "ttt_branch": False}))
    with pytest.raises(ParameterError, match="no inner loop"):
        mismatch(host, evaluation_task(host, 2), store=store)


def test_a_single_example_has_no_other_to_be_fed_with(classifier, store):
    with pytest.raises(InputError, match="one sample more"):
        paradoxes.feeding(classifier, evaluation_task(classifier, 1), store=store)
    assert paradoxes.feeding(classifier, evaluation_task(classifier, 101), store=store)


def test_an_interval_over_text_is_refused():
    with pytest.raises(ParameterError, match="must be numbers"):
        interval(["a", "b"])


@pytest.fixture
def store(tmp_path):
    return analysis.Store(tmp_path / "records")
