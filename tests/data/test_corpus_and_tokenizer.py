"""The embedded text: which files, which digest, which tokens."""

from __future__ import annotations

import numpy as np
import pytest

from analysis.data import corpus, tokenizer
from analysis.errors import DataError


@pytest.fixture(scope="module")
def evaluation():
    return corpus.evaluation_corpus()


def test_evaluation_and_training_share_no_package(evaluation):
    assert not set(corpus.EVALUATION_PACKAGES) & set(corpus.TRAINING_PACKAGES)
    assert all(name.startswith("networkx/") for name, _ in evaluation.files)


def test_tests_and_build_stamps_are_left_out(evaluation):
    names = [name for name, _ in evaluation.files]
    assert names == sorted(names)
    assert not any("/tests/" in name or name.endswith("version.py") for name in names)
    assert all(len(text.encode()) <= corpus.LARGEST_FILE for _, text in evaluation.files)


def test_a_cap_takes_whole_files_in_a_fixed_shuffle():
    _, capped = corpus.package_files("networkx", 300_000)
    _, smaller = corpus.package_files("networkx", 100_000)
    assert 0 < sum(len(content) for _, content in capped) <= 300_000
    assert set(smaller) < set(capped)


def test_another_version_of_the_evaluation_package_is_refused_or_marked(monkeypatch, evaluation):
    monkeypatch.setattr(corpus, "package_files", lambda *_: ("9.9", [("networkx/a.py", b"x = 1\n")]))
    with pytest.raises(DataError, match=r"networkx 3\.6\.1 .* received 9\.9"):
        corpus.evaluation_corpus()
    marked = corpus.evaluation_corpus(pinned=False)
    assert marked.digest != evaluation.digest and marked.versions == {"networkx": "9.9"}


def test_missing_package_and_undecodable_source_are_data_errors(monkeypatch):
    with pytest.raises(DataError, match="not installed"):
        corpus.read_corpus(("no-such-package-here",))
    monkeypatch.setattr(corpus, "package_files", lambda *_: ("1", [("a.py", b"\xff\xfe")]))
    with pytest.raises(DataError, match=r"UTF-8 in a\.py"):
        corpus.read_corpus(("networkx",))
    monkeypatch.setattr(corpus, "package_files", lambda *_: ("1", []))
    with pytest.raises(DataError, match="found none"):
        corpus.read_corpus(("networkx",))


def test_the_embedded_tokenizer_is_a_lossless_bpe_of_1024(evaluation):
    embedded = tokenizer.embedded_tokenizer()
    text = evaluation.files[7][1] + " naïve → 日本 \t\n"
    (ids,) = embedded.encode([text])
    assert embedded.size == 1024 and ids.dtype == np.uint16
    assert embedded.decode(ids) == text


def test_byte_lengths_add_up_to_the_bytes_of_the_text(evaluation):
    embedded = tokenizer.embedded_tokenizer()
    texts = [text for _, text in evaluation.files[:20]]
    ids = embedded.encode_documents(texts)
    assert (ids == embedded.end_of_text).sum() == len(texts)
    lengths = embedded.byte_lengths()
    assert lengths.shape == (1024,) and lengths[embedded.end_of_text] == 0
    assert lengths[ids].sum() == sum(len(text.encode()) for text in texts)


def test_training_a_tokenizer_twice_gives_the_same_one(evaluation):
    texts = [text for _, text in evaluation.files[:8]]
    assert tokenizer.train_tokenizer(texts, 300) == tokenizer.train_tokenizer(texts, 300)


def test_a_broken_or_missing_tokenizer_is_a_data_error(tmp_path):
    with pytest.raises(DataError, match="no file is"):
        tokenizer.Tokenizer(tmp_path)
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(DataError, match="not one"):
        tokenizer.Tokenizer(tmp_path)


def test_bytes_are_not_guessed_for_other_kinds_of_tokenizer(tmp_path):
    import tokenizers as library

    words = library.Tokenizer(library.models.WordLevel({"a": 0, "b": 1}, unk_token="a"))
    words.save(str(tmp_path / "tokenizer.json"))
    with pytest.raises(DataError, match="byte-level"):
        tokenizer.Tokenizer(tmp_path).byte_lengths()
