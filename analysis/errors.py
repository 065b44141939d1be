"""One root error for everything a user can get wrong, with a kind per subject."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class AnalysisError(ValueError):
    """A mistake the caller can repair; the message says what was expected, what came and what to do."""


class SpecError(AnalysisError):
    """An inner-loop specification is malformed."""


class UnsupportedSpecError(AnalysisError):
    """A backend was asked for a specification that it cannot run; the message names field and reason."""


class InputError(AnalysisError):
    """Tensors handed to an inner loop or a host have the wrong shape, type or content."""


class CheckpointError(AnalysisError):
    """A checkpoint is missing, damaged, unsafe, or belongs to another architecture."""


class DataError(AnalysisError):
    """A data set is missing, unreadable, or not the one that was recorded."""


class ParameterError(AnalysisError):
    """A notebook, recipe or command-line parameter is unknown, ill-typed or out of range."""


class RecordError(AnalysisError):
    """A result record is missing, stale or damaged."""


class ReportError(AnalysisError):
    """A notebook or the report could not be made."""


class StorageError(AnalysisError):
    """A file or folder that a result belongs into cannot be written."""


class DependencyError(AnalysisError):
    """An optional dependency that this call needs is not installed."""


def closest(name: str, known: Iterable[str]) -> str:
    """Return ' (did you mean X?)' for the nearest of `known`, or '' when nothing is near."""
    matches = difflib.get_close_matches(name, list(known), n=1)
    return f" (did you mean {matches[0]!r}?)" if matches else ""
