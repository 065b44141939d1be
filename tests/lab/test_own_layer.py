"""A layer that is not in the suite is adopted, checked against itself, and takes every probe."""

import pytest
import torch
from torch import nn

from analysis import lab
from analysis.errors import InputError, ParameterError
from analysis.lab.delta_rule import LOOP, Recall, recall_batch, recall_task, train_recall
from analysis.probes import distributions, evaluation_task, paradoxes
from analysis.publish import caption
from analysis.publish.plots import arms, step_sweep
from analysis.spec import Direction

METRIC = lab.Metric("accuracy", unit="%")


def adopted(model, **others):
    return lab.adopt(model, recall_batch(8, seed=5), title="DeltaNet recall", metric=METRIC, **others)


@pytest.fixture(scope="module")
def host():
    return adopted(train_recall(steps=400))


@pytest.fixture(scope="module")
def task():
    return recall_task(200)


def value(records, **parameters):
    found = [r for r in records if r.metric == "accuracy" and parameters.items() <= r.parameters.items()]
    assert len(found) == 1
    return found[0].value


def test_the_declared_loop_is_the_layer(host):
    batch = recall_batch(16, seed=6)
    torch.testing.assert_close(host(batch), host.model(batch), rtol=1e-4, atol=1e-5)
    assert host.num_layers == 1 and list(host.loops) == [LOOP]


@pytest.mark.parametrize("wrong", [{"direction": Direction.ASCENT}, {"chunk": 2}, {"steps": 2}])
def test_a_loop_that_is_not_the_layer_is_refused(wrong):
    class Misdescribed(Recall):
        def inner_loops(self):
            return {LOOP: super().inner_loops()[LOOP].edit(**wrong)}

    torch.manual_seed(0)
    with pytest.raises(InputError, match="outputs that differ by"):
        adopted(Misdescribed())


def test_a_model_without_the_methods_is_told_which(host):
    with pytest.raises(InputError, match="without inner_loops, forward_with, score"):
        adopted(nn.Linear(2, 2))

    class Silent(Recall):
        def forward_with(self, batch, run):
            return self(batch)

    with pytest.raises(InputError, match=r"call run in forward_with, received none"):
        adopted(Silent())


def test_a_layer_that_really_stores_pairs_behaves_like_a_memory(host, task, store):
    as_trained = value(paradoxes.evaluation(host, task, store=store))
    assert as_trained > 80, "the layer learned to recall"
    flips = paradoxes.gradient_ascent(host, task, store=store)
    assert value(flips, arm="no update") < 30 and value(flips, arm="ascent") < as_trained - 20
    sweep = paradoxes.inner_steps(host, task, [1, 2, 4], store=store)
    assert value(sweep, inner_steps=1) == as_trained
    losses = {r.parameters["inner_steps"]: r.value for r in sweep if r.metric == "inner_loss_after"}
    assert losses[4] < losses[1]


def test_figures_and_captions_name_the_reader_s_layer(host, task, store):
    sweep = paradoxes.inner_steps(host, task, [1, 2], store=store)
    figure, rows = step_sweep({host.family.title: sweep})
    assert "DeltaNet recall" in (figure.axes[0].get_title(), figure.axes[0].get_title(loc="left")) and rows
    assert (
        "squared error" in caption("A sweep.", sweep).model and "LaCT" not in caption("A sweep.", sweep).model
    )
    arms({host.family.title: paradoxes.gradient_ascent(host, task, store=store)})


def test_distributions_attention_and_panel_work_on_it(host, task, open_panel):
    assert len(distributions.capture(host, task, vectors=50)) == 1
    from analysis.probes import Subject

    panel = open_panel("attention", {"mine": Subject(host, task)})
    assert "panel-ready" in panel.status.value, panel.status.value
    assert "block-causal: chunks of 1 tokens" in panel.views["attention"].value
    assert panel.views["example"].value == ""


def test_records_of_two_models_do_not_share_a_key(task, store):
    torch.manual_seed(1)
    first, second = (paradoxes.evaluation(adopted(Recall()), task, store=store)[0] for _ in range(2))
    assert first.checkpoint != second.checkpoint and first.key != second.key


def test_its_data_are_the_reader_s(host):
    with pytest.raises(ParameterError, match="hand your own Task"):
        evaluation_task(host)
