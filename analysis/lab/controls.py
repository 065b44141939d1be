"""The widgets of a panel, and their state as a `Choice`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import ipywidgets as w

from analysis.lab.edits import Choice, runnable_rungs
from analysis.lab.examples import Bench
from analysis.spec import RUNGS, Direction, Family, QuerySource

MAX_STEPS = 8
_LABEL = {"description_width": "7.5em"}
_WIDE = {"width": "24em"}


def _slider(description: str, low: int, value: int, high: int, tooltip: str) -> Any:
    return w.IntSlider(
        value=value, min=low, max=high, description=description, continuous_update=False, style=_LABEL,
        layout=w.Layout(**_WIDE), tooltip=tooltip, disabled=high <= low,
    )  # fmt: skip


class RungChooser:
    """One button a rung, of which one is down; a rung that the host cannot run is greyed, and a line below says why."""

    def __init__(self, changed: Callable[[], None]) -> None:
        self._changed, self._quiet = changed, False
        self.value = RUNGS[0].key
        self.buttons = {
            rung.key: w.ToggleButton(
                value=rung.key == self.value, description=rung.name.replace("Variant ", "V"),
                layout=w.Layout(width="5.6em" if rung.key == RUNGS[0].key else "2.9em", margin="1px", padding="0 2px"),
            )
            for rung in RUNGS
        }  # fmt: skip
        for key, button in self.buttons.items():
            button.observe(lambda change, key=key: self._pressed(key), "value")
        self.reason = w.HTML()
        row = w.Box(list(self.buttons.values()), layout=w.Layout(flex_flow="row wrap", width="26em"))
        self.box = w.VBox([w.Label("Ladder rung"), row, self.reason])

    def _pressed(self, key: str) -> None:
        if not self._quiet:
            self.choose(key)
            self._changed()

    def choose(self, key: str) -> None:
        """Put one rung down and the others up, without telling anyone."""
        self.value, self._quiet = key, True
        for name, button in self.buttons.items():
            button.value = name == key
        self._quiet = False

    def offer(self, why_not: Mapping[str, str]) -> None:
        """Grey the rungs that cannot be run and say why."""
        for rung in RUNGS:
            button, reason = self.buttons[rung.key], why_not[rung.key]
            button.disabled = bool(reason)
            button.tooltip = reason or f"{rung.name}: without {rung.removes} (section {rung.section})"
        refused = [rung for rung in RUNGS if why_not[rung.key]]
        text = ""
        if refused:
            names = refused[0].name if len(refused) == 1 else f"{refused[0].name} and later rungs"
            text = f"{names} greyed: {why_not[refused[0].key]}"
        self.reason.value = f'<div style="font-size:11px;line-height:1.35;max-width:38em">{text}</div>'
        if why_not[self.value]:
            self.choose(RUNGS[0].key)


class Controls:
    """All controls of a panel; `changed` is called when one of them moves, `opened` when a checkpoint path is entered."""

    def __init__(
        self, names: Mapping[str, str], changed: Callable[[], None], opened: Callable[[str], None]
    ) -> None:
        self._changed, self._quiet = changed, False
        self.subject = w.Dropdown(
            options=[(title, name) for name, title in names.items()],
            description="Checkpoint",
            style=_LABEL,
            layout=w.Layout(**_WIDE),
        )
        self.path = w.Text(
            placeholder="path of your own, then Enter", description="or path", continuous_update=False, style=_LABEL,
            layout=w.Layout(**_WIDE),
        )  # fmt: skip
        self.steps = _slider(
            "Inner steps", 0, 1, MAX_STEPS, "Inner steps per chunk; 0 applies the initial fast weights"
        )
        self.direction = self._toggles(
            "Direction", [("descent", Direction.DESCENT), ("ascent", Direction.ASCENT)]
        )
        self.query = self._toggles("Query source", [("query", QuerySource.QUERY), ("key", QuerySource.KEY)])
        self.rungs = RungChooser(self._moved)
        self.samples = _slider("Samples", 1, 1, 2, "Evaluated examples")
        self.example = _slider("Example", 0, 0, 1, "Which example is shown")
        self.token = _slider("Token", 0, 0, 1, "Which token of the text is read out; 0 is none")
        self.loop = w.Dropdown(description="Inner loop", style=_LABEL, layout=w.Layout(**_WIDE))
        self.layer = _slider("Layer", 0, 0, 1, "Layer of the attention map")
        self.head = _slider("Head", 0, 0, 1, "Head of the attention map")
        self.colour = self._toggles("Colour", [("loss", "loss"), ("change", "change")])
        self.reset = w.Button(
            description="As trained", tooltip="Undo every edit", layout=w.Layout(width="auto")
        )
        self.reset.on_click(lambda _: self._undo())
        sliders = (self.steps, self.samples, self.example, self.token, self.layer, self.head)
        for one in (*sliders, self.loop, self.subject):
            one.observe(lambda _: self._moved(), "value")
        self.path.observe(
            lambda change: opened(change["new"].strip()) if change["new"].strip() else None, "value"
        )
        self._trained_steps, self._trained_direction, self._trained_query = (
            1,
            Direction.DESCENT,
            QuerySource.QUERY,
        )

    def _toggles(self, description: str, options: list[tuple[str, Any]]) -> Any:
        made = w.ToggleButtons(
            options=options, description=description, style={**_LABEL, "button_width": "6em"}
        )
        made.observe(lambda _: self._moved(), "value")
        return made

    def _moved(self) -> None:
        if not self._quiet:
            self._changed()

    @contextmanager
    def quiet(self) -> Iterator[None]:
        """Change controls without a request for each of them."""
        self._quiet = True
        try:
            yield
        finally:
            self._quiet = False

    def _undo(self) -> None:
        with self.quiet():
            self._as_trained()
        self._moved()

    def _as_trained(self) -> None:
        self.rungs.choose(RUNGS[0].key)
        self.steps.value, self.direction.value, self.query.value = (
            self._trained_steps,
            self._trained_direction,
            self._trained_query,
        )

    def fit(self, bench: Bench) -> None:
        """Give every control the range that a host has, with the host as trained."""
        loops = bench.host.loops
        with self.quiet():
            first = next(iter(loops.values()), None)
            if first is not None:
                self._trained_steps = first.steps if first.moving else 0
                self._trained_direction, self._trained_query = first.direction, first.query
            self.steps.max = max(MAX_STEPS, self._trained_steps)
            self._as_trained()
            self.rungs.offer(runnable_rungs(bench.host))
            most, start, _ = bench.limits
            _range(self.samples, 1, most, start)
            _range(self.example, 0, bench.size - 1, 0)
            self.loop.options = list(loops)
            self.loop.value = next(iter(loops), None)  # setting options alone leaves nothing chosen
            self.loop.layout.display = None if len(loops) > 1 else "none"
            _range(self.layer, 0, bench.host.num_layers - 1, 0)
            self.fit_heads(bench)
            self.query.disabled = not loops
            for one in (self.steps, self.direction):  # no step and no sign where nothing moves
                one.disabled = not any(loop.moving for loop in loops.values())
            _range(self.token, 0, bench.tokens, 0)
            for one in (self.token, self.colour):
                one.layout.display = None if bench.host.family is Family.LACT_LM else "none"

    def fit_heads(self, bench: Bench) -> None:
        """Give the head control the heads that the chosen loop and layer have."""
        loops = bench.host.initial_weights(self.layer.value)
        weights = next(iter(loops.get(self.loop.value, {}).values()), None)
        heads = 1 if weights is None else weights.shape[0]
        with self.quiet():
            _range(self.head, 0, heads - 1, min(self.head.value, heads - 1))

    def choice(self) -> Choice:
        """Return the state of the controls; a control at its trained value edits nothing."""

        def edited(control: Any, trained: Any) -> Any:
            return None if control.value == trained else control.value

        return Choice(
            subject=self.subject.value,
            samples=self.samples.value,
            example=self.example.value,
            rung=self.rungs.value,
            steps=edited(self.steps, self._trained_steps),
            direction=edited(self.direction, self._trained_direction),
            query=edited(self.query, self._trained_query),
            loop=self.loop.value or "",
            layer=self.layer.value,
            head=self.head.value,
            token=self.token.value,
            colour=self.colour.value,
        )


def _range(slider: Any, low: int, high: int, value: int) -> None:
    """Set the ends of a slider and its value, in an order in which value never lies outside."""
    high = max(high, low)
    slider.min, slider.max = min(low, slider.min), max(high, slider.max)
    slider.value = value
    slider.min, slider.max = low, high
    slider.disabled = high == low
