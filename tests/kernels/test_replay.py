"""What a captured pass keeps alive, on which device launches go, and buffers made in inference mode."""

import contextlib
import gc
import weakref

import pytest
import torch

from analysis.kernels import forward, replay, small_matrices
from analysis.spec import ConstantMomentum, Identity
from tests.kernels.agreement import LADDER, case, run_form


class Stream:
    """Stands in for a CUDA stream and for a graph."""

    def __init__(self, *_):
        pass

    def synchronize(self):
        """Wait for nothing, or replay nothing."""

    replay = synchronize


class Owner:
    """Stands in for a layer."""


@pytest.fixture
def pretended_cuda(monkeypatch):
    for name in ("Stream", "CUDAGraph"):
        monkeypatch.setattr(torch.cuda, name, Stream)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda *_: None)
    for name in ("stream", "graph"):
        monkeypatch.setattr(torch.cuda, name, lambda *_, **__: contextlib.nullcontext())


def test_a_recorded_pass_keeps_the_buffers_of_its_launches(pretended_cuda):
    layers = {"kept for now": Owner()}
    alive, found = weakref.ref(layers["kept for now"]), replay.Replay()
    found.capture(lambda tensors: ([2 * tensors[0]], layers["kept for now"]), [torch.ones(2)])
    layers.clear()
    gc.collect()
    assert alive() is not None and found.owner is alive()
    assert torch.equal(found([torch.ones(2)])[0], torch.full((2,), 2.0))
    del found
    gc.collect()
    assert alive() is None


def test_the_way_back_names_whose_buffers_it_launches_on(monkeypatch):
    seen = []

    def watched(key, walk, tensors):
        gradients, owner = walk(tensors)
        seen.append(owner)
        return gradients

    monkeypatch.setattr(replay, "replayed", watched)
    (inputs, weights), _ = case(LADDER["baseline"], torch.float32, requires_grad=True)
    run_form(LADDER["baseline"], inputs, weights, False).outputs.sum().backward()
    assert seen == [made for made in forward._RUNNERS.values() if made.layers[0].keeps_states]


@pytest.mark.parametrize(("key", "form"), [("baseline", False), ("v2", True), ("v6", True)])
def test_the_way_back_reads_nothing_but_what_it_is_handed(key, form, monkeypatch):
    def on_copies(_, walk, tensors):
        copies = [tensor.detach().clone() for tensor in tensors]
        right = [gradient.clone() for gradient in walk(tensors)[0]]
        for tensor in tensors:
            tensor.data.fill_(float("nan"))
        assert all(torch.equal(a, b) for a, b in zip(walk(copies)[0], right, strict=True))
        return right

    monkeypatch.setattr(replay, "replayed", on_copies)
    (inputs, weights), _ = case(LADDER[key], torch.float32, requires_grad=True)
    run_form(LADDER[key], inputs, weights, form).outputs.sum().backward()
    assert inputs.q.grad.isfinite().all()


def test_states_are_dropped_when_the_way_back_is_done():
    (inputs, weights), _ = case(LADDER["baseline"], torch.float32, requires_grad=True)
    run_form(LADDER["baseline"], inputs, weights, False).outputs.sum().backward()
    assert [layer.kept for made in forward._RUNNERS.values() for layer in made.layers] == [[], []]


def test_passing_shapes_push_out_no_graph(monkeypatch):
    captured = []
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda _: type("Current", (), {"cuda_stream": 0}))
    monkeypatch.setattr(replay.Replay, "capture", lambda self, walk, tensors: captured.append(tensors))
    monkeypatch.setattr(replay.Replay, "__call__", lambda self, tensors: [])

    class Tensor:
        device, dtype = torch.device("cuda"), torch.float32
        stride = staticmethod(lambda: (1,))

        def __init__(self, size):
            self.shape = (size,)

    for round_ in range(20):
        for size in (0, 0, 0, *range(1 + 9 * round_, 10 + 9 * round_)):
            replay.replayed(("loop",), lambda _: ([], None), [Tensor(size)])
    assert len(captured) == 1


def test_layers_in_graphs_of_callers_live_until_all_is_forgotten():
    owner = Owner()
    alive = weakref.ref(owner)
    replay.keep_for_caller(owner)
    del owner
    gc.collect()
    assert alive() is not None
    forward.forget()
    gc.collect()
    assert alive() is None


def test_launches_go_to_the_device_of_the_tensors(monkeypatch):
    seen = []

    def device_of(tensor):
        seen.append(tensor)
        return contextlib.nullcontext()

    monkeypatch.setattr(torch.cuda, "device_of", device_of)
    (inputs, weights), _ = case(LADDER["v6"], torch.float32)
    run_form(LADDER["v6"], inputs, weights, True)
    assert len(seen) == 1 and seen[0] is inputs.q
    x = torch.randn(2, 16, 16).half().requires_grad_()
    small_matrices.iterate(x, ((3.0, -4.0, 2.0),)).sum().backward()
    assert len(seen) == 3


def test_a_layer_made_in_inference_mode_learns_later():
    spec = LADDER["v3"].edit(momentum=ConstantMomentum(0.5), transform=Identity())
    (inputs, weights), _ = case(spec, torch.float32, requires_grad=True)
    with torch.inference_mode():
        before = run_form(spec, inputs, weights, True).outputs
    after = run_form(spec, inputs, weights, True).outputs
    after.sum().backward()
    assert torch.equal(before, after) and inputs.k.grad.abs().sum() > 0
