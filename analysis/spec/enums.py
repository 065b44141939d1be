"""The bare choices of an inner loop, as enums; the named coefficient schedules among them."""

from __future__ import annotations

from enum import Enum


class Direction(Enum):
    """Sign of the inner update: descent lowers the inner loss, ascent raises it (section 4.2)."""

    DESCENT = "descent"
    ASCENT = "ascent"


class Order(Enum):
    """Whether a chunk's queries read the state after its own update (theorems, ViTTT, LaCT-NVS) or before it (LaCT-LM)."""

    UPDATE_THEN_APPLY = "update_then_apply"
    APPLY_THEN_UPDATE = "apply_then_update"


class Trained(Enum):
    """Which fast weights the inner loop moves: all, only the last layer's (Variant 1), or none (frozen ablation)."""

    ALL = "all"
    LAST = "last"
    NONE = "none"


class QuerySource(Enum):
    """What the updated network is applied to: the queries, or the keys in their place (section 4.4)."""

    QUERY = "query"
    KEY = "key"


class Tail(Enum):
    """What the final chunk does: it updates like any other, or it is only applied, full or not (published LaCT-LM)."""

    UPDATE = "update"
    APPLY_ONLY = "apply_only"


class Reduction(Enum):
    """Whether the inner loss adds the tokens of a chunk or averages them (ViTTT)."""

    SUM = "sum"
    MEAN = "mean"


class Placement(Enum):
    """Where a rate acts: on each token inside the gradient (published LaCT) or on the transformed step (appendix H)."""

    INSIDE_GRADIENT = "inside_gradient"
    OUTSIDE_TRANSFORM = "outside_transform"


class NormMode(Enum):
    """Post-norm replaces the weights by their normalised copy (appendix E.4); pre-norm accumulates beside that copy."""

    POST = "post"
    PRE = "pre"


class Schedule(Enum):
    """Named coefficient schedules of the Newton-Schulz iteration: five distinct triples, or one triple five times."""

    LACT_LM = "lact_lm"
    LACT_NVS = "lact_nvs"

    @property
    def coefficients(self) -> tuple[tuple[float, float, float], ...]:
        """The (a, b, c) of each iteration X <- a X + (b A + c A A) X with A = X X^T."""
        return _COEFFICIENTS[self]


_COEFFICIENTS = {
    Schedule.LACT_LM: (
        (4.0848, -6.8946, 2.9270),
        (3.9505, -6.3029, 2.6377),
        (3.7418, -5.5913, 2.3037),
        (2.8769, -3.1427, 1.2046),
        (2.8366, -3.0525, 1.2012),
    ),
    Schedule.LACT_NVS: ((3.4445, -4.7750, 2.0315),) * 5,
}
