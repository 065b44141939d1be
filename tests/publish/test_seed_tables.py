"""Tables over training seeds hold what is recorded, seed by seed, and say how many seeds show a change."""

from __future__ import annotations

import math

import pytest

from analysis.publish import seed_tables
from analysis.records import Record
from analysis.spec import Family
from analysis.statistics import interval

LM = (Family.LACT_LM,)
QUESTION = "gradient ascent on the frozen model"


def arm(name, seed, moved, family="lact_lm", metric="perplexity", variant="baseline"):
    return Record(
        question=QUESTION,
        metric=metric,
        value=10.0 + moved,
        unit="dB" if metric == "psnr" else "",
        seeds=(seed,),
        checkpoint=f"{variant}{seed}",
        data="d",
        parameters={"family": family, "variant": variant, "arm": name},
        extra={"per_example": [1.0 + moved + 0.001 * i * bool(moved) for i in range(8)]},
    )


def evaluated(variant, seed, before, after, perplexity):
    where = {"family": "lact_lm", "variant": variant}
    return [
        Record(question="evaluation", metric=name, value=value, seeds=(seed,), samples=40, parameters=where)
        for name, value in (
            ("inner_loss_before", before),
            ("inner_loss_after", after),
            ("perplexity", perplexity),
        )
    ]


def test_the_change_of_every_seed_is_paired_and_perplexities_are_averaged_as_ratios():
    moves = {"as trained": (0.0, 0.0), "ascent": (0.1, 0.3), "no update": (0.0, 0.0)}
    records = [arm(name, seed, moved[seed]) for name, moved in moves.items() for seed in (0, 1)]
    ascent, still = seed_tables.frozen_rows(records, [QUESTION], LM)
    logs = [math.log1p(value / 100) for value in ascent["by seed"]]
    assert logs == pytest.approx([0.1035, 0.3035])
    across = interval(logs, "t")
    assert ascent["change"] == pytest.approx(100 * math.expm1(across.mean))
    assert ascent["high"] == pytest.approx(100 * math.expm1(across.high))
    assert (ascent["clear"], still["clear"], still["seeds"]) == (2, 0, 2)
    shown = seed_tables.frozen_table([ascent, still])
    assert list(shown["seeds with a change"]) == ["2 of 2", "0 of 2"]


def test_one_seed_has_no_interval_and_other_variants_stay_out():
    records = [
        arm("as trained", 0, 0.0, "lact_nvs", "psnr"),
        arm("ascent", 0, -2.0, "lact_nvs", "psnr"),
        arm("ascent", 1, -9.0, "lact_nvs", "psnr", variant="own"),
        arm("ascent", 2, -9.0, "lact_nvs", "psnr"),
    ]
    (row,) = seed_tables.frozen_rows(records, [QUESTION])
    assert row["seeds"] == 1 and math.isnan(row["low"]), "a run without its reference cannot be paired"
    (cell,) = seed_tables.frozen_table([row])["change, paired"]
    assert cell == "-2.0 dB"


def test_arms_that_two_questions_share_stand_once():
    records = [arm(name, 0, moved) for name, moved in (("as trained", 0.0), ("no update", 0.2))]
    again = [record.edit(question="other") for record in records]
    assert len(seed_tables.frozen_rows([*records, *again], [QUESTION, "other"], LM)) == 1


def test_inner_losses_are_paired_by_seed_and_counted_by_direction():
    records = [
        *evaluated("baseline", 0, -1.0, -2.0, 10.0),
        *evaluated("baseline", 1, -1.0, -0.5, 11.0),
        *evaluated("ascent", 0, 1.0, 2.0, 10.5),
        *evaluated("ascent", 2, 1.0, 2.0, 10.5)[:2],
        *evaluated("q_is_k", 0, 1.0, 2.0, 10.5),
    ]
    rows = seed_tables.inner_loss_rows(records, LM)
    assert [(row["trained with"], len(row["before"])) for row in rows] == [("descent", 2), ("ascent", 1)]
    shown = seed_tables.inner_loss_table(rows)
    assert list(shown["the update raises it in"]) == ["1 of 2 seeds", "1 of 1 seeds"]
    assert shown["task metric"].iloc[1] == "perplexity 10.50"
    assert seed_tables.inner_loss_sentence(rows) == (
        "Under descent the update lowers the inner loss in 1 of 2 trained models, "
        "under ascent it raises it in 1 of 1 trained models."
    )


def test_without_records_the_tables_are_empty():
    assert len(seed_tables.frozen_table(seed_tables.frozen_rows([], [QUESTION]))) == 0
    assert len(seed_tables.inner_loss_table(seed_tables.inner_loss_rows([]))) == 0
    assert seed_tables.inner_loss_sentence([]) == "No inner loss at test time is recorded."
