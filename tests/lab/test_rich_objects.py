"""Objects show themselves in a notebook, and the five lines of the README do what they say."""

import re

import nbformat
import pytest

import analysis
from analysis.errors import ParameterError
from analysis.models import evaluate, save
from analysis.paths import ROOT
from analysis.spec import Family, InnerLoop, difference
from tests.lab.conftest import random_host

FIVE_LINES = re.search(
    r"```python\n(.*?)```", (ROOT / "docs" / "notebook-use.md").read_text(encoding="utf-8"), re.DOTALL
).group(1)


def text(html):
    return re.sub(r"<[^>]+>", " ", html)


def test_a_difference_is_a_dictionary_that_shows_itself():
    found = difference(InnerLoop(), InnerLoop(steps=4))
    assert found == {"steps": ("1", "4")}
    assert re.search(r"steps\s+1\s+4", text(found._repr_html_()))
    assert "run as trained" in difference(InnerLoop(), InnerLoop())._repr_html_()


def test_an_edited_host_shows_what_is_edited(studied):
    host = studied["vittt"].host
    shown = text(host.edit(steps=3, only="glu")._repr_html_())
    assert "ViTTT" in shown and re.search(r"glu\.steps\s+1\s+3", shown) and "conv" not in shown
    assert (
        "soft clip" in text(host._repr_html_())
        and f"{host.num_parameters():,} parameters" in host._repr_html_()
    )


def test_an_evaluation_shows_value_interval_and_definition(studied):
    one = studied["lact_lm"]
    found = evaluate(one.host, one.task.batches(), token_bytes=one.task.token_bytes)
    shown = text(found._repr_html_())
    assert all(
        word in shown
        for word in ("perplexity", "bits per byte", f"{found.value:.4g}", "4 examples", "exp of")
    )


def test_the_five_lines_run_in_a_fresh_notebook(tmp_path, monkeypatch):
    assert len(FIVE_LINES.strip().splitlines()) == 5
    save(random_host(Family.VITTT), tmp_path / "checkpoints" / "vittt-baseline-s0")
    monkeypatch.chdir(tmp_path)
    names = {}
    exec(FIVE_LINES, names)
    both = names["both"]
    assert both.names == ("as trained", "steps: 1 → 4")
    assert both.task[0].value != both.task[1].value or both.rows[0][-1].value != both.rows[1][-1].value
    shown = text(both._repr_html_())
    assert "change, paired" in shown and "200 examples" in shown and "points" in shown
    figure = both.plot()
    assert [label.get_text() for label in figure.axes[0].get_yticklabels()] == list(both.names)


def test_comparing_nothing_or_unlike_hosts_is_refused(studied):
    with pytest.raises(ParameterError, match="received none"):
        analysis.compare()
    with pytest.raises(ParameterError, match="LaCT-LM, ViTTT"):
        analysis.compare(studied["lact_lm"].host, studied["vittt"].host)
    with pytest.raises(ParameterError, match="name for each of the 1"):
        analysis.compare(studied["vittt"].host, names=("a", "b"), task=studied["vittt"].task)


def test_figures_of_a_comparison_show_in_a_notebook(studied, store):
    both = analysis.compare(
        studied["vittt"].host, studied["vittt"].host.edit(steps=2), task=studied["vittt"].task, store=store
    )
    from IPython.core.formatters import DisplayFormatter

    data, _ = DisplayFormatter().format(both)
    assert "text/html" in data and "as trained" in data["text/plain"]
    assert nbformat.v4.new_output("display_data", data={"text/html": data["text/html"]})
