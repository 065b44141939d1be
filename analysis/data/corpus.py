"""Python source of installed packages, split by package, as a corpus that is always at hand.

The files are found through the installer's own records (importlib.metadata) and read where they are installed, so
nothing is committed. Evaluation and training never share a package.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from importlib import metadata

from analysis.data.storage import digest_files
from analysis.errors import DataError

EVALUATION_PACKAGES = ("networkx",)
TRAINING_PACKAGES = (
    "torch",
    "numpy",
    "scipy",
    "pandas",
    "scikit-learn",
    "matplotlib",
    "seaborn",
    "joblib",
    "ipython",
    "ipykernel",
    "ipywidgets",
    "traitlets",
    "jupyter_client",
    "jupyter_server",
    "nbconvert",
    "nbformat",
    "nbclient",
    "papermill",
    "tornado",
    "jinja2",
)
# Tests repeat themselves, vendored copies belong to other packages, and very long files are generated tables.
SKIPPED_FOLDERS = frozenset(
    {"tests", "test", "testing", "_vendor", "vendor", "externals", "externally_vendored"}
)
LARGEST_FILE = 200_000
LARGEST_PACKAGE = 6_000_000
PINNED = {
    "networkx": ("3.6.1", "af571dc044501c70ca2f9a0231f22952c5177a232bdb1dd01ce5f2245ba6e58c"),
}


@dataclass(frozen=True)
class Corpus:
    """Source files by name, sorted, with the versions of their packages and the sha256 over names and contents."""

    files: tuple[tuple[str, str], ...]
    versions: dict[str, str]
    digest: str

    @property
    def num_bytes(self) -> int:
        """Return the number of UTF-8 bytes of all files."""
        return sum(len(text.encode()) for _, text in self.files)


def package_files(name: str, largest: int | None = None) -> tuple[str, list[tuple[str, bytes]]]:
    """Return (version, [(file name, content), ...]) of an installed package's Python source.

    Left out: test and vendored folders, `version.py` (it differs between builds of one release) and files over
    LARGEST_FILE bytes. With `largest`, files are taken in the order of the sha256 of their name, a fixed shuffle,
    until the next one would pass that many bytes. Raises DataError when the package is not installed.
    """
    try:
        distribution = metadata.distribution(name)
    except metadata.PackageNotFoundError as missing:
        raise DataError(
            f"Expected the package {name!r} as a part of the text corpus, but it is not installed; install the "
            f"pinned environment or load text of your own with analysis.data.text_files."
        ) from missing
    found = []
    for file in distribution.files or []:
        name_parts = set(file.parts[:-1])
        if (
            file.suffix != ".py"
            or name_parts & SKIPPED_FOLDERS
            or file.name == "version.py"
            or ".." in name_parts
        ):
            continue
        path = distribution.locate_file(file)
        content = path.read_bytes() if path.is_file() else b""
        if 0 < len(content) <= LARGEST_FILE:
            found.append((file.as_posix(), content.replace(b"\r\n", b"\n")))
    return distribution.version, _capped(found, largest)


def _capped(files: list[tuple[str, bytes]], largest: int | None) -> list[tuple[str, bytes]]:
    if largest is None:
        return sorted(files)
    kept, size = [], 0
    for name, content in sorted(files, key=lambda file: hashlib.sha256(file[0].encode()).digest()):
        if size + len(content) > largest:
            break
        kept.append((name, content))
        size += len(content)
    return sorted(kept)


def read_corpus(packages: tuple[str, ...], largest: int | None = None) -> Corpus:
    """Read the Python source of `packages`; raises DataError for a missing package or a file that is not UTF-8."""
    versions, files = {}, []
    for package in packages:
        versions[package], found = package_files(package, largest)
        if not found:
            raise DataError(f"Expected Python source in the package {package!r}, found none; reinstall it.")
        files += found
    return Corpus(tuple(_decoded(files)), versions, digest_files(files))


def _decoded(files: list[tuple[str, bytes]]) -> list[tuple[str, str]]:
    decoded = []
    for name, content in sorted(files):
        try:
            decoded.append((name, content.decode("utf-8")))
        except UnicodeDecodeError as error:
            raise DataError(
                f"Expected UTF-8 in {name}, received a byte at {error.start} that is not."
            ) from error
    return decoded


def training_corpus() -> Corpus:
    """Return the source that the language models are trained on: at most LARGEST_PACKAGE bytes of each package."""
    return read_corpus(TRAINING_PACKAGES, LARGEST_PACKAGE)


def evaluation_corpus(pinned: bool = True) -> Corpus:
    """Return the source of the evaluation package, which is never trained on.

    With `pinned`, raises DataError unless its digest is the one recorded with the published results; without, any
    installed version is read, and its own digest tells the result apart.
    """
    corpus = read_corpus(EVALUATION_PACKAGES)
    version, digest = PINNED[EVALUATION_PACKAGES[0]]
    if pinned and corpus.digest != digest:
        raise DataError(
            f"Expected the source of networkx {version} with sha256 {digest[:12]}, received "
            f"{corpus.versions['networkx']} with {corpus.digest[:12]}; install networkx=={version} or pass "
            f"pinned=False to evaluate on this version under its own digest."
        )
    return corpus
