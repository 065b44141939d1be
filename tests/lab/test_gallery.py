"""What a panel computes for its views: few examples before many, and one forward pass for all of them."""

import re

from analysis.lab.examples import Bench
from tests.lab.conftest import settle


def test_many_examples_come_after_a_first_look_at_few(open_panel, studied, monkeypatch):
    panel = open_panel("steps", {"vittt": studied["vittt"]})
    gallery = panel._gallery("vittt")
    monkeypatch.setattr(Bench, "limits", property(lambda self: (self.size, 2, 2)))
    shown = []
    panel.views["summary"].observe(lambda change: shown.append(change["new"]), "value")
    most = str(panel.controls.samples.value)
    for steps, expected in ((4, ["2", most]), (8, ["1", "2", most])):
        shown.clear()
        panel.controls.steps.value = steps
        settle(panel)
        assert [re.search(r"(\d+) examples", text).group(1) for text in shown] == expected
    assert int(most) > 2
    assert gallery.stages(panel.controls.choice()) == (int(most),), "seen before, shown at once"


def test_one_pass_serves_every_view_of_an_edit(open_panel, studied, monkeypatch):
    panel = open_panel("attention", {"lact_lm": studied["lact_lm"]})
    host, calls = studied["lact_lm"].host, []
    run = type(host).compute
    monkeypatch.setattr(type(host), "compute", lambda self, *given: calls.append(1) or run(self, *given))
    panel.controls.steps.value = 3
    settle(panel)
    assert len(calls) == panel.controls.samples.value / Bench.limits.fget(panel.benches["lact_lm"])[2]
    for control in (panel.controls.layer, panel.controls.head):
        control.value = control.max
        settle(panel)
    assert len(calls) == 1 and "panel-ready" in panel.status.value
