"""Matching the tensors of a file with the parameters of a host, and saying exactly what does not fit."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from analysis.errors import CheckpointError, closest

WRAPPER_PREFIXES = ("module.", "_orig_mod.", "model.")


@dataclass(frozen=True)
class MatchReport:
    """Names that fit, that the file lacks, that the host does not know, and that differ in shape (expected, found)."""

    matched: tuple[str, ...]
    missing: tuple[str, ...]
    unexpected: tuple[str, ...]
    mismatched: tuple[tuple[str, tuple[int, ...], tuple[int, ...]], ...]
    stripped: str = ""

    def __str__(self) -> str:
        counts = (
            f"{len(self.matched)} matched, {len(self.missing)} missing, {len(self.unexpected)} unexpected, "
            f"{len(self.mismatched)} of another shape"
        )
        return f"{counts}; prefix {self.stripped!r} removed" if self.stripped else counts


def without_prefixes(found: Iterable[str], expected: Iterable[str]) -> tuple[dict[str, str], str]:
    """Map the names of a file to names without wrapper prefixes, choosing the removal that fits `expected` best.

    Wrappers (data parallel, compile, trainers that nest the model) put `module.`, `_orig_mod.` or `model.` in front of
    names, sometimes several; the language model's own names begin with one `model.`. Returns (file name -> name, what
    was removed).
    """
    wanted = set(expected)
    best = current = {name: name for name in found}
    best_removed, frontier = "", [(current, "")]
    for _ in range(4):
        following = []
        for names, removed in frontier:
            for prefix in WRAPPER_PREFIXES:
                shorter = {key: name.removeprefix(prefix) for key, name in names.items()}
                if shorter == names or len(set(shorter.values())) < len(shorter):
                    continue
                following.append((shorter, removed + prefix))
                if len(wanted & set(shorter.values())) > len(wanted & set(best.values())):
                    best, best_removed = following[-1]
        frontier = following
    return best, best_removed


def match(
    expected: Mapping[str, tuple[int, ...]], found: Mapping[str, tuple[int, ...]], stripped: str = ""
) -> MatchReport:
    """Compare names and shapes."""
    common = [name for name in expected if name in found]
    return MatchReport(
        matched=tuple(name for name in common if expected[name] == found[name]),
        missing=tuple(name for name in expected if name not in found),
        unexpected=tuple(name for name in found if name not in expected),
        mismatched=tuple(
            (name, expected[name], found[name]) for name in common if expected[name] != found[name]
        ),
        stripped=stripped,
    )


def require_complete(report: MatchReport, source: str, hint: str = "") -> None:
    """Raise `CheckpointError` when a parameter is missing or has another shape, or a layer is left over; names them."""
    if report.missing:
        shown = [name + closest(name, report.unexpected) for name in report.missing[:5]]
        more = f" and {len(report.missing) - 5} more" if len(report.missing) > 5 else ""
        verdict = (
            "; none of its tensors belongs to this architecture, load it with its own configuration"
            if not report.matched
            else "; use the checkpoint and the configuration of one and the same model"
        )
        raise CheckpointError(
            f"expected {source} to hold {', '.join(shown)}{more}, received a file without ({report}){verdict}"
        )
    if layers := _surplus_layers(report):
        raise CheckpointError(
            f"expected {source} to hold the layers of its configuration, received {', '.join(layers[:5])} on top "
            f"({len(layers)} layers); use the configuration these weights were trained with"
        )
    if report.mismatched:
        name, expected, found = report.mismatched[0]
        why = hint or "use the configuration these weights were trained with"
        raise CheckpointError(
            f"expected {name} of shape {expected} from the configuration, received {found} in {source} "
            f"({len(report.mismatched)} tensors differ in shape); {why}"
        )


def _surplus_layers(report: MatchReport) -> list[str]:
    """Numbered modules (`layers.7`) of the file beside those of the host, in the order of the file."""
    known = {
        name
        for matched in (*report.matched, *(m[0] for m in report.mismatched))
        for name in _numbered(matched)
    }
    lists = {name.rpartition(".")[0] for name in known}
    found = [
        name
        for unexpected in report.unexpected
        for name in _numbered(unexpected)
        if name not in known and name.rpartition(".")[0] in lists
    ]
    return list(dict.fromkeys(found))


def _numbered(name: str) -> list[str]:
    parts = name.split(".")
    return [".".join(parts[: i + 1]) for i, part in enumerate(parts) if part.isdecimal()]


def require_numbers(tensors: Mapping[str, Tensor], expected: Mapping[str, Tensor], source: str) -> None:
    """Raise `CheckpointError` naming a tensor that is not stored as the plain numbers a host computes with.

    Every floating-point type will do for a floating-point parameter; quantised, complex and sparse ones will not.
    """
    for name, wanted in expected.items():
        tensor = tensors[name]
        if tensor.layout is not torch.strided or tensor.is_floating_point() != wanted.is_floating_point():
            raise CheckpointError(
                f"expected {name} of {source} as dense {'floating-point' if wanted.is_floating_point() else 'whole'} numbers, "
                f"received {tensor.dtype} {tensor.layout}; convert the checkpoint"
            )


def require_finite(tensors: Mapping[str, Tensor], source: str) -> None:
    """Raise `CheckpointError` naming the tensors that hold NaN or infinity, or no values at all (meta tensors)."""
    bad = [name for name, tensor in tensors.items() if tensor.is_floating_point() and not _is_finite(tensor)]
    if bad:
        raise CheckpointError(
            f"expected finite weights, received NaN or infinity in {', '.join(bad[:5])} ({len(bad)} tensors) of {source}; "
            "the training run diverged or the file is damaged, take an earlier checkpoint"
        )


def _is_finite(tensor: Tensor) -> bool:
    values = tensor if tensor.dtype.itemsize > 1 else tensor.float()  # 8-bit types have no such function
    return not values.is_meta and bool(torch.isfinite(values).all())


def looks_untrained(tensors: Mapping[str, Tensor]) -> bool:
    """Whether every norm weight is exactly one and every bias exactly zero, as only before the first training step."""
    ones = [
        t
        for n, t in tensors.items()
        if n.endswith(".weight") and "norm" in n.rsplit(".", 2)[-2] and t.ndim == 1
    ]
    zeros = [t for n, t in tensors.items() if n.endswith((".bias", ".qk_offset")) and t.is_floating_point()]
    return bool(ones) and all(bool((t == 1).all()) for t in ones) and all(bool((t == 0).all()) for t in zeros)
