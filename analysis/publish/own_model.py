"""What one checkpoint can say: the paper's claims on its own measurements, and what its frozen model does under each edit.

A claim about retrained models needs other models and several seeds; it is marked as not decidable, never borrowed from the
shipped ones. What can be decided is open all the same, since one checkpoint is one seed: it points for or against.
"""

from __future__ import annotations

import html
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from analysis.publish.claims import CLAIMS, Claim, Origin
from analysis.publish.verdicts import EXAMPLES, MISSING, UNDECIDABLE, Verdict, decided, evidence
from analysis.records import Record, format_value, select
from analysis.records.comparison import Change, change, task_record
from analysis.spec import Direction, Family, QuerySource, Trained

ASCENT = "gradient ascent on the frozen model"
STATEMENTS: tuple[tuple[str, str, str, str], ...] = (
    ("no-update", "without its inner update", ASCENT, "no update"),
    ("flipped", "with the sign of its inner update flipped", ASCENT, "ascent"),
    ("query", "with K in the place of Q", "query replaced by key on the frozen model", "query from key"),
    (
        "shuffled",
        "with values of shuffled tokens",
        "wrong pairs for the inner loop of the frozen model",
        "values of shuffled tokens",
    ),
    (
        "foreign",
        "with keys and values of another example",
        "wrong pairs for the inner loop of the frozen model",
        "keys and values of another example",
    ),
)
"""Key, what is done to the frozen model, the question and the arm of the records that tell."""
ALREADY = "already so: the edit changes nothing"
NO_UPDATE = "no inner update: the edit changes nothing"


def judged(
    claims: Iterable[Claim], records: Sequence[Record], *, own: bool = False
) -> list[tuple[Claim, Verdict]]:
    """Return claims with their verdicts on records of runs, or, with `own`, on the measurements of one checkpoint."""
    return [(claim, decide_own(claim, records) if own else claim.decide(records)) for claim in claims]


def own_claims(own: Sequence[Record]) -> list[tuple[Claim, Verdict]]:
    """Return every claim about the family of one checkpoint with the verdict that its measurements allow."""
    return judged([claim for claim in CLAIMS if claim.family is _family(own)], own, own=True)


def decide_own(claim: Claim, own: Sequence[Record]) -> Verdict:
    """Return what one checkpoint's measurements say about a claim."""
    question = claim.key.removesuffix(f"-{claim.family.value}")
    if question in ("steps", "ascent-loss") and any(_rests(row.trained_spec) for row in own):
        return Verdict(UNDECIDABLE, reason="this model was trained without an inner update")
    if question == "steps" and _climbs(own):
        return Verdict(
            UNDECIDABLE,
            reason="this model was trained with ascent, whose steps raise the inner loss by design",
        )
    if question in ("steps", "qk", "vo"):
        return claim.decide(as_baseline(own))
    if question == "ascent-loss":
        return _ascent_loss(own)
    if question in ("parallel", "training-speed"):
        return Verdict(
            UNDECIDABLE, reason="speed is a matter of the device and the kernels, see `make bench`"
        )
    return Verdict(UNDECIDABLE, reason="it compares retrained models over several seeds")


def _climbs(own: Iterable[Record]) -> bool:
    """Whether an inner loop of the model was trained with ascent."""
    return any(
        loop["direction"] == Direction.ASCENT.value
        for row in own
        for loop in (row.trained_spec or {}).values()
    )


def _rests(loops: Mapping[str, Any]) -> bool:
    """Whether no fast weight of any loop moves; a record without loops does not say so."""
    return bool(loops) and all(loop["trained"] == Trained.NONE.value for loop in loops.values())


def as_baseline(own: Iterable[Record]) -> list[Record]:
    """Return records of one model as those of the model under study, whatever variant it was trained as."""
    return [record.edit(parameters={**record.parameters, "variant": "baseline"}) for record in own]


def _ascent_loss(own: Sequence[Record]) -> Verdict:
    """The frozen model's update moves the inner loss up under ascent and down under descent."""
    moves: dict[str, float] = {}
    rows = select(own, question=ASCENT)
    for arm in ("as trained", "ascent"):
        found = {row.metric: row for row in select(rows, parameters={"arm": arm})}
        if not {"inner_loss_before", "inner_loss_after"} <= found.keys():
            return Verdict(MISSING)
        after = found["inner_loss_after"]
        direction = next(iter(after.run_spec.values()))["direction"]
        moves[direction] = after.value - found["inner_loss_before"].value
    measured = (
        f"the frozen model's update moves the inner loss by {moves['descent']:+.3g} (descent) and "
        f"{moves['ascent']:+.3g} (ascent)"
    )
    family = _family(own)
    return decided(
        moves["ascent"] > 0 > moves["descent"],
        measured,
        "the sign was flipped on the frozen model, which was not retrained",
        seeds=1,
        evidence=evidence(rows, EXAMPLES[family]),
    )


def _family(own: Sequence[Record]) -> Family:
    return Family(own[0].parameters["family"])


class OwnTable:
    """What a frozen model does under each edit: its task metric as trained, then the paired change of every edit.

    Each statement is about this one model on these examples; the 95 % interval over examples decides.
    """

    COLUMNS = ("the frozen model", "measured", "verdict")

    def __init__(self, own: Sequence[Record]) -> None:
        self.own = tuple(own)

    def rows(self) -> list[tuple[str, str, str, str]]:
        """Return key, statement, measurement and verdict of every statement that the records tell about."""
        trained = task_record(self.own_question("evaluation"))
        rows = [("metric", "as trained", f"{trained.metric} {format_value(trained)}", "measured")]
        for key, said, question, arm in STATEMENTS:
            found = self.own_question(question)
            if select(found, parameters={"arm": arm}):
                after = task_record(found, arm=arm)
                rows.append((key, said, *_told(key, trained, after)))
        return rows

    def own_question(self, question: str) -> list[Record]:
        """Return the records of one question."""
        return list(select(self.own, question=question))

    def plain(self) -> list[dict[str, str]]:
        """Return every row under a key of its own, for a comparison of two reports."""
        family = _family(self.own)
        return [
            {
                "key": f"own-{key}-{family.value}",
                "origin": Origin.HERE.value,
                "model": family.title,
                "claim": f"the frozen model {said}",
                "measured here": measured,
                "verdict": verdict,
            }
            for key, said, measured, verdict in self.rows()
        ]

    def __repr__(self) -> str:
        return "\n".join(f"{said}: {verdict}, {measured}" for _, said, measured, verdict in self.rows())

    def _repr_mimebundle_(
        self, include: object = None, exclude: object = None
    ) -> tuple[dict[str, str], dict[str, Any]]:
        return {"text/html": self._repr_html_(), "text/plain": repr(self)}, {"claims": self.plain()}

    def _repr_html_(self) -> str:
        keys = [row["key"] for row in self.plain()]
        head = "".join(f"<th scope='col'>{name}</th>" for name in self.COLUMNS)
        body = "".join(
            f"<tr id='claim-{key}'><th scope='row'>{html.escape(said)} "
            f"<a href='#claim-{key}' class='anchor' aria-label='Link to this statement'>#</a></th>"
            f"<td data-label='measured'>{html.escape(measured)}</td><td data-label='verdict'>{verdict}</td></tr>"
            for key, (_, said, measured, verdict) in zip(keys, self.rows(), strict=True)
        )
        return f"<table class='statements'><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _told(key: str, trained: Record, after: Record) -> tuple[str, str]:
    """Return what an edit did to the metric, and the verdict; an edit that is none has a value, and no verdict."""
    if nothing := _idle(key, after):
        return format_value(after), nothing
    moved = change(trained, after)
    turned = f"{_directions(after)}: " if key == "flipped" else ""
    return f"{turned}{moved} ({format_value(after)})", _word(moved, bool(trained.extra["lower_is_better"]))


def _idle(key: str, after: Record) -> str:
    """Return why an edit leaves the model as it was trained, or ''.

    Wrong pairs are fed from outside of the loops, whose specification stays; they reach the output through the update, and
    through the keys where these are read in the place of queries.
    """
    loops = after.trained_spec
    if key in ("no-update", "flipped", "query") and loops and loops == after.run_spec:
        return ALREADY
    reads_keys = any(loop["query"] == QuerySource.KEY.value for loop in loops.values())
    needs_update = key in ("flipped", "shuffled") or (key == "foreign" and not reads_keys)
    return NO_UPDATE if needs_update and _rests(loops) else ""


def _directions(after: Record) -> str:
    """Return from which direction to which a flipped update was turned, as far as the record says."""
    sides = (after.trained_spec, after.run_spec)
    named = [" and ".join(sorted({loop["direction"] for loop in side.values()})) for side in sides]
    return f"from {named[0]} to {named[1]}" if named[0] else f"to {named[1]}"


def _word(moved: Change, lower_is_better: bool) -> str:
    if moved.value != moved.value:
        return "diverged"
    if not moved.excludes_zero:
        return "no difference beyond its interval"
    return "worse" if (moved.value > 0) == lower_is_better else "better"
