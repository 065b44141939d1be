"""Objects show themselves in a notebook, and the five lines of the README do what they say."""

import re

import nbformat
import pytest
from nbclient import NotebookClient

import analysis
from analysis.errors import ParameterError
from analysis.models import evaluate, save
from analysis.paths import ROOT
from analysis.records import select
from analysis.spec import Family, InnerLoop, difference
from tests.lab.conftest import random_host


def first_code(page):
    return re.search(r"```python\n(.*?)```", (ROOT / page).read_text(encoding="utf-8"), re.DOTALL).group(1)


FIVE_LINES = first_code("README.md")


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


def test_the_five_lines_run_in_a_fresh_notebook(tmp_path):
    lines = FIVE_LINES.strip().splitlines()
    assert len(lines) == 5 and first_code("docs/notebook-use.md") == FIVE_LINES
    save(random_host(Family.VITTT), tmp_path / "checkpoints" / "vittt-baseline-s0")
    cells = [
        nbformat.v4.new_code_cell(text)
        for text in ("\n".join(lines[:2]), "host", "\n".join(lines[2:3]), "edited")
    ]
    cells += [
        nbformat.v4.new_code_cell("\n".join(lines[3:4]) + "\nboth"),
        nbformat.v4.new_code_cell(lines[4]),
    ]
    notebook = nbformat.v4.new_notebook(cells=cells)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TTT_ANALYSIS_CACHE", str(tmp_path / "cache"))
        patch.delenv("MPLBACKEND", raising=False)
        NotebookClient(
            notebook, kernel_name="python3", resources={"metadata": {"path": str(tmp_path)}}
        ).execute()
    shown = [output for cell in notebook.cells for output in cell.outputs if "data" in output]
    texts = [text(output["data"].get("text/html", "")) for output in shown]
    assert "as trained" in texts[0] and re.search(r"glu\.steps\s+1\s+4", texts[1])
    assert "change, paired" in texts[2] and "200 examples" in texts[2] and "points" in texts[2]
    assert len(shown) == 4 and "image/png" in shown[3]["data"]


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
    assert "text/html" in data and re.search(r"as trained +\d", data["text/plain"])
    assert nbformat.v4.new_output("display_data", data={"text/html": data["text/html"]})


def test_records_of_a_probe_show_themselves_as_a_table_and_stay_a_tuple(studied, store):
    host = studied["vittt"].host
    rows = analysis.probe("evaluation", host.edit(steps=2), samples=4, store=store)
    from IPython.core.formatters import DisplayFormatter

    data, _ = DisplayFormatter().format(rows)
    assert isinstance(rows, tuple) and len(rows) == data["text/html"].count("<tr><td>") > 1
    shared, head, first, *_ = data["text/plain"].splitlines()
    assert (
        shared.startswith("measured; evaluation; ") and "steps: 1 -> 2" in shared and "family=vittt" in shared
    )
    assert re.match(r"metric +value$", head) and re.match(rf"{rows[0].metric} +{rows[0].value:.4g} \[", first)
    assert first.index(f"{rows[0].value:.4g}") == head.index("value")


def test_completion_offers_what_a_reader_may_use():
    from IPython.core.completer import provisionalcompleter
    from IPython.core.interactiveshell import InteractiveShell

    shell = InteractiveShell()
    shell.user_ns |= {"analysis": analysis, "spec": InnerLoop()}
    with provisionalcompleter():
        offered = {
            text: {found.text for found in shell.Completer.completions(text, len(text))}
            for text in ("analysis.", "spec.", "analysis.Direction.")
        }
    assert {"load", "compare", "probe", "lab"} <= offered["analysis."] and "Any" not in offered["analysis."]
    assert {"steps", "edit", "direction"} <= offered["spec."] and {"ASCENT"} <= offered["analysis.Direction."]


def test_the_size_of_an_update_is_the_one_that_the_report_shows(studied):
    one = studied["vittt"]
    host, comparison = one.host, analysis.compare(one.host, task=one.task)
    (record,) = select(comparison.records, metric="update_norm")
    assert len(record.extra["by_site"]) == 2 * host.num_layers, "a layer of this family has two loops"
    assert f"{record.value / 2:.4g}" in repr(comparison) and f"{record.value:.4g}" not in repr(comparison)
