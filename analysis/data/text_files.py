"""Text of one's own: UTF-8 files, JSONL folders, saved `datasets` folders, and HuggingFace tokenizers."""

from __future__ import annotations

import json
import re
from pathlib import Path

from analysis.data.corpus import Corpus
from analysis.data.storage import digest_files, read_bytes, require_folder
from analysis.data.text import TokenStream, stream_of
from analysis.data.tokenizer import Tokenizer
from analysis.errors import DataError, DependencyError

_SURROGATE = re.compile("[\ud800-\udfff]")
TEXT_SUFFIXES = (".txt", ".md", ".py", ".text")


def load_text(path: Path | str, tokenizer: Path | str | None = None) -> TokenStream:
    """Return the token stream of a text file, a .jsonl file, or a folder of either.

    JSONL lines are objects whose key "text" holds a document. `tokenizer` is a HuggingFace tokenizer folder or its
    tokenizer.json; without it the embedded tokenizer is used. Raises DataError for a missing path, a folder without
    text, bytes that are not UTF-8, and a JSONL line without "text".
    """
    path = Path(path)
    if path.is_dir():
        files = sorted(
            file
            for file in path.rglob("*")
            if file.suffix in (*TEXT_SUFFIXES, ".jsonl") and not file.is_dir()
        )
        if not files:
            raise DataError(
                f"Expected text ({', '.join(TEXT_SUFFIXES)}) or .jsonl files in {path}, found none; check the folder."
            )
    else:
        files = [path]
    contents = [
        (file.name if file == path else file.relative_to(path).as_posix(), _text_bytes(file))
        for file in files
    ]
    documents = []
    for name, content in contents:
        documents += _documents(name, content)
    if not documents:
        raise DataError(f"Expected at least one document in {path}, found only empty files; check them.")
    corpus = Corpus(tuple(documents), {}, digest_files(contents))
    chosen = Tokenizer(tokenizer) if tokenizer is not None else None
    return stream_of(corpus, path.name, f"{len(documents)} documents of {path.name}", chosen)


def load_saved_dataset(
    folder: Path | str, tokenizer: Path | str | None = None, column: str = "text"
) -> TokenStream:
    """Return the token stream of a folder written by `datasets.Dataset.save_to_disk`.

    Raises DependencyError without the package `datasets`, DataError when the folder or the column is missing.
    """
    folder = require_folder(folder, "a data set saved with datasets' save_to_disk")
    try:
        import datasets
    except ImportError as missing:
        raise DependencyError(
            "Reading a saved HuggingFace data set needs the package 'datasets'; install it, or convert to JSONL."
        ) from missing
    stored = datasets.load_from_disk(str(folder))
    if column not in getattr(stored, "column_names", []):
        raise DataError(
            f"Expected a column {column!r} in {folder}, received {stored.column_names}; name another."
        )
    documents = tuple((f"{index:09d}", text) for index, text in enumerate(stored[column]))
    corpus = Corpus(documents, {}, digest_files((name, text.encode()) for name, text in documents))
    chosen = Tokenizer(tokenizer) if tokenizer is not None else None
    return stream_of(corpus, folder.name, f"{len(documents)} rows of {folder.name}", chosen)


def _text_bytes(file: Path) -> bytes:
    content = read_bytes(file, "a UTF-8 text or .jsonl file")
    try:
        content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise DataError(
            f"Expected UTF-8 text in {file}, received byte {content[error.start]:#04x} at offset {error.start}; "
            f"convert the file."
        ) from error
    return content


def _documents(name: str, content: bytes) -> list[tuple[str, str]]:
    text = content.decode("utf-8")
    if not name.endswith(".jsonl"):
        return [(name, text)] if text else []
    documents = []
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except (json.JSONDecodeError, RecursionError) as error:
            raise DataError(
                f"Expected one JSON object in line {number} of {name}, received: {error}; mend the line."
            ) from error
        if not isinstance(row, dict) or not isinstance(row.get("text"), str):
            keys = sorted(row) if isinstance(row, dict) else type(row).__name__
            raise DataError(f'Expected a string under "text" in line {number} of {name}, received {keys}.')
        if _SURROGATE.search(row["text"]):
            raise DataError(
                f"Expected text in line {number} of {name}, received half a surrogate pair (\\ud800 to \\udfff); mend the line."
            )
        documents.append((f"{name}:{number}", row["text"]))
    return documents
