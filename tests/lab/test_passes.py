"""Forward passes of a panel: not kept where they are large, given up where nobody waits."""

import pytest

from analysis.lab.edits import Choice
from analysis.lab.examples import bench
from analysis.lab.latest import Superseded
from analysis.lab.passes import Passes


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
