"""What the recorded times say: speeds by rung, ratios with intervals, and how both compare with the paper's Table 2."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from analysis import paths
from analysis.errors import ParameterError
from analysis.publish import published
from analysis.records import Record, Store, select
from analysis.spec import RUNGS
from analysis.statistics import median_interval

KERNELS, COMPILED = "triton", "torch.compile"
STANDARD = {"tokens": 32768, "chunk": 2048, "width": 384, "heads": 4, "batch": 1, "dtype": "bfloat16"}
"""The shape of the paper's layer, at which the ladder is measured."""
REDUCIBLE = ("v2", "v3", "v4", "v5", "v6")
FORMS = ("recurrent", "parallel")
RUNG_NAMES = {rung.key: rung.name.replace(" ", "\u00a0") for rung in RUNGS}
"""Names of rungs that do not break across lines in a narrow column of a table."""
TRAINED = ("baseline", "v2")
"""The two variants of Figure 4."""


@dataclass(frozen=True)
class Ratio:
    """How many times as fast: the median over pairs of calls, with its interval where there are enough."""

    value: float
    low: float | None
    high: float | None

    @property
    def is_above_one(self) -> bool | None:
        """Whether the whole interval lies above one (True) or below (False); None where it includes one or is missing."""
        if self.low is None or self.high is None or self.low <= 1 <= self.high:
            return None
        return self.low > 1

    def __str__(self) -> str:
        if self.low is None or self.high is None:
            return f"{self.value:.2f}"
        return f"{self.value:.2f} [{self.low:.2f}, {self.high:.2f}]"


def ratio(slow: Record, fast: Record) -> Ratio:
    """Return how many times as fast `fast` is as `slow`, from the samples of both.

    Pairs of calls that were made in turn share whatever disturbed them; pairs of separate runs are pairs of independent draws.
    """
    pairs = list(zip(slow.extra["samples"], fast.extra["samples"], strict=False))
    ratios = [before / after for before, after in pairs]
    return Ratio(median(ratios), *median_interval(ratios))


def recorded(folder: Path | str = "") -> list[Record]:
    """Return the shipped records, or the times of another folder beside the shipped training runs (for their loss curves).

    Raises:
        ParameterError: there is no such folder.
        RecordError: a record is damaged.
    """
    if not folder:
        return list(Store(paths.RECORDS))
    if not Path(folder).is_dir():
        raise ParameterError(
            f"records expects a folder of recorded times, received {str(folder)!r}, which is none; pass the one that "
            "`make bench` names."
        )
    return [*Store(folder), *select(Store(paths.RECORDS), question="retrained")]


def standard_shape() -> str:
    """Return the shape of the paper's layer in words."""
    where = STANDARD
    return (
        f"batch {where['batch']}, {where['heads']} heads of {where['width']}, {where['tokens']:,} tokens, "
        f"chunks of {where['chunk']:,}, {where['dtype']}"
    )


def kernel_times(records: Iterable[Record], **where: Any) -> list[Record]:
    """Return the times of the kernels with these parameters, of the device that has most of them."""
    asked = {"implementation": KERNELS, "passes": "forward", "issuing": "hidden", **where}
    found = select(records, question="throughput", kind="measured", parameters=asked)
    counts = Counter(record.device for record in found)
    if not counts:
        return []
    device = counts.most_common(1)[0][0]
    return [record for record in found if record.device == device]


def one_time(records: Iterable[Record], variant: str, form: str) -> Record | None:
    """Return the time of a rung in a form among these, or None."""
    found = select(records, parameters={"variant": variant, "form": form})
    return found[0] if found else None


def rival(records: Iterable[Record], ours: Record, implementation: str) -> Record | None:
    """Return another implementation's time on the same case and device, or None."""
    where = {**ours.parameters, "implementation": implementation}
    found = select(records, question="throughput", device=ours.device, parameters=where)
    return found[0] if found else None


def speed(record: Record) -> float:
    """Return the million tokens per second of a time in milliseconds."""
    where = record.parameters
    return float(where["batch"] * where["tokens"] / record.value / 1e3)


def ratios(records: Sequence[Record]) -> dict[str, Ratio]:
    """Return recurrent over parallel time of every reducible rung that has both among these times."""
    found = {}
    for rung in REDUCIBLE:
        slow, fast = (one_time(records, rung, form) for form in FORMS)
        if slow is not None and fast is not None:
            found[rung] = ratio(slow, fast)
    return found


def by_shape(records: Iterable[Record]) -> dict[str, list[Record]]:
    """Return times by the shape of their layer in words, in the order measured."""
    found: dict[str, list[Record]] = {}
    for record in records:
        where, threads = record.parameters, record.extra.get("threads")
        shape = f"{where['heads']} heads of {where['width']}, {where['tokens']:,} tokens in chunks of {where['chunk']:,}"
        if where["batch"] > 1:
            shape = f"{where['batch']} sequences at once, {shape}"
        if threads:
            shape += f", {threads} thread{'s' if threads > 1 else ''}"
        found.setdefault(shape, []).append(record)
    return found


def processor_table(live: Sequence[Record]) -> Any:
    """Return the times of both forms on a processor and their ratio, a row for each shape and rung."""
    rows = [
        {
            "shape": shape,
            "rung": RUNG_NAMES[rung],
            **{
                f"{form}, fastest (ms)": f"{_both(times, rung)[form].extra['fastest_ms']:.2f}"
                for form in FORMS
            },
            "times as fast in parallel form": str(found),
            "largest error": f"{max(one.extra['errors']['outputs'] for one in _both(times, rung).values()):.1e}",
        }
        for shape, times in by_shape(live).items()
        for rung, found in ratios(times).items()
    ]
    return as_table(rows, ("shape", "rung"))


def _both(times: Sequence[Record], rung: str) -> dict[str, Record]:
    return {r.parameters["form"]: r for r in select(times, parameters={"variant": rung})}


def behind(records: Sequence[Record], other: str, factor: float) -> list[Record]:
    """Return the forward times in parallel form that are less than `factor` times as fast as another implementation."""
    pairs = [
        (ours, rival(records, ours, other))
        for ours in in_order(records, "forward")
        if ours.parameters["form"] == "parallel"
    ]
    return [ours for ours, theirs in pairs if theirs is not None and ratio(theirs, ours).value < factor]


def published_ratios() -> dict[str, float]:
    """Return the same ratios as the paper's Table 2 has them."""
    printed = {(r.parameters["variant"], r.parameters["form"]): r.value for r in published.table_2_speed()}
    return {rung: printed[rung, "parallel"] / printed[rung, "recurrent"] for rung in REDUCIBLE}


def training_steps(records: Iterable[Record]) -> dict[str, Record]:
    """Return the times of a training step by variant, of one device that has both baseline and Variant 2, or nothing."""
    steps = select(records, question="training step", kind="measured")
    for device in dict.fromkeys(record.device for record in steps):
        mine = {r.parameters["variant"]: r for r in steps if r.device == device}
        if set(TRAINED) <= set(mine):
            return {variant: mine[variant] for variant in TRAINED}
    return {}


def speed_table(records: Sequence[Record]) -> Any:
    """Return Table 2's speed columns as a table: ours, and apart from them the paper's, labelled published."""
    import pandas as pd

    times = kernel_times(records, **STANDARD)
    printed = {(r.parameters["variant"], r.parameters["form"]): r.value for r in published.table_2_speed()}
    mine, theirs = ratios(times), published_ratios()
    rows = []
    for rung in RUNGS:
        row = {"rung": RUNG_NAMES[rung.key]}
        for form in FORMS:
            found = one_time(times, rung.key, form)
            missing = "not measured yet" if (rung.key, form) in printed else "no such form"
            row[form] = missing if found is None else f"{speed(found):.2f}"
        row["ratio"] = str(mine[rung.key]) if rung.key in mine else ""
        row["ratio, published"] = f"{theirs[rung.key]:.1f}" if rung.key in theirs else ""
        for form in FORMS:
            value = printed.get((rung.key, form))
            row[f"{form}, published"] = "" if value is None else f"{value:.2f}"
        rows.append(row)
    return pd.DataFrame(rows).set_index("rung")


def comparison_table(records: Sequence[Record], passes: str = "forward") -> Any:
    """Return every time at the standard shape with its floor, its memory, and the ratio to what it is compared with.

    None without any such time.
    """
    return as_table([_compared(records, found) for found in in_order(records, passes)])


def in_order(records: Sequence[Record], passes: str) -> list[Record]:
    """Return the kernels' times at the standard shape in the order of the ladder."""
    times = kernel_times(records, **STANDARD, passes=passes)
    found = (one_time(times, rung.key, form) for rung in RUNGS for form in FORMS)
    return [record for record in found if record is not None]


def as_table(rows: Sequence[dict[str, str]], index: Sequence[str] = ("rung", "form")) -> Any:
    """Return rows as a table without its empty columns; None without rows."""
    import pandas as pd

    if not rows:
        return None
    table = pd.DataFrame(rows).set_index(list(index))
    return table.loc[:, (table != "").any()]


def _compared(records: Sequence[Record], ours: Record) -> dict[str, str]:
    extra = ours.extra
    row = {
        "rung": RUNG_NAMES[ours.parameters["variant"]],
        "form": ours.parameters["form"],
        "ms": f"{ours.value:.3f}",
        "floor (ms)": f"{extra['floor_ms']:.3f}" if "floor_ms" in extra else "",
        "achieved": f"{extra['achieved']:.0%}" if "achieved" in extra else "",
        "peak (GiB)": f"{extra['peak_gib']:.2f}",
    }
    other = rival(records, ours, COMPILED)
    row[f"{COMPILED} (ms)"] = "" if other is None else f"{other.value:.3f}"
    row[f"{COMPILED}, peak (GiB)"] = "" if other is None else f"{other.extra['peak_gib']:.2f}"
    row[f"times {COMPILED}"] = "" if other is None else str(ratio(other, ours))
    return row


def first_call_table(records: Sequence[Record]) -> Any:
    """Return the seconds of first calls in a new process, with an empty and with a filled cache; None without any."""
    import pandas as pd

    found = select(records, question="first call", kind="measured")
    cases = dict.fromkeys((r.parameters["variant"], r.parameters["form"]) for r in found)
    rows = []
    for variant, form in sorted(cases):
        row = {"rung": RUNG_NAMES[variant], "form": form}
        for cache in ("empty", "filled"):
            mine = select(found, parameters={"variant": variant, "form": form, "cache": cache})
            row[f"{cache} cache (s)"] = f"{mine[0].value:.2f}" if mine else ""
        rows.append(row)
    return pd.DataFrame(rows).set_index(["rung", "form"]) if rows else None
