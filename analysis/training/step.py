"""One outer step (sample, forward, backward, clip, AdamW), run eagerly or captured whole as a CUDA graph.

Nothing in a step waits for the device: losses and gradient norms are written into tensors on the device and read every few
hundred steps, and the learning rate is looked up in a table by a step counter that lives on the device too.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

import torch
from torch import Tensor, nn

from analysis.errors import ParameterError
from analysis.models.host import Host, unwrap
from analysis.training.optimiser import adamw, rate_table
from analysis.training.recipes import Recipe
from analysis.training.tasks import Batch

EAGER_STEPS = 3
"""Steps that run eagerly before a capture: libraries pick their kernels and the optimiser makes its state."""


class OuterStep:
    """One optimiser step on a host; calling it advances `counter`, and everything it leaves behind stays on the device.

    host: the module that is called (a data-parallel wrapper included). sample: draws the batch of this process.
    losses, norms: outer loss and gradient norm (before clipping) of every step done, float32 [steps].
    """

    def __init__(
        self, host: nn.Module, recipe: Recipe, sample: Callable[[], Batch], device: torch.device
    ) -> None:
        self.host, self.recipe, self.sample, self.device = host, recipe, sample, device
        self.bare: Host = unwrap(host)
        self.optimiser = adamw(self.bare, recipe, device)
        self.counter = torch.zeros(1, dtype=torch.int64, device=device)
        self.rates = rate_table(recipe, device)
        self.losses = torch.full((recipe.steps,), torch.nan, device=device)
        self.norms = torch.full((recipe.steps,), torch.nan, device=device)

    def __call__(self) -> None:
        """Take one step."""
        self.optimiser.zero_grad(set_to_none=True)
        loss = self.backward(self.sample())
        norm = nn.utils.clip_grad_norm_(self.bare.parameters(), self.recipe.clip)
        self.losses.index_copy_(0, self.counter, loss.view(1))
        self.norms.index_copy_(0, self.counter, norm.float().view(1))
        rate = self.rates.index_select(0, self.counter).squeeze(0)
        for group in self.optimiser.param_groups:
            group["lr"].copy_(rate)
        self.optimiser.step()
        self.counter.add_(1)

    def backward(self, batch: Batch) -> Tensor:
        """Forward and backward on one batch; returns the detached outer loss."""
        with autocast(self.recipe, self.device):
            output = self.host(batch)
            loss = self.bare.loss(output, batch)
        torch.autograd.backward(loss)
        return loss.detach().float()


def autocast(recipe: Recipe, device: torch.device) -> contextlib.AbstractContextManager[None]:
    """Products in the recipe's precision on an accelerator; parameters, fast weights and their updates stay float32."""
    if device.type != "cuda" or recipe.precision == "float32":
        return contextlib.nullcontext()
    return torch.autocast(device.type, dtype=getattr(torch, recipe.precision))


def choose_graph(graph: str, device: torch.device, world: int) -> tuple[bool, str]:
    """Decide whether steps are captured, with the reason; `graph` is auto, on or off.

    Raises:
        ParameterError: another value, or `on` where steps cannot be captured.
    """
    if graph not in ("auto", "on", "off"):
        raise ParameterError(f"graph must be auto, on or off, received {graph!r}; pass one of those.")
    obstacle = ""
    if device.type != "cuda":
        obstacle = f"a {device.type} device has no CUDA graphs"
    elif world > 1:
        obstacle = "several processes exchange gradients during backward"
    if graph == "on" and obstacle:
        raise ParameterError(
            f"expected a run whose steps can be captured for graph='on', but {obstacle}; pass auto or off."
        )
    if graph == "off" or obstacle:
        return False, obstacle or "switched off"
    return True, "the whole step is one CUDA graph"


class GraphedStep:
    """An outer step that runs eagerly a few times, is then captured on `stream`, and replayed from there on.

    The eager steps are steps of the run like any other. `generator` draws the batches and is registered with the graph.
    """

    def __init__(self, step: OuterStep, generator: torch.Generator, stream: torch.cuda.Stream) -> None:
        self.step, self.generator, self.stream = step, generator, stream
        self.eager_left = EAGER_STEPS
        self.graph: torch.cuda.CUDAGraph | None = None

    def __call__(self) -> None:
        """Take one step."""
        with torch.cuda.stream(self.stream):
            if self.eager_left > 0:
                self.step()
                self.eager_left -= 1
                return
            if self.graph is None:
                self.graph = self._captured()
            self.graph.replay()

    def _captured(self) -> torch.cuda.CUDAGraph:
        self.stream.synchronize()
        graph = torch.cuda.CUDAGraph()
        graph.register_generator_state(self.generator)
        with torch.cuda.graph(graph, stream=self.stream, capture_error_mode="thread_local"):
            self.step()
        return graph


@contextlib.contextmanager
def on_stream(stream: torch.cuda.Stream | None) -> Iterator[None]:
    """Work on `stream`, or on the usual one when it is None."""
    if stream is None:
        yield
    else:
        with torch.cuda.stream(stream):
            yield
