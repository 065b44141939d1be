"""An example of a layer that is not in the suite: the delta rule (DeltaNet) in a tiny classifier that recalls pairs.

The layer keeps S and, token by token, S <- S + beta_t k_t^T (v_t - k_t S), then reads o_t = q_t S. That is one gradient step a
token on ||k S - v||^2 / 2 with rate beta_t, so as data it is a linear network with the squared error and chunks of one token.

The task needs a memory: a sequence of (key, value) pairs, then a key alone; the label is the value that stood beside it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from analysis.inner import Inputs
from analysis.lab.own_layer import RunLoop
from analysis.probes.task import Task
from analysis.spec import InnerLoop, Linear, Loops, Order, PerTokenRate, SquaredError

PAIRS, KEYS, VALUES = 12, 32, 8
LOOP = "delta_rule"


class DeltaRule(nn.Module):
    """The layer with its own recurrence; nothing of it knows about the suite."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width, bias=False)
        self.beta = nn.Linear(width, heads)
        self.out = nn.Linear(width, width, bias=False)
        self.start = nn.Parameter(torch.zeros(heads, width // heads, width // heads))

    def project(self, x: Float[Tensor, "B T C"]) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Return q, k (unit length), v as [B, H, T, D] and the rate beta as [B, H, T, 1]."""
        q, k, v = self.qkv(x).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        return F.normalize(q, dim=-1), F.normalize(k, dim=-1), v, self.beta(x).sigmoid().mT.unsqueeze(-1)

    def join(self, heads: Float[Tensor, "B H T D"]) -> Float[Tensor, "B T C"]:
        """Return the heads side by side, projected."""
        return self.out(heads.transpose(1, 2).flatten(2))

    def forward(self, x: Float[Tensor, "B T C"]) -> Float[Tensor, "B T C"]:
        """Run the delta rule over the tokens."""
        q, k, v, beta = self.project(x)
        state, outputs = self.start.expand(len(x), *self.start.shape), []
        for t in range(x.shape[1]):
            key, value = k[:, :, t : t + 1], v[:, :, t : t + 1]
            state = state + beta[:, :, t : t + 1] * key.mT @ (value - key @ state)
            outputs.append(q[:, :, t : t + 1] @ state)
        return self.join(torch.cat(outputs, 2))


class Recall(nn.Module):
    """A classifier of one delta-rule layer, with the three methods that make it probeable."""

    def __init__(self, width: int = 32, heads: int = 2) -> None:
        super().__init__()
        self.keys, self.values = nn.Embedding(KEYS, width), nn.Embedding(VALUES + 1, width)
        self.layer, self.norm, self.head = (
            DeltaRule(width, heads),
            nn.LayerNorm(width),
            nn.Linear(width, VALUES),
        )

    def embed(self, batch: Mapping[str, Tensor]) -> Float[Tensor, "B T C"]:
        """Return one vector a pair."""
        return self.keys(batch["keys"]) + self.values(batch["values"])

    def forward(self, batch: Mapping[str, Tensor]) -> Float[Tensor, "B K"]:
        """Logits of the value that belongs to the last key."""
        return self.head(self.norm(self.layer(self.embed(batch))[:, -1]))

    def inner_loops(self) -> Loops:
        """The delta rule as data."""
        return {
            LOOP: InnerLoop(
                network=Linear(),
                loss=SquaredError(),
                chunk=1,
                order=Order.UPDATE_THEN_APPLY,
                lr=PerTokenRate(shared=True),
            )
        }

    def forward_with(self, batch: Mapping[str, Tensor], run: RunLoop) -> Float[Tensor, "B K"]:
        """The same pass, the recurrence handed to `run`."""
        q, k, v, beta = self.layer.project(self.embed(batch))
        outputs = run(0, LOOP, Inputs(q, k, v, rates={"shared": beta}), {"w_out": self.layer.start})
        return self.head(self.norm(self.layer.join(outputs)[:, -1]))

    def score(self, output: Tensor, batch: Mapping[str, Tensor]) -> Float[Tensor, " B"]:
        """100 where the largest logit is the label's, else 0."""
        return 100.0 * (output.argmax(-1) == batch["labels"])


def recall_batch(count: int, seed: int) -> dict[str, Tensor]:
    """Return sequences of different keys with random values, then one of the keys with the value left open."""
    random = torch.Generator().manual_seed(seed)
    keys = torch.rand(count, KEYS, generator=random).argsort(1)[:, :PAIRS]
    values = torch.randint(VALUES, (count, PAIRS), generator=random)
    asked = torch.randint(PAIRS, (count, 1), generator=random)
    return {
        "keys": torch.cat([keys, keys.gather(1, asked)], 1),
        "values": torch.cat([values, torch.full_like(asked, VALUES)], 1),
        "labels": values.gather(1, asked)[:, 0],
    }


def recall_task(samples: int = 500, seed: int = 1) -> Task:
    """Return the evaluation task: sequences that training never drew."""

    def batches() -> Iterator[dict[str, Tensor]]:
        examples = recall_batch(samples, seed)
        for start in range(0, samples, 100):
            yield {name: tensor[start : start + 100] for name, tensor in examples.items()}

    said = f"recall of {PAIRS} pairs, {KEYS} keys, {VALUES} values, {samples} sequences, seed {seed}"
    return Task.of("recall", said, batches)


def train_recall(steps: int = 400, batch: int = 128, seed: int = 0) -> Recall:
    """Train the classifier for a few seconds; the same seed gives the same model on one machine."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = Recall()
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-2, weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, steps)
    for step in range(steps):
        examples = recall_batch(batch, seed=10_000 + 100_000 * seed + step)
        loss = F.cross_entropy(model(examples), examples["labels"])
        optimiser.zero_grad(set_to_none=True)
        loss.backward()
        optimiser.step()
        schedule.step()
    return model.eval()
