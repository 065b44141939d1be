"""The paper's empirical contradictions to memorisation as edits of a trained host (section 4).

Each probe is a family of edits and one measurement. They edit a frozen model; the paper retrains for ascent and for Q -> K
(sections 4.2, 4.4), which is another experiment: there the checkpoint itself carries the edited loop.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from analysis.errors import InputError, ParameterError
from analysis.models.host import EditedHost, Host
from analysis.models.sites import Replace
from analysis.probes.measure import measure
from analysis.probes.task import Task
from analysis.records import Record, Store
from analysis.spec import Direction, QuerySource

AnyHost = Host | EditedHost
Records = tuple[Record, ...]


def evaluation(host: AnyHost, task: Task, *, store: Store | None = None) -> Records:
    """Measure a host as it is: the task metric, inner losses before and after the update, size of the update."""
    return measure("evaluation", host, task, store=store, command="probe evaluation")


def inner_steps(
    host: AnyHost,
    task: Task,
    steps: Sequence[int] | int = (1, 2, 3, 4, 6, 8),
    *,
    step_size: float = 1.0,
    store: Store | None = None,
) -> Records:
    """Sweep the number of inner steps at test time (section 4.1, Figure 1); zero steps, the frozen network, come first.

    `k` steps are k complete optimiser steps on the same chunk, the gradient evaluated anew at each. `step_size` multiplies
    every step after the transform. Column k=1 with step size 1 is the host as trained.

    Raises:
        ParameterError: no steps, or one below 1.
    """
    steps = [steps] if isinstance(steps, int) else steps
    if not isinstance(steps, Sequence) or not steps or not all(type(k) is int and k >= 1 for k in steps):
        raise ParameterError(
            f"steps must be integers of at least 1, received {steps!r}; zero steps are always measured as well."
        )
    is_number = isinstance(step_size, int | float) and not isinstance(step_size, bool)
    if not is_number or not math.isfinite(step_size) or step_size <= 0:
        raise ParameterError(
            f"step_size must be a positive number, received {step_size!r}; 1.0 leaves the step as trained."
        )
    command = f"probe steps --set steps={','.join(map(str, steps))}"
    rows: list[Record] = []
    for k in (0, *steps):
        edited = host.edit(lambda spec: spec.frozen()) if k == 0 else host.edit(steps=k, step_size=step_size)
        named = {"inner_steps": k, "step_size": step_size}
        rows += measure("inner steps", edited, task, parameters=named, store=store, command=command)
    return tuple(rows)


def gradient_ascent(host: AnyHost, task: Task, *, store: Store | None = None) -> Records:
    """Flip the sign of the inner update of a frozen host, beside the host as it is and with no update at all."""
    return _arms(
        "gradient ascent on the frozen model",
        host,
        task,
        {
            "as trained": lambda h: h,
            "ascent": lambda h: h.edit(lambda spec: spec.edit(direction=_opposite(spec.direction))),
            "no update": lambda h: h.edit(lambda spec: spec.frozen()),
        },
        store=store,
        command="probe ascent",
    )


def _opposite(direction: Direction) -> Direction:
    return Direction.DESCENT if direction is Direction.ASCENT else Direction.ASCENT


def query_to_key(host: AnyHost, task: Task, *, store: Store | None = None) -> Records:
    """Replace Q by K in the inner loop of a frozen host, with the same swap in its softmax attention as a control.

    The control runs where the host has softmax attention (LaCT): the window attention of the language model, the attention
    within a view of the view-synthesis model.
    """
    question = "query replaced by key on the frozen model"
    arms: dict[str, Callable[[AnyHost], AnyHost]] = {
        "as trained": lambda h: h,
        "query from key": lambda h: h.edit(query=QuerySource.KEY),
        "no update": lambda h: h.edit(lambda spec: spec.frozen()),
    }
    rows = _arms(question, host, task, arms, store=store, command="probe query_to_key")
    if any(site.endswith("attention.q") for site in host.sites()):
        rows += measure(
            question,
            host,
            task,
            parameters={"arm": "query from key in softmax attention"},
            replace={"layers.*.attention.q": _keys_for_queries},
            store=store,
            command="probe query_to_key",
        )
    return rows


def feeding(host: AnyHost, task: Task, *, store: Store | None = None) -> Records:
    """Feed the inner loop of a frozen host with wrong pairs: values of shuffled tokens, keys and values of another example.

    If the state carried nothing about the example, the pairs of another one would do as well as its own. Values are shuffled
    over the whole sequence: a language model is then fed values of later tokens too, view synthesis those of target views.
    """
    question = "wrong pairs for the inner loop of the frozen model"
    own = [site for site in host.sites() if "attention" not in site]
    keys, values = ([site for site in own if site.endswith(ending)] for ending in (".k", ".v"))
    foreign = dict.fromkeys([*keys, *values], _of_another_example)
    arms: dict[str, tuple[AnyHost, dict[str, Replace]]] = {
        "as trained": (host, {}),
        "no update": (host.edit(lambda spec: spec.frozen()), {}),
        "values of shuffled tokens": (host, dict.fromkeys(values, _shuffled_tokens)),
        "keys and values of another example": (host, foreign),
    }
    rows: list[Record] = []
    for name, (edited, replace) in arms.items():
        rows += measure(
            question,
            edited,
            task,
            parameters={"arm": name},
            replace=replace,
            store=store,
            command="probe feeding",
        )
    return tuple(rows)


def _of_another_example(tensor: Tensor, together: Mapping[str, Tensor]) -> Tensor:
    if len(tensor) < 2:
        raise InputError(
            "feeding another example needs batches of at least two, received one with a single example; ask for one sample "
            "more, or one fewer."
        )
    return tensor.roll(1, 0)


def _shuffled_tokens(tensor: Tensor, together: Mapping[str, Tensor]) -> Tensor:
    order = torch.randperm(tensor.shape[2], generator=torch.Generator().manual_seed(0))
    return tensor[:, :, order.to(tensor.device)]


def _keys_for_queries(query: Tensor, together: Mapping[str, Tensor]) -> Tensor:
    return together["k"]


def _arms(
    question: str,
    host: AnyHost,
    task: Task,
    arms: Mapping[str, Callable[[AnyHost], AnyHost]],
    **others: Any,
) -> Records:
    rows: list[Record] = []
    for name, change in arms.items():
        rows += measure(question, change(host), task, parameters={"arm": name}, **others)
    return tuple(rows)
