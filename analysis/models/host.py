"""What every host offers: one call protocol, named sites, edits of the inner loop that never touch the module.

Protocol (probes and the trainer rely on it, and on nothing else):

    output  = host(batch, loops=None, tape=None)   one forward pass; `loops` overrides the trained inner loops
    scalar  = host.loss(output, batch)             the outer loss
    metrics = host.metrics(output, batch)          dict of tensors with one entry per example
    edited  = host.edit(steps=4)                   the same host with other inner loops, same protocol
    names   = host.sites()                         what a Tape may record or replace

`host.loops` are the inner loops as trained and never change. A host wrapped by `torch.compile` is unwrapped with
`unwrap(host)` before sites are recorded.
"""

from __future__ import annotations

import dataclasses
import html
import textwrap
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from torch import Tensor, nn

from analysis.errors import InputError, UnsupportedSpecError, closest
from analysis.models.inner_call import LOOP_SITES, Call
from analysis.models.sites import SILENT, Scope, Tape
from analysis.spec import Family, InnerLoop, Loops, PerTokenRate, describe, difference_text
from analysis.spec.presentation import html_difference, html_table

Change = Callable[[InnerLoop], InnerLoop] | Mapping[str, InnerLoop]


def unwrap(host: Any) -> Any:
    """Return the host inside `torch.compile` and data-parallel wrappers (`_orig_mod`, `module`)."""
    while True:
        inner = getattr(host, "_orig_mod", None) or getattr(host, "module", None)
        if inner is None:
            return host
        host = inner


class Host(nn.Module):
    """A trained model around inner loops; subclasses supply `compute`, `loss`, `metrics` and `initial_weights`.

    family: which published architecture. config: frozen dataclass with the published field names. loops: the inner
    loops as trained, by name. backend, options: how inner loops are executed (handed to `analysis.inner.run`; never part
    of the specification). notes: what the loader found worth telling. checkpoint: the loader's `CheckpointSummary`
    (digest, provenance), None for a host that was not loaded. task_metrics: what `evaluation` forms from `metrics` where the
    host is of no published family; empty takes those of the family.
    """

    family: ClassVar[Family]

    def __init__(self, config: Any, loops: Loops) -> None:
        super().__init__()
        self.config = config
        self.loops: Loops = dict(loops)
        self.backend = "auto"
        self.options: dict[str, Any] = {}
        self.notes: list[str] = []
        self.checkpoint: Any = None
        self.task_metrics: tuple[Any, ...] = ()

    def forward(
        self, batch: Mapping[str, Tensor], loops: Loops | None = None, tape: Tape | None = None
    ) -> Tensor:
        """Run one batch with the trained inner loops, or with `loops`; `tape` records or replaces named sites.

        Raises `InputError` for a malformed batch, an unknown loop or site, `UnsupportedSpecError` for loops that need
        other parameters than this host has.
        """
        if not isinstance(batch, Mapping) or not all(isinstance(value, Tensor) for value in batch.values()):
            raise InputError(
                f"expected a batch as a mapping of names to tensors, received {_kinds(batch)}; see the batch of this family"
            )
        run_loops = self.loops if loops is None else self.resolve(loops)
        if tape is None:
            return self.compute(batch, Call(run_loops, Scope(SILENT), self.backend, self.options))
        tape.open(self.sites())
        output = self.compute(batch, Call(run_loops, Scope(tape), self.backend, self.options))
        tape.close()
        return output

    def compute(self, batch: Mapping[str, Tensor], call: Call) -> Tensor:
        """The forward pass of a family."""
        raise NotImplementedError

    def loss(self, output: Tensor, batch: Mapping[str, Tensor]) -> Tensor:
        """The outer loss, a scalar."""
        raise NotImplementedError

    def metrics(self, output: Tensor, batch: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Quantities with one entry per example, from which `evaluation` forms the task metric."""
        raise NotImplementedError

    def initial_weights(self, layer: int) -> dict[str, dict[str, Tensor]]:
        """Initial fast weights of a layer: loop name -> weight name -> [heads, in, out] (row vectors)."""
        raise NotImplementedError

    @property
    def num_layers(self) -> int:
        """Number of layers that hold inner loops, numbered from 0 in the site names."""
        raise NotImplementedError

    def tied_names(self) -> tuple[str, ...]:
        """Names in the state dict that share their tensor with another name; not stored in checkpoints."""
        return ()

    def tie(self) -> None:
        """Join the tied parameters again after tensors were assigned."""

    @property
    def trained_loops(self) -> Loops:
        """The inner loops as trained (the same name as on an edited host)."""
        return self.loops

    def num_parameters(self, trainable_only: bool = False) -> int:
        """Number of parameters; tied ones count once."""
        return sum(p.numel() for p in self.parameters() if p.requires_grad or not trainable_only)

    def loop_prefix(self, name: str) -> str:
        """What stands between `layers.I.` and the sites of a loop; empty for hosts with a single loop."""
        return f"{name}." if len(self.loops) > 1 else ""

    def layer_sites(self) -> tuple[str, ...]:
        """Site names of one layer that the family adds to those of its inner loops."""
        return ()

    def sites(self) -> tuple[str, ...]:
        """All names that a tape may record or replace."""
        per_layer = [self.loop_prefix(loop) + site for loop in self.loops for site in LOOP_SITES]
        per_layer.extend(self.layer_sites())
        return tuple(f"layers.{i}.{site}" for i in range(self.num_layers) for site in per_layer)

    def resolve(self, loops: Loops) -> Loops:
        """Complete `loops` with the trained ones and check that this host has the parameters they need."""
        if not isinstance(loops, Mapping) or not all(isinstance(loop, InnerLoop) for loop in loops.values()):
            raise InputError(
                f"expected loops as a mapping of names to InnerLoop, received {_kinds(loops)}; edit host.loops"
            )
        for name in loops:
            if name not in self.loops:
                known = ", ".join(self.loops) or "none"
                raise InputError(
                    f"expected loops among {known}, received {name!r}{closest(name, self.loops)}; name a loop of this host"
                )
        run_loops = {name: loops.get(name, trained) for name, trained in self.loops.items()}
        for name, run in run_loops.items():
            check_runnable(self.loops[name], run)
        return run_loops

    def edit(self, change: Change | None = None, *, only: str | None = None, **fields: Any) -> EditedHost:
        """Return this host with other inner loops; the module and its parameters stay as they are.

        change: a function `InnerLoop -> InnerLoop`, or loops by name. fields: replacements as in
        `dataclasses.replace` (`steps=4`). only: apply to this loop alone; without it every loop is edited.
        """
        return EditedHost(self, dict(self.loops)).edit(change, only=only, **fields)

    def __str__(self) -> str:
        """Return family, checkpoint, size and the inner loops by name; `repr` stays the tree of modules."""
        name = "" if self.checkpoint is None else f" {self.checkpoint.path.name}"
        loops = [
            textwrap.fill(
                f"inner loop {name}: {describe(loop)}", 100, initial_indent="  ", subsequent_indent="    "
            )
            for name, loop in self.loops.items()
        ] or ["  no inner loop"]
        return "\n".join([f"{self.family.title}{name}, {self.num_parameters():,} parameters", *loops])

    def _repr_html_(self) -> str:
        loops = "".join(
            f"<details><summary>inner loop <code>{name}</code> as trained</summary>{html_table(loop)}</details>"
            for name, loop in self.loops.items()
        )
        return f"<p>{self.heading()}</p>{loops or '<p>No inner loop.</p>'}"

    def heading(self) -> str:
        """Family, checkpoint and size in one line of HTML."""
        name = "" if self.checkpoint is None else f", <code>{html.escape(self.checkpoint.path.name)}</code>"
        return f"<b>{self.family.title}</b>{name}, {self.num_parameters():,} parameters"


@dataclasses.dataclass(frozen=True, repr=False)
class EditedHost:
    """A host run with other inner loops than it was trained with; the same call protocol as `Host`."""

    host: Host
    loops: Loops

    @property
    def family(self) -> Family:
        """The family of the host."""
        return self.host.family

    @property
    def config(self) -> Any:
        """The configuration of the host."""
        return self.host.config

    @property
    def trained_loops(self) -> Loops:
        """The inner loops as trained."""
        return self.host.loops

    @property
    def num_layers(self) -> int:
        """Number of layers that hold inner loops."""
        return self.host.num_layers

    def __call__(
        self, batch: Mapping[str, Tensor], loops: Loops | None = None, tape: Tape | None = None
    ) -> Tensor:
        """Run one batch with the edited loops (`loops` overrides them again)."""
        return self.host(batch, loops={**self.loops, **(loops or {})}, tape=tape)

    def loss(self, output: Tensor, batch: Mapping[str, Tensor]) -> Tensor:
        """The outer loss, a scalar."""
        return self.host.loss(output, batch)

    def metrics(self, output: Tensor, batch: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Quantities with one entry per example."""
        return self.host.metrics(output, batch)

    def initial_weights(self, layer: int) -> dict[str, dict[str, Tensor]]:
        """Initial fast weights of a layer."""
        return self.host.initial_weights(layer)

    def sites(self) -> tuple[str, ...]:
        """All names that a tape may record or replace."""
        return self.host.sites()

    def edit(self, change: Change | None = None, *, only: str | None = None, **fields: Any) -> EditedHost:
        """Return the host with a further edit on top of this one."""
        if not self.loops:
            raise InputError(
                "expected a host with an inner loop to edit, received one without; load another checkpoint"
            )
        if only is not None and only not in self.loops:
            raise InputError(
                f"expected one of the loops {', '.join(self.loops)}, received {only!r}{closest(only, self.loops)}"
            )
        if not (change is None or callable(change) or isinstance(change, Mapping)):
            raise InputError(
                f"expected a function of an InnerLoop or loops by name, received {type(change).__name__}; pass steps=4 by name"
            )
        if isinstance(change, Mapping):
            return EditedHost(self.host, self.host.resolve({**self.loops, **change}))
        loops = dict(self.loops)
        for name in (only,) if only is not None else tuple(loops):
            edited = loops[name] if change is None else change(loops[name])
            loops[name] = edited.edit(**fields) if isinstance(edited, InnerLoop) else edited
        return EditedHost(self.host, self.host.resolve(loops))

    def difference(self) -> str:
        """What the run loops change against the trained ones, in one line."""
        return difference_text(self.trained_loops, self.loops)

    def __repr__(self) -> str:
        name = "" if self.host.checkpoint is None else f" {self.host.checkpoint.path.name}"
        return f"{self.family.title}{name}, run with {self.difference()}"

    def _repr_html_(self) -> str:
        return f"<p>{self.host.heading()}; edited:</p>{html_difference(self.trained_loops, self.loops)}"


def _kinds(value: Any) -> str:
    """Name what came in place of a mapping: its type, with the types it holds."""
    name = type(value).__name__
    if not isinstance(value, Mapping):
        return name
    return f"{name} of {', '.join(sorted({type(item).__name__ for item in value.values()})) or 'nothing'}"


def check_runnable(trained: InnerLoop, run: InnerLoop) -> None:
    """Raise `UnsupportedSpecError` when `run` needs parameters that a host trained with `trained` does not have."""
    # projections of a loop that was frozen in training do not exist, and a frozen run needs none
    had, needs = bool(trained.moving), bool(run.moving)
    rates = trained.lr if had and isinstance(trained.lr, PerTokenRate) else None
    same_rates = not (needs and isinstance(run.lr, PerTokenRate)) or (
        rates is not None and rates.shared == run.lr.shared
    )
    has_momentum = (had and trained.needs_momentum_input) or not (needs and run.needs_momentum_input)
    for field, runnable in (
        ("network", run.network == trained.network),
        ("lr", same_rates),
        ("momentum", has_momentum),
    ):
        if not runnable:
            raise UnsupportedSpecError(
                f"expected an edit that keeps the parameters of the host, received {field} = "
                f"{describe(getattr(run, field))} where {describe(getattr(trained, field))} was trained; "
                f"train a checkpoint with this {field} instead"
            )
