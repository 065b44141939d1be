"""Tables of prose on a narrow screen: a card for every statement, each verdict under the name of its model."""

from __future__ import annotations

import pytest

from analysis.publish.claims import CLAIMS, ClaimTable
from analysis.publish.statements import StatementTable
from analysis.publish.verdicts import Verdict
from tests.publish.test_difference import page_of

ROW = {
    "claim": "scan",
    "statement": "A long statement about scans that needs the whole width of the screen to be read.",
    "source": "section 6",
    "verdict": "identity",
    "worst over the standard draws": 1e-15,
}
BOXES = """(which) => [...document.querySelectorAll(which)].map((e) => {
  const b = e.getBoundingClientRect();
  return [Math.round(b.left), Math.round(b.top), Math.round(b.width), getComputedStyle(e, "::before").content];
})"""


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    long = Verdict("reproduced", "a change of +0.10 [-0.20, +0.30] against the baseline", "because", 3)
    claims = ClaimTable([(claim, long) for claim in CLAIMS])
    file = tmp_path_factory.mktemp("narrow") / "index.html"
    file.write_text(page_of(claims, StatementTable([ROW])), encoding="utf-8")
    return file.as_uri()


def boxes(browser, address, width, which):
    page = browser.new_page(viewport={"width": width, "height": 900})
    page.goto(address)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    found = page.evaluate(BOXES, which)
    page.close()
    return found


@pytest.mark.browser
def test_verdicts_stand_under_each_other_where_they_do_not_fit_beside_each_other(browser, address):
    cells = ".claims tbody tr:first-child td[data-label]"
    wide, narrow = (boxes(browser, address, width, cells) for width in (1440, 390))
    assert len({top for _, top, *_ in wide}) == 1 and {before for *_, before in wide} == {"none"}
    assert len({left for left, *_ in narrow}) == 1 and all(width > 280 for _, _, width, _ in narrow)
    assert all(before != "none" for *_, before in narrow), "each under the name of its model"
    tops = [top for _, top, *_ in narrow]
    assert tops == sorted(set(tops))


@pytest.mark.browser
def test_a_theorem_takes_the_whole_width(browser, address):
    ((_, _, width, _),) = boxes(browser, address, 390, ".statements tbody th")
    assert width > 320
