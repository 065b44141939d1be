"""A subject as a panel needs it: the first examples of its task in memory, cut into small batches, and how to read them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import Tensor

from analysis.data.tokenizer import Tokenizer, embedded_tokenizer
from analysis.errors import CheckpointError, InputError
from analysis.models.checkpoints import load
from analysis.models.host import Host
from analysis.probes.subjects import Subject
from analysis.probes.task import evaluation_task
from analysis.spec import Family

Batch = dict[str, Tensor]
LENGTH = 512  # tokens of a sequence in a panel: enough for eight chunks of the shipped model

LIMITS: dict[object, tuple[int, int, int]] = {  # most, default, per batch
    Family.LACT_LM: (8, 2, 2),
    Family.LACT_NVS: (32, 8, 8),
    Family.VITTT: (256, 64, 64),
}
OTHERS = (256, 64, 64)


@dataclass(frozen=True)
class Bench:
    """A host with its first examples; `classes` name labels, `decode` turns a token into text (language models)."""

    host: Host
    title: str
    examples: Batch = field(repr=False)
    token_bytes: Tensor | None = field(default=None, repr=False)
    classes: tuple[str, ...] = ()
    decode: Callable[[int], str] = field(default=str, repr=False)

    @property
    def limits(self) -> tuple[int, int, int]:
        """Most samples, samples to start with, samples per batch."""
        most, start, together = LIMITS.get(self.host.family, OTHERS)
        most = min(most, self.size)
        return most, min(start, most), together

    @property
    def size(self) -> int:
        """How many examples are in memory."""
        return len(next(iter(self.examples.values())))

    @property
    def tokens(self) -> int:
        """How many tokens of a text have a loss; 0 where the examples are no texts."""
        texts = self.examples.get("tokens", self.examples.get("input_ids"))
        return 0 if texts is None or texts.ndim != 2 else texts.shape[1] - 1

    def batches(self, samples: int) -> Iterator[Batch]:
        """Yield the first `samples` examples in small batches, so that a newer request need not wait for all of them."""
        together = self.limits[2]
        for start in range(0, samples, together):
            part = slice(start, min(start + together, samples))
            yield {name: tensor[part] for name, tensor in self.examples.items()}

    def example(self, index: int, count: int = 1) -> Batch:
        """Return `count` examples from `index` on as one batch."""
        return {name: tensor[index : index + count] for name, tensor in self.examples.items()}


def bench(subject: Subject, data: str = "") -> Bench:
    """Take the first examples of a subject's task into memory."""
    host, task = subject.host, subject.task
    most = LIMITS.get(host.family, OTHERS)[0]
    decode: Callable[[int], str] = str
    if host.family is Family.LACT_LM:
        decode = _decoder(host, data)
    return Bench(
        host,
        subject.title,
        _first(task.batches(), most, _tokens_kept(host)),
        task.token_bytes,
        tuple(task.classes),
        decode,
    )


def open_bench(path: Path, data: str = "") -> Bench:
    """Load a checkpoint and its evaluation examples.

    Raises:
        CheckpointError, DataError: the path does not exist, or does not hold what it should.
    """
    if not path.exists():
        raise CheckpointError(f"expected a checkpoint at {path}, found nothing; correct the path.")
    host = load(path)
    task = evaluation_task(host, LIMITS.get(host.family, OTHERS)[0], data or None)
    return bench(Subject(host, task), data)


def _tokens_kept(host: Host) -> int:
    chunk = max((loop.chunk or 0 for loop in host.loops.values()), default=0)
    return max(LENGTH, 4 * chunk) + 1  # one more than is fed: the last label


def _first(batches: object, most: int, tokens: int) -> Batch:
    kept: list[Mapping[str, Tensor]] = []
    count = 0
    assert hasattr(batches, "__iter__")
    for batch in batches:
        kept.append(batch)
        count += len(next(iter(batch.values())))
        if count >= most:
            break
    if not kept:
        raise InputError("expected a task with at least one example, received none; check the data.")
    found = {name: torch.cat([batch[name] for batch in kept])[:most] for name in kept[0]}
    return {
        name: tensor[:, :tokens] if name in ("tokens", "input_ids", "labels") and tensor.ndim == 2 else tensor
        for name, tensor in found.items()
    }


def _decoder(host: Host, data: str) -> Callable[[int], str]:
    """Text of one token: by the tokenizer beside the data, by ours where the vocabulary is ours, else its number."""
    beside = Path(data) / "tokenizer.json" if data else None
    if beside is not None and beside.is_file():
        tokenizer = Tokenizer(beside)
    elif host.config.vocab_size == embedded_tokenizer().size:
        tokenizer = embedded_tokenizer()
    else:
        return lambda token: f"[{token}]"
    return lambda token: tokenizer.decode([token])
