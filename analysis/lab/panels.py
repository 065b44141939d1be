"""A control panel for a notebook: move a control, and the probe runs again on that edit."""

from __future__ import annotations

import html
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import ipywidgets as w

from analysis import paths
from analysis.errors import AnalysisError, ParameterError, closest
from analysis.lab.controls import Controls
from analysis.lab.edits import Choice
from analysis.lab.examples import LIMITS, Bench, bench, open_bench
from analysis.lab.front_end import panels_shown
from analysis.lab.gallery import Gallery
from analysis.lab.latest import Latest, Wanted
from analysis.probes.subjects import Subject
from analysis.spec import Family

ORDER: dict[str, tuple[str, ...]] = {
    "overview": ("summary", "chart", "example", "attention"),
    "steps": ("summary", "chart", "example", "attention"),
    "ascent": ("summary", "chart", "example", "attention"),
    "query_to_key": ("summary", "chart", "attention", "example"),
    "distributions": ("distribution", "summary", "attention", "example"),
    "attention": ("attention", "summary", "example"),
    "ladder": ("summary", "chart", "attention", "example"),
}
TITLES = {
    "overview": "Try it: edit an inner loop",
    "steps": "Try it: more inner steps",
    "ascent": "Try it: climb instead of descend",
    "query_to_key": "Try it: read with keys",
    "distributions": "Try it: where queries, keys, values and outputs lie",
    "attention": "Try it: the inner loop as attention",
    "ladder": "Try it: down the ladder in a model that was not retrained",
}


@dataclass(frozen=True)
class _Opening:
    """A request to load a checkpoint from a path."""

    path: str


class Panel:
    """Controls and views around the same benches; shows itself in a notebook.

    question: which views come first, a key of `ORDER`. benches: hosts with their examples by name. Results are kept in
    memory by edit; the newest request wins; a failure is one sentence.
    """

    def __init__(self, question: str, benches: Mapping[str, Bench | None], data: str = "") -> None:
        if question not in ORDER:
            raise ParameterError(
                f"panel must be one of {', '.join(ORDER)}, received {question!r}{closest(question, ORDER)}; pass one of those."
            )
        self.question, self.data = question, data
        self.benches: dict[str, Bench | None] = dict(benches)
        self._galleries: dict[str, Gallery] = {}
        self._fitted = ""
        titles = {name: one.title if one else Path(name).name for name, one in self.benches.items()}
        self.controls = Controls(titles, self.refresh, self._open)
        self.status = w.HTML()
        self.views = {name: w.HTML() for name in ORDER[question]}
        self.worker: Latest[Choice | _Opening, str] = Latest(self._compute, self._done, self._failed)
        self.widget = self._layout()
        self.refresh()

    def _layout(self) -> Any:
        c = self.controls
        edits = [c.steps, c.direction, c.query, c.rungs.box, c.reset]
        looked = [c.loop, c.layer, c.head, c.samples, c.example, c.token, c.colour]
        side = [
            self.status,
            c.subject,
            c.path,
            w.HTML("<b>Edit</b>"),
            *edits,
            w.HTML("<b>Look at</b>"),
            *looked,
        ]
        column = w.VBox(side, layout=w.Layout(width="27em", flex="0 0 27em", padding="0 1em 0 0"))
        shown = w.VBox(list(self.views.values()), layout=w.Layout(flex="1 1 30em", min_width="20em"))
        title = w.HTML(
            f'<div style="font-size:15px;font-weight:600;padding:4px 0">{TITLES[self.question]}</div>'
        )
        body = w.Box([column, shown], layout=w.Layout(flex_flow="row wrap", align_items="flex-start"))
        frame = w.Layout(border="1px solid var(--jp-border-color1,#c9cdd2)", padding="10px 14px")
        return w.VBox([title, body], layout=frame)

    def _ipython_display_(self) -> None:
        from IPython.display import display

        display(self.widget)

    def refresh(self) -> Any:
        """Ask for what the controls say; returns the future of the work."""
        choice = self.controls.choice()
        held = self.benches.get(choice.subject)
        if held is not None and choice.subject != self._fitted:
            self._fitted = choice.subject
            self.controls.fit(held)
            choice = self.controls.choice()
        elif held is not None:
            self.controls.fit_heads(held)
            choice = self.controls.choice()
        self._say("running", "running …" if held is not None else "loading the checkpoint …")
        return self.worker.request(choice if held is not None else _Opening(choice.subject))

    def _open(self, path: str) -> None:
        self._say("running", f"loading {path} …")
        self.worker.request(_Opening(path))

    def _compute(self, request: Choice | _Opening, wanted: Wanted) -> str:
        if isinstance(request, _Opening):
            self.benches[request.path] = open_bench(Path(request.path).expanduser(), self.data)
            self._galleries.pop(request.path, None)  # what was read before may have changed on disk
            return request.path
        start = time.perf_counter()
        gallery = self._gallery(request.subject)
        for samples in gallery.stages(request):
            choice, last = replace(request, samples=samples), samples == request.samples
            for name, view in self.views.items():  # each as soon as it is there: the numbers come first
                if name == "chart" and not last:
                    continue  # it compares edits on the same examples
                content = gallery.view(name, choice, wanted)
                if wanted():
                    view.value = content
            if not last and wanted():
                self._say(
                    "running", f"{samples} of {request.samples} examples so far, the others are running …"
                )
        return f"{time.perf_counter() - start:.1f} s"

    def _gallery(self, subject: str) -> Gallery:
        if subject not in self._galleries:
            held = self.benches[subject]
            assert held is not None
            self._galleries[subject] = Gallery(held)
        return self._galleries[subject]

    def _done(self, request: Choice | _Opening, answer: str) -> None:
        if isinstance(request, _Opening):
            self._show_opened(answer)
        else:
            self._say("ready", f"ready ({answer})")

    def _show_opened(self, name: str) -> None:
        options = [value for _, value in self.controls.subject.options]
        with self.controls.quiet():
            if name not in options:
                label = f"{Path(name).name} (own)"
                self.controls.subject.options = [*self.controls.subject.options, (label, name)]
            self.controls.subject.value = name
        self.refresh()

    def _failed(self, error: BaseException) -> None:
        text = str(error) if isinstance(error, AnalysisError) else f"{type(error).__name__}: {error}"
        self._say("failed", text)

    def _say(self, state: str, text: str) -> None:
        mark = {"running": "◌", "ready": "●", "failed": "✗"}[state]
        theme = {"running": "warn", "ready": "success", "failed": "error"}[state]
        self.status.value = (
            f'<div role="status" aria-live="polite" class="panel-{state}" style="line-height:1.4;max-width:34em">'
            f'<span style="color:var(--jp-{theme}-color1,currentColor);font-weight:600">{mark}</span> {html.escape(text)}</div>'
        )


def panel(question: str, studied: Mapping[str, Subject] | None = None, *, data: str = "") -> Panel | None:
    """Return the control panel of a notebook, or None where nobody could use it (see `panels_shown`).

    question: a key of `ORDER`, decides which views come first. studied: the hosts of the notebook by name, as
    `analysis.probes.subjects` returns them; shipped checkpoints are offered beside them and loaded when chosen. data: the
    reader's own data, for checkpoints that are opened by path.

    Raises:
        ParameterError: no such question.
        CheckpointError: there is no host to show.
    """
    if question not in ORDER:
        raise ParameterError(
            f"panel must be one of {', '.join(ORDER)}, received {question!r}{closest(question, ORDER)}; pass one of those."
        )
    if not panels_shown():
        return None
    from analysis.probes.subjects import subjects

    if studied is None:  # no more examples than a panel keeps: drawing others would only delay it
        studied = subjects(samples={family.value: LIMITS[family][0] for family in Family})
    held = {name: bench(one, data) for name, one in studied.items()}
    held = {name: replace(one, title=_title(one)) for name, one in held.items()}
    known = {one.host.checkpoint.path.resolve() for one in held.values() if one.host.checkpoint is not None}
    others = [folder for folder in sorted(paths.CHECKPOINTS.glob("*-s*")) if folder.resolve() not in known]
    return Panel(question, {**held, **{str(folder): None for folder in others}}, data)


def _title(one: Bench) -> str:
    summary_ = one.host.checkpoint
    return one.title if summary_ is None else summary_.path.name
