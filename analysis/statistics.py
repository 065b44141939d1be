"""How sure a number is: intervals over seeds, a bootstrap over samples, and a test for equivalence within a margin."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from analysis.errors import ParameterError

if TYPE_CHECKING:
    import numpy as np

    Values = Sequence[float] | np.ndarray[Any, np.dtype[np.floating[Any]]]


class Method(StrEnum):
    """How an interval is made."""

    T = "t"
    BOOTSTRAP = "bootstrap"


@dataclass(frozen=True)
class Interval:
    """A mean, its confidence interval, and what they were made from."""

    mean: float
    low: float
    high: float
    count: int
    confidence: float
    method: Method

    @property
    def fields(self) -> dict[str, float]:
        """The fields `value`, `ci_low` and `ci_high` of a record."""
        return {"value": self.mean, "ci_low": self.low, "ci_high": self.high}


@dataclass(frozen=True)
class Equivalence:
    """The outcome of two one-sided tests: the difference of means with its interval, and the larger p-value."""

    difference: float
    low: float
    high: float
    p_value: float
    margin: float
    alpha: float

    @property
    def equivalent(self) -> bool:
        """Whether the data exclude a difference as large as the margin, at level `alpha`."""
        return self.p_value < self.alpha


def interval(values: Values, method: str = "t", *, confidence: float = 0.95, seed: int = 0) -> Interval:
    """Return the mean with a confidence interval.

    't' is mean +/- t_{n-1} s / sqrt(n), right for a handful of seeds; 'bootstrap' resamples the values (BCa, 10,000
    draws with a fixed seed), right for many samples with a skewed distribution.

    Raises:
        ParameterError: fewer than two values, a non-finite value, an unknown method or confidence.
    """
    if method not in list(Method):
        raise ParameterError(f"method must be t or bootstrap, received {method!r}; pass one of those.")
    if not 0 < confidence < 1:
        raise ParameterError(
            f"confidence must lie between 0 and 1, received {confidence!r}; pass for example 0.95."
        )
    data = _sample("values", values)
    mean = float(data.mean())
    if float(data.min()) == float(data.max()):
        low = high = mean
    elif method == Method.T:
        low, high = _t_interval(data, confidence)
    else:
        low, high = _bootstrap(data, confidence, seed)
    return Interval(mean, low, high, len(data), confidence, Method(method))


def median_interval(samples: Sequence[float], confidence: float = 0.95) -> tuple[float | None, float | None]:
    """Return the order statistics that hold the median with at least this confidence, or nothing for too few samples.

    The number of samples below the median is binomial with chance one half, whatever the distribution.
    """
    ordered, count = sorted(samples), len(samples)
    below = 0.0
    rank = None
    for index in range(count // 2):
        below += math.comb(count, index) / 2**count
        if 2 * below > 1 - confidence:
            break
        rank = index
    return (None, None) if rank is None else (ordered[rank], ordered[count - 1 - rank])


def tost(a: Values, b: Values, margin: float, *, alpha: float = 0.05) -> Equivalence:
    """Test whether the means of `a` and `b` differ by less than `margin`: two one-sided Welch tests.

    The p-value is the larger of the two; the interval is the one at confidence 1 - 2 alpha, which lies within
    (-margin, margin) exactly when the test calls the two equivalent.

    Raises:
        ParameterError: fewer than two values on a side, a non-finite value, or a margin or level out of range.
    """
    if not (math.isfinite(margin) and margin > 0):
        raise ParameterError(
            f"margin must be positive, received {margin!r}; pass the largest difference that is harmless."
        )
    if not 0 < alpha < 0.5:
        raise ParameterError(f"alpha must lie between 0 and 0.5, received {alpha!r}; pass for example 0.05.")
    left, right = _sample("a", a), _sample("b", b)
    difference = float(left.mean() - right.mean())
    variances = [float(side.var(ddof=1)) / len(side) for side in (left, right)]
    error = math.sqrt(sum(variances))
    if error == 0:
        p_value = 0.0 if abs(difference) < margin else 1.0
        return Equivalence(difference, difference, difference, p_value, margin, alpha)
    from scipy import stats

    # Welch-Satterthwaite: the two sides need not have the same spread
    freedom = sum(variances) ** 2 / sum(
        v**2 / (len(s) - 1) for v, s in zip(variances, (left, right), strict=True)
    )
    p_value = float(stats.t.sf((margin - abs(difference)) / error, freedom))
    half = float(stats.t.ppf(1 - alpha, freedom)) * error
    return Equivalence(difference, difference - half, difference + half, p_value, margin, alpha)


def _t_interval(data: Any, confidence: float) -> tuple[float, float]:
    from scipy import stats

    half = float(stats.t.ppf((1 + confidence) / 2, len(data) - 1) * data.std(ddof=1) / math.sqrt(len(data)))
    return float(data.mean()) - half, float(data.mean()) + half


def _bootstrap(data: Any, confidence: float, seed: int) -> tuple[float, float]:
    import numpy as np
    from scipy import stats

    found = stats.bootstrap(
        (data,),
        np.mean,
        confidence_level=confidence,
        n_resamples=10_000,
        batch=500,
        rng=np.random.default_rng(seed),
    )
    return float(found.confidence_interval.low), float(found.confidence_interval.high)


def _sample(name: str, values: Values) -> Any:
    import numpy as np

    try:
        data = np.asarray(values, dtype=np.float64).ravel()
    except (TypeError, ValueError) as error:
        raise ParameterError(
            f"{name} must be numbers, received {values!r:.80}; pass a list of them."
        ) from error
    if len(data) < 2:
        raise ParameterError(
            f"{name} must hold at least two values, received {len(data)}; add seeds or samples."
        )
    if not np.isfinite(data).all():
        raise ParameterError(
            f"{name} must be finite, received {int((~np.isfinite(data)).sum())} other(s); drop or report them."
        )
    return data
