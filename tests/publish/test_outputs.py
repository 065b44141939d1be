"""What a notebook shows, as a part of the page."""

from analysis.publish.outputs import Outputs

CELL = "<table><tr><td><details class='why'><summary>Why</summary>because</details></td></tr></table>"


def test_a_fold_is_closed_on_the_screen_and_open_on_paper():
    assert "<details open class='why'>" in Outputs(name="00", printed=True).table(CELL)
    assert "open" not in Outputs(name="00").table(CELL)
