"""Named sites of a host, and the tape that records or replaces the tensors that pass through them.

A site is a dotted name such as `layers.2.q`. A host announces its sites (`host.sites()`); a layer passes its tensors
through a `Scope`, which asks the tape. Without a tape nothing is kept and nothing is copied. Recording needs no module
hooks, so it works on a host that was compiled and already called (hooks added after compilation never fire).
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

from analysis.errors import InputError, closest

Reduce = Callable[[str, Tensor], Tensor]
Replace = Callable[[Tensor, Mapping[str, Tensor]], Tensor]


def pattern_matches(pattern: str, names: Iterable[str]) -> list[str]:
    """Return the site names that `pattern` selects; `*` stands for (a part of) one dotted segment, `**` for any number."""
    parts = [re.escape(part).replace(r"\*\*", ".+").replace(r"\*", "[^.]*") for part in pattern.split(".")]
    expression = re.compile(r"\.".join(parts))
    return [name for name in names if expression.fullmatch(name)]


class Tape:
    """Records the requested sites of one forward pass, and optionally replaces tensors on their way.

    sites: site names or patterns (`layers.*.q`). reduce: `(name, tensor) -> tensor`, applied before a tensor is kept
    (a sample, a mean), so that memory grows with what is kept only. replace: `{pattern: fn}` with
    `fn(tensor, siblings) -> tensor`, where `siblings` holds the tensors that pass together ('q', 'k', 'v' of one
    attention, for example), so that `{"layers.2.attention.q": lambda q, together: together["k"]}` is the Q->K swap in
    one window attention. A replacement is recorded as replaced and must keep shape and dtype.

    Recorded tensors are detached. A second forward pass with the same tape starts it afresh. An unknown site, and a
    requested site that a forward pass did not reach, raise `InputError`.
    """

    def __init__(
        self,
        sites: Iterable[str] = (),
        reduce: Reduce | None = None,
        replace: Mapping[str, Replace] | None = None,
    ) -> None:
        self.patterns = (sites,) if isinstance(sites, str) else tuple(sites)
        self.reduce = reduce
        self.replacements = dict(replace or {})
        self._wanted: frozenset[str] = frozenset()
        self._replace: dict[str, Replace] = {}
        self._pending: set[str] = set()
        self._records: dict[str, Any] = {}

    def open(self, known: Iterable[str]) -> None:
        """Resolve all patterns against the sites a host has, and forget earlier records."""
        known = tuple(known)
        self._wanted = frozenset(name for pattern in self.patterns for name in self._resolve(pattern, known))
        self._replace = {
            name: fn for pattern, fn in self.replacements.items() for name in self._resolve(pattern, known)
        }
        self._pending = set(self._wanted) | set(self._replace)
        self._records = {}

    def close(self) -> None:
        """Check that every requested site was reached; raises `InputError` naming those that were not."""
        if self._pending:
            missed = sorted(self._pending)
            raise InputError(
                f"expected this forward pass to reach every requested site, but {', '.join(missed[:5])} "
                f"({len(missed)} of {len(self._wanted | set(self._replace))}) stayed silent; request sites that this "
                "host computes for these loops"
            )

    @staticmethod
    def _resolve(pattern: str, known: tuple[str, ...]) -> list[str]:
        names = pattern_matches(pattern, known)
        if not names:
            raise InputError(
                f"expected a site of this host, received {pattern!r}{closest(pattern, known)}; "
                "host.sites() lists all names"
            )
        return names

    def wants(self, name: str) -> bool:
        """Return whether the tensor of this site is asked for (so that a layer may skip computing it)."""
        return name in self._wanted or name in self._replace

    def pass_group(self, prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Replace and record tensors that belong together; a replacement sees all of them as they arrived."""
        if not self._wanted and not self._replace:
            return dict(tensors)
        passed = {}
        for key, tensor in tensors.items():
            name = prefix + key
            if name in self._replace:
                tensor = _checked_replacement(name, tensor, self._replace[name](tensor, dict(tensors)))
            if name in self._wanted:
                kept = tensor.detach() if self.reduce is None else self.reduce(name, tensor.detach())
                if not isinstance(kept, Tensor):
                    raise InputError(
                        f"expected reduce to return a tensor for {name}, received {type(kept).__name__}; return what to keep"
                    )
                self._records[name] = kept.detach()
            self._pending.discard(name)
            passed[key] = tensor
        return passed

    def keep(self, name: str, value: Any) -> None:
        """Record a value that is not one tensor (the arguments of an inner loop), detached."""
        if name in self._replace:
            raise InputError(
                f"expected a tensor site to replace, received {name!r}; replace its q, k or v instead"
            )
        if name in self._wanted:
            self._records[name] = _detached(value)
            self._pending.discard(name)

    def __getitem__(self, name: str) -> Any:
        if name not in self._records:
            raise InputError(
                f"expected a recorded site, received {name!r}{closest(name, self._records)}; record it first"
            )
        return self._records[name]

    def __contains__(self, name: str) -> bool:
        return name in self._records

    def __iter__(self) -> Iterator[str]:
        return iter(self._records)

    def __len__(self) -> int:
        return len(self._records)

    def items(self) -> Iterator[tuple[str, Any]]:
        """Iterate over (site, recorded value) in the order of the forward pass."""
        return iter(self._records.items())


SILENT = Tape()


@dataclasses.dataclass(frozen=True)
class Scope:
    """A tape seen from one place of the host: names are relative to `prefix`."""

    tape: Tape
    prefix: str = ""

    def inside(self, name: str | int) -> Scope:
        """Return the scope one level deeper."""
        return Scope(self.tape, f"{self.prefix}{name}.")

    def wants(self, *names: str) -> bool:
        """Return whether any of these sites is asked for."""
        return any(self.tape.wants(self.prefix + name) for name in names)

    def note(self, name: str, tensor: Tensor) -> Tensor:
        """Pass one tensor through its site; returns it, or its replacement."""
        return self.tape.pass_group(self.prefix, {name: tensor})[name]

    def group(self, **tensors: Tensor) -> tuple[Tensor, ...]:
        """Pass tensors that belong together (q, k, v); returns them in the same order."""
        return tuple(self.tape.pass_group(self.prefix, tensors).values())

    def keep(self, name: str, value: Any) -> None:
        """Record a value that is not one tensor."""
        self.tape.keep(self.prefix + name, value)


def _checked_replacement(name: str, before: Tensor, after: Tensor) -> Tensor:
    if not isinstance(after, Tensor) or after.shape != before.shape or after.dtype != before.dtype:
        received = (
            f"{tuple(after.shape)} {after.dtype}" if isinstance(after, Tensor) else type(after).__name__
        )
        raise InputError(
            f"expected the replacement of {name} to keep {tuple(before.shape)} {before.dtype}, received {received}; "
            "return a tensor like the one handed in"
        )
    return after


def _detached(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.detach()
    if isinstance(value, Mapping):
        return {key: _detached(entry) for key, entry in value.items()}
    if isinstance(value, tuple):
        return tuple(_detached(entry) for entry in value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {f.name: _detached(getattr(value, f.name)) for f in dataclasses.fields(value)}
        return dataclasses.replace(value, **fields)
    return value
