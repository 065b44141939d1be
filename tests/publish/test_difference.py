"""Two reports compared claim by claim, from the values inside the pages."""

import json
import re

import pytest

from analysis.cli import _run
from analysis.errors import ReportError
from analysis.publish.claims import CLAIMS, STEPS, ClaimTable, Origin
from analysis.publish.difference import Ground, Kind, compare_reports
from analysis.publish.fragments import Fragment
from analysis.publish.page import Build, render_page
from analysis.publish.statements import StatementTable
from analysis.publish.verdicts import Verdict

ORIGIN = {"versions": {}, "commit": "", "key": "", "device": ""}


def table_of(*verdicts):
    return ClaimTable([(claim, verdict) for claim, verdict in zip(CLAIMS, verdicts, strict=False)])


def page_of(*tables, line="built once", checkpoint="", names=()):
    fragments = [
        Fragment(
            name=names[number] if names else f"0{number}_part",
            body=table._repr_html_(),
            headings=(),
            figures=(),
            title_page="",
            provenance={"parameters": {"checkpoint": checkpoint}, **ORIGIN} if checkpoint else {},
            claims=tuple(table.plain()),
        )
        for number, table in enumerate(tables)
    ]
    from analysis.publish.markdown import Heading

    fragments = [
        part.__class__(**{**part.__dict__, "headings": (Heading(level=1, anchor=part.name, html=part.name),)})
        for part in fragments
    ]
    subtitle = f"What the checkpoint {checkpoint} tells by itself; the rest is shipped." if checkpoint else ""
    return render_page(fragments, Build(title="A report", subtitle=subtitle, line=line), printed=False)


def write(folder, *verdicts, line="built once"):
    folder.mkdir()
    (folder / "index.html").write_text(page_of(table_of(*verdicts), line=line), encoding="utf-8")
    return folder


GOOD, BAD = Verdict("reproduced", "+0.1 </b>", "because", 3), Verdict("not reproduced", "-0.4", "", 3)
OTHER = Verdict("reproduced", "+0.2", "because", 3)


def test_every_kind_of_difference_is_found_and_the_changed_come_first(tmp_path):
    first = write(tmp_path / "a", GOOD, GOOD, GOOD, GOOD)
    second = write(tmp_path / "b", GOOD, OTHER, BAD, line="built twice")
    found = compare_reports(first, second / "index.html")
    assert [row.kind for row in found.rows] == [Kind.VERDICT, Kind.VALUE, Kind.ONLY_FIRST, Kind.SAME]
    assert found.rows[0].key == CLAIMS[2].key and found.rows[0].second == ("not reproduced", "-0.4")
    assert found.rows[1].first == ("reproduced", "+0.1 </b>")
    assert found.built == ("built once", "built twice")
    assert "other verdict" in found._repr_html_() and "+0.1 &lt;/b&gt;" in found._repr_html_()
    assert found.counts() == {"other verdict": 1, "other value": 1, "only in the first": 1, "same": 1}


def test_the_command_says_what_differs_and_how_many_agree(tmp_path, capsys):
    first, second = write(tmp_path / "a", GOOD, GOOD), write(tmp_path / "b", GOOD, BAD)
    assert _run(["report", "diff", str(first), str(second)]) == 1
    assert "1 other verdict, 1 same" in capsys.readouterr().out
    assert _run(["report", "diff", str(first), str(first)]) == 0
    assert capsys.readouterr().out.strip().endswith("2 same")
    assert _run(["report", "diff", str(first), str(tmp_path / "none")]) == 2


def test_options_of_the_report_are_refused_where_two_are_compared(tmp_path, capsys):
    first = write(tmp_path / "a", GOOD)
    assert _run(["report", "--fresh", "diff", str(first), str(first)]) == 2
    assert "takes none of the options of report, received --fresh; leave it out" in capsys.readouterr().err
    assert _run(["report", "diff", str(first)]) == 2
    assert "See ttt-analysis report diff --help." in capsys.readouterr().err


def test_a_theorem_counts_as_a_claim_and_rounding_is_no_difference(tmp_path):
    def folder(name, verdict, error):
        row = {
            "claim": "scan",
            "statement": "A < B",
            "verdict": verdict,
            "worst over the standard draws": error,
        }
        (tmp_path / name).mkdir()
        page = page_of(table_of(GOOD), StatementTable([row], ["verdict"]), StatementTable([row], ["verdict"]))
        (tmp_path / name / "index.html").write_text(page, encoding="utf-8")
        return tmp_path / name

    first, other = folder("a", "identity", 1e-15), folder("b", "identity", 3e-15)
    broken, worse = folder("c", "false", 0.31), folder("d", "false", 0.35)
    assert compare_reports(first, other).counts() == {"same": 2}
    (changed, _) = compare_reports(first, broken).rows
    assert (changed.key, changed.model, changed.claim) == ("theorem-scan", "theorem", "A < B")
    assert (changed.first, changed.second) == (
        ("identity", "equal to rounding"),
        ("false", "relative error 0.31"),
    )
    assert compare_reports(broken, worse).counts() == {"other value": 1, "same": 1}
    assert (first / "index.html").read_text().count("id='claim-theorem-scan'") == 1


@pytest.mark.parametrize(
    "content", ["<p>another page</p>", '<script id="claims">{"claims": [{"key": 1}]}</script>', "\x00"]
)
def test_a_page_that_is_no_report_is_refused(tmp_path, content):
    (tmp_path / "index.html").write_text(content)
    with pytest.raises(ReportError, match="expected a report of this suite with its claims inside"):
        compare_reports(tmp_path, tmp_path)


def test_a_file_of_bytes_is_refused_in_one_short_line(tmp_path):
    (tmp_path / "index.html").write_bytes(bytes(range(256)) * 40)
    with pytest.raises(ReportError, match=r"\(no text in UTF-8\)") as caught:
        compare_reports(tmp_path, tmp_path)
    assert len(str(caught.value)) < 160 + len(str(tmp_path))


def test_a_report_without_claims_is_refused(tmp_path):
    with pytest.raises(ReportError, match=r"without any.*add --only 00 or --only 09"):
        compare_reports(write(tmp_path / "a"), tmp_path / "a")


def test_a_claim_shown_twice_keeps_one_anchor_and_both_rows_link_to_it():
    page = page_of(table_of(GOOD, BAD), table_of(GOOD))
    anchor = CLAIMS[0].anchor
    assert len(re.findall(f"""id=["']{anchor}["']""", page)) == 1
    assert page.count(f'href="#{anchor}"') == 2
    held = json.loads(re.search(r'id="claims">(.*?)</script>', page, re.DOTALL).group(1))
    assert [claim["key"] for claim in held["claims"]] == [CLAIMS[0].key, CLAIMS[1].key]


def test_a_table_of_claims_hands_its_values_to_the_report():
    from IPython.core.formatters import DisplayFormatter

    data, metadata = DisplayFormatter().format(table_of(GOOD))
    assert "<table class='claims'>" in data["text/html"]
    assert metadata["claims"][0]["verdict"] == "reproduced"


def test_one_seed_that_points_the_other_way_is_another_verdict(tmp_path):
    sides = [
        Verdict("inconclusive at this scale", "+0.1", f"one seed points {way}: because", 1)
        for way in ("for", "against")
    ]
    first, second = (write(tmp_path / name, side) for name, side in zip("ab", sides, strict=True))
    (row,) = compare_reports(first, second).rows
    assert row.kind is Kind.VERDICT and row.second[0] == "inconclusive at this scale; one seed points against"


def of_family(family, verdict, origin, *keys):
    found = [claim for claim in CLAIMS if claim.key in {f"{key}-{family}" for key in keys}]
    return ClaimTable([(claim, verdict) for claim in found], origin)


def theorems(number):
    rows = [
        {
            "claim": f"t{i}",
            "statement": f"A < {i}",
            "verdict": "identity",
            "worst over the standard draws": 0.0,
        }
        for i in range(number)
    ]
    return StatementTable(rows, ["verdict"])


OPEN = Verdict("inconclusive at this scale", "+1", "one seed points for the claim: because", 1)
APART = Verdict("not decidable from one checkpoint", reason="it compares retrained models")


def shipped_and_own(tmp_path, strip=lambda page: page):
    shipped = [
        of_family(family, GOOD, Origin.RECORDED, "update", "steps", "qk") for family in ("lact_lm", "vittt")
    ]
    own = [
        of_family("lact_lm", OPEN, Origin.HERE, "steps", "qk"),
        of_family("lact_lm", APART, Origin.HERE, "update"),
    ]
    pages = {
        "full": page_of(
            shipped[0], shipped[1], theorems(5), names=("00_overview", "03_ascent", "06_theorems")
        ),
        "own": page_of(*own, checkpoint="mine", names=("09_your_checkpoint", "10_more")),
    }
    for name, page in pages.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "index.html").write_text(strip(page), encoding="utf-8")
    return tmp_path / "full", tmp_path / "own"


def before_origins(page):
    """The page as it was before it said what a claim was decided on."""
    stripped = re.sub(r'"origin": "[^"]*",\n', "", page)
    assert stripped != page and '"origin":' not in stripped
    return stripped


@pytest.mark.parametrize("strip", [lambda page: page, before_origins], ids=["as built", "an old report"])
def test_claims_of_shipped_models_are_not_held_against_those_of_ones_own_checkpoint(tmp_path, capsys, strip):
    full, own = shipped_and_own(tmp_path, strip)
    found = compare_reports(full, own)
    assert found.shared == [] == found.cells()
    assert found.folded() == [
        "only in the first: 5 theorems, 6 claims of the shipped models",
        "only in the second: 3 claims on the reader's own checkpoint "
        f"(LaCT-LM: {STEPS}; LaCT-LM: queries are distributed unlike keys; "
        "LaCT-LM: without inner updates the model is worse)",
    ]
    assert found.notes == (
        "different reports: the first is about the shipped models, the second about the checkpoint mine",
        "different families: only in the first ViTTT",
        "different pages: only in the first 00_overview, 03_ascent, 06_theorems; only in the second "
        "09_your_checkpoint, 10_more",
        "nothing to compare: no claim is decided on the same ground in both; build both with --checkpoint on models of one "
        "family, or both without",
    )
    assert all(f"<p>{note}</p>" in found._repr_html_() for note in found.notes)
    assert _run(["report", "diff", str(full), str(own)]) == 1
    said = capsys.readouterr().out
    assert "Claims that differ" not in said and said.count("\n") < 10
    assert _run(["report", "diff", str(own), str(own)]) == 0
    assert capsys.readouterr().out.strip().endswith("3 same")


def test_two_reports_of_ones_own_models_are_compared_claim_by_claim_old_or_new(tmp_path):
    _, new = shipped_and_own(tmp_path)
    (tmp_path / "before").mkdir()
    _, old = shipped_and_own(tmp_path / "before", before_origins)
    found = compare_reports(old, new)
    assert found.counts() == {"same": 3} and found.notes == () and found.folded() == []
    assert {row.ground for row in found.rows} == {Ground.OWN}


def test_a_page_says_whether_a_notebook_measured_a_shipped_model_or_ones_own():
    for checkpoint, origin in (("", Origin.HERE), ("mine", Origin.OWN)):
        page = page_of(of_family("vittt", OPEN, Origin.HERE, "qk"), checkpoint=checkpoint)
        held = json.loads(re.search(r'id="claims">(.*?)</script>', page, re.DOTALL).group(1))
        assert [claim["origin"] for claim in held["claims"]] == [origin.value]
    recorded = page_of(of_family("vittt", GOOD, Origin.RECORDED, "v1"), checkpoint="mine")
    assert f'"origin": "{Origin.RECORDED.value}"' in recorded


def test_a_single_claim_that_one_report_lacks_is_named(tmp_path):
    found = compare_reports(write(tmp_path / "a", GOOD, GOOD), write(tmp_path / "b", GOOD))
    claim = CLAIMS[1]
    assert found.folded() == [
        f"only in the first: 1 claim of the shipped models ({claim.family.title}: {claim.statement})"
    ]
    assert found.notes == () and len(found.cells()) == 1


def test_a_claim_whose_origin_is_no_text_is_no_claim(tmp_path):
    folder = write(tmp_path / "a", GOOD)
    page = (folder / "index.html").read_text()
    (folder / "index.html").write_text(page.replace('"origin": "recorded"', '"origin": []'))
    with pytest.raises(ReportError, match="origin of update-lact_lm is no text"):
        compare_reports(folder, folder)
