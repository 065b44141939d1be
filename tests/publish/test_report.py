"""The assembled report: complete, self-contained, the same twice, and never replaced by a broken one."""

from __future__ import annotations

import json
import re
import shutil

import pytest

from analysis import paths
from analysis.errors import DependencyError, ParameterError, ReportError
from analysis.publish import pdf
from analysis.publish.mathematics import Formulas
from analysis.publish.page import check_self_contained
from analysis.publish.report import MAX_BYTES, build_report, regenerate_figures
from tests.publish import toys

STATED_LINE = re.compile(r'<p id="build">.*?</p>')


@pytest.fixture(scope="module")
def page(built):
    return built.html.read_text(encoding="utf-8")


def simple(project, *texts, name="01_text"):
    return toys.write(project / "notebooks", name, *(toys.new_markdown_cell(text) for text in texts))


def test_the_page_holds_every_notebook_with_contents_anchors_and_numbers(page):
    for anchor in (
        "00_overview",
        "01_method",
        "01_method-momentum-as-a-mask-m",
        "fig-step-sweep",
        "fig-ladder",
    ):
        assert page.count(f'id="{anchor}"') == 1
        assert f'href="#{anchor}"' in page
    assert '<a href="#fig-step-sweep">Figure 1</a>' in page, "a link called Figure is given its number"
    assert '<a href="#01_method-momentum-as-a-mask-m">this link</a>' in page
    assert "<i>Model</i>" in page or "<b>Model</b>" in page
    assert page.index('id="fig-step-sweep"') < page.index('id="fig-ladder"')
    assert len(page.encode()) < MAX_BYTES


def test_nothing_in_the_page_is_fetched_or_doubled(page):
    check_self_contained(page)
    assert 'src="data:image/png;base64,' in page, "the picture of a text cell is embedded"
    for bad in (
        "<img src='picture.png'>",
        '<img src="https://example.org/a.png">',
        '<link rel="stylesheet" href="a.css">',
        '<script src="//cdn.example.org/x.js"></script>',
        "<style>@import 'a.css';</style>",
        "<style>p{background:url(a.png)}</style>",
        '<iframe srcdoc="x"></iframe>',
        '<svg><image xlink:href="a.png"/></svg>',
        '<p id="a"></p><p id="a"></p>',
    ):
        with pytest.raises(ReportError):
            check_self_contained(bad)


def test_formulas_are_drawn_with_their_source_as_label(page):
    assert page.count('role="img"') > 10
    assert 'aria-label="S_0 = W_0"' in page
    assert "$$" not in page.split("<script>")[0]
    assert "data-latex" not in page and "merror" not in page
    assert "MathJax" not in page


def test_noise_is_hidden_and_code_folded(page):
    assert "noise that nobody reads" not in re.sub(r"<details.*?</details>", "", page, flags=re.DOTALL)
    assert page.count('<details class="code') >= 5
    assert "import pandas" not in re.sub(r"<details.*?</details>", "", page, flags=re.DOTALL)
    assert "16 samples, steps [0, 1, 2, 4, 8]" in page


def test_tables_lose_row_numbers_and_line_up_their_digits(page):
    assert '<td class="number">0.717</td>' in page
    assert "More inner steps lower the inner loss but not perplexity" in page, "cells are not cut off"
    first = re.search(r"<table.*?</table>", page, re.DOTALL).group()
    assert "<th>0</th>" not in first and 'border="1"' not in page


def test_two_builds_differ_in_the_stated_line_alone(built, page, project, monkeypatch):
    shutil.copytree(built.html.parent.parent / ".cache", paths.CACHE)
    toys.write(paths.NOTEBOOKS, "00_overview", *toys.OVERVIEW)
    toys.write(paths.NOTEBOOKS, "01_method", *toys.METHOD, kernel=None)
    fresh = build_report(fresh=True, pdf_engine="none")
    assert fresh.executed == 2 and fresh.pdf is None
    again = fresh.html.read_text(encoding="utf-8")
    assert STATED_LINE.sub("", again) == STATED_LINE.sub("", page)
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1700000000")
    reused = [build_report(pdf_engine="none").html.read_bytes() for _ in range(2)]
    assert reused[0] == reused[1]
    assert b"Built 14 November 2023" in reused[0]
    assert STATED_LINE.sub("", reused[0].decode()) == STATED_LINE.sub("", page), (
        "reused or run again: the same page"
    )
    assert [path.name for path in regenerate_figures()] == ["step-sweep.svg", "ladder.svg"]


def test_the_pdf_has_title_page_numbers_links_and_outline(built):
    from pypdf import PdfReader

    reader = PdfReader(built.pdf)
    texts = [page.extract_text() for page in reader.pages]
    assert "linear attention" in texts[0] and "inconclusive at this scale" in texts[0]
    assert re.search(r"Linear attention in disguise\s+4", texts[1]), texts[1]
    assert "Linear attention in disguise" in texts[3] and texts[3].rstrip().endswith("4")
    last = len(texts)
    assert re.search(rf"Provenance\s+{last}", texts[1]), "the contents lead to the last page"
    assert "01_method" in texts[-1] and "commit" in texts[-1] and "commit" not in "".join(texts[3:-1])
    assert [entry["/Title"] for entry in reader.outline if not isinstance(entry, list)] == [
        "What the claims come to",
        "Linear attention in disguise",
    ]
    assert any("/Annots" in page for page in reader.pages)
    assert not [image for page in reader.pages[3:] for image in page.images], "figures stay vectors"


def test_a_failing_notebook_leaves_the_former_report_and_a_marked_partial_one(project):
    toys.write(paths.NOTEBOOKS, "00_overview", *toys.OVERVIEW[2:], toys.new_markdown_cell("x"))
    simple(project, "# Good\n\nwords")
    toys.write(paths.NOTEBOOKS, "00_overview", toys.new_markdown_cell("# Overview\n\nwords"))
    former = build_report(pdf_engine="none").html.read_bytes()
    toys.write(paths.NOTEBOOKS, "02_broken", *toys.BROKEN)
    with pytest.raises(
        ReportError, match="notebook '02_broken' stopped in code cell 3 with RuntimeError"
    ) as caught:
        build_report(pdf_engine="none")
    assert "third probe" in str(caught.value)
    assert (paths.REPORT / "index.html").read_bytes() == former
    failed = paths.REPORT / "failed"
    assert sorted(file.name for file in failed.iterdir()) == [
        "02_broken.html",
        "02_broken.ipynb",
        "index.html",
    ]
    partial = (failed / "index.html").read_text()
    assert "Incomplete report" in partial and "This part is incomplete" in partial
    assert "computed before the error" in partial and 'id="01_text"' in partial
    cells = json.loads((failed / "02_broken.ipynb").read_text())["cells"]
    assert any(output["output_type"] == "error" for cell in cells for output in cell.get("outputs", []))
    toys.write(paths.NOTEBOOKS, "02_broken", *toys.BROKEN[:3])
    build_report(pdf_engine="none")
    assert not failed.exists(), "a good report removes the marks of a bad one"
    assert not list(paths.REPORT.glob(".build-*"))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (r"A bad formula $\notacommand{x}$", r"\\notacommand is unknown"),
        (r"$$x \tag{1}$$", r"without \\tag"),
        ("![a far picture](https://example.org/a.png)", "picture file beside the notebook"),
        ("![a lost picture](lost.png)", "lost.png"),
        ("![](pixel.png)", "alternative text"),
        ("[nowhere](#no-such-heading)", "no-such-heading"),
    ],
)
def test_content_that_cannot_be_shown_stops_the_build(project, text, message):
    simple(project, f"# Title\n\n{text}")
    (paths.REPORT).mkdir()
    (paths.REPORT / "index.html").write_text("good")
    with pytest.raises(ReportError, match=message) as caught:
        build_report(pdf_engine="none")
    assert "01_text" in str(caught.value)
    assert (paths.REPORT / "index.html").read_text() == "good"


def test_a_notebook_without_a_title_is_refused(project):
    simple(project, "just words")
    with pytest.raises(ReportError, match="open with a '# Title'"):
        build_report(pdf_engine="none")


def test_without_a_pdf_engine_the_html_is_still_written(project, monkeypatch):
    simple(project, "# Title\n\nwords")
    monkeypatch.setattr(pdf, "find_browser", lambda: None)
    monkeypatch.setattr(pdf.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(DependencyError, match="needs PlutoPrint or a Chromium browser"):
        build_report()
    assert (paths.REPORT / "index.html").is_file()
    made = build_report(require_pdf=False)
    assert made.pdf is None and "install" in made.note and made.html.is_file()
    with pytest.raises(DependencyError, match="needs chromium"):
        build_report(pdf_engine="chromium")


def test_pdf_engines_are_named_and_checked_before_anything_runs(project):
    simple(project, "# Title\n\nwords")
    with pytest.raises(ParameterError, match="did you mean 'plutoprint'"):
        build_report(pdf_engine="plutoprin")
    assert not (paths.REPORT / "index.html").exists()


def test_a_report_folder_that_cannot_be_written_is_one_sentence(project):
    simple(project, "# Title\n\nwords")
    paths.REPORT.write_text("a file where the folder should be")
    with pytest.raises(ReportError, match=r"folder for the report, received the file .*; pass a folder"):
        build_report(pdf_engine="none")
    with pytest.raises(ReportError, match=r"received .*deeper, where .* is a file; pass a folder"):
        build_report(output=paths.REPORT / "deeper", pdf_engine="none")
    assert paths.REPORT.read_text() == "a file where the folder should be"


def test_a_report_folder_without_permission_is_one_sentence(project, tmp_path, monkeypatch):
    simple(project, "# Title\n\nwords")

    def refuse(*_, **__):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("analysis.publish.report.tempfile.mkdtemp", refuse)
    with pytest.raises(ReportError, match=r"writable report folder, .*\(Permission denied\); change its"):
        build_report(output=tmp_path / "closed", pdf_engine="none")


def test_a_report_beyond_the_limit_is_refused(project, monkeypatch):
    simple(project, "# Title\n\nwords")
    monkeypatch.setattr("analysis.publish.report.MAX_BYTES", 1000)
    with pytest.raises(ReportError, match="fewer points"):
        build_report(pdf_engine="none")


def test_many_formulas_get_ids_of_their_own():
    formulas = Formulas()
    page = "".join(formulas.inline(rf"\phi_{{{number}}}") for number in range(3))
    check_self_contained(page)
    assert len(set(re.findall(r'id="(tex\d+)-', page))) == 3


def test_a_report_elsewhere_keeps_its_figures_beside_it(project, tmp_path):
    toys.write(project / "notebooks", "00_overview", *toys.OVERVIEW)
    toys.write(project / "notebooks", "01_method", *toys.METHOD)
    elsewhere = tmp_path / "elsewhere"
    for figures in (
        elsewhere / "figures",
        elsewhere / "figures",
        paths.FIGURES,
    ):  # run, from the cache, the project's own
        build_report(output=None if figures == paths.FIGURES else elsewhere, pdf_engine="none")
        drawn = figures / "step-sweep.svg"
        assert drawn.is_file() and (figures == paths.FIGURES or not paths.FIGURES.exists())
        content = drawn.read_text()
        drawn.write_text("of another run")
        build_report(output=None if figures == paths.FIGURES else elsewhere, pdf_engine="none")
        assert drawn.read_text() == content
    assert {path.parent for path in regenerate_figures(figures=elsewhere / "again")} == {elsewhere / "again"}
    assert (elsewhere / "again" / "step-sweep.svg").read_text() == content


def test_a_page_of_another_origin_is_never_replaced(project, tmp_path):
    simple(project, "# Text")
    site = tmp_path / "site"
    site.mkdir()
    (site / "index.html").write_text("<h1>My home page</h1>")
    with pytest.raises(ReportError, match="another origin"):
        build_report(output=site, pdf_engine="none")
    assert (site / "index.html").read_text() == "<h1>My home page</h1>"
    assert [file.name for file in site.iterdir()] == ["index.html"]


def test_a_report_is_replaced_by_the_next(project, tmp_path):
    simple(project, "# Text")
    for _ in range(2):
        made = build_report(output=tmp_path / "mine", pdf_engine="none")
    assert made.html.is_file()


def test_a_mistake_leaves_no_empty_folder(project, tmp_path):
    simple(project, "# Text")
    with pytest.raises(ParameterError):
        build_report(parameters={"sampels": 3}, output=tmp_path / "new", pdf_engine="none")
    assert not (tmp_path / "new").exists()
