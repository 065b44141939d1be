"""Times on a processor: on so many threads as asked for, and none of a form that disagrees."""

import dataclasses

import pytest
import torch

from analysis.errors import ParameterError
from analysis.speed import processor

TINY = dataclasses.replace(processor.SMALL, tokens=48, chunk=16, width=8)


@pytest.mark.parametrize("threads", [1, 2, None])
def test_the_threads_that_were_timed_are_recorded_and_given_back(threads):
    before = torch.get_num_threads()
    records = processor.compare(TINY, repeats=1, threads=threads)
    assert {r.extra["threads"] for r in records} == {threads or before}
    assert torch.get_num_threads() == before


def test_threads_are_given_back_when_timing_fails(monkeypatch):
    before = torch.get_num_threads()
    monkeypatch.setattr(processor, "times", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        processor.compare(TINY, repeats=1, threads=before + 1)
    assert torch.get_num_threads() == before


def test_a_form_that_disagrees_gets_no_time(monkeypatch):
    monkeypatch.setattr(processor, "error", lambda *_: 1e-3)
    monkeypatch.setattr(processor, "times", lambda *_: pytest.fail("it was timed"))
    with pytest.raises(ParameterError, match="mend the backend before timing it"):
        processor.compare(TINY, repeats=1)
