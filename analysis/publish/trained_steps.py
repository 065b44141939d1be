"""Whether models trained with more inner steps are best at the number they were trained with (sections 4.1 and 5.2).

The paper explains that more steps at test time hurt by a mismatch with training. If so, the best number at test time follows
the trained one. Only language models were trained with more steps, so the metric is perplexity throughout.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from analysis.publish.captions import joined
from analysis.publish.retrained_verdicts import by_variant, runs, summary
from analysis.records import Record, select
from analysis.records.comparison import Change, change
from analysis.spec import Family

TRAINED = ("baseline", "steps2", "steps4")
"""Variants that differ in nothing but the number of inner steps they were trained with."""
FAMILY = Family.LACT_LM


@dataclass(frozen=True)
class Curve:
    """One trained model over the inner steps at test time: its records of the task metric and its inner losses, by number."""

    seed: int | None
    trained: int
    tasks: Mapping[int, Record]
    losses: Mapping[int, Record]

    @property
    def best(self) -> int:
        """The number of steps at test time with the lowest perplexity."""
        values = {k: record.value for k, record in self.tasks.items()}
        return min(values, key=lambda k: values[k] if math.isfinite(values[k]) else math.inf)

    def against(self, count: int, other: int) -> Change:
        """Return the paired change of the perplexity from one number of steps to another."""
        return change(self.tasks[count], self.tasks[other])

    @property
    def near(self) -> list[int]:
        """The numbers whose 95 % interval over examples does not tell them from the best one."""
        return [k for k in self.tasks if k != self.best and not self.against(self.best, k).excludes_zero]


@dataclass(frozen=True)
class Optimum:
    """Where the models trained with one number of inner steps are best at test time, one curve a seed."""

    variant: str
    trained: int
    curves: tuple[Curve, ...]

    @property
    def best(self) -> list[int]:
        """The best number of every seed."""
        return [curve.best for curve in self.curves]

    @property
    def near(self) -> list[int]:
        """The numbers that are not told from the best one in some seed."""
        return sorted({count for curve in self.curves for count in curve.near})

    @property
    def follows(self) -> bool:
        """Whether every seed is best at the number it was trained with."""
        return set(self.best) == {self.trained}

    def values(self, count: int | None = None) -> list[float]:
        """Return the perplexity of every seed at a number of steps, or at the best of each."""
        return [curve.tasks[curve.best if count is None else count].value for curve in self.curves]


def optima(records: Sequence[Record]) -> list[Optimum]:
    """Return the recorded optima, one for each number of inner steps that models were trained with."""
    found = []
    for variant in TRAINED:
        where = {"family": FAMILY.value, "variant": variant, "step_size": 1.0}
        rows = select(records, question="inner steps", parameters=where)
        each = [_curve([r for r in rows if r.seeds == seeds]) for seeds in sorted({r.seeds for r in rows})]
        curves = tuple(curve for curve in each if curve is not None)
        if curves:
            found.append(Optimum(variant, curves[0].trained, curves))
    return found


def _curve(rows: Sequence[Record]) -> Curve | None:
    """The curve of one seed; None when the trained number is not known or was not among those measured."""
    tasks = {row.parameters["inner_steps"]: row for row in rows if "per_example" in row.extra}
    losses = {row.parameters["inner_steps"]: row for row in select(rows, metric="inner_loss_after")}
    trained = {loop["steps"] for row in tasks.values() for loop in row.trained_spec.values()}
    if len(trained) != 1 or not tasks.keys() > {1, *trained}:
        return None
    seeds = next(iter(tasks.values())).seeds
    return Curve(seeds[0] if seeds else None, trained.pop(), dict(sorted(tasks.items())), losses)


def table(records: Sequence[Record]) -> Any:
    """Return where each model is best, as a readable table: a row for each number of steps in training."""
    import pandas as pd

    rows = [
        {
            "trained with": f"k = {one.trained}",
            "best at test": _at(one.best) + (f", not told from k = {_listed(one.near)}" if one.near else ""),
            "perplexity": _mean(one.values()),
            "at k = 1": _mean(one.values(1)),
            "k = 1 against the best": "; ".join(str(c.against(c.best, 1)) for c in one.curves if c.best != 1),
            "seeds": len(one.curves),
        }
        for one in optima(records)
    ]
    return pd.DataFrame(rows).set_index("trained with") if rows else pd.DataFrame()


def _mean(values: Sequence[float]) -> str:
    """The summary over seeds without their number, which has a column."""
    return summary(values).partition(" (")[0]


def answer(records: Sequence[Record]) -> str:
    """Return in Markdown whether training with more steps moves the optimum, and what follows for the paper's explanation."""
    found = optima(records)
    if not _comparable(found):
        return _gap(found)
    moved = " ".join(filter(None, (f"**{_headline(found)}**", _follows(found), _few(found))))
    rest = " ".join(filter(None, (_cost(found, records), _gap(found))))
    return f"{moved}\n\n{rest}".strip()


def note(records: Sequence[Record]) -> str:
    """Return the answer in short, to stand beside the claim about inner steps; '' when nothing is recorded."""
    found = optima(records)
    if not _comparable(found):
        return ""
    best = joined(["/".join(map(str, sorted(set(one.best)))) for one in found])
    values = joined([summary(one.values()) for one in found])
    trained = _listed([one.trained for one in found])
    told = f"Trained with k = {trained} {FAMILY.title} is best at k = {best}, with perplexity {values}."
    few = ("One seed decides nothing.",) if _few(found) else ()
    return " ".join((_headline(found), told, _follows(found), *few))


def _comparable(found: Sequence[Optimum]) -> bool:
    return len(found) > 1 and found[0].variant == TRAINED[0]


def _gap(found: Sequence[Optimum]) -> str:
    """Say which sweeps are missing; '' for none."""
    names = dict(zip(TRAINED, ("one inner step", "two inner steps", "four inner steps"), strict=True))
    missing = [name for variant, name in names.items() if variant not in {one.variant for one in found}]
    return (
        f"Not recorded: the inner-step sweep of {FAMILY.title} trained with {joined(missing)}."
        if missing
        else ""
    )


def _few(found: Sequence[Optimum]) -> str:
    """Say which models have one seed; '' for none."""
    few = [one.trained for one in found if len(one.curves) == 1]
    if not few:
        return ""
    return (
        f"With k = {_listed(few)} a single seed was trained, which has no interval over seeds: "
        "it points one way and decides nothing."
    )


def _at(best: Sequence[int]) -> str:
    """Return 'k = 2', 'k = 1 in every seed', or the best of every seed."""
    if len(set(best)) > 1:
        return f"k = {', '.join(map(str, best))} (by seed)"
    return f"k = {best[0]}{' in every seed' if len(best) > 1 else ''}"


def _listed(counts: Sequence[int]) -> str:
    return joined([str(count) for count in counts])


def _moved(found: Sequence[Optimum]) -> list[Optimum]:
    """The models trained with more steps whose best number lies above that of the baseline in every seed."""
    return [one for one in found[1:] if min(one.best) > max(found[0].best)]


def _headline(found: Sequence[Optimum]) -> str:
    """Whether the best number at test time follows the trained one, and where an interval leaves that open."""
    moved = _moved(found)
    if not moved:
        return "Training with more steps does not move the optimum."
    if all(one.follows for one in found):
        text = "Every model is best at the number of steps it was trained with"
    elif len(moved) == len(found) - 1:
        text = "Training with more steps moves the optimum, but not to the trained number each time"
    else:
        text = (
            f"The optimum moves in the model trained with k = {_listed([one.trained for one in moved])} alone"
        )
    unsure = [one.trained for one in moved if set(one.near) & set(found[0].best)]
    if not unsure:
        return f"{text}."
    return f"{text}, but with k = {_listed(unsure)} its interval does not tell that from the baseline's best number."


def _follows(found: Sequence[Optimum]) -> str:
    """What the optima say about the explanation by a mismatch between training and test."""
    paper = "the paper's explanation by a mismatch between training and test (section 5.2)"
    if not _moved(found):
        return f"That speaks against {paper}: a model run as it was trained is not at its best."
    if all(one.follows for one in found):
        return f"That is what {paper} predicts."
    return f"That is in part what {paper} predicts: the best number is not always the trained one."


def _cost(found: Sequence[Optimum], records: Sequence[Record]) -> str:
    """Whether a model trained with more steps is better or worse than the baseline, each at its own number, on the full set."""
    base, frozen = (by_variant(records, FAMILY, variant) for variant in (TRAINED[0], "frozen"))
    own = {one.trained: by_variant(records, FAMILY, one.variant) for one in found[1:]}
    own = {k: values for k, values in own.items() if values}
    if not base or not own:
        return ""
    said = "; ".join(f"{summary(v)} for k = {k}, {_standing(v, base, frozen)}" for k, v in own.items())
    without = f", {summary(frozen)} for the model retrained without updates" if frozen else ""
    text = (
        f"Run as trained on the full evaluation set, the perplexity is {summary(base)} for the baseline{without}; trained with "
        f"more steps it is {said}."
    )
    if all(min(values) > max(base) for values in own.values()):
        text += " So in these runs a mismatch is not all that keeps more steps from helping: without one they do not help either."
    return f"{text} The recipe is the baseline's and was not tuned for more steps{_steepest(found, records)}."


def _standing(values: Sequence[float], base: Sequence[float], frozen: Sequence[float]) -> str:
    """Where the seeds of a model lie beside those of the baseline and of the model without updates."""
    if max(values) < min(base):
        return "better than every seed of the baseline"
    if min(values) <= max(base):
        return "overlapping the seeds of the baseline"
    worst = frozen and min(values) > max(frozen)
    return "worse than every seed of the baseline" + (" and of the model without updates" if worst else "")


def _steepest(found: Sequence[Optimum], records: Sequence[Record]) -> str:
    """The largest gradient norm that the training of each model recorded: a sign of how hard it was to train."""
    norms = {
        one.trained: [max(row.extra["curve"]["gradient_norm"]) for row in trained if "curve" in row.extra]
        for one in found
        if (trained := runs(records, FAMILY, one.variant))
    }
    if len(norms) < len(found) or not all(norms.values()):
        return ""
    listed = joined([f"{max(values):.3g} (k = {k})" for k, values in norms.items()])
    return f": before clipping, the gradient norm of the training reached {listed}"
