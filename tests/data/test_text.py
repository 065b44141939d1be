"""Streams, crops, samples, and text of one's own."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch

from analysis.data import corpus, text, text_files
from analysis.data.tokenizer import EMBEDDED, embedded_tokenizer
from analysis.errors import DataError, DependencyError


@pytest.fixture(scope="module")
def evaluation():
    return text.evaluation_set(crops=16)


@pytest.fixture
def stream():
    tokens = np.arange(1000, dtype=np.uint16)
    return text.TokenStream("count", "counting", "d", tokens, np.ones(1024, dtype=np.int64))


def test_evaluation_tokens_are_the_same_every_time(evaluation):
    again = text.evaluation_tokens(crops=16)
    assert again.shape == (16, 1025) and again.dtype == np.int64
    assert (evaluation.tokens.numpy() == again).all()
    assert again.min() >= 0 and again.max() < 1024


def test_the_digest_of_the_evaluation_crops_is_the_recorded_one(evaluation):
    assert evaluation.digest == "009c2f6ec01711567a7b42d643cb6f0774430393c261bcf9ed7f6969d2cfee13"


def test_crops_are_disjoint_windows_and_fewer_are_a_prefix(stream):
    many, few = stream.crops(49, 20, seed=3), stream.crops(49, 5, seed=3)
    assert sorted(many.tokens.flatten().tolist()) == list(range(1000))
    assert (many.tokens[:5] == few.tokens).all()
    assert many.digest != few.digest != stream.crops(49, 5, seed=4).digest
    with pytest.raises(DataError, match="between 1 and 20 crops"):
        stream.crops(49, 21)


def test_target_bytes_count_what_is_predicted(evaluation):
    expected = len(
        embedded_tokenizer().decode(evaluation.tokens[0, 1:]).replace("<|endoftext|>", "").encode()
    )
    # a window may begin or end inside a character; source is ASCII almost everywhere
    assert abs(int(evaluation.target_bytes()[0]) - expected) <= 4
    assert 2 < float(evaluation.target_bytes().sum()) / evaluation.tokens[:, 1:].numel() < 3
    assert (text.token_byte_lengths() == evaluation.byte_lengths.numpy()).all()


def test_batches_cover_all_crops_in_order(evaluation):
    batches = list(text.lm_batches(evaluation, 6))
    assert [len(batch["tokens"]) for batch in batches] == [6, 6, 4]
    assert (torch.cat([batch["tokens"] for batch in batches]) == evaluation.tokens).all()


def test_samples_are_contiguous_and_follow_the_generator(stream):
    draw = text.lm_sampler(stream, 64, 32, torch.Generator().manual_seed(1))
    again = text.lm_sampler(stream, 64, 32, torch.Generator().manual_seed(1))
    batch = draw()["tokens"]
    assert batch.shape == (64, 33) and batch.dtype == torch.int64
    assert (batch.diff(dim=1) == 1).all() and batch[:, 0].unique().numel() > 32
    assert (batch == again()["tokens"]).all() and (batch != draw()["tokens"]).any()
    shortest = text.lm_sampler(stream, 500, 997, torch.Generator().manual_seed(1))()["tokens"]
    assert set(shortest[:, 0].tolist()) == {0, 1, 2}
    with pytest.raises(DataError, match="training tokens"):
        text.lm_sampler(stream, 1, 999, torch.Generator())


def test_training_stream_is_cached_and_carried(monkeypatch, tmp_path):
    monkeypatch.setattr(corpus, "TRAINING_PACKAGES", ("nbclient", "jinja2"))
    monkeypatch.setattr(text.paths, "CACHE", tmp_path / "cache")
    text.main(["export", str(tmp_path / "carried.npz")])
    (cached,) = (tmp_path / "cache").iterdir()
    monkeypatch.setattr(text, "stream_of", None)  # a second call must not tokenise again
    first, carried = text.training_stream(), text.load_training_corpus(tmp_path / "carried.npz")
    assert first.digest == carried.digest and (first.tokens == carried.tokens).all()
    assert first.tokens.dtype == np.uint16 and set(first.sources["versions"]) == {"nbclient", "jinja2"}
    assert (text.training_tokens() == first.tokens).all()
    assert cached.suffix == ".npz"


def test_a_damaged_carried_stream_is_refused(stream, tmp_path):
    path = text.save_stream(stream, tmp_path / "stream.npz")
    assert [file.name for file in tmp_path.iterdir()] == ["stream.npz"]
    with np.load(path) as stored:
        arrays = dict(stored)
    np.savez(path, **(arrays | {"tokens": arrays["tokens"][::-1]}))
    with pytest.raises(DataError, match="sha256"):
        text.load_training_corpus(path)
    path.write_bytes(b"not a zip")
    with pytest.raises(DataError, match="another file"):
        text.load_training_corpus(path)
    with pytest.raises(DataError, match="no file is"):
        text.load_training_corpus(tmp_path / "absent.npz")


def test_text_and_jsonl_files_become_streams(tmp_path):
    rows = [{"text": "first"}, {"text": "second\nline", "other": 1}]
    (tmp_path / "a.jsonl").write_text("\n".join(json.dumps(row) for row in rows) + "\n\n")
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "b.txt").write_text("third ü")
    stream = text_files.load_text(tmp_path)
    assert embedded_tokenizer().decode(stream.tokens).split("<|endoftext|>") == [
        "first", "second\nline", "third ü", "",
    ]  # fmt: skip
    assert stream.digest == text_files.load_text(tmp_path, tokenizer=EMBEDDED).digest
    one = text_files.load_text(tmp_path / "sub" / "b.txt")
    assert one.digest != stream.digest and len(one.tokens) < len(stream.tokens)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b'{"body": "x"}', r'under "text" in line 1 of a\.jsonl'),
        (b'{"text": 3}', 'string under "text"'),
        (b'["text"]', "received list"),
        (b'{"text": "x"}\n{broken', "JSON object in line 2"),
        (b'{"text": "\xff"}', "byte 0xff at offset 10"),
        (b"\n\n", "at least one document"),
    ],
)
def test_malformed_jsonl_is_a_data_error(tmp_path, content, message):
    (tmp_path / "a.jsonl").write_bytes(content)
    with pytest.raises(DataError, match=message):
        text_files.load_text(tmp_path)


def test_missing_and_empty_folders_are_data_errors(tmp_path):
    with pytest.raises(DataError, match="found none"):
        text_files.load_text(tmp_path)
    with pytest.raises(DataError, match="no file is"):
        text_files.load_text(tmp_path / "absent")


def test_saved_data_sets_need_their_package(tmp_path, monkeypatch):
    with pytest.raises(DataError, match="not one"):
        text_files.load_saved_dataset(tmp_path / "absent")
    monkeypatch.setitem(__import__("sys").modules, "datasets", None)
    with pytest.raises(DependencyError, match="'datasets'"):
        text_files.load_saved_dataset(tmp_path)
