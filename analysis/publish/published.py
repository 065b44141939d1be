"""The numbers that the paper prints, as rows of kind "published"; they never share a column with ours unlabelled."""

from __future__ import annotations

from collections.abc import Iterable

from analysis.records import Record, published
from analysis.spec import Family

PAPER = "Liu et al., Test-Time Training with KV Binding Is Secretly Linear Attention"
METRIC = {
    Family.LACT_LM: ("perplexity", "per token"),
    Family.LACT_NVS: ("psnr", "dB"),
    Family.VITTT: ("top1", "%"),
}
DIFFERENCE = {
    Family.LACT_LM: "perplexity",
    Family.LACT_NVS: "dB",
    Family.VITTT: "percentage points",
}
"""What a difference of two values of the metric is counted in."""
_FAMILIES = (Family.LACT_LM, Family.LACT_NVS, Family.VITTT)

_TABLE_1 = {
    "baseline": (16.43, 25.94, 79.34),
    "ascent": (16.19, 25.85, 79.61),
    "q_is_k": (16.18, 25.95, 79.18),
}
_TABLE_2 = {
    "baseline": (16.43, 25.94, 79.34),
    "v1": (15.93, 25.97, 79.63),
    "v2": (16.31, 25.93, 79.63),
    "v3": (16.23, 25.71, 79.39),
    "v4": (16.12, 25.70, 79.39),
    "v5": (15.97, 25.70, 79.39),
    "v6": (16.80, 25.73, 79.54),
}
_SPEED = {
    "baseline": (4.30, None),
    "v1": (10.60, None),
    "v2": (11.02, 30.18),
    "v3": (12.95, 49.69),
    "v4": (13.31, 53.99),
    "v5": (14.40, 57.28),
    "v6": (89.67, 124.6),
}


def quantity(metric: str, value: float, unit: str) -> str:
    """Return a value of a metric as tables print it: perplexity is named, since "per token" names nothing."""
    return f"perplexity {value:.2f}" if metric == "perplexity" else f"{value:.2f} {unit}"


def printed(rows: Iterable[Record], family: Family, variant: str, than: str = "baseline") -> str:
    """Return what a table prints for two variants of a family as 'one against the other', with metric or unit."""
    values = {r.parameters["variant"]: r.value for r in rows if r.parameters["family"] == family.value}
    metric, unit = METRIC[family]
    pair = f"{values[variant]:.2f} against {values[than]:.2f}"
    return f"{metric} {pair}" if family is Family.LACT_LM else f"{pair} {unit}"


def _quality(table: dict[str, tuple[float, float, float]], name: str) -> list[Record]:
    return [
        published(
            "retrained",
            METRIC[family][0],
            value,
            source=f"{PAPER}, {name}",
            unit=METRIC[family][1],
            parameters={"family": family.value, "variant": variant},
        )
        for variant, values in table.items()
        for family, value in zip(_FAMILIES, values, strict=True)
    ]


def table_1() -> list[Record]:
    """Baseline, gradient ascent and Q replaced by K, retrained from scratch."""
    return _quality(_TABLE_1, "Table 1")


def table_2() -> list[Record]:
    """Quality of the baseline and Variants 1 to 6."""
    return _quality(_TABLE_2, "Table 2")


def table_2_speed() -> list[Record]:
    """Tokens per second of one layer, recurrent and parallel, in millions."""
    return [
        published(
            "throughput",
            "tokens_per_second",
            value,
            source=f"{PAPER}, Table 2",
            unit="million per second",
            parameters={"family": "lact_lm", "variant": variant, "form": form},
        )
        for variant, values in _SPEED.items()
        for form, value in zip(("recurrent", "parallel"), values, strict=True)
        if value is not None
    ]
