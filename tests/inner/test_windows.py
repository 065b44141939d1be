"""Windows of chunks on a processor: any number of chunks in a window is the loop itself, and what is carried matters."""

from dataclasses import replace

import pytest
import torch

from analysis.inner import parallel, run
from analysis.spec import (
    GLU,
    ConstantMomentum,
    DepthwiseConv3x3,
    DotProduct,
    Family,
    InnerLoop,
    Linear,
    NormMode,
    Order,
    QuerySource,
    Reduction,
    SquaredError,
    Tail,
    Trained,
    WeightNorm,
    ladder,
)
from tests.inner.cases import draw, leaves

RUNGS = {key: loops["fast_weights"] for key, loops in ladder(Family.LACT_LM, chunk=8).items()}
LOOPS = {
    **{key: RUNGS[key] for key in ("v2", "v3", "v5", "v6")},
    "updates at the end": RUNGS["v3"].edit(tail=Tail.UPDATE),
    "update first": RUNGS["v2"].edit(order=Order.UPDATE_THEN_APPLY, tail=Tail.UPDATE),
    "keys as queries": RUNGS["v2"].edit(query=QuerySource.KEY),
    "a mean": RUNGS["v6"].edit(loss=DotProduct(reduction=Reduction.MEAN), tail=Tail.UPDATE),
    "two steps": RUNGS["v3"].edit(steps=2),
    "normalised beside the sum": RUNGS["v2"].edit(weight_norm=WeightNorm(NormMode.PRE)),
}
TOKENS = 35
"""Four chunks of eight and a tail of three."""


CHUNK = 3 * 2 * 8 * 5
"""Numbers of a chunk of keys, over all sequences."""


@pytest.mark.parametrize(("width", "values", "chunk"), [(4, 6, 8), (6, 4, 8), (9, 9, 1), (5, 20, 3)])
def test_a_window_holds_no_more_than_it_may_of_tokens_or_states(width, values, chunk, monkeypatch):
    monkeypatch.setattr(torch, "get_num_threads", lambda: 2)
    monkeypatch.setattr(parallel, "WINDOW", 1500)
    inputs, weights = draw(RUNGS["v6"].edit(chunk=chunk), width=width, values=values, tokens=120)
    state = weights["w_out"][0, 0].numel()
    windows = list(parallel._windows(RUNGS["v6"].edit(chunk=chunk), inputs, state))
    each = 6 * max(chunk * max(width, values), state)
    assert len(windows) > 1
    assert all(len(window.sizes) * each <= 3000 or len(window.sizes) == 1 for window in windows)


def test_gates_that_a_loop_does_not_read_may_have_any_shape():
    inputs, weights = draw(RUNGS["v6"])
    odd = torch.rand(2, 3, 1, 1, dtype=torch.float64)
    given = replace(inputs, momentum=odd, rates={"w_none": odd})
    found = run(RUNGS["v6"], given, weights, backend="parallel").outputs
    assert torch.equal(found, run(RUNGS["v6"], inputs, weights, backend="parallel").outputs)


@pytest.fixture(params=[1, 2, 3], ids=lambda chunks: f"{chunks} chunks a window")
def narrow(request, monkeypatch):
    hold(monkeypatch, request.param)
    return request.param


def hold(monkeypatch, chunks):
    monkeypatch.setattr(torch, "get_num_threads", lambda: 1)
    monkeypatch.setattr(parallel, "WINDOW", chunks * CHUNK)


def drawn(spec, **options):
    """Inputs as layers make them, the heads of a token side by side in memory, or head by head."""
    inputs, weights = draw(spec, **options)
    if not options.get("requires_grad"):
        parts = {
            name: getattr(inputs, name).transpose(1, 2).contiguous().transpose(1, 2)
            for name in ("q", "k", "v")
        }
        inputs = replace(inputs, **parts)
    return inputs, weights


def everything(result):
    found = {"outputs": result.outputs}
    for part in ("fast_weights", "main", "momentum", "target_norms"):
        found |= {f"{part} {name}": x for name, x in (getattr(result.state, part) or {}).items()}
    return found


def worst(result, truth):
    got, exact = everything(result), everything(truth)
    assert got.keys() == exact.keys()
    return max(((got[name] - exact[name]).norm() / exact[name].norm()).item() for name in exact)


@pytest.mark.parametrize("name", LOOPS)
@pytest.mark.parametrize("tokens", [TOKENS, 8, 5, 32])
def test_windows_are_the_loop(name, tokens, narrow):
    spec = LOOPS[name]
    inputs, weights = drawn(spec, tokens=tokens)
    truth = run(spec, inputs, weights, "reference")
    with torch.no_grad():
        assert worst(run(spec, inputs, weights, "parallel"), truth) < 1e-10


@pytest.mark.parametrize("name", ["v2", "v3", "normalised beside the sum"])
def test_gradients_and_traces_cross_windows(name, narrow):
    spec, found = LOOPS[name], {}
    for backend in ("parallel", "recurrent"):
        inputs, weights = drawn(spec, tokens=TOKENS, requires_grad=True)
        result = run(spec, inputs, weights, backend, measure=True)
        given = leaves(inputs, weights)
        gradients = torch.autograd.grad(result.outputs.square().sum(), list(given.values()))
        found[backend] = (*gradients, *(getattr(result.trace, x) for x in ("before", "after", "update_norm")))
        assert result.trace.tokens == (8, 8, 8, 8)
    assert all(torch.allclose(a, b, rtol=1e-9, atol=1e-12) for a, b in zip(*found.values(), strict=True))


def test_outputs_have_the_gradient_of_keys_that_the_first_window_does_not_read(monkeypatch):
    hold(monkeypatch, 1)
    found = []
    for backend in ("parallel", "recurrent"):
        inputs, weights = drawn(LOOPS["v2"], tokens=TOKENS)
        k = inputs.k.requires_grad_()
        outputs = run(LOOPS["v2"], inputs, weights, backend).outputs
        found.append(torch.autograd.grad(outputs.square().sum(), k)[0])
    assert torch.allclose(*found, rtol=1e-9, atol=1e-12) and found[0].any()


@pytest.mark.parametrize("lost", ["fast", "momentum"])
def test_a_window_that_forgets_is_found(lost, monkeypatch):
    hold(monkeypatch, 1)
    spec = LOOPS["v3"]
    inputs, weights = drawn(spec, tokens=TOKENS)
    truth = run(spec, inputs, weights, "reference")
    states = parallel._additive_states

    def forgetful(spec, updates, weights, carried, dtype):
        forgotten = {"momentum": None} if lost == "momentum" else {"fast": weights["w_out"]}
        return states(spec, updates, weights, carried._replace(**forgotten), dtype)

    monkeypatch.setattr(parallel, "_additive_states", forgetful)
    found = run(spec, inputs, weights, "parallel").outputs
    assert (found - truth.outputs).norm() / truth.outputs.norm() > 1e-3


def test_no_matrix_of_an_earlier_chunk_outlives_the_loop():
    spec = LOOPS["v3"]
    inputs, weights = drawn(spec, tokens=TOKENS)
    state = run(spec, inputs, weights, "parallel").state
    for tensor in (state.fast_weights["w_out"], state.momentum["w_out"]):
        assert tensor.untyped_storage().nbytes() == tensor.nbytes


def test_auto_leaves_an_affine_scan_to_devices_with_units_to_spare():
    spec = RUNGS["v6"].edit(loss=SquaredError())
    inputs, weights = draw(spec, tokens=TOKENS)
    found = run(spec, inputs, weights)
    assert found.backend == "recurrent"
    assert worst(run(spec, inputs, weights, "parallel"), found) < 1e-10


def test_an_update_of_weights_that_start_at_zero_has_no_size_in_either_form():
    spec = RUNGS["v6"].edit(tail=Tail.UPDATE)
    inputs, weights = draw(spec, tokens=TOKENS)
    zero = {name: torch.zeros_like(weight) for name, weight in weights.items()}
    sizes = [
        run(spec, inputs, zero, name, measure=True).trace.update_norm for name in ("recurrent", "parallel")
    ]
    assert all(size[..., 0].isinf().all() and size[..., 1:].isfinite().all() for size in sizes)
    assert torch.allclose(sizes[0][..., 1:], sizes[1][..., 1:], rtol=1e-9)


@pytest.mark.parametrize("steps", [1, 2])
@pytest.mark.parametrize("momentum", [None, ConstantMomentum(0.9)])
def test_a_single_chunk_that_does_not_update_reads_the_initial_weights(steps, momentum):
    for network in (DepthwiseConv3x3(), GLU(), Linear()):
        spec = InnerLoop(
            network=network,
            loss=SquaredError(),
            steps=steps,
            momentum=momentum,
            trained=Trained.LAST,
            tail=Tail.APPLY_ONLY,
        )
        inputs, weights = draw(spec)
        expected = run(spec, inputs, weights, "reference")
        found = run(spec, inputs, weights, "parallel")
        torch.testing.assert_close(found.outputs, expected.outputs, rtol=0, atol=1e-12)
