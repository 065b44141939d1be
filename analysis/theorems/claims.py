"""What a claim is, how it is judged, and the verdict table.

A claim holds two computations that should agree. Its verdict is computed: `identity` when they agree to the claim's tolerance
on every draw, `approximation` when the worst relative difference is at most 5 %, `false` otherwise, with the smallest
sizes at which they part. Its twin changes one side on purpose: it breaks an identity, or mends a false claim by restoring the
assumption that fails. A check whose twin gets the same verdict proves nothing, and the tests refuse it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

import torch
from torch import Tensor

from analysis.errors import InputError
from analysis.theorems.draws import DRAWS, Sizes, small_sizes

APPROXIMATE = 0.05


class Verdict(Enum):
    """What the numbers say about a statement."""

    IDENTITY = "identity"
    APPROXIMATION = "approximation"
    FALSE = "false"


@dataclass(frozen=True)
class Sides:
    """Two named sets of tensors that a claim says are equal, and the leaves with respect to which gradients are compared."""

    reference: Mapping[str, Tensor]
    formula: Mapping[str, Tensor]
    leaves: Mapping[str, Tensor] = field(default_factory=dict)

    def errors(self) -> dict[str, float]:
        """Relative error of every tensor, ||formula - reference|| / ||reference||, outer gradients of 'outputs' included."""
        found = {
            name: relative_error(self.formula[name], expected) for name, expected in self.reference.items()
        }
        if self.leaves:
            found |= self._gradient_errors()
        return found

    def _gradient_errors(self) -> dict[str, float]:
        generator = torch.Generator().manual_seed(1)
        outputs = self.reference["outputs"]
        probe = torch.randn(outputs.shape, dtype=outputs.dtype, generator=generator)
        names, leaves = list(self.leaves), list(self.leaves.values())
        one, two = (
            torch.autograd.grad((side["outputs"] * probe).sum(), leaves, allow_unused=True, retain_graph=True)
            for side in (self.reference, self.formula)
        )
        found = {}
        for name, leaf, expected, given in zip(names, leaves, one, two, strict=True):
            zero = torch.zeros_like(leaf)
            expected, given = zero if expected is None else expected, zero if given is None else given
            found[f"gradient of {name}"] = relative_error(given, expected)
        return found


def relative_error(found: Tensor, expected: Tensor) -> float:
    """||found - expected|| / ||expected||, the plain difference where nothing is expected, infinity for a NaN.

    Raises:
        InputError: the shapes differ, where broadcasting would compare something else.
    """
    if found.shape != expected.shape:
        raise InputError(
            f"two sides must have one shape, received {tuple(found.shape)} and {tuple(expected.shape)}; mend the layout."
        )
    difference, size = (found - expected).detach().norm(), expected.detach().norm()
    error = float(difference / size if size > 1e-12 else difference)
    return float("inf") if error != error else error


Check = Callable[[Sizes, int, bool], Sides]


@dataclass(frozen=True)
class Claim:
    """One statement of the paper or the blog post, in our words, with the check that decides it.

    Attributes:
        id: short name.
        group: the heading it stands under.
        statement: what is claimed.
        assumptions: when it is claimed to hold.
        source: theorem, section or appendix.
        check: (sizes, seed, twin) -> the two sides; with twin=True one side is broken, or mended for a false claim.
        recorded: the verdict that was found and committed; a check that gives another one is a finding.
        tolerance: relative error up to which two sides count as equal.
        note: what a reader should know about the verdict.
    """

    id: str
    group: str
    statement: str
    assumptions: str
    source: str
    check: Check
    recorded: Verdict = Verdict.IDENTITY
    tolerance: float = 1e-10
    note: str = ""

    def error(self, sizes: Sizes, seed: int, twin: bool = False) -> float:
        """Largest relative error over all compared tensors of one draw."""
        return max(self.check(sizes, seed, twin).errors().values())

    def verdict(self, error: float) -> Verdict:
        """Return the verdict that a worst relative error amounts to."""
        if error <= self.tolerance:
            return Verdict.IDENTITY
        return Verdict.APPROXIMATION if error <= APPROXIMATE else Verdict.FALSE


@dataclass(frozen=True)
class Counterexample:
    """The smallest sizes at which a claim fails, the seed, and the relative error there."""

    sizes: Sizes
    seed: int
    error: float


@dataclass(frozen=True)
class Judgement:
    """What checking one claim found."""

    claim: Claim
    verdict: Verdict
    errors: Mapping[str, float]
    counterexample: Counterexample | None = None

    @property
    def worst(self) -> float:
        """Largest relative error over all draws and tensors."""
        return max(self.errors.values())

    @property
    def as_recorded(self) -> bool:
        """Whether the verdict is the recorded one."""
        return self.verdict is self.claim.recorded

    def row(self) -> dict[str, Any]:
        """Return the judgement as one row of a table."""
        worst = max(self.errors, key=lambda name: self.errors[name])
        found = self.counterexample
        return {
            "claim": self.claim.id,
            "group": self.claim.group,
            "statement": self.claim.statement,
            "assumptions": self.claim.assumptions,
            "source": self.claim.source,
            "verdict": self.verdict.value,
            "recorded": self.claim.recorded.value,
            "worst over the standard draws": self.worst,
            "in": worst,
            "tolerance": self.claim.tolerance,
            "smallest counterexample": "" if found is None else f"{found.sizes} (error {found.error:.2g})",
            "note": self.claim.note,
        }


def judge(claim: Claim, draws: Iterable[Sizes] = DRAWS, seed: int = 0, twin: bool = False) -> Judgement:
    """Check a claim (or its twin) on every draw and return the verdict, the worst errors and a smallest counterexample."""
    worst: dict[str, float] = {}
    for number, sizes in enumerate(draws):
        for name, error in claim.check(sizes, seed + number, twin).errors().items():
            worst[name] = max(worst.get(name, 0.0), error)
    verdict = claim.verdict(max(worst.values()))
    found = smallest_counterexample(claim, seed) if verdict is Verdict.FALSE and not twin else None
    return Judgement(claim, verdict, worst, found)


def smallest_counterexample(claim: Claim, seed: int = 0, tries: int = 3) -> Counterexample | None:
    """Search upwards from one token and width one for the first sizes at which the claim is off by more than 5 %."""
    for sizes in small_sizes():
        for attempt in range(tries):
            error = claim.error(sizes, seed + attempt)
            if error > APPROXIMATE:
                return Counterexample(sizes, seed + attempt, error)
    return None
