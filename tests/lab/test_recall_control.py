"""The recorded control: one sweep a seed, under its seed, as the verdict on inner steps reads it."""

from analysis.lab import recall_control
from analysis.paths import RECORDS
from analysis.publish.step_verdicts import CONTROL, control_text
from analysis.records import Store, select


def test_every_seed_is_recorded_as_the_verdict_reads_it(tmp_path, monkeypatch):
    monkeypatch.setattr(recall_control, "STEPS", (1, 2))
    rows = recall_control.record(tmp_path, (0, 3), training_steps=2)
    assert {row.seeds for row in rows} == {(0,), (3,)} and len(Store(tmp_path)) == len(rows)
    assert {row.parameters["family"] for row in rows} == {CONTROL}
    assert "2 seeds, 500 sequences each" in control_text(list(Store(tmp_path)))


def test_the_shipped_control_stores_its_pairs():
    kept = select(Store(RECORDS), metric="accuracy", parameters={"family": CONTROL})
    trained = [row.value for row in kept if row.parameters["inner_steps"] == 1]
    empty = [row.value for row in kept if row.parameters["inner_steps"] == 0]
    assert len(trained) == len(empty) == len(recall_control.SEEDS)
    assert min(trained) > 95 and max(empty) < 25


def test_what_the_guides_say_about_the_control_is_what_was_recorded():
    shipped = [row for row in Store(RECORDS) if row.parameters.get("family") == CONTROL]
    assert control_text(shipped).startswith("A lower inner loss with a worse metric does not by itself tell")
