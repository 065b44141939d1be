"""The task metric of a host over many batches, with per-example values and a bootstrap interval over examples.

    language model    perplexity per token = exp(sum of nll / number of tokens); bits per byte when token sizes are given
    view synthesis    PSNR in dB, the mean over scenes of the mean over target views (never the PSNR of a mean error)
    classification    top-1 accuracy in percent

The interval says how much the value would move with other evaluation examples; it says nothing about other training seeds.
Examples count as independent. Scenes are resampled whole, with all their views; windows of one text are somewhat alike, so that
their interval is a little narrow.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

import torch
import torch.nn.functional as F
from torch import Tensor

from analysis.errors import InputError
from analysis.models.host import EditedHost, Host, unwrap
from analysis.spec import Family

AnyHost = Host | EditedHost


@dataclass(frozen=True)
class Estimate:
    """A value with the bounds of its 95 % bootstrap interval over examples."""

    value: float
    ci_low: float
    ci_high: float
    unit: str


@dataclass(frozen=True)
class Evaluation:
    """The task metric (`metric` names it), further ones beside it, and what they were formed from, per example.

    per_example: float64 tensors [N] (or [N, ...]) on the CPU, by the names of `host.metrics`. lower_is_better orders hosts.
    """

    metric: str
    value: float
    ci_low: float
    ci_high: float
    unit: str
    samples: int
    lower_is_better: bool
    definition: str
    per_example: Mapping[str, Tensor]
    others: Mapping[str, Estimate] = field(default_factory=dict)

    def mean_by_position(self) -> Tensor:
        """Mean negative log-likelihood in nats at each position of the sequence, [T] (language models)."""
        if "nll_by_position" not in self.per_example:
            raise InputError(
                "expected a language-model evaluation for losses by position, received another; evaluate one"
            )
        return self.per_example["nll_by_position"].nanmean(0)

    def _repr_html_(self) -> str:
        main = Estimate(self.value, self.ci_low, self.ci_high, self.unit)
        rows = "".join(
            f"<tr><th style='text-align:left'>{name.replace('_', ' ')}</th><td>{one.value:.4g}</td>"
            f"<td>{one.ci_low:.4g} to {one.ci_high:.4g}</td><td style='text-align:left'>{one.unit}</td></tr>"
            for name, one in {self.metric: main, **self.others}.items()
        )
        head = "".join(f"<th>{title}</th>" for title in ("metric", "value", "95 % interval", "unit"))
        note = f"{self.samples} examples" + (f"; {self.definition}" if self.definition else "")
        return f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table><p>{note}</p>"


def _as_it_is(value: Tensor) -> Tensor:
    return value


@dataclass(frozen=True)
class Metric:
    """A metric over examples: `finish` of a sum over another (`denominator` None counts examples).

    numerator, denominator: names among the `metrics` of a host; the numerator is called like the metric unless named.
    """

    name: str
    unit: str = ""
    numerator: str = ""
    denominator: str | None = None
    finish: Callable[[Tensor], Tensor] = _as_it_is
    definition: str = ""
    lower_is_better: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "numerator", self.numerator or self.name)


_METRICS: dict[Family, tuple[Metric, ...]] = {
    Family.LACT_LM: (
        Metric(
            "perplexity",
            "per token",
            "nll",
            "tokens",
            torch.exp,
            "exp of the summed negative log-likelihood over the number of scored tokens",
            True,
        ),
        Metric("loss", "nats per token", "nll", "tokens", lambda x: x),
        Metric("bits_per_byte", "bits per byte", "nll", "bytes", lambda x: x / math.log(2)),
    ),
    Family.LACT_NVS: (
        Metric(
            "psnr",
            "dB",
            "psnr",
            None,
            lambda x: x,
            "mean over scenes of the mean over target views of -10 log10(MSE), images clamped to 0..1, all pixels with the "
            "background of the data and no mask, in float32 or wider",
        ),
    ),
    Family.VITTT: (
        Metric(
            "top1",
            "%",
            "correct",
            None,
            lambda x: 100 * x,
            "share of images whose largest logit is the label's",
        ),
        Metric("loss", "nats per image", "cross_entropy", None, lambda x: x),
    ),
}


def evaluate(
    host: AnyHost,
    batches: Iterable[Mapping[str, Tensor]],
    limit: int | None = None,
    progress: Callable[[int], None] | None = None,
    *,
    token_bytes: Tensor | None = None,
    forward: Callable[[Mapping[str, Tensor]], Tensor] | None = None,
    resamples: int = 1000,
    seed: int = 0,
) -> Evaluation:
    """Run a host over batches and return its task metric.

    limit: stop after this many examples. progress: called with the number of examples done after each batch.
    token_bytes: [V] UTF-8 bytes of each token of the vocabulary, for bits per byte. forward: called in place of the host, for
    a caller that records sites on the way. resamples, seed: of the bootstrap.

    Raises `InputError` when there is no example to evaluate.
    """
    module = host.host if isinstance(host, EditedHost) else unwrap(host)
    was_training = module.training
    module.eval()
    try:
        per_example = _collect(host, forward or host, batches, limit, progress, token_bytes)
    finally:
        module.train(was_training)
    estimates = {
        metric.name: (metric, _estimate(metric, per_example, resamples, seed))
        for metric in module.task_metrics or _METRICS[module.family]
        if metric.denominator is None or metric.denominator in per_example
    }
    metric, main = next(iter(estimates.values()))
    return Evaluation(
        metric=metric.name,
        value=main.value,
        ci_low=main.ci_low,
        ci_high=main.ci_high,
        unit=main.unit,
        samples=per_example[metric.numerator].shape[0],
        lower_is_better=metric.lower_is_better,
        definition=metric.definition,
        per_example=per_example,
        others={name: estimate for name, (_, estimate) in estimates.items() if name != metric.name},
    )


@torch.no_grad()
def _collect(
    host: AnyHost,
    forward: Callable[[Mapping[str, Tensor]], Tensor],
    batches: Iterable[Mapping[str, Tensor]],
    limit: int | None,
    progress: Callable[[int], None] | None,
    token_bytes: Tensor | None,
) -> dict[str, Tensor]:
    device = next((host.host if isinstance(host, EditedHost) else host).parameters()).device
    columns: dict[str, list[Tensor]] = {}
    done = 0
    for batch in batches:
        if limit is not None and done >= limit:
            break
        size = next(iter(batch.values())).shape[0]
        kept = size if limit is None else min(size, limit - done)
        moved = {name: tensor[:kept].to(device) for name, tensor in batch.items()}
        if token_bytes is not None:
            moved["token_bytes"] = token_bytes.to(device)
        for name, values in unwrap(host).metrics(forward(moved), moved).items():
            columns.setdefault(name, []).append(values.double().cpu())
        done += kept
        if progress is not None:
            progress(done)
    if not done:
        raise InputError(
            "expected at least one batch to evaluate, received none; check the data and the limit"
        )
    return {name: _stacked(pieces) for name, pieces in columns.items()}


def _stacked(pieces: list[Tensor]) -> Tensor:
    """Concatenate over examples; sequences of different lengths are filled up with NaN."""
    if pieces[0].ndim < 2:
        return torch.cat(pieces)
    length = max(piece.shape[1] for piece in pieces)
    return torch.cat([F.pad(piece, (0, length - piece.shape[1]), value=math.nan) for piece in pieces])


def _estimate(metric: Metric, per_example: Mapping[str, Tensor], resamples: int, seed: int) -> Estimate:
    top = per_example[metric.numerator]
    bottom = torch.ones_like(top) if metric.denominator is None else per_example[metric.denominator]
    value = float(metric.finish(top.sum() / bottom.sum()))
    generator = torch.Generator().manual_seed(seed)
    draws = torch.empty(resamples, dtype=torch.float64)
    for i in range(resamples):
        chosen = torch.randint(len(top), (len(top),), generator=generator)
        draws[i] = metric.finish(top[chosen].sum() / bottom[chosen].sum())
    if not bool(torch.isfinite(draws).all()):
        return Estimate(value, math.nan, math.nan, metric.unit)
    low, high = torch.quantile(draws, torch.tensor([0.025, 0.975], dtype=torch.float64)).tolist()
    return Estimate(value, low, high, metric.unit)
