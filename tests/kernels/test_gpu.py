"""The kernels on a GPU, on shapes of real heads; run by `make test-gpu`."""

import pytest
import torch

from analysis.inner import run
from analysis.kernels.bench import ROOM
from analysis.spec import Identity, Order, Tail
from tests.kernels.agreement import (
    LADDER,
    LIMITS,
    all_errors,
    case,
    error,
    errors,
    forms,
    plain_errors,
    run_form,
)

pytestmark = pytest.mark.gpu

CASES = [(key, form) for key, spec in LADDER.items() for form in forms(spec)]
HEAD = {"device": "cuda", "heads": 4, "tokens": 5000, "width": 384, "hidden": 384, "values": 384}
GRADIENT_LIMITS = {torch.float32: 2e-3, torch.float16: 3e-2, torch.bfloat16: 5e-2}


def within(found, limit):
    late = {name: value for name, value in found.items() if not value < limit}
    assert not late, f"beyond {limit}: {late}; all: {found}"


def check(spec, dtype, **sizes):
    """Every error is below its limit, or near that of plain arithmetic in the same type.

    Newton-Schulz lifts small singular values to one, and with them the rounding of narrow operands: the fewer tokens a chunk has
    for its directions and the more updates follow each other, the more.
    """
    found = errors(spec, dtype, **sizes)
    if max(found.values()) < LIMITS[dtype]:
        return
    sizes.pop("is_parallel", None)
    plain = plain_errors(spec, dtype, **sizes)
    late = {n: (x, plain[n]) for n, x in found.items() if not x < max(LIMITS[dtype], ROOM * plain[n])}
    assert not late, f"(error, error of plain arithmetic) beyond {LIMITS[dtype]} and {ROOM} times: {late}"


@pytest.mark.parametrize("dtype", list(LIMITS))
@pytest.mark.parametrize(("key", "form"), CASES)
def test_every_rung_on_heads_of_384(key, form, dtype):
    spec = LADDER[key].edit(chunk=1024)
    check(spec, dtype, is_parallel=form, **HEAD)


@pytest.mark.parametrize("dtype", list(LIMITS))
def test_the_published_layer_at_its_own_chunk(dtype):
    check(LADDER["baseline"].edit(chunk=2048), dtype, **(HEAD | {"tokens": 6144}))


@pytest.mark.parametrize("dtype", list(LIMITS))
@pytest.mark.parametrize(("key", "form"), [("baseline", False), ("v2", True), ("v5", True)])
def test_gradients_on_heads_of_384(key, form, dtype):
    spec = LADDER[key].edit(chunk=1024)
    values, gradients = all_errors(spec, dtype, is_parallel=form, **(HEAD | {"tokens": 3000, "heads": 2}))
    within(values, LIMITS[dtype])
    within(gradients, GRADIENT_LIMITS[dtype])


@pytest.mark.parametrize("dtype", list(LIMITS))
@pytest.mark.parametrize(("key", "form"), [("baseline", False), ("v2", True), ("v5", True)])
def test_gradients_at_odd_widths(key, form, dtype):
    sizes = {"width": 20, "hidden": 33, "values": 17, "tokens": 301, "batch": 2}
    spec = LADDER[key].edit(chunk=100, tail=Tail.UPDATE)
    within(all_errors(spec, dtype, is_parallel=form, **(HEAD | sizes))[1], 3 * GRADIENT_LIMITS[dtype])


@pytest.mark.parametrize(
    "sizes",
    [
        {"width": 256, "hidden": 256, "values": 256},
        {"width": 768, "hidden": 1536, "values": 768, "heads": 1, "tokens": 2500},
        {"width": 40, "hidden": 72, "values": 56, "tokens": 1001},
        {"width": 20, "hidden": 33, "values": 17, "tokens": 301, "batch": 2},
    ],
)
@pytest.mark.parametrize("dtype", list(LIMITS))
def test_widths_and_tails(sizes, dtype):
    for key in ("baseline", "v2", "v4"):
        spec = LADDER[key].edit(chunk=600, tail=Tail.UPDATE, order=Order.UPDATE_THEN_APPLY)
        check(spec, dtype, **(HEAD | sizes))


def test_auto_takes_the_kernels_and_a_second_call_replays_the_same_numbers():
    spec = LADDER["baseline"].edit(chunk=1024)
    (inputs, weights), _ = case(spec, torch.bfloat16, **HEAD)
    first, second = (run(spec, inputs, weights) for _ in range(2))
    assert first.backend == second.backend == "triton"
    assert torch.equal(first.outputs, second.outputs)


@pytest.mark.parametrize(("key", "form"), [("baseline", False), ("v2", True)])
def test_a_replayed_backward_pass_gives_the_gradients_of_the_first(key, form):
    spec = LADDER[key].edit(chunk=512)
    sizes = HEAD | {"tokens": 1700, "heads": 2}
    found = []
    for seed in (1, 2, 1, 2):  # eager, captured, replayed, replayed
        (inputs, weights), _ = case(spec, torch.bfloat16, seed=seed, requires_grad=True, **sizes)
        result = run_form(spec, inputs, weights, form)
        found.append(
            torch.autograd.grad(result.outputs.float().square().sum(), [inputs.q, inputs.k, inputs.v])
        )
    for first, again in zip(found[:2], found[2:], strict=True):
        assert all(error(b, a.double()) < 1e-3 for a, b in zip(first, again, strict=True))
    assert not torch.equal(found[0][0], found[1][0])


def push_out_all_layers():
    """Run another shape where one layer is kept, and fill the memory that the others left."""
    spec = LADDER["baseline"].edit(chunk=64)
    (inputs, weights), _ = case(spec, torch.bfloat16, requires_grad=True, **(HEAD | {"tokens": 128}))
    run_form(spec, inputs, weights, False).outputs.float().sum().backward()
    torch.cuda.synchronize()
    return [torch.full((size,), 1e4, device="cuda") for size in [2**power for power in range(9, 27)] * 8]


def test_a_replayed_backward_pass_outlives_its_layer(monkeypatch):
    monkeypatch.setattr("analysis.kernels.forward.MOST_RUNNERS", 1)
    spec = LADDER["baseline"].edit(chunk=512, transform=Identity())
    (inputs, weights), _ = case(spec, torch.bfloat16, requires_grad=True, **(HEAD | {"tokens": 1700}))
    found = []
    for _ in range(4):  # eager, captured, replayed, replayed after its layer was pushed out
        outputs = run_form(spec, inputs, weights, False).outputs
        full = push_out_all_layers() if len(found) == 3 else []
        found.append(torch.autograd.grad(outputs.float().square().sum(), [inputs.k, inputs.v]))
        del full
    assert all(error(b, a.double()) < 1e-3 for a, b in zip(found[0], found[3], strict=True))


def test_a_graph_of_the_caller_outlives_the_layer_it_launches_on(monkeypatch):
    monkeypatch.setattr("analysis.kernels.forward.MOST_RUNNERS", 1)
    spec = LADDER["v2"].edit(chunk=1024)
    (inputs, weights), _ = case(spec, torch.bfloat16, **HEAD)
    stream, graph = torch.cuda.Stream(), torch.cuda.CUDAGraph()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        expected = run(spec, inputs, weights).outputs
    stream.synchronize()
    with torch.cuda.graph(graph, stream=stream):
        captured = run(spec, inputs, weights).outputs
    with torch.cuda.stream(stream):
        full = push_out_all_layers()
    torch.cuda.synchronize()
    graph.replay()
    torch.cuda.synchronize()
    assert torch.equal(captured, expected) and all(x.eq(1e4).all() for x in full)


def test_tensors_of_another_device_than_the_current_one():
    # with a single device this is the usual call
    last = f"cuda:{torch.cuda.device_count() - 1}"
    values, gradients = all_errors(LADDER["v2"], torch.float32, device=last, heads=2)
    within(values, LIMITS[torch.float32])
    within(gradients, GRADIENT_LIMITS[torch.float32])


def test_calls_in_turn_do_not_disturb_each_other():
    spec = LADDER["baseline"].edit(chunk=1024)
    calls = [case(spec, torch.bfloat16, seed=seed, **HEAD)[0] for seed in (1, 2)]
    alone = [run(spec, *call).outputs.clone() for call in calls]
    in_turn = [run(spec, *call) for call in calls]
    assert all(torch.equal(a, b.outputs) for a, b in zip(alone, in_turn, strict=True))
    assert not torch.equal(alone[0], alone[1])


def test_the_kernels_run_inside_a_graph_of_the_caller():
    spec = LADDER["v2"].edit(chunk=1024)
    (inputs, weights), _ = case(spec, torch.bfloat16, **HEAD)
    expected = run(spec, inputs, weights).outputs
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = run(spec, inputs, weights).outputs
    graph.replay()
    torch.cuda.synchronize()
    assert torch.equal(captured, expected)


def test_the_second_graph_of_a_caller_needs_nothing_of_the_first():
    # the layer is made inside the first capture; what that graph would do is never done
    spec = LADDER["v2"].edit(chunk=512)
    (inputs, weights), _ = case(spec, torch.bfloat16, batch=2, **HEAD)
    expected = run(spec, inputs, weights).outputs
    graphs, stream = [torch.cuda.CUDAGraph() for _ in range(2)], torch.cuda.Stream()
    for graph in graphs:
        with torch.cuda.graph(graph, stream=stream):
            captured = run(spec, inputs, weights).outputs
    graphs[1].replay()
    torch.cuda.synchronize()
    assert torch.equal(captured, expected)
