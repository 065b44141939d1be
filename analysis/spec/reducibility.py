"""Which inner loops have a parallel form, which one, and why not otherwise (section 6.2, appendices H and I)."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from analysis.errors import SpecError
from analysis.spec.choices import DotProduct, SquaredError
from analysis.spec.enums import NormMode, Trained
from analysis.spec.inner_loop import InnerLoop


class ReducibilityClass(Enum):
    """The five ways in which an inner loop can, or cannot, be run in parallel over chunks."""

    SINGLE_UPDATE = "single update"
    ADDITIVE = "additive"
    ADDITIVE_PER_CHUNK = "additive per chunk"
    AFFINE = "affine"
    SEQUENTIAL = "sequential"


@dataclass(frozen=True)
class Reducibility:
    """The class of a specification, the reason in one sentence, and for sequential ones the field at fault."""

    kind: ReducibilityClass
    reason: str
    field: str | None = None

    @property
    def is_parallel(self) -> bool:
        """Whether the parallel backend runs it."""
        return self.kind is not ReducibilityClass.SEQUENTIAL


def reducibility(spec: InnerLoop, num_chunks: int) -> Reducibility:
    """Classify `spec` on a sequence of `num_chunks` chunks; the answer is exact, never a guess.

    Pre-norm accumulates an unnormalised copy that the dot-product gradient never reads, so with only the last layer moving
    it stays additive and is normalised at read-out: appendix I.2 concerns post-norm.

    Raises:
        SpecError: fewer than one chunk.
    """
    _require_count(num_chunks)
    if spec.trained is Trained.NONE:
        return Reducibility(
            ReducibilityClass.ADDITIVE, "no fast weight moves, so the state is S_0 throughout"
        )
    if num_chunks == 1 and spec.steps == 1:
        return Reducibility(
            ReducibilityClass.SINGLE_UPDATE,
            "one chunk and one step: there is a single update, nothing to scan",
        )
    if len(spec.moving) > 1:
        return _sequential(
            "trained",
            "the kernel parameters move, so each chunk's features depend on all earlier updates (appendix I.1); "
            "use trained=LAST",
        )
    if isinstance(spec.loss, SquaredError):
        return _squared_error(spec)
    assert isinstance(spec.loss, DotProduct)
    if spec.weight_norm is not None:
        if spec.weight_norm.mode is NormMode.POST:
            return _sequential(
                "weight_norm",
                "post-norm of the state does not commute with adding to it (appendix I.2); use weight_norm=None",
            )
        return Reducibility(
            ReducibilityClass.ADDITIVE_PER_CHUNK,
            "pre-norm keeps an unnormalised sum that no gradient reads, so chunk states are scanned and normalised at read-out",
        )
    if spec.transform.linear:
        return Reducibility(
            ReducibilityClass.ADDITIVE,
            "with the dot-product loss and only the last layer moving, updates do not depend on the state: S_0 + sum k^T v",
        )
    return Reducibility(
        ReducibilityClass.ADDITIVE_PER_CHUNK,
        "updates do not depend on the state but pass a non-linear transform: scan momentum, transform each chunk, scan weights",
    )


def _require_count(num_chunks: int) -> None:
    if isinstance(num_chunks, bool) or not isinstance(num_chunks, int) or num_chunks < 1:
        raise SpecError(
            f"num_chunks must be an integer of at least 1, received {num_chunks!r}; pass the length in chunks."
        )


def _squared_error(spec: InnerLoop) -> Reducibility:
    if not spec.transform.linear:
        return _sequential(
            "transform",
            "the squared-error gradient depends on the state, and a non-linear transform of it has no scan; use Identity()",
        )
    if spec.weight_norm is not None:
        return _sequential(
            "weight_norm",
            "the squared-error gradient reads the normalised state, which has no scan (appendix I.2); use weight_norm=None",
        )
    return Reducibility(
        ReducibilityClass.AFFINE,
        "the squared-error update is affine in the state: an associative scan over (matrix, offset), momentum stacked in",
    )


def _sequential(field: str, reason: str) -> Reducibility:
    return Reducibility(ReducibilityClass.SEQUENTIAL, reason, field)
