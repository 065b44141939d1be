"""Figures of the report in a browser: tips by mouse and keyboard, a slider, downloads, paper; nothing fetched, nothing logged."""

from __future__ import annotations

import re

import nbformat
import numpy as np
import pytest

from analysis.probes.embedding import Embedding
from analysis.publish import Caption, mismatch_plots, plots, save_figure, use_style
from analysis.publish.executed import Executed
from analysis.publish.figures import csv_text
from analysis.publish.fragments import render
from analysis.publish.marks import mark_rows, slim
from analysis.publish.mathematics import Formulas
from analysis.publish.outputs import _short_marks
from analysis.publish.page import Build, render_page
from analysis.publish.provenance import STAMP
from tests.publish.conftest import _redirect
from tests.sample_records import make

POINTS = 40


def embedding():
    draw = np.random.default_rng(0)
    places = np.stack([draw.integers(0, size, POINTS) for size in (4, 2, 64)], 1)
    return Embedding(
        {"q": draw.normal(size=(POINTS, 2)), "k": draw.normal(size=(POINTS, 2)) + 9}, 30.0, places=places
    )


def sweep():
    return [
        make(
            metric=metric,
            value=value + k,
            ci_low=value + k - 0.5,
            ci_high=value + k + 0.5,
            parameters={"inner_steps": k, "family": "vittt"},
            extra={"per_example": [1, 2]} if metric == "top1" else {},
        )
        for k in (0, 1, 2, 4)
        for metric, value in (("top1", 10.25), ("inner_loss_after", -1.0))
    ]


def bare():
    """A line without markers, straight for a while so that a simpler path would lose points, and a bar."""
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots()
    heights = [*range(20), 3]
    (line,) = axes.plot(heights)
    mark_rows(line, 0, len(heights))
    mark_rows(axes.bar([25], [7.5])[0], len(heights), len(heights) + 1)
    return figure, [{"kind": "line", "height": y} for y in heights] + [{"kind": "bar", "height": 7.5}]


def notebook():
    use_style()
    caption = Caption(
        shown="What is shown.", model="run as trained.", measured="command probe steps; 2 samples."
    )
    drawn = {
        "tsne": mismatch_plots.embeddings({"layer 3": {"Q/K": embedding(), "V/O": embedding()}}),
        "steps": plots.step_sweep({"vittt": sweep()}),
        "bare": bare(),
    }
    cells = [
        nbformat.v4.new_markdown_cell("# Figures"),
        nbformat.v4.new_code_cell("k: int = 4  # steps; range 1..9", metadata={"tags": ["parameters"]}),
    ]
    for name, (figure, rows) in drawn.items():
        data, metadata = save_figure(
            figure, name, rows, caption, f"The figure {name}, which a test looks at."
        )._repr_mimebundle_()
        cells.append(
            nbformat.v4.new_code_cell(
                outputs=[nbformat.v4.new_output("display_data", data=data, metadata=metadata)]
            )
        )
    stamp = {"parameters": {"k": 7}, "commit": "c", "key": "k", "device": "cpu", "versions": {}}
    return nbformat.v4.new_notebook(cells=cells, metadata={STAMP: stamp})


@pytest.fixture(scope="module")
def executed(tmp_path_factory):
    import matplotlib as mpl

    root = tmp_path_factory.mktemp("explorable")
    with pytest.MonkeyPatch.context() as patch, mpl.rc_context():
        _redirect(patch, root)
        return Executed(name="02_steps", folder=root, notebook=notebook(), key="k")


@pytest.fixture(scope="module")
def address(executed):
    page = render_page(
        [render(executed, Formulas(), printed=False)], Build(title="T", subtitle="S", line="L"), printed=False
    )
    file = executed.folder / "index.html"
    file.write_text(page, encoding="utf-8")
    return file.as_uri()


@pytest.fixture
def page(browser, address):
    context = browser.new_context(offline=True, viewport={"width": 1200, "height": 900})
    opened, problems = context.new_page(), []
    opened.on(
        "request",
        lambda r: problems.append(r.url) if not r.url.startswith((address, "data:", "blob:")) else None,
    )
    opened.on("console", lambda message: problems.append(message.text))
    opened.on("pageerror", lambda error: problems.append(str(error)))
    opened.goto(address)
    yield opened
    context.close()
    assert not problems


@pytest.mark.browser
def test_a_point_under_the_mouse_says_what_it_is(page):
    tip, point = page.locator("#fig-tsne .tip"), page.locator("#fig-tsne g[id*='-rows-'] use").nth(7)
    page.locator("#fig-tsne").scroll_into_view_if_needed()
    box = point.bounding_box()
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    example, head, token = embedding().places[7]
    assert tip.inner_text() == f"layer 3, pair Q/K, cloud q, example {example}, head {head}, token {token}"
    assert page.locator("#fig-tsne .rings circle").count() == 1
    page.mouse.move(5, 5)
    assert tip.is_hidden() and page.locator("#fig-tsne .rings circle").count() == 0


@pytest.mark.browser
def test_the_keyboard_walks_through_points_and_clouds(page):
    drawing, tip = page.locator("#fig-tsne .drawing"), page.locator("#fig-tsne .tip")
    drawing.focus()
    for key, text in (("ArrowRight", "cloud q"), ("ArrowDown", "cloud k"), ("End", "cloud k")):
        page.keyboard.press(key)
        assert text in tip.inner_text()
    assert tip.inner_text().endswith(f"token {embedding().places[-1][2]}")
    page.keyboard.press("Escape")
    assert tip.is_hidden()


@pytest.mark.browser
def test_a_line_without_markers_and_a_bar_say_what_they_are(page):
    page.locator("#fig-bare .drawing").focus()
    tip = page.locator("#fig-bare .tip")
    page.keyboard.press("Home")  # a bar lies below lines and is drawn before them
    assert tip.inner_text() == "kind bar, height 7.5"
    ring, bar = page.evaluate(
        """() => [".rings circle", "g[id$='rows-21-22'] path"].map((which) => {
          const box = document.querySelector(`#fig-bare ${which}`).getBoundingClientRect();
          return [box.x + box.width / 2, box.y, box.height];
        })"""
    )
    assert abs(ring[0] - bar[0]) < 2 and abs(ring[1] + ring[2] / 2 - bar[1]) < 2
    for key, height in (("ArrowDown", 0), ("End", 3), ("ArrowLeft", 19)):
        page.keyboard.press(key)
        assert tip.inner_text() == f"kind line, height {height}"


@pytest.mark.browser
def test_the_slider_reads_the_curves_at_a_number_of_steps(page):
    slider, said = page.locator("#fig-steps .explore input"), page.locator("#fig-steps output")
    assert said.inner_text().startswith("inner steps = 1")
    slider.focus()
    page.keyboard.press("ArrowRight")
    assert said.inner_text().split("\n") == [
        "inner steps = 2", "ViTTT, inner loss after: 1 [0.5, 1.5]", "ViTTT, top-1: 12.25 [11.75, 12.75]",
    ]  # fmt: skip
    assert page.locator("#fig-steps .rings circle").count() == 2


@pytest.mark.browser
@pytest.mark.parametrize("kind", ["csv", "svg", "png"])
def test_a_figure_can_be_taken_away(page, tmp_path, kind):
    with page.expect_download() as waiting:
        page.locator(f"#fig-steps figcaption >> text=/{kind}/i").last.click()
    assert waiting.value.suggested_filename == f"steps.{kind}"
    waiting.value.save_as(tmp_path / "taken")
    content = (tmp_path / "taken").read_bytes()
    assert {"csv": b"family,", "svg": b"<svg", "png": b"\x89PNG"}[kind] in content[:400]
    if kind == "svg":
        assert b"var(" not in content and b"rings" not in content


@pytest.mark.browser
def test_how_it_was_measured_unfolds_and_paper_shows_it(page):
    fold = page.locator("#fig-steps details.measured")
    assert fold.get_attribute("open") is None
    page.emulate_media(media="print")
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert "ttt-analysis figures --only 02_steps --fresh --set k=7" in fold.inner_text()
    assert page.locator("#fig-steps .explore").is_hidden()


@pytest.mark.browser
def test_without_scripts_the_figure_is_simply_there(browser, address):
    context = browser.new_context(offline=True, java_script_enabled=False)
    page = context.new_page()
    page.goto(address)
    assert page.locator("#fig-steps svg").is_visible() and page.locator("#fig-steps a[download]").is_visible()
    assert page.locator(".explore, .tip, button.link").count() == 0
    context.close()


def test_the_printed_figure_carries_the_measurement_unfolded(executed):
    body = render(executed, Formulas(), printed=True).body
    assert (
        "How this was measured" not in body
        and "command probe steps; 2 samples." in body
        and "Draw it again" in body
    )


def test_clouds_are_written_compactly_and_small_groups_stay():
    use = '<use xlink:href="#m" x="{}" y="2.000001" style="fill: red"/>\n'
    many = '<g clip-path="url(#p)">\n' + "".join(use.format(k / 3) for k in range(9)) + "</g>"
    assert slim(many).startswith(
        '<g clip-path="url(#p)" style="fill: red"><use href="#m" x="0.00" y="2.00"/>'
    )
    few = "<g>\n" + use.format(1) + "</g>"
    mixed = many.replace("red", "blue", 1)
    assert slim(few) == few and slim(mixed) == mixed


def test_a_mark_drawn_often_has_a_short_id_in_the_page_and_coordinates_end_where_they_were_rounded(executed):
    body = render(executed, Formulas(), printed=False).body
    used = set(re.findall(r'<use href="#([^"]+)"', body))
    assert all(f'id="{name}"' in body for name in used)
    shortened = _short_marks('<path id="fig-a-m1"/>' + '<use href="#fig-a-m1"/>' * 200)
    assert "fig-a-m1" not in shortened and len(set(re.findall(r"m[0-9a-f]{8}", shortened))) == 1
    _, rows = mismatch_plots.embeddings({"layer 0": {"Q/K": embedding(), "V/O": embedding()}})
    assert all(
        len(cell) < 8 for line in csv_text(rows, "x").splitlines()[1:] for cell in line.split(",")[-2:]
    )
