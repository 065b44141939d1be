"""Verdicts on made-up records, each beside the records that must turn it."""

import pytest

from analysis.publish import verdicts
from analysis.publish.claims import CLAIMS, ClaimTable, decide_all
from analysis.publish.published import table_1, table_2
from analysis.records import Record
from analysis.spec import Family

LM = Family.LACT_LM
BASELINE, FROZEN = (10.0, 10.1, 9.9), (14.0, 14.1, 13.9)


def trained(variant, values, steps=100, metric="perplexity"):
    return [
        Record(
            question="retrained",
            metric=metric,
            value=value,
            seeds=(seed,),
            checkpoint=f"{variant}{seed}",
            parameters={"family": "lact_lm", "variant": variant, "training_steps": steps},
        )
        for seed, value in enumerate(values)
    ]


KNOWN = [*trained("baseline", BASELINE), *trained("frozen", FROZEN)]


def test_the_margin_is_a_quarter_of_what_the_updates_are_worth():
    assert verdicts.margin(KNOWN, LM) == pytest.approx(1.0)
    assert verdicts.margin(KNOWN[:3], LM) is None


def test_there_is_no_margin_when_the_updates_do_not_help():
    worse = [*trained("baseline", FROZEN), *trained("frozen", BASELINE), *trained("ascent", FROZEN)]
    assert verdicts.margin(worse, LM) is None
    assert verdicts.equal(LM, "ascent")(worse).verdict == verdicts.OPEN


@pytest.mark.parametrize(
    ("values", "verdict"),
    [
        ((10.1, 10.2, 10.0), verdicts.REPRODUCED),
        ((13.0, 13.1, 12.9), verdicts.FAILED),
        ((10.2, 12.5, 10.9), verdicts.OPEN),
        ((11.3, 11.0, 11.1), verdicts.OPEN),
        ((10.1,), verdicts.MISSING),
        ((), verdicts.MISSING),
    ],
)
def test_as_good_needs_the_whole_interval_within_the_margin(values, verdict):
    assert verdicts.equal(LM, "ascent")([*KNOWN, *trained("ascent", values)]).verdict == verdict


@pytest.mark.parametrize(
    ("values", "verdict"),
    [
        ((7.0, 7.1, 6.9), verdicts.REPRODUCED),
        ((13.0, 13.1, 12.9), verdicts.FAILED),
        ((10.2, 12.5, 10.9), verdicts.OPEN),
    ],
)
def test_at_least_as_good_looks_at_one_side(values, verdict):
    assert verdicts.at_least_as_good(LM, "v1")([*KNOWN, *trained("v1", values)]).verdict == verdict


def test_shortened_runs_are_not_compared_with_full_ones():
    rows = [*trained("frozen", FROZEN), *trained("baseline", BASELINE, steps=30)]
    assert verdicts.by_variant(rows, LM, "baseline") == []
    assert verdicts.worse(LM, "frozen", "baseline")(rows).verdict == verdicts.MISSING


def test_worse_needs_an_interval_without_zero():
    assert verdicts.worse(LM, "frozen", "baseline")(KNOWN).verdict == verdicts.REPRODUCED
    swapped = [*trained("baseline", FROZEN), *trained("frozen", BASELINE)]
    assert verdicts.worse(LM, "frozen", "baseline")(swapped).verdict == verdicts.FAILED
    near = [*trained("baseline", (10.0, 11.0)), *trained("frozen", (10.2, 11.3))]
    assert verdicts.worse(LM, "frozen", "baseline")(near).verdict == verdicts.OPEN


def sweep(losses, changes):
    rows = []
    for k, loss in losses.items():
        where = {"family": "lact_lm", "variant": "baseline", "step_size": 1.0, "inner_steps": k}
        base = {"question": "inner steps", "seeds": (0,), "parameters": where, "data": "d"}
        rows.append(Record(**base, metric="inner_loss_after", value=loss))
        examples = [1.0 + changes[k] + 0.001 * i for i in range(8)]
        rows.append(
            Record(
                **base,
                metric="perplexity",
                value=3.0,
                extra={"per_example": examples, "lower_is_better": True},
            )
        )
    return rows


@pytest.mark.parametrize(
    ("losses", "changes", "verdict"),
    [
        ({1: -1.0, 2: -2.0, 4: -3.0}, {1: 0.0, 2: 0.1, 4: 0.2}, verdicts.REPRODUCED),
        ({1: -1.0, 2: -0.5, 4: -3.0}, {1: 0.0, 2: 0.1, 4: 0.2}, verdicts.FAILED),
        ({1: -1.0, 2: -2.0, 4: -3.0}, {1: 0.0, 2: -0.1, 4: 0.2}, verdicts.FAILED),
        ({1: -1.0, 2: -2.0, 4: -3.0}, {1: 0.0, 2: 0.0, 4: 0.2}, verdicts.OPEN),
    ],
)
def test_more_steps(losses, changes, verdict):
    assert verdicts.steps(LM)(sweep(losses, changes)).verdict == verdict


@pytest.mark.parametrize(("permutations", "verdict"), [(200, verdicts.REPRODUCED), (19, verdicts.OPEN)])
def test_few_relabellings_decide_nothing(permutations, verdict):
    where = {"family": "lact_lm", "pair": "Q/K", "layer": 0, "permutations": permutations}
    rows = [
        Record(question="distribution mismatch", metric=metric, value=value, parameters=where)
        for metric, value in (("classifier_accuracy", 0.99), ("mmd_p_value", 0.005))
    ]
    assert verdicts.mismatched(LM, "Q/K")(rows).verdict == verdict


def test_ascent_must_raise_the_inner_loss_in_every_seed():
    def rows(ascent):
        sides = {"baseline": (-1.0, -2.0), "ascent": (-1.0, ascent)}
        return [
            row
            for variant, ends in sides.items()
            for side, end in zip(("before", "after"), ends, strict=True)
            for row in trained(variant, (end, end), metric=f"inner_loss_{side}")
        ]

    assert verdicts.ascent_loss(LM)(rows(1.0)).verdict == verdicts.REPRODUCED
    assert verdicts.ascent_loss(LM)(rows(-3.0)).verdict == verdicts.FAILED


def test_without_records_every_claim_is_a_gap():
    table = ClaimTable(decide_all([]))
    assert table.counts()[verdicts.MISSING] == len(CLAIMS) == 29


def test_published_rows_are_never_measured_ones():
    assert {row.kind.value for row in (*table_1(), *table_2())} == {"published"}
    assert verdicts.by_variant([*table_1(), *table_2()], LM, "baseline") == []
