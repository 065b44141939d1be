"""A reader's own layer with an inner loop, probed without subclassing anything: three methods, and `adopt`.

    class MyModel(nn.Module):                       # any module, called as model(batch)
        def inner_loops(self): ...                  # what its inner loops are, as InnerLoop specifications
        def forward_with(self, batch, run): ...     # the same forward pass, with `run` in place of its own inner loop
        def score(self, output, batch): ...         # the task metric of every example

    host = adopt(MyModel(), example=batch, title="My layer", metric=Metric("accuracy", unit="%"))

`adopt` runs both passes and refuses a specification that does not reproduce the model's own output: what is edited later is
then the layer that was trained. The host it returns takes every edit, probe and panel that the published families take.
"""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor, nn

from analysis.errors import InputError
from analysis.inner import FastWeights, Inputs
from analysis.models.evaluation import Metric
from analysis.models.host import Host
from analysis.models.inner_call import Call
from analysis.models.sites import SILENT, Scope
from analysis.spec import Loops

Batch = Mapping[str, Tensor]
RunLoop = Callable[[int, str, Inputs, FastWeights], Tensor]
TOLERANCE = 1e-4


@runtime_checkable
class InnerLoopModel(Protocol):
    """What a model offers to be probed; it must also be an `nn.Module` that is called with a batch."""

    def inner_loops(self) -> Loops:
        """Return the inner loops of a layer by name, as the model was trained."""
        ...

    def forward_with(self, batch: Batch, run: RunLoop) -> Tensor:
        """Return the output for a batch, calling `run` wherever a layer runs an inner loop.

        run(layer, loop, inputs, weights) -> outputs [B, H, T, V]; layer counts from 0, loop is a name of `inner_loops`,
        inputs holds q, k, v [B, H, T, D] and what the specification asks for (rates, momentum), weights are the initial
        fast weights by name [H, in, out].
        """
        ...

    def score(self, output: Tensor, batch: Batch) -> Tensor:
        """Return the task metric of every example, [B]; its mean is reported."""
        ...


@dataclass(frozen=True)
class OwnFamily:
    """Stands where a published architecture has its `Family`."""

    value: str
    title: str


@dataclass(frozen=True)
class Origin:
    """Where an adopted model comes from: a digest of its parameters and code, so that cached records stay its own."""

    digest: str
    path: Path
    manifest: None = None


class AdoptedHost(Host):
    """A host around an `InnerLoopModel`; made by `adopt`."""

    def __init__(self, model: nn.Module, family: OwnFamily, metric: Metric, loops: Loops) -> None:
        super().__init__(None, loops)
        self.model = model
        self.family = family  # type: ignore[misc, assignment]
        self.task_metrics = (metric,)
        self.weights: dict[int, dict[str, dict[str, Tensor]]] = {}

    @property
    def num_layers(self) -> int:
        """Number of layers that called `run`."""
        return len(self.weights)

    def initial_weights(self, layer: int) -> dict[str, dict[str, Tensor]]:
        """Initial fast weights of a layer, as the model handed them to `run` when it was adopted."""
        return self.weights[layer]

    def compute(self, batch: Batch, call: Call) -> Tensor:
        """The model's forward pass with our inner loop in the place of its own."""

        def run(layer: int, loop: str, inputs: Inputs, weights: FastWeights) -> Tensor:
            if loop not in self.loops:
                raise InputError(
                    f"expected run(layer, loop, ...) with a loop among {', '.join(self.loops)}, received {loop!r}; name it "
                    "in inner_loops"
                )
            site = call.inside("layers").inside(layer)
            site = site.inside(loop) if len(self.loops) > 1 else site
            return site.run_loop(loop, inputs, weights).outputs

        return self.model.forward_with(batch, run)

    def loss(self, output: Tensor, batch: Batch) -> Tensor:
        """Not offered: an adopted model is measured, not trained.

        Raises:
            InputError: always.
        """
        raise InputError(
            "expected a host of ours to train, received an adopted model; train it as you trained it before"
        )

    def metrics(self, output: Tensor, batch: Batch) -> dict[str, Tensor]:
        """The model's own score of every example."""
        return {self.task_metrics[0].numerator: self.model.score(output, batch)}


def adopt(model: nn.Module, example: Batch, *, title: str, metric: Metric) -> AdoptedHost:
    """Return a host around a reader's model, after checking that its specification says what it computes.

    model: an `nn.Module` with the methods of `InnerLoopModel`. example: a batch, with more than one chunk per sequence where
    the loop has chunks. title: what figures call it. metric: name, unit and direction of `score`.

    Raises:
        InputError: a method is missing, no inner loop was run, or the pass with our inner loop gives another output than
            the model itself.
    """
    if not isinstance(model, nn.Module) or not isinstance(model, InnerLoopModel):
        missing = [name for name in ("inner_loops", "forward_with", "score") if not hasattr(model, name)]
        said = f"without {', '.join(missing)}" if missing else "that is no nn.Module"
        raise InputError(
            f"expected an nn.Module with the methods of InnerLoopModel, received one {said}; add what is missing"
        )
    model.eval()
    family = OwnFamily("_".join(title.lower().split()), title)
    host = AdoptedHost(model, family, metric, model.inner_loops())
    _explore(host, example)
    with torch.no_grad():
        own, ours = model(example), host(example)
    if own.shape != ours.shape:
        raise InputError(
            f"expected forward_with to return {tuple(own.shape)} as the model does, received {tuple(ours.shape)}"
        )
    error = float((own - ours).norm() / own.norm().clamp_min(1e-12))
    if not error < TOLERANCE:
        raise InputError(
            f"expected inner_loops to describe what the model computes, received outputs that differ by {error:.2g} of their "
            "size; correct the specification (order, chunk, rates, sign) or forward_with"
        )
    host.checkpoint = Origin(_digest(model), Path(family.value))
    return host.eval()


def _explore(host: AdoptedHost, example: Batch) -> None:
    """Run once to learn which layers have inner loops and with which weights they start."""
    call = Call(host.loops, Scope(SILENT))

    def run(layer: int, loop: str, inputs: Inputs, weights: FastWeights) -> Tensor:
        host.weights.setdefault(layer, {})[loop] = {name: tensor.detach() for name, tensor in weights.items()}
        return call.run_loop(loop, inputs, weights).outputs

    with torch.no_grad():
        host.model.forward_with(example, run)
    if sorted(host.weights) != list(range(len(host.weights))) or not host.weights:
        found = ", ".join(map(str, sorted(host.weights))) or "none"
        raise InputError(
            f"expected layers 0, 1, ... to call run in forward_with, received {found}; number them from 0"
        )


def _digest(model: nn.Module) -> str:
    digest = hashlib.sha256(_source(type(model)).encode())
    for name, tensor in sorted(model.state_dict().items()):
        digest.update(name.encode())
        digest.update(
            tensor.detach().cpu().contiguous().view(torch.uint8).numpy().tobytes()
            if tensor.ndim
            else str(tensor).encode()
        )
    return digest.hexdigest()


def _source(kind: Any) -> str:
    try:
        return inspect.getsource(inspect.getmodule(kind) or kind)
    except (OSError, TypeError):  # typed at a prompt: the parameters must tell models apart
        return str(kind.__qualname__)
