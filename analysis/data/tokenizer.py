"""The small byte-level BPE of the embedded text task, and how any tokenizer's tokens map to bytes."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path

import numpy as np
from tqdm import tqdm

from analysis.data.storage import digest_files, read_bytes
from analysis.errors import DataError, DependencyError

VOCABULARY = 1024
END_OF_TEXT = "<|endoftext|>"
EMBEDDED = Path(__file__).with_name("tokenizer.json")
BATCH = 256


class Tokenizer:
    """A `tokenizers` tokenizer with its digest, its end-of-text token and the number of bytes of each token."""

    def __init__(self, path: Path | str = EMBEDDED):
        path = Path(path)
        path = path / "tokenizer.json" if path.is_dir() else path
        content = read_bytes(path, "a tokenizer file (tokenizer.json of a HuggingFace tokenizer)")
        library = _library()
        try:
            self._tokenizer = library.Tokenizer.from_str(content.decode("utf-8"))
        except Exception as error:  # the library raises bare Exception for a malformed file
            raise DataError(
                f"Expected a tokenizer in {path}, received a file that is not one: {error}."
            ) from error
        self.digest = digest_files([("tokenizer.json", content)])
        self.size = self._tokenizer.get_vocab_size()
        self.end_of_text = _end_of_text(self._tokenizer)

    def encode(self, texts: Sequence[str]) -> list[np.ndarray]:
        """Return the token ids of each text, without special tokens, as uint16 (uint32 for large vocabularies)."""
        kind = np.uint16 if self.size <= 1 << 16 else np.uint32
        encoded: list[np.ndarray] = []
        starts = range(0, len(texts), BATCH)
        for start in tqdm(starts, desc="tokenising", unit=f" x {BATCH} files", delay=2, mininterval=1):
            try:
                batch = self._tokenizer.encode_batch_fast(
                    list(texts[start : start + BATCH]), add_special_tokens=False
                )
            except Exception as error:  # the library raises bare Exception here too
                raise DataError(
                    f"Expected a tokenizer that can write any text, received one that cannot: {error}; mend it."
                ) from error
            encoded += [np.array(one.ids, dtype=kind) for one in batch]
        return encoded

    def encode_documents(self, texts: Sequence[str]) -> np.ndarray:
        """Return all texts in one flat array; a document is followed by the end-of-text token where there is one."""
        parts = []
        for ids in self.encode(texts):
            parts.append(ids)
            if self.end_of_text is not None:
                parts.append(np.array([self.end_of_text], dtype=ids.dtype))
        return np.concatenate(parts) if parts else np.zeros(0, dtype=np.uint16)

    def decode(self, ids: Iterable[int]) -> str:
        """Return the text of token ids, special tokens included."""
        return self._tokenizer.decode([int(one) for one in ids], skip_special_tokens=False)

    def byte_lengths(self) -> np.ndarray:
        """Return the number of UTF-8 bytes that each token stands for, int64 [size]; special tokens stand for none.

        Exact for byte-level tokenizers, whose vocabulary writes each byte as one character. Raises DataError for
        other kinds, where a token's bytes depend on its neighbours.
        """
        if "ByteLevel" not in str(self._tokenizer.decoder):
            raise DataError(
                "Expected a byte-level tokenizer to count bytes, received another kind; use perplexity."
            )
        lengths = np.zeros(self.size, dtype=np.int64)
        special = {
            index for index, token in self._tokenizer.get_added_tokens_decoder().items() if token.special
        }
        for token, index in self._tokenizer.get_vocab().items():
            if index < self.size and index not in special:
                lengths[index] = len(token)
        return lengths


def _library():
    # The threads of the library and those of torch would compete; results do not depend on it.
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "true")
    try:
        import tokenizers
    except ImportError as missing:
        raise DependencyError(
            "Text data need the package 'tokenizers', which is not installed; install it."
        ) from missing
    return tokenizers


def _end_of_text(tokenizer) -> int | None:
    for name in (END_OF_TEXT, "</s>", "<|end_of_text|>"):
        index = tokenizer.token_to_id(name)
        if index is not None:
            return index
    return None


@cache
def embedded_tokenizer() -> Tokenizer:
    """Return the tokenizer that ships with the package: byte-level BPE, 1024 tokens, trained on the training source."""
    return Tokenizer(EMBEDDED)


def train_tokenizer(texts: Iterable[str], size: int = VOCABULARY) -> str:
    """Train a byte-level BPE of `size` tokens and return its JSON; deterministic for the same texts."""
    library = _library()
    tokenizer = library.Tokenizer(library.models.BPE())
    tokenizer.pre_tokenizer = library.pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = library.decoders.ByteLevel()
    trainer = library.trainers.BpeTrainer(
        vocab_size=size,
        special_tokens=[END_OF_TEXT],
        initial_alphabet=sorted(library.pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer.to_str()
