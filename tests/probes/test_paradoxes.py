import math

import pytest
import torch

from analysis.errors import DataError, InputError, ParameterError, RecordError
from analysis.models.sites import Tape
from analysis.probes import PROBES, Subject, Task, evaluation_task, paradoxes, run
from analysis.probes.measure import measure
from analysis.records import difference
from analysis.records.comparison import by_parameter, change, one, task_record
from analysis.spec import Family
from tests.sample_records import make


def test_the_first_step_is_the_host_as_trained_and_zero_steps_is_frozen(case, store):
    host, task = case
    rows = paradoxes.inner_steps(host, task, (1, 2), store=store)
    as_trained = paradoxes.evaluation(host, task, store=store)
    frozen = measure("frozen", host.edit(lambda spec: spec.frozen()), task, store=store)
    assert task_record(rows, inner_steps=1).value == task_record(as_trained).value
    assert task_record(rows, inner_steps=0).value == task_record(frozen).value
    assert difference(task_record(rows, inner_steps=1)) == "none: run as trained"
    assert "steps: 1 -> 2" in difference(task_record(rows, inner_steps=2))
    assert not [
        row for row in rows if row.metric == "inner_loss_after" and row.parameters["inner_steps"] == 0
    ]


def test_more_steps_lower_the_inner_loss(case, store):
    host, task = case
    rows = paradoxes.inner_steps(host, task, (1, 3), store=store)
    losses = by_parameter(rows, "inner_loss_after", "inner_steps")
    before = by_parameter(rows, "inner_loss_before", "inner_steps")[1]
    assert losses[3].value < losses[1].value < before.value


@pytest.mark.parametrize("factor", [1.0, 1e6])
def test_a_blow_up_shows_in_the_update_size_even_when_outputs_stay_finite(case, store, factor):
    host, task = case
    counts = (1, 2, 4, 8, 16, 64)
    rows = paradoxes.inner_steps(host, task, counts, step_size=factor, store=store)
    sizes = [one(rows, "update_norm", inner_steps=k).value for k in counts]
    assert sizes == sorted(sizes) and (sizes[0] > 100) == (factor > 1)
    for k in (0, *counts):
        assert math.isfinite(task_record(rows, inner_steps=k).value)
    plain = one(paradoxes.evaluation(host, task, store=store), "inner_loss_after").value
    assert (one(rows, "inner_loss_after", inner_steps=1).value == plain) == (factor == 1)


def test_ascent_raises_the_inner_loss_and_says_that_the_model_was_not_retrained(case, store):
    host, task = case
    rows = paradoxes.gradient_ascent(host, task, store=store)
    before, after = (one(rows, f"inner_loss_{side}", arm="ascent") for side in ("before", "after"))
    assert after.value > before.value
    assert "direction: descent -> ascent" in difference(after)
    assert change(task_record(rows, arm="as trained"), task_record(rows, arm="as trained")).value == 0


def test_the_swap_in_softmax_attention_is_the_control(case, store):
    host, task = case
    rows = paradoxes.query_to_key(host, task, store=store)
    arms = {row.parameters["arm"] for row in rows}
    assert ("query from key in softmax attention" in arms) == (host.family is not Family.VITTT)
    assert "query: query -> key" in difference(task_record(rows, arm="query from key"))
    losses = {arm: task_record(rows, arm=arm).extra["per_example"] for arm in arms}
    if host.family is not Family.VITTT:  # so few images may get the same labels under any edit
        assert len({tuple(values) for values in losses.values()}) == len(arms)


def test_the_attention_swap_replaces_every_layer(case):
    host, task = case
    if host.family is Family.VITTT:
        assert not [site for site in host.sites() if "attention" in site]
        return
    tape = Tape(
        ["layers.*.attention.q", "layers.*.attention.k"],
        replace={"layers.*.attention.q": paradoxes._keys_for_queries},
    )
    with torch.no_grad():
        host(next(iter(task.batches())), tape=tape)
    for layer in range(host.num_layers):
        assert torch.equal(tape[f"layers.{layer}.attention.q"], tape[f"layers.{layer}.attention.k"])


def test_the_same_question_is_not_measured_twice(language, store, monkeypatch):
    host, task = language
    first = paradoxes.evaluation(host, task, store=store)
    monkeypatch.setattr("analysis.probes.measure.evaluate", None)
    assert paradoxes.evaluation(host, task, store=store) == first


def test_a_probe_leaves_the_host_as_it_was(language, store):
    host, task = language
    batch = next(iter(task.batches()))
    with torch.no_grad():
        before = host(batch)
        paradoxes.query_to_key(host, task, store=store)
        assert torch.equal(host(batch), before)


@pytest.mark.parametrize("steps", [[], [0], [-1], [1.5], [True], ["1"]])
def test_impossible_steps_are_refused(language, steps):
    with pytest.raises(ParameterError, match="at least 1"):
        paradoxes.inner_steps(*language, steps)


@pytest.mark.parametrize("factor", [0.0, -1.0, math.nan, math.inf])
def test_impossible_step_sizes_are_refused(language, factor):
    with pytest.raises(ParameterError, match="step_size"):
        paradoxes.inner_steps(*language, (1,), step_size=factor)


def test_unknown_probes_and_parameters_name_the_nearest(language):
    host, _ = language
    with pytest.raises(ParameterError, match="did you mean 'ascent'"):
        run("asent", host)
    with pytest.raises(ParameterError, match="did you mean 'steps'"):
        run("steps", host, stepz=[1])
    assert set(PROBES) == {"evaluation", "steps", "ascent", "query_to_key", "feeding", "distributions"}


def test_a_task_without_samples_or_with_missing_data_is_refused(language, tmp_path):
    host, _ = language
    with pytest.raises(ParameterError, match="samples must be an integer of at least 1"):
        evaluation_task(host, 0)
    with pytest.raises(DataError):
        evaluation_task(host, 2, tmp_path / "nowhere")


def test_a_change_needs_the_same_examples(language, store):
    host, task = language
    rows = paradoxes.evaluation(host, task, store=store)
    other = paradoxes.evaluation(host, evaluation_task(host, 2, length=64), store=store)
    with pytest.raises(RecordError, match="same data"):
        change(task_record(rows), task_record(other))


@pytest.mark.parametrize(("metric", "blown_up"), [("perplexity", [2.0, math.nan]), ("psnr", [math.inf, 1.0])])
def test_a_run_that_diverged_is_said_to_and_stops_nothing(metric, blown_up):
    before = make(metric=metric, extra={"per_example": [1.0, 2.0]})
    moved = change(before, make(metric=metric, diverged=True, extra={"per_example": blown_up}))
    assert str(moved) == "diverged" and not moved.excludes_zero


def test_a_perplexity_beyond_every_number_is_infinite():
    before, after = (make(metric="perplexity", extra={"per_example": [x, x + 1]}) for x in (1.0, 900.0))
    assert change(before, after).value == math.inf


def test_a_site_that_does_not_exist_is_an_error(language):
    host, task = language
    with pytest.raises(InputError, match=r"layers\.9\.q"):
        host(next(iter(task.batches())), tape=Tape(["layers.9.q"]))


def test_a_compiled_host_that_was_already_called_can_be_probed(language, store):
    host, task = language
    compiled = torch.compile(host, backend="eager")
    with torch.no_grad():
        compiled(next(iter(task.batches())))
    expected = paradoxes.evaluation(host, task, store=store)
    found = paradoxes.evaluation(compiled, task, store=type(store)(store.folder / "compiled"))
    assert [row.value for row in found] == [row.value for row in expected]
    assert "inner_loss_after" in {row.metric for row in found}


def test_wrong_pairs_reach_the_inner_loop(case, store):
    host, task = case
    rows = paradoxes.feeding(host, task, store=store)
    inner = {row.parameters["arm"]: row.value for row in rows if row.metric == "inner_loss_after"}
    assert len({round(value, 9) for value in inner.values()}) == 3
    values = {row.parameters["arm"]: row.value for row in rows if "per_example" in row.extra}
    assert len(values) == 4 and len(set(values.values())) > 2


@pytest.mark.parametrize("samples", [9, 17])
def test_no_example_is_left_without_another_one_to_take_pairs_from(language, store, samples):
    host, _ = language
    task = evaluation_task(host, samples, length=32)
    sizes = [len(batch["tokens"]) for batch in task.batches()]
    assert sum(sizes) == samples and min(sizes) > 1
    rows = paradoxes.feeding(host, task, store=store)
    assert len(task_record(rows, arm="no update").extra["per_example"]) == samples
    with pytest.raises(InputError, match="at least two"):
        paradoxes.feeding(host, evaluation_task(host, 1, length=32), store=store)


def test_a_survey_measures_a_checkpoint_folder(language, store, tmp_path):
    from analysis.models.checkpoints import save
    from analysis.probes import survey

    host, _ = language
    save(host, tmp_path / "lact_lm-none-s1", {"recipe": {"variant": "none"}, "seed": 1, "step": 5})
    rows = survey.survey_one(tmp_path / "lact_lm-none-s1", store, samples=2)
    assert {row.parameters["variant"] for row in rows} == {"none"}
    assert {row.seeds for row in rows} == {(1,)} and rows[0].parameters["training_steps"] == 5
    assert "by_position" in next(row for row in rows if row.metric == "loss").extra


def test_a_task_of_own_batches_has_the_digest_of_its_tensors():
    def task(factor):
        return Task.of("mine", "my batches", lambda: [{"x": torch.full((3, 2), factor)}] * 2)

    assert task(1.0).samples == 6 and task(1.0).digest == task(1.0).digest != task(2.0).digest
    with pytest.raises(DataError, match="received none"):
        Task.of("mine", "nothing", lambda: [])


def test_every_question_to_one_checkpoint_is_served_from_the_store_again(language, store, monkeypatch):
    from analysis.probes import survey

    host, task = language
    monkeypatch.setattr(survey, "evaluation_task", lambda host, samples, data: task)
    rows = survey.own_records(Subject(host, task), (1, 2), store=store)
    asked = {row.question for row in rows}
    assert len(asked) == 6 and {row.parameters.get("inner_steps") for row in rows} == {None, 0, 1, 2}
    assert any(row.metric == "mmd_p_value" for row in rows)
    monkeypatch.setattr("analysis.probes.measure.evaluate", None)
    assert survey.own_records(Subject(host, task), (1, 2), store=store) == rows
