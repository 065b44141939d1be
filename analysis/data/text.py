"""Language-modelling data: token streams, evaluation crops, training samples.

The embedded default is the Python source of installed packages (`corpus`) under a byte-level BPE of 1024 tokens
(`tokenizer`). A training stream made on one machine can be carried to another:
`python -m analysis.data.text export PATH`.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Int64
from torch import Tensor

from analysis import paths
from analysis.data.corpus import Corpus, evaluation_corpus, training_corpus
from analysis.data.storage import digest_arrays
from analysis.data.tokenizer import Tokenizer, embedded_tokenizer
from analysis.errors import DataError

Batch = dict[str, Tensor]


@dataclass(frozen=True)
class TokenStream:
    """A flat array of token ids [N] (unsigned integers) with its provenance and the bytes of each token [vocabulary]."""

    name: str
    description: str
    digest: str
    tokens: np.ndarray = field(repr=False)
    byte_lengths: np.ndarray = field(repr=False)
    sources: dict[str, Any] = field(default_factory=dict)

    def crops(self, length: int = 1024, crops: int = 128, seed: int = 0) -> CropSet:
        """Return `crops` of the non-overlapping windows of length + 1 tokens, in an order drawn from `seed`.

        A smaller number of crops of the same seed is a prefix of a larger one. Raises DataError when the stream
        is too short.
        """
        windows = len(self.tokens) // (length + 1)
        if not 0 < crops <= windows:
            raise DataError(
                f"Expected between 1 and {windows} crops of {length} tokens from {self.name!r} "
                f"({len(self.tokens)} tokens), received {crops}; ask for fewer or shorter crops."
            )
        chosen = np.random.default_rng(seed).permutation(windows)[:crops]
        flat = self.tokens[: windows * (length + 1)].reshape(windows, length + 1)
        tokens = flat[chosen].astype(np.int64)
        digest = digest_arrays(
            {"stream": self.digest, "length": length, "crops": crops, "seed": seed}, tokens
        )
        description = f"{self.description}; {crops} windows of {length} tokens, seed {seed}"
        return CropSet(
            self.name, description, digest, torch.from_numpy(tokens), torch.from_numpy(self.byte_lengths)
        )


@dataclass(frozen=True)
class CropSet:
    """Evaluation crops: tokens int64 [crops, length + 1] and the bytes of each token, int64 [vocabulary]."""

    name: str
    description: str
    digest: str
    tokens: Int64[Tensor, "crops length_plus_1"] = field(repr=False)
    byte_lengths: Int64[Tensor, " vocabulary"] = field(repr=False)

    def __len__(self) -> int:
        return len(self.tokens)

    @property
    def vocabulary(self) -> int:
        """Return the number of token ids."""
        return len(self.byte_lengths)

    def target_bytes(self) -> Int64[Tensor, " crops"]:
        """Return the number of bytes that the predicted tokens of each crop stand for (its first token is given).

        bits per byte = sum of the losses in nats / (ln 2 * sum of these bytes).
        """
        return self.byte_lengths[self.tokens[:, 1:]].sum(-1)


def token_byte_lengths() -> np.ndarray:
    """Return the number of bytes of each token of the embedded tokenizer, int64 [1024]."""
    return embedded_tokenizer().byte_lengths()


def stream_of(corpus: Corpus, name: str, description: str, tokenizer: Tokenizer | None = None) -> TokenStream:
    """Tokenise a corpus, document after document, into one stream."""
    tokenizer = tokenizer or embedded_tokenizer()
    tokens = tokenizer.encode_documents([text for _, text in corpus.files])
    digest = digest_arrays({"corpus": corpus.digest, "tokenizer": tokenizer.digest})
    return TokenStream(
        name, description, digest, tokens, tokenizer.byte_lengths(), {"versions": corpus.versions}
    )


def evaluation_set(length: int = 1024, crops: int = 128, seed: int = 0, pinned: bool = True) -> CropSet:
    """Return the embedded evaluation crops, from the package that is never trained on.

    Raises DataError when the installed package is not the pinned one (unless pinned=False).
    """
    corpus = evaluation_corpus(pinned)
    version = corpus.versions["networkx"]
    return stream_of(corpus, "python-source", f"Python source of networkx {version}").crops(
        length, crops, seed
    )


def evaluation_tokens(length: int = 1024, crops: int = 128, seed: int = 0) -> np.ndarray:
    """Return the embedded evaluation crops as an int64 array [crops, length + 1]."""
    return evaluation_set(length, crops, seed).tokens.numpy()


def training_stream(cache: Path | None = None) -> TokenStream:
    """Return the embedded training stream, tokenised once and cached under its digest.

    Its digest depends on the installed versions, so it is recorded with a checkpoint rather than demanded.
    """
    corpus = training_corpus()
    digest = digest_arrays({"corpus": corpus.digest, "tokenizer": embedded_tokenizer().digest})
    path = (cache or paths.CACHE) / f"python-source-{digest[:16]}.npz"
    if path.is_file():
        return load_training_corpus(path)
    description = f"Python source of {len(corpus.versions)} packages, {corpus.num_bytes / 1e6:.1f} MB"
    stream = stream_of(corpus, "python-source-training", description)
    save_stream(stream, path)
    return stream


def training_tokens() -> np.ndarray:
    """Return the embedded training tokens as one flat uint16 array."""
    return training_stream().tokens


def save_stream(stream: TokenStream, path: Path | str) -> Path:
    """Write a token stream to an .npz file, atomically."""
    header = {key: getattr(stream, key) for key in ("name", "description", "digest", "sources")}
    check = digest_arrays({}, stream.tokens, stream.byte_lengths)
    arrays = {
        "tokens": stream.tokens,
        "byte_lengths": stream.byte_lengths,
        "header": np.array(json.dumps(header | {"sha256": check})),
    }
    with paths.replacing(Path(path)) as partial, partial.open("wb") as file:
        np.savez(file, allow_pickle=False, **arrays)
    return Path(path)


def load_training_corpus(path: Path | str) -> TokenStream:
    """Read a token stream written by `save_stream`; raises DataError when it is missing or its sha256 differs."""
    path = Path(path)
    if not path.is_file():
        raise DataError(f"Expected an exported token stream at {path}, where no file is; export one first.")
    try:
        with np.load(path, allow_pickle=False) as stored:
            tokens, lengths, header = (
                stored["tokens"],
                stored["byte_lengths"],
                json.loads(str(stored["header"])),
            )
    except (ValueError, KeyError, OSError) as error:
        raise DataError(
            f"Expected an exported token stream in {path}, received another file: {error}."
        ) from error
    if digest_arrays({}, tokens, lengths) != header.pop("sha256"):
        raise DataError(
            f"Expected the token stream in {path} to match its sha256, it does not; export it again."
        )
    return TokenStream(tokens=tokens, byte_lengths=lengths, **header)


def export_training_corpus(path: Path | str) -> TokenStream:
    """Tokenise the embedded training corpus into `path`, to be carried to a machine with other package versions."""
    stream = training_stream()
    save_stream(stream, path)
    return stream


def lm_batches(dataset: CropSet, batch_size: int = 16, device: torch.device | str = "cpu") -> Iterator[Batch]:
    """Yield the evaluation crops in order as {"tokens": int64 [B, length + 1]}; the last batch may be smaller."""
    for start in range(0, len(dataset), batch_size):
        yield {"tokens": dataset.tokens[start : start + batch_size].to(device)}


def lm_sampler(
    stream: TokenStream, batch_size: int, length: int, generator: torch.Generator
) -> Callable[[], Batch]:
    """Return a function that draws {"tokens": int64 [batch_size, length + 1]} at random offsets of the stream.

    The stream is held on the generator's device as int32; nothing is synchronised, so a CUDA graph can hold it.
    """
    device = generator.device
    if len(stream.tokens) <= length + 1:
        raise DataError(f"Expected more than {length + 1} training tokens, received {len(stream.tokens)}.")
    tokens = torch.from_numpy(stream.tokens.astype(np.int32)).to(device)
    span = torch.arange(length + 1, device=device)
    last = len(tokens) - length

    def sample() -> Batch:
        offsets = torch.randint(last, (batch_size, 1), generator=generator, device=device)
        return {"tokens": tokens[offsets + span].long()}

    return sample


def main(arguments: list[str] | None = None) -> None:
    """Run the command line: `export PATH` writes the embedded training corpus as tokens."""
    parser = argparse.ArgumentParser(prog="python -m analysis.data.text", description=main.__doc__)
    parser.add_argument("verb", choices=["export"])
    parser.add_argument("path", type=Path)
    export_training_corpus(parser.parse_args(arguments).path)


if __name__ == "__main__":
    main()
