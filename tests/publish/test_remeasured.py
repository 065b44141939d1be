"""Recorded and re-measured values of one checkpoint: agreement is found, and a difference is never passed over."""

from __future__ import annotations

import pytest
import torch

from analysis import paths
from analysis.data import images, scenes, text
from analysis.publish import remeasured
from analysis.records import Record, Store

NLL = [2.0, 2.5, 3.0, 2.2]


def record(question, each=(), metric="perplexity", value=10.0, family="lact_lm", **others):
    fields = {
        "question": question,
        "metric": metric,
        "value": value,
        "ci_low": value - 1,
        "ci_high": value + 1,
        "checkpoint": "c0ffee",
        "samples": len(each) or 512,
        "seeds": (0,),
        "parameters": {"family": family, "variant": "ascent"},
        "extra": {"per_example": list(each)} if each else {},
    }
    return Record(**(fields | others))


def compared(measured, *recorded):
    (pair,) = remeasured.pairs([measured], recorded)
    return pair


def test_shared_examples_are_compared_one_by_one():
    pair = compared(record("evaluation", NLL[:2]), record("evaluation", NLL), record("retrained", value=10.5))
    assert pair.each == [(2.0, 2.0), (2.5, 2.5)] and pair.largest == 0 and pair.agree and pair.within
    (row,) = remeasured.table([pair]).reset_index().to_dict("records")
    assert (
        row["model"] == "LaCT-LM, Gradient ascent" and row["agree"] == "yes: differ by nothing in 2 windows"
    )
    assert row["recorded after training"] == "perplexity 10.50 (512 windows)"
    said = remeasured.sentence([pair])
    assert "agree example by example to the last recorded digit: 2 shared examples" in said


@pytest.mark.parametrize("off", [1e-4, 0.02])
def test_one_example_that_is_off_decides_by_the_tolerance(off):
    pair = compared(record("evaluation", [NLL[0], NLL[1] + off]), record("evaluation", NLL))
    assert pair.largest == pytest.approx(off)
    assert pair.agree is (off < remeasured.TOLERANCES["perplexity"][0])
    said = remeasured.sentence([pair])
    assert ("**Recorded and re-measured values differ**" in said) is not pair.agree
    assert f"{off:.5f} nats" in said and "0.01 nats a window" in said


def test_images_are_counted_that_are_decided_otherwise():
    ones = [1] * 200
    pair = compared(
        record("evaluation", [0, 0, *ones[2:]], "top1", 99.0, "vittt"),
        record("evaluation", ones, "top1", 100.0, "vittt"),
    )
    assert pair.apart == "2 of 200 images decided otherwise" and pair.agree
    flipped = record("evaluation", [0] * 10 + ones[10:], "top1", 95.0, "vittt")
    assert not compared(flipped, record("evaluation", ones, "top1", 100.0, "vittt")).agree


def test_without_examples_the_interval_decides_and_without_records_nothing_does():
    inside = compared(record("evaluation", NLL), record("retrained", value=10.5))
    outside = compared(record("evaluation", NLL), record("retrained", value=20.0))
    alone = compared(record("evaluation", NLL), record("retrained", value=10.0, checkpoint="other"))
    assert [pair.agree for pair in (inside, outside, alone)] == [True, False, None]
    assert "lies within it" in remeasured.sentence([inside])
    assert "lies **outside** it" in remeasured.sentence([outside])
    assert remeasured.sentence([alone]) == "Nothing is recorded for LaCT-LM, Gradient ascent."
    assert list(remeasured.table([inside, outside, alone])["agree"]) == [
        "yes: by the interval alone", "no: by the interval alone", "no record",
    ]  # fmt: skip
    assert "outside the interval" in remeasured.table([outside])["recorded after training"].iloc[0]


def test_a_smaller_evaluation_set_is_the_beginning_of_a_larger_one():
    few, many = (text.evaluation_set(length=64, crops=count).tokens for count in (3, 5))
    assert torch.equal(few, many[:3])
    few, many = (scenes.procedural_scenes(count, views=2, size=8).images for count in (2, 4))
    assert torch.equal(few, many[:2])
    few, many = (images.rendered_images(count, size=8).images for count in (3, 5))
    assert torch.equal(few, many[:3])


@pytest.mark.parametrize("variant", ["baseline", "ascent", "q_is_k"])
def test_the_shipped_checkpoints_have_records_to_be_held_against(variant):
    digests = {
        row.checkpoint
        for row in Store(paths.RECORDS)
        if row.question == "retrained" and row.parameters["variant"] == variant and row.seeds == (0,)
    }
    assert len(digests) == 3
