"""Records: strict fields, content-addressed keys, a store that never computes twice, tables that never mix kinds."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys

import numpy as np
import pytest

from analysis import records
from analysis.errors import RecordError
from analysis.paths import ROOT
from analysis.records import Kind, Record, RecordTable, Store, plain, published, to_frame
from analysis.spec import Direction, InnerLoop, to_dict
from tests.sample_records import make


def test_round_trip_is_exact_and_text_is_stable():
    record = make(ci_low=0.4, ci_high=0.6, extra={"curve": np.linspace(0, 1, 3), "n": np.int64(3)})
    again = Record.from_json(record.to_json())
    assert again == record
    assert again.to_json() == record.to_json()
    assert record.extra == {"curve": [0.0, 0.5, 1.0], "n": 3}


def test_a_run_as_trained_writes_its_specification_once():
    trained = {"fast_weights": InnerLoop(steps=2)}
    for specs in (trained, {}):
        record = make(trained_spec=specs, run_spec=specs)
        written = json.loads(record.to_json())
        assert "run_spec" not in written and "trained_spec" in written
        again = Record.from_json(record.to_json())
        assert again == record and again.key == record.key
        assert Record.from_json(json.dumps(written | {"run_spec": written["trained_spec"]})) == record


@pytest.mark.parametrize("run", [{"fast_weights": InnerLoop(steps=3)}, {}])
def test_a_run_unlike_the_training_keeps_its_own_specification(run):
    record = make(trained_spec={"fast_weights": InnerLoop(steps=2)}, run_spec=run)
    written = json.loads(record.to_json())
    assert written["run_spec"] == plain(run)
    again = Record.from_json(record.to_json())
    assert again == record and again.key == record.key and again.run_spec != again.trained_spec
    del written["run_spec"]
    assert Record.from_json(json.dumps(written)).key != record.key, (
        "an edit that is dropped must not pass unseen"
    )


@pytest.mark.parametrize("field", records.INPUTS)
def test_every_input_changes_the_key(field):
    other = {
        "kind": Kind.PUBLISHED,
        "trained_spec": {"fast_weights": InnerLoop(steps=9)},
        "run_spec": {"fast_weights": InnerLoop(direction=Direction.ASCENT)},
        "seeds": (7,),
        "samples": 7,
        "parameters": {"steps": 7},
    }.get(field, "other")
    record = make(source="somewhere")
    assert record.edit(**{field: other}).key != record.key


@pytest.mark.parametrize("field", sorted(set(Record.__dataclass_fields__) - set(records.INPUTS)))
def test_no_output_and_no_circumstance_changes_the_key(field):
    other = {
        "value": 0.7,
        "ci_low": 0.1,
        "ci_high": 0.9,
        "diverged": True,
        "versions": {"torch": "9"},
        "extra": {"a": 1},
    }.get(field, "other")
    record = make(ci_low=0.2, ci_high=0.8)
    assert record.edit(**{field: other}).key == record.key


def test_the_key_is_the_same_in_another_process():
    code = "import sys, tests.sample_records as t; sys.stdout.write(t.make(parameters={'b': 1, 'a': {2, 1}}).key)"
    run = [sys.executable, "-c", code]
    keys = {
        subprocess.run(run, capture_output=True, text=True, check=True, cwd=ROOT).stdout for _ in range(2)
    }
    assert keys == {make(parameters={"a": [1, 2], "b": 1}).key}


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"value": float("nan")}, "must be finite"),
        ({"value": float("inf")}, "diverged=True"),
        ({"extra": {"curve": [1.0, float("nan")]}}, "must be finite"),
        ({"value": "0.5"}, "must be a number"),
        ({"value": True}, "must be a number"),
        ({"value": None}, "must be a number"),
        ({"kind": "guessed"}, "measured or published"),
        ({"kind": "published"}, "must name its source"),
        ({"ci_low": 0.4}, "must come together"),
        ({"ci_low": 0.6, "ci_high": 0.7}, "must hold the value"),
        ({"seeds": ("a",)}, "whole numbers"),
        ({"seeds": 3}, "whole numbers"),
        ({"samples": -1}, "whole number"),
        ({"question": " "}, "must not be empty"),
        ({"metric": 3}, "must be text"),
        ({"parameters": [1]}, "must be a mapping"),
        ({"parameters": {1: 2}}, "text keys"),
        ({"extra": {"model": object()}}, "extra.model must be JSON-ready"),
    ],
)
def test_a_bad_field_is_refused_in_one_sentence(changes, sentence):
    with pytest.raises(RecordError, match=sentence):
        make(**changes)


def test_a_blow_up_is_recorded_when_it_is_declared():
    record = make(value=float("inf"), diverged=True, extra={"norms": [1.0, float("nan"), float("-inf")]})
    text = record.to_json()
    json.loads(text, parse_constant=lambda token: pytest.fail(f"{token} is not JSON"))
    again = Record.from_json(text)
    assert again.value == float("inf")
    assert np.isnan(again.extra["norms"][1])
    assert "diverged" in records.format_value(again)


def test_equal_seeds_make_an_interval_of_one_point():
    assert make(value=0.1 + 0.2, ci_low=0.3, ci_high=0.3).ci_low == 0.3


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("{", "does not parse"),
        ("[]", "JSON object"),
        ('{"question": "q", "metric": "m", "value": NaN, "kind": "measured"}', "NaN is not JSON"),
        (
            '{"question": "q", "metric": "m", "value": 1, "kind": "measured", "vlaue": 2}',
            "no field 'vlaue'.*'value'",
        ),
        ('{"question": "q", "value": 1, "kind": "measured"}', "needs the fields metric"),
    ],
)
def test_damaged_text_is_refused(text, sentence):
    with pytest.raises(RecordError, match=sentence):
        Record.from_json(text)


def test_a_record_cannot_be_changed_behind_its_key():
    spec = to_dict(InnerLoop())
    record = make(parameters={"loop": spec})
    key = record.key
    spec["steps"] = 9
    assert record.key == key
    with pytest.raises(dataclasses.FrozenInstanceError):
        record.value = 1.0


def test_the_table_always_says_measured_or_published():
    rows = [make(parameters={"steps": 4}), published("steps", "top1", 0.8, source="Liu et al., Table 2")]
    frame = to_frame(rows)
    assert list(frame.columns[:1]) == ["kind"]
    assert frame["kind"].tolist() == ["measured", "published"]
    assert frame["parameters.steps"].tolist()[0] == 4
    page = RecordTable(rows)._repr_html_()
    assert page.count("<td>measured</td>") == 1
    assert page.count("<td>published</td>") == 1
    assert "Liu et al., Table 2" in page
    assert "kind" in to_frame([]).columns


def test_html_is_escaped():
    assert "<script>" not in make(question="<script>")._repr_html_()


def test_difference_tells_a_frozen_edit_from_a_retrained_model():
    ascent = InnerLoop(direction=Direction.ASCENT)
    flipped = make(run_spec={"fast_weights": ascent})
    retrained = make(trained_spec={"fast_weights": ascent}, run_spec={"fast_weights": ascent})
    assert records.difference(flipped) == "direction: descent -> ascent"
    assert records.difference(retrained) == "none: run as trained"
    assert records.difference(make(trained_spec={}, run_spec={})) == "no inner loop took part"
    with pytest.raises(RecordError, match="same loops"):
        records.difference(make(run_spec={}))


def test_provenance_names_versions_commit_and_command_without_folders(monkeypatch):
    monkeypatch.setattr(sys, "argv", ["/somewhere/on/this/machine/ttt-analysis", "verify"])
    fields = records.provenance(device="NVIDIA H200")
    record = make(**fields)
    assert record.device == "NVIDIA H200"
    assert record.command == "ttt-analysis verify"
    assert {"python", "torch", "numpy"} <= set(record.versions)
    assert record.commit == "unknown" or len(record.commit.removesuffix("+")) == 40


def test_code_digest_sees_code_and_ignores_comments():
    from analysis.records.provenance import _meaning

    assert _meaning("x = 1  # one\n") == _meaning('"""Doc."""\nx = 1\n')
    assert _meaning("x = 1") != _meaning("x = 2")
    assert len(records.code_digest()) == 64


def test_file_digest(tmp_path):
    (tmp_path / "a").write_bytes(b"")
    assert records.file_digest(tmp_path / "a").startswith("e3b0c442")
    with pytest.raises(RecordError, match="found none"):
        records.file_digest(tmp_path / "b")


def test_plain_refuses_what_it_cannot_hold():
    with pytest.raises(RecordError, match=r"x\.a\[1\]"):
        plain({"a": [1, object()]}, "x")


def test_a_record_and_a_store_print_in_one_line(tmp_path):
    record = make(value=21.434, ci_low=21.1, ci_high=21.76)
    assert str(record).startswith(
        f"{record.question}: {record.metric} 21.43 [21.1, 21.76]"
    ) and "\n" not in str(record)
    store = Store(tmp_path)
    store.put(record)
    assert repr(store) == f"Store('{tmp_path}', 1 records)"


def test_a_table_says_where_the_loops_of_a_layer_are_added():
    loop = to_dict(InnerLoop())
    added = {"definition": "mean over chunks; a layer's loops added; then the mean over layers"}
    two = make(
        metric="update_norm",
        trained_spec={"conv": loop, "glu": loop},
        run_spec={"conv": loop, "glu": loop},
        extra=added,
    )
    one = make(metric="update_norm", trained_spec={"glu": loop}, run_spec={"glu": loop}, extra=added)
    assert (
        "update_norm, loops added" in repr(RecordTable([two]))
        and "loops added" in RecordTable([two])._repr_html_()
    )
    assert "loops added" not in repr(RecordTable([one]))
    mean = two.edit(extra={"definition": "mean over layers and the loops of a layer"})
    assert "loops added" not in repr(RecordTable([mean])), "another definition is not told as this one"
