"""What a panel shows of one host: views by name, computed once for an edit and kept."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import replace
from typing import Any, TypeVar

from analysis.lab.attention_view import attention_view, distribution_view
from analysis.lab.edits import Choice, as_trained, edit_key
from analysis.lab.example_views import losses, picture_view, text_view
from analysis.lab.examples import Bench
from analysis.lab.latest import Superseded, Wanted
from analysis.lab.outcome import Outcome, measure_edit
from analysis.lab.passes import Passes
from analysis.lab.summary import chart, summary
from analysis.models.host import EditedHost
from analysis.spec import Family

Made = TypeVar("Made")
LIGHT = 4  # inner steps up to which the first look is at all examples that a panel starts with


class Gallery:
    """The views of one bench; results stay in memory by edit, forward passes as far as `Passes` keeps them."""

    def __init__(self, bench: Bench) -> None:
        self.bench = bench
        self.passes = Passes(bench)
        self._results: dict[Hashable, Any] = {}
        self._visited: dict[int, list[Outcome]] = {}

    def stages(self, choice: Choice) -> tuple[int, ...]:
        """Return on how many examples to measure, in turn: a heavy edit, or many examples, come after a first look at few."""
        edited = choice.apply(self.bench.host)
        if self._outcome_key(edited, choice.samples) in self._results:
            return (choice.samples,)
        _, few, _ = self.bench.limits
        steps = max((loop.steps for loop in edited.loops.values() if loop.moving), default=0)
        first = max(few * LIGHT // max(steps, LIGHT), 1)
        return tuple(sorted({min(first, choice.samples), min(few, choice.samples), choice.samples}))

    def view(self, name: str, choice: Choice, wanted: Wanted) -> str:
        """Return one view as HTML.

        Raises:
            Superseded: nobody waits for it any more.
        """
        if not wanted():
            raise Superseded
        edited = choice.apply(self.bench.host)
        made = {
            "summary": self._summary,
            "chart": self._chart,
            "example": self._example,
            "attention": self._attention,
            "distribution": self._distribution,
        }
        return made[name](edited, choice, wanted)

    def _summary(self, edited: EditedHost, choice: Choice, wanted: Wanted) -> str:
        here = self._outcome(edited, choice, wanted)
        before = self._outcome(as_trained(self.bench.host), choice, wanted)
        return summary(edited, here, before, choice.samples)

    def _chart(self, edited: EditedHost, choice: Choice, wanted: Wanted) -> str:
        current = self._outcome(edited, choice, wanted)
        return chart(self._visited[choice.samples], current)

    def _example(self, edited: EditedHost, choice: Choice, wanted: Wanted) -> str:
        key = ("example", choice.example, edit_key(edited))
        if self.bench.host.family is not Family.LACT_LM:
            return self._kept(key, lambda: picture_view(self.passes, edited, choice, wanted))
        found = self._kept(key, lambda: losses(self.passes, edited, choice, wanted))
        return text_view(found, choice.colour, choice.token)

    def _attention(self, edited: EditedHost, choice: Choice, wanted: Wanted) -> str:
        if not self.bench.host.loops:
            return ""
        place, prefix = (choice.layer, choice.loop, choice.head), self.passes.prefix(choice)
        return self._kept(
            ("attention", choice.example, place, edit_key(edited)),
            lambda: attention_view(self.passes.showing(edited, choice, wanted), edited, choice, prefix),
        )

    def _distribution(self, edited: EditedHost, choice: Choice, wanted: Wanted) -> str:
        if not self.bench.host.loops:
            return ""
        first = replace(choice, example=0)
        place, prefix = (choice.layer, choice.loop, choice.head), self.passes.prefix(choice)
        return self._kept(
            ("distribution", min(choice.samples, self.bench.limits[2]), place, edit_key(edited)),
            lambda: distribution_view(self.passes.showing(edited, first, wanted), first, prefix),
        )

    def _outcome_key(self, edited: EditedHost, samples: int) -> Hashable:
        return ("outcome", samples, edit_key(edited))

    def _outcome(self, edited: EditedHost, choice: Choice, wanted: Wanted) -> Outcome:
        key = self._outcome_key(edited, choice.samples)
        if key not in self._results:
            found = measure_edit(self.passes, edited, choice, wanted)
            visited = self._visited.setdefault(choice.samples, [])
            visited.insert(0, found) if found.text == "as trained" else visited.append(found)
            self._results[key] = found
        return self._results[key]

    def _kept(self, key: Hashable, make: Callable[[], Made]) -> Made:
        if key not in self._results:
            self._results[key] = make()
        return self._results[key]
