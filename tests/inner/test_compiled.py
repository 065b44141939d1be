"""The compiled backend over more shapes than torch.compile holds by itself: the same numbers, never eager code in silence."""

import pytest
import torch
from torch._dynamo.exc import FailOnRecompileLimitHit

from analysis.inner import compiled, run
from analysis.spec import Family, ladder
from tests.inner.cases import draw

CHUNKS = tuple(range(3, 15))
"""Twelve sizes; torch.compile gives up after eight graphs of a function unless it is told otherwise."""


@pytest.fixture
def traced(monkeypatch):
    """Trace without generating code, which takes minutes for so many graphs; returns the graphs that were made."""
    graphs = []

    def keep(module, inputs):
        graphs.append(module)
        return module.forward

    torch._dynamo.reset()
    made = {f: torch.compile(f, backend=keep, dynamic=False) for f in (compiled.update, compiled.apply)}
    monkeypatch.setattr(compiled, "_compiled", made.__getitem__)
    with torch._dynamo.config.patch(
        recompile_limit=8, accumulated_recompile_limit=256, fail_on_recompile_limit_hit=False
    ):
        yield graphs
    torch._dynamo.reset()


def sweep():
    spec = ladder(Family.LACT_LM)["v2"]["fast_weights"]
    for chunk in CHUNKS:
        loop = spec.edit(chunk=chunk)
        yield loop, draw(loop)


def test_every_chunk_size_is_compiled_and_agrees(traced):
    for loop, (inputs, weights) in sweep():
        before = len(traced)
        found = run(loop, inputs, weights, backend="compiled").outputs
        assert torch.allclose(found, run(loop, inputs, weights, backend="recurrent").outputs, atol=1e-12)
        assert len(traced) > before, f"chunk {loop.chunk} ran in eager code"


def test_a_limit_that_is_hit_is_an_error(traced, monkeypatch):
    monkeypatch.setattr(compiled, "allow_many_graphs", lambda: None)
    torch._dynamo.config.recompile_limit = 2
    torch._dynamo.config.fail_on_recompile_limit_hit = True
    with pytest.raises(FailOnRecompileLimitHit):
        for loop, (inputs, weights) in sweep():
            run(loop, inputs, weights, backend="compiled")


def test_without_the_limit_lifted_sizes_would_run_in_eager_code(traced, monkeypatch):
    monkeypatch.setattr(compiled, "allow_many_graphs", lambda: None)
    torch._dynamo.config.recompile_limit = 2
    torch._dynamo.config.fail_on_recompile_limit_hit = False
    graphs = []
    for loop, (inputs, weights) in sweep():
        run(loop, inputs, weights, backend="compiled")
        graphs.append(len(traced))
    assert graphs[-1] == graphs[-2] > 0
