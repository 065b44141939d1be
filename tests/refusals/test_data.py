"""Data of one's own with damage that the readers of each format do not expect."""

from __future__ import annotations

import json
import struct
import zlib

import pytest
from PIL import Image

from analysis.data.images import rendered_images
from analysis.data.pixels import open_image
from analysis.data.scene_formats import load_lact_scenes, load_realestate
from analysis.data.storage import read_bytes
from analysis.data.text_files import load_text
from analysis.data.tokenizer import Tokenizer
from analysis.errors import DataError

EYE = [[1, 0, 0, 0], [0, 1, 0, 0], [0, 0, 1, 2], [0, 0, 0, 1]]
VIEW = {"w": 8, "h": 8, "fx": 8, "fy": 8, "cx": 4, "cy": 4, "w2c": EYE, "file_path": "0.png"}
DEEP = "[" * 100_000


@pytest.mark.parametrize("line", ['{"text": "\\ud800abc"}', DEEP])
def test_a_line_that_holds_no_text_is_named(tmp_path, line):
    (tmp_path / "a.jsonl").write_text(line)
    with pytest.raises(DataError, match="line 1"):
        load_text(tmp_path)


def test_a_folder_called_like_a_text_file_is_a_folder(tmp_path):
    (tmp_path / "a.txt").mkdir()
    (tmp_path / "a.txt" / "b.md").write_text("text")
    assert len(load_text(tmp_path).tokens)


def test_a_tokenizer_that_cannot_write_every_text_is_refused(tmp_path):
    model = {"type": "WordLevel", "vocab": {"def": 0}, "unk_token": "absent"}
    empty = dict.fromkeys(("truncation", "padding", "normalizer", "post_processor", "decoder"))
    whole = {"version": "1.0", "added_tokens": [], "pre_tokenizer": {"type": "Whitespace"}, "model": model}
    (tmp_path / "tokenizer.json").write_text(json.dumps({**empty, **whole}))
    with pytest.raises(DataError, match="write any text"):
        Tokenizer(tmp_path).encode(["return"])


@pytest.fixture
def scene(tmp_path):
    Image.new("RGB", (8, 8)).save(tmp_path / "0.png")

    def write(content):
        text = content if isinstance(content, str) else json.dumps(content)
        (tmp_path / "opencv_cameras.json").write_text(text)
        return tmp_path

    return write


@pytest.mark.parametrize(
    "change",
    [
        *({"fx": value} for value in ("a", None, [1, 2], float("nan"), 0, -8)),
        *({"file_path": value} for value in (3, None)),
        {"w2c": [*EYE[:3], [5, 5, 5, 5]]},
    ],
)
def test_a_view_with_impossible_numbers_is_named(scene, change):
    assert load_lact_scenes(scene([VIEW]), (8, 8))
    with pytest.raises(DataError, match="view 0"):
        load_lact_scenes(scene([{**VIEW, **change}]), (8, 8))


def test_cameras_nested_without_end_are_refused(scene):
    with pytest.raises(DataError, match="Expected JSON"):
        load_lact_scenes(scene(DEEP), (8, 8))


def test_a_clip_with_an_impossible_lens_names_the_line(tmp_path):
    (tmp_path / "cameras").mkdir()
    (tmp_path / "frames" / "a").mkdir(parents=True)
    Image.new("RGB", (8, 8)).save(tmp_path / "frames" / "a" / "1.png")
    (tmp_path / "cameras" / "a.txt").write_text("address\n1 nan 1 .5 .5 0 0 1 0 0 0 0 1 0 0 0 0 1 0\n")
    with pytest.raises(DataError, match="line 2"):
        load_realestate(tmp_path / "cameras", tmp_path / "frames", (8, 8), 1)


def png(width: int, height: int) -> bytes:
    """Return the start of a picture that announces more pixels than it holds."""

    def block(kind: bytes, content: bytes) -> bytes:
        return (
            struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))
        )

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    body = block(b"IHDR", header) + block(b"IDAT", zlib.compress(b"\0" * 99)) + block(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + body


@pytest.mark.filterwarnings("error::PIL.Image.DecompressionBombWarning")
@pytest.mark.parametrize("side", [10_000, 60_000])
def test_a_picture_that_would_fill_the_memory_is_refused(tmp_path, side):
    (tmp_path / "a.png").write_bytes(png(side, side))
    with pytest.raises(DataError, match=r"a\.png"):
        open_image(tmp_path / "a.png")


def test_an_absurd_image_size_is_refused_before_it_is_rendered():
    with pytest.raises(DataError, match="image size"):
        rendered_images(1, size=10**9)


def test_a_file_that_the_system_does_not_give_out_is_refused(tmp_path, monkeypatch):
    (tmp_path / "a").write_bytes(b"")

    def fail(self):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("pathlib.Path.read_bytes", fail)
    with pytest.raises(DataError, match="Permission denied"):
        read_bytes(tmp_path / "a", "a file")
