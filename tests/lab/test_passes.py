"""Forward passes of a panel: not kept where they are large, given up where nobody waits."""

import pytest

import analysis
from analysis.lab.edits import Choice, as_trained
from analysis.lab.examples import bench
from analysis.lab.latest import Superseded
from analysis.lab.outcome import measure_edit
from analysis.lab.passes import Passes
from analysis.publish.step_verdicts import update_size
from analysis.records import select


def test_passes_of_a_large_host_are_not_kept_and_show_the_same(open_panel, studied, monkeypatch):
    small = open_panel("distributions", {"vittt": studied["vittt"]})
    monkeypatch.setattr("analysis.lab.passes.SMALL", 0)
    large = open_panel("distributions", {"vittt": studied["vittt"]})
    for name, view in small.views.items():
        assert large.views[name].value == view.value, name
    assert not large._gallery("vittt").passes._kept


def test_a_pass_stops_at_the_next_layer_when_nobody_waits(studied):
    one = bench(studied["lact_lm"])
    answers = iter([True, False])
    with pytest.raises(Superseded):
        Passes(one).showing(one.host.edit(steps=2), Choice(subject="x", samples=1), lambda: next(answers))


def test_a_panel_measures_what_the_report_measures(studied):
    one = studied["vittt"]
    measured = measure_edit(
        Passes(bench(one)), as_trained(one.host), Choice(subject="x", samples=one.task.samples), lambda: True
    )
    records = analysis.compare(one.host, task=one.task).records
    (moved,), (after,) = (select(records, metric=name) for name in ("update_norm", "inner_loss_after"))
    assert measured.inner["update_norm"] == pytest.approx(update_size(moved), rel=1e-4)
    assert measured.inner["inner_loss_after"] == pytest.approx(after.value, rel=1e-4)
