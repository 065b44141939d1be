"""The ablation ladder of Table 2 as one tuple of rungs, from the full inner loop to linear attention.

Each rung edits the loops of the rung above. A rung that changes nothing for a family must be declared so (the paper's
daggers); `climb` refuses an undeclared no-op and a declared one that does change something.

For ViTTT, Variant 1 moves only the linear branch of the gated unit, Variant 3 drops its gate, and Variant 6 removes the
soft clip, which stands where LaCT has its orthogonalisation; its convolution loop is linear already.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from analysis.errors import SpecError
from analysis.spec import presets
from analysis.spec.choices import ConstantRate, DepthwiseConv3x3, Identity, Linear
from analysis.spec.enums import Trained
from analysis.spec.families import Family, Loops, map_loops
from analysis.spec.inner_loop import InnerLoop
from analysis.spec.reducibility import reducibility


@dataclass(frozen=True)
class Rung:
    """One row of Table 2: its alias, what it removes, the edit, and the families for which the edit changes nothing."""

    key: str
    name: str
    removes: str
    section: str
    edit: Callable[[InnerLoop], InnerLoop]
    no_op_for: frozenset[Family] = frozenset()


def _single_linear_layer(spec: InnerLoop) -> InnerLoop:
    if isinstance(spec.network, DepthwiseConv3x3):
        return spec
    return spec.edit(network=Linear())


_ViTTT, _NVS = Family.VITTT, Family.LACT_NVS

RUNGS: tuple[Rung, ...] = (
    Rung(
        "baseline",
        "Baseline",
        "nothing: the inner loop as published",
        "5.3, 5.4",
        lambda spec: spec,
        frozenset(Family),
    ),
    Rung(
        "v1",
        "Variant 1",
        "updates of all but the last layer",
        "6.1 step 1",
        lambda s: s.edit(trained=Trained.LAST),
    ),
    Rung(
        "v2",
        "Variant 2",
        "weight normalisation",
        "6.1 step 2",
        lambda s: s.edit(weight_norm=None),
        frozenset({_ViTTT}),
    ),
    Rung("v3", "Variant 3", "the multi-layer network", "6.1 step 3", _single_linear_layer),
    Rung(
        "v4",
        "Variant 4",
        "per-token learning rates",
        "6.1 step 4",
        lambda s: s.edit(lr=ConstantRate(1.0)),
        frozenset({_ViTTT}),
    ),
    Rung(
        "v5",
        "Variant 5",
        "momentum",
        "6.1 step 5",
        lambda s: s.edit(momentum=None),
        frozenset({_ViTTT, _NVS}),
    ),
    Rung(
        "v6", "Variant 6", "gradient orthogonalisation", "6.1 step 6", lambda s: s.edit(transform=Identity())
    ),
)


def rung(key: str) -> Rung:
    """Return the rung called `key` (baseline, v1 ... v6).

    Raises:
        SpecError: no such rung.
    """
    for candidate in RUNGS:
        if candidate.key == key:
            return candidate
    raise SpecError(
        f"rung must be one of {', '.join(r.key for r in RUNGS)}, received {key!r}; pass one of those."
    )


def equal_rung(family: Family, key: str) -> str:
    """Return the rung that `key` equals for a family: itself, or the nearest one above whose edit changes something.

    Raises:
        SpecError: no such rung.
    """
    place = RUNGS.index(rung(key))
    while place and family in RUNGS[place].no_op_for:
        place -= 1
    return RUNGS[place].key


def climb(loops: Loops, family: Family, key: str) -> Loops:
    """Apply every rung up to and including `key` to the loops of a family's baseline.

    Raises:
        SpecError: unknown rung, or an edit that changes nothing without being declared a no-op (or the reverse).
    """
    target = rung(key)
    for step in RUNGS:
        edited = map_loops(loops, step.edit)
        if (edited == dict(loops)) != (family in step.no_op_for):
            state = "changes nothing" if edited == dict(loops) else "changes the loop"
            raise SpecError(
                f"{step.name} {state} for {family.title}, expected the opposite; declare it in the rung's no_op_for or mend "
                "the edit."
            )
        loops = edited
        if step is target:
            break
    return loops


def ladder(family: Family, *, chunk: int = 2048) -> dict[str, Loops]:
    """Return {rung key: loops} for a family, each rung applied on top of the one before."""
    start = presets.baseline(family, chunk=chunk)
    return {step.key: climb(start, family, step.key) for step in RUNGS}


LADDER_NOTE = (
    "† the edit changes nothing for this family. ViTTT and LaCT-NVS as published update once, from the whole sequence, which is "
    "a single update at every rung; 'in chunks' says what their loop would be on a sequence cut into several chunks."
)


def ladder_rows(num_chunks: int = 4) -> list[dict[str, str]]:
    """Return Table 2's rungs as rows: key and name, what is removed, section, and per family the reducibility class.

    The language model is classified on a sequence of `num_chunks` chunks; `LADDER_NOTE` explains the cells.
    """
    climbed = {family: ladder(family) for family in Family}
    return [
        {
            "rung": f"{step.key} ({step.name})",
            "removes": step.removes,
            "section": step.section,
            **{
                family.title: classes(climbed[family][step.key], num_chunks)
                + (" †" if family in step.no_op_for and step is not RUNGS[0] else "")
                for family in Family
            },
        }
        for step in RUNGS
    ]


def classes(loops: Loops, num_chunks: int) -> str:
    """Return the reducibility classes of a layer's loops as they run on `num_chunks` chunks.

    A loop without a chunk size reads the whole sequence as one chunk, however long it is; what it would be over several
    chunks follows behind 'in chunks'.
    """
    whole = any(loop.chunk is None for loop in loops.values())
    as_run = [1 if loop.chunk is None else num_chunks for loop in loops.values()]
    run = _kinds(loops, as_run)
    cut = _kinds(loops, [num_chunks] * len(loops))
    return f"{run}; in chunks: {cut}" if whole and cut != run else run


def _kinds(loops: Loops, counts: list[int]) -> str:
    found = (reducibility(loop, count).kind.value for loop, count in zip(loops.values(), counts, strict=True))
    return ", ".join(dict.fromkeys(found))
