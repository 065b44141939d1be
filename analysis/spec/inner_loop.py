"""The inner loop as data: a frozen, hashable specification that every backend runs and every probe edits.

Per chunk c with keys K_c, values V_c and per-token rates (row vectors, weights [in, out]):

    G_c     = sum over tokens of eta_t grad L_t          (the rate sits inside the gradient)
    D_c     = G_c + alpha_c D_{c-1}                      (Theorem 3)
    W_{c+1} = norm(W_c -/+ step_size transform(D_c))     (minus for descent)

and the output is f_{c+1}(Q_c) (update, then apply) or f_c(Q_c) (apply, then update). An inner step is a complete
optimiser step; `steps` repeats it on the same chunk with the gradient taken anew at the current fast weights.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field, fields
from typing import Any, get_args

from analysis.errors import SpecError, closest
from analysis.spec import choices
from analysis.spec.choices import (
    ConstantRate,
    DotProduct,
    Identity,
    Loss,
    Momentum,
    Network,
    Rate,
    SwiGLU,
    Transform,
    WeightNorm,
)
from analysis.spec.enums import Direction, Order, QuerySource, Tail, Trained

_ALLOWED: dict[str, tuple[type, ...]] = {
    "network": get_args(Network),
    "loss": get_args(Loss),
    "direction": (Direction,),
    "order": (Order,),
    "trained": (Trained,),
    "lr": get_args(Rate),
    "momentum": (*get_args(Momentum), type(None)),
    "transform": get_args(Transform),
    "weight_norm": (WeightNorm, type(None)),
    "query": (QuerySource,),
    "tail": (Tail,),
}


@dataclass(frozen=True, kw_only=True)
class InnerLoop:
    """What an inner loop is, and nothing about how it is run; `chunk=None` means the whole sequence is one chunk.

    Raises:
        SpecError: a field has a value of the wrong type or outside its range.
    """

    network: Network = field(default_factory=SwiGLU)
    loss: Loss = field(default_factory=DotProduct)
    direction: Direction = Direction.DESCENT
    steps: int = 1
    chunk: int | None = None
    order: Order = Order.UPDATE_THEN_APPLY
    trained: Trained = Trained.ALL
    lr: Rate = field(default_factory=ConstantRate)
    momentum: Momentum | None = None
    transform: Transform = field(default_factory=Identity)
    step_size: float = 1.0
    weight_norm: WeightNorm | None = None
    query: QuerySource = QuerySource.QUERY
    tail: Tail = Tail.UPDATE

    def __post_init__(self) -> None:
        for name, allowed in _ALLOWED.items():
            value = getattr(self, name)
            if not isinstance(value, allowed):
                names = ", ".join("None" if kind is type(None) else kind.__name__ for kind in allowed)
                raise SpecError(
                    f"InnerLoop.{name} must be one of {names}, received {value!r}; pass one of those."
                )
            if dataclasses.is_dataclass(value):
                choices.require_kinds(value)
        _whole_number("steps", self.steps)
        if self.chunk is not None:
            _whole_number("chunk", self.chunk)
        choices.require_positive(self, "step_size", self.step_size)

    @property
    def moving(self) -> tuple[str, ...]:
        """Names of the fast weights that the inner loop changes."""
        if self.trained is Trained.NONE:
            return ()
        return (self.network.last,) if self.trained is Trained.LAST else self.network.fast_weights

    @property
    def rate_names(self) -> tuple[str, ...]:
        """Names under which per-token rates are expected among the inputs; empty for a constant rate."""
        if isinstance(self.lr, ConstantRate) or not self.moving:
            return ()
        return ("shared",) if self.lr.shared else self.moving

    @property
    def needs_momentum_input(self) -> bool:
        """Whether a per-token momentum tensor is expected among the inputs."""
        return isinstance(self.momentum, choices.PerTokenMomentum)

    def edit(self, **changes: Any) -> InnerLoop:
        """Return a copy with the named fields replaced; an unknown field name is refused with the nearest known one.

        Raises:
            SpecError: unknown field, or a value the field does not admit.
        """
        known = [item.name for item in fields(self)]
        for name in changes:
            if name not in known:
                raise SpecError(
                    f"InnerLoop has no field {name!r}{closest(name, known)}; known fields: {', '.join(known)}."
                )
        return dataclasses.replace(self, **changes)

    def frozen(self) -> InnerLoop:
        """Return the loop in which no fast weight moves: zero inner steps, the initial network is applied as it is."""
        return self.edit(trained=Trained.NONE)

    def _repr_html_(self) -> str:
        from analysis.spec.presentation import html_table

        return html_table(self)


def _whole_number(name: str, value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        hint = " (for zero steps use spec.frozen())" if name == "steps" else ""
        raise SpecError(
            f"InnerLoop.{name} must be an integer of at least 1, received {value!r}; choose 1 or more{hint}."
        )
