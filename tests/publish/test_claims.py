"""The table of claims: what it counts, and where it says that its numbers come from."""

import pytest

from analysis.publish import verdicts
from analysis.publish.claims import CLAIMS, Basis, ClaimTable, Origin, decide_all
from analysis.publish.verdicts import Verdict
from tests.publish.made_records import KNOWN, sweep, trained
from tests.publish.made_records import clouds as made_clouds


def test_without_records_every_claim_is_a_gap():
    table = ClaimTable(decide_all([]))
    assert table.counts()[verdicts.MISSING] == len(CLAIMS) == 42
    head, *lines = repr(table).splitlines()
    assert len(lines) == 42 and all(line.index("not measured") == head.index("verdict") for line in lines)


def test_claims_are_counted_by_what_the_paper_offers():
    table = ClaimTable(decide_all([]))
    assert {basis: sum(table.counts(basis).values()) for basis in Basis} == {
        Basis.NUMBERS: 27,
        Basis.FIGURE: 4,
        Basis.WORDS: 11,
    }
    for claim in CLAIMS:
        digits = any(character.isdigit() for character in claim.published)
        figure = claim.published in ("Figure 1", "Figure 2")
        expected = Basis.FIGURE if figure else Basis.NUMBERS if digits else Basis.WORDS
        assert claim.basis is expected, claim.key


def test_the_headline_keeps_the_kinds_apart():
    lines = ClaimTable(decide_all([*KNOWN, *sweep()])).headline().splitlines()
    assert lines[0] == "- 27 claims with published numbers: **27 not measured**."
    assert lines[1].endswith("with a published figure: **1 reproduced**, **3 not measured**.")
    assert "only states" in lines[2] and "**1 reproduced**, **10 not measured**" in lines[2]


@pytest.mark.parametrize(
    ("origin", "text"),
    [
        (Origin.RECORDED, "Recorded, 2 seeds, 8 windows each: "),
        (Origin.HERE, "Measured in this notebook, 2 seeds, 8 windows each: "),
    ],
)
def test_every_cell_says_where_its_number_comes_from(origin, text):
    asked = [claim for claim in CLAIMS if claim.key == "steps-lact_lm"]
    table = ClaimTable([(claim, claim.decide(sweep())) for claim in asked], origin)
    assert text in table._repr_html_()
    assert table.plain()[0]["evidence"] == text[0].lower() + text[1:].removesuffix(": ")


def test_a_gap_has_no_source():
    asked = [claim for claim in CLAIMS if claim.key == "steps-lact_lm"]
    table = ClaimTable([(claim, claim.decide([])) for claim in asked])
    assert "Recorded" not in table._repr_html_() and table.plain()[0]["evidence"] == ""


def test_a_note_stands_once_beside_its_statement():
    asked = [claim for claim in CLAIMS if claim.key.startswith("steps-")]
    noted = [(claim, Verdict(verdicts.OPEN, "+1", "because", 1, note="mind the control")) for claim in asked]
    assert ClaimTable(noted)._repr_html_().partition("</table>")[0].count("Mind the control.") == 1
    assert (
        "Mind"
        not in ClaimTable([(c, Verdict(verdicts.OPEN, "+1", "because", 1)) for c in asked])._repr_html_()
    )


def test_one_seed_is_shown_and_not_called_unmeasured():
    asked = [claim for claim in CLAIMS if claim.key == "v6-lact_lm"]
    rows = [*KNOWN, *trained("v6", (12.8,)), *made_clouds()]
    text = ClaimTable([(claim, claim.decide(rows)) for claim in asked])._repr_html_()
    assert "+2.80 perplexity" in text and "inconclusive" in text and "not measured" not in text


def test_paper_gets_the_reasons_below_the_table_once_and_a_screen_in_the_cells():
    reasons = [
        Verdict(verdicts.OPEN, "1", f"because of {n}", 2, note="not everything" * (n == 0)) for n in (0, 1)
    ]
    shown = ClaimTable(list(zip(CLAIMS[:2], reasons, strict=True)))._repr_html_()
    table, _, below = shown.partition("<div class='reasons' hidden>")
    for each in ("Because of 0.", "Because of 1.", "Not everything."):
        assert table.count(each) == below.count(each) == 1
