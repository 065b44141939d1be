"""The store: nothing computed twice, nothing half written, nothing damaged taken for good."""

from __future__ import annotations

import json

import pytest

from analysis.errors import RecordError
from analysis.records import Store
from analysis.spec import InnerLoop
from tests.sample_records import make

ENVIRONMENT = {"code": "fixed"}


def test_same_inputs_are_computed_once(tmp_path):
    calls = []
    inputs = {"question": "steps", "run": InnerLoop(steps=4)}

    def compute():
        calls.append(1)
        return make()

    first = Store(tmp_path, ENVIRONMENT).cached(inputs, compute)
    second = Store(tmp_path, ENVIRONMENT).cached(dict(reversed(inputs.items())), compute)
    assert first == second
    assert len(calls) == 1
    Store(tmp_path, ENVIRONMENT).cached(inputs | {"run": InnerLoop(steps=5)}, compute)
    Store(tmp_path, {"code": "changed"}).cached(inputs, compute)
    assert len(calls) == 3


def test_several_rows_of_one_run_come_back_in_order(tmp_path):
    rows = [make(metric=name) for name in ("b", "a", "c")]
    store = Store(tmp_path, ENVIRONMENT)
    assert store.cached_all({"x": 1}, lambda: rows) == tuple(rows)
    again = store.cached_all({"x": 1}, lambda: pytest.fail("computed again"))
    assert [row.metric for row in again] == ["b", "a", "c"]
    store.path(rows[0].key).unlink()
    assert store.cached_all({"x": 1}, lambda: rows) == tuple(rows)


def test_a_value_measured_again_under_other_code_is_not_quoted_as_the_former_one(tmp_path):
    former, changed = Store(tmp_path, {"code": "former"}), Store(tmp_path, {"code": "changed"})
    assert former.cached({"x": 1}, lambda: make(value=0.25)).value == 0.25
    assert changed.cached({"x": 1}, lambda: make(value=0.75)).value == 0.75
    assert former.cached({"x": 1}, lambda: make(value=0.25)).value == 0.25
    assert former.cached({"x": 1}, lambda: pytest.fail("computed again")).value == 0.25


def test_an_entry_without_digests_is_computed_once_more(tmp_path):
    store = Store(tmp_path, ENVIRONMENT)
    store.cached({"x": 1}, make)
    (entry,) = (tmp_path / "runs").iterdir()
    run = json.loads(entry.read_text())
    del run["contents"]
    entry.write_text(json.dumps(run))
    assert store.cached({"x": 1}, lambda: make(value=0.75)).value == 0.75
    assert store.cached({"x": 1}, lambda: pytest.fail("computed again")).value == 0.75


@pytest.mark.parametrize("result", [None, [], [3]])
def test_a_computation_must_return_records(tmp_path, result):
    with pytest.raises(RecordError, match="must return records"):
        Store(tmp_path, ENVIRONMENT).cached_all({}, lambda: result or [])
    assert not list(tmp_path.rglob("*.json"))


def test_a_failed_computation_leaves_nothing(tmp_path):
    store = Store(tmp_path / "new", ENVIRONMENT)
    with pytest.raises(ZeroDivisionError):
        store.cached({}, lambda: 1 / 0)
    assert not store.folder.exists()


def test_a_missing_damaged_or_edited_record_is_an_error(tmp_path):
    store = Store(tmp_path)
    record = store.put(make())
    assert store.get(record.key) == record
    assert record.key in store
    with pytest.raises(RecordError, match="run the probe"):
        store.get("0" * 64)
    path = store.path(record.key)
    text = path.read_text()
    path.write_text(text.replace('"steps"', '"stepz"', 1))
    with pytest.raises(RecordError, match=r"edited or renamed|damaged"):
        store.get(record.key)
    path.write_text(text[: len(text) // 2])
    with pytest.raises(RecordError, match="damaged"):
        list(store)


def test_an_interrupted_write_leaves_the_old_record(tmp_path, monkeypatch):
    store = Store(tmp_path)
    record = store.put(make())

    def fail(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("analysis.paths.os.replace", fail)
    with pytest.raises(KeyboardInterrupt):
        store.put(record.edit(value=0.9))
    assert store.get(record.key).value == 0.5
    assert [path.name for path in tmp_path.iterdir()] == [f"{record.key}.json"]


@pytest.mark.parametrize("text", ["{", "[]", "{}", '{"records": 3}'])
def test_a_damaged_cache_entry_is_an_error(tmp_path, text):
    store = Store(tmp_path, ENVIRONMENT)
    store.cached({"x": 1}, make)
    (entry,) = (tmp_path / "runs").iterdir()
    entry.write_text(text)
    with pytest.raises(RecordError, match="cache entry"):
        store.cached({"x": 1}, make)


def test_select_by_field_and_by_part_of_the_parameters(tmp_path):
    store = Store(tmp_path)
    for steps in (1, 2):
        store.put(make(parameters={"steps": steps, "size": 1}))
    assert len(store) == 2
    assert [r.parameters["steps"] for r in store.select(question="steps", parameters={"steps": 2})] == [2]
    assert store.select(kind="published") == []
    with pytest.raises(RecordError, match="no field 'stepz'"):
        store.select(stepz=1)


def test_an_empty_store_is_not_mistaken_for_none(tmp_path):
    assert Store(tmp_path)
    assert len(Store(tmp_path)) == 0
