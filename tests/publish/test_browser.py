"""The report in a real browser without a network: drawn, quiet, readable in both themes and on a narrow screen."""

from __future__ import annotations

import pytest

from analysis.publish.pdf import find_browser, write_pdf

pytestmark = pytest.mark.browser


@pytest.fixture
def open_page(browser, built, tmp_path):
    """Open the report, moved alone to another folder, in a context without network; fail on requests and errors."""
    moved = tmp_path / "alone.html"
    moved.write_bytes(built.html.read_bytes())
    contexts, problems = [], []

    def opened(width=1440, height=900, **options):
        context = browser.new_context(offline=True, viewport={"width": width, "height": height}, **options)
        contexts.append(context)
        page = context.new_page()
        page.on("request", lambda request: _note(problems, request.url, moved.as_uri()))
        page.on("console", lambda message: problems.append(message.text) if message.type == "error" else None)
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.goto(moved.as_uri())
        return page

    yield opened
    for context in contexts:
        context.close()
    assert not problems


def _note(problems, url, own):
    if url.split("#")[0] != own and not url.startswith("data:"):
        problems.append(url)


CONTRAST = """() => {
  const linear = (c) => (c / 255 <= 0.03928 ? c / 255 / 12.92 : ((c / 255 + 0.055) / 1.055) ** 2.4);
  const light = (rgb) => {
    const [r, g, b] = rgb.match(/[\\d.]+/g).map(Number).map(linear);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const ground = (e) => {
    for (; e; e = e.parentElement) {
      const c = getComputedStyle(e).backgroundColor;
      if (c !== "rgba(0, 0, 0, 0)") return c;
    }
  };
  document.querySelectorAll("details").forEach((d) => { d.open = true; });
  const poor = [];
  const readable = "p, a, li, th, td, summary, dd, dt, button, pre span, code, h1, h2, h3, b";
  for (const e of document.querySelectorAll(readable)) {
    if (!e.textContent.trim() || !e.getClientRects().length) continue;
    const [a, b] = [light(getComputedStyle(e).color), light(ground(e))].sort((x, y) => y - x);
    const ratio = (a + 0.05) / (b + 0.05);
    if (ratio < 4.5) poor.push(`${e.tagName}.${e.className} ${ratio.toFixed(2)} ${e.textContent.slice(0, 30)}`);
  }
  return poor;
}"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_page_is_drawn_with_enough_contrast_in_both_themes(open_page, scheme):
    page = open_page(color_scheme=scheme)
    ground = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (ground == "rgb(22, 24, 27)") is (scheme == "dark")
    assert page.evaluate(CONTRAST) == []
    formula = page.locator('svg[aria-label="S_0 = W_0"]').bounding_box()
    assert formula["width"] > 30 and formula["height"] > 8
    axis = page.evaluate(
        "getComputedStyle(document.querySelector('#fig-ladder svg g[id$=\"text_1\"] g')).fill"
    )
    assert axis != ("rgb(31, 35, 40)" if scheme == "dark" else "rgb(228, 228, 223)"), (
        "figures follow the theme"
    )


def test_the_theme_can_be_switched_and_is_kept(open_page):
    page = open_page(color_scheme="light")
    page.click("#toggle-theme")
    assert page.evaluate("document.documentElement.dataset.theme") == "dark"
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(22, 24, 27)"
    assert page.inner_text("#toggle-theme") == "Light"
    page.reload()
    assert page.evaluate("document.documentElement.dataset.theme") == "dark"
    page.click("#toggle-theme")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(253, 253, 251)"


@pytest.mark.parametrize("width", [320, 390, 800, 1440])
def test_no_width_scrolls_sideways(open_page, width):
    page = open_page(width=width)
    page.click("#toggle-code")
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert page.locator("details.code[open]").count() == page.locator("details.code").count()
    assert page.locator(".contents details").get_attribute("open") == ("" if width == 1440 else None)


def test_a_column_head_sorts_its_table_by_mouse_and_keyboard(open_page):
    page = open_page()
    table = page.locator("article#x, article").nth(1).locator("table", has_text="inner loss")
    head = table.locator("th", has_text="inner loss")
    head.click()
    cells = table.locator("tbody tr td:nth-child(2)")
    assert cells.all_inner_texts() == ["0.069", "0.264", "0.513", "0.717", "1.000"]
    head.press("Enter")
    assert cells.first.inner_text() == "1.000"
    assert head.get_attribute("aria-sort") == "descending"


def test_anchors_contents_and_skip_link_work(open_page):
    page = open_page()
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    page.click(".contents a[href='#01_method']")
    page.wait_for_function("document.querySelector('.contents a[aria-current]')?.hash === '#01_method'")
    page.locator("#fig-ladder .number").click()
    assert page.evaluate("location.hash") == "#fig-ladder"
    with page.expect_download() as download:
        page.locator("#fig-ladder a[download]").click()
    assert download.value.suggested_filename == "ladder.csv"


def test_everything_readable_has_a_name_for_screen_readers(open_page):
    page = open_page()
    assert page.locator("img:not([alt]), [role=img]:not([aria-label]), button:empty, a:empty").count() == 0
    assert page.locator("h1.title").count() == 1
    assert page.evaluate("document.documentElement.lang") == "en"


def test_chromium_prints_the_same_pages(built, tmp_path, chromium_path):
    from pypdf import PdfReader

    assert find_browser()
    text = "<!doctype html><title>t</title><p><a href='#a'>to</a></p><h1 id='a' style='break-before:page'>Second page</h1>"
    seen = []
    write_pdf(lambda pages: seen.append(dict(pages)) or text, [], "chromium", tmp_path / "c.pdf", title="t")
    assert seen == [{}, {"a": 2}]
    assert "Second page" in PdfReader(tmp_path / "c.pdf").pages[1].extract_text()
