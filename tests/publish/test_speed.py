"""Speeds from records: ratios and tables by hand, every figure with and without times, and each verdict beside its twin."""

from __future__ import annotations

import json

import pytest

from analysis.errors import ParameterError
from analysis.paths import NOTEBOOKS
from analysis.publish import speed, speed_plots, speed_sentences, verdicts
from analysis.publish.figures import csv_text
from analysis.publish.speed_verdicts import parallel_is_faster, training_is_faster
from analysis.records import Record, Store, select
from tests.speed.times import every_record, step_record

pytestmark = pytest.mark.usefixtures("strict_figures")


@pytest.fixture(scope="module")
def records():
    return every_record()


def test_the_published_ratios_are_those_of_table_2():
    assert [f"{value:.1f}" for value in speed.published_ratios().values()] == [
        "2.7",
        "3.8",
        "4.1",
        "4.0",
        "1.4",
    ]


def test_a_ratio_is_the_median_over_pairs_of_calls():
    slow, fast = step_record("baseline", 20.0), step_record("v2", 10.0)
    found = speed.ratio(slow, fast)
    assert (found.value, found.low, found.high) == (2.0, 2.0, 2.0)
    few = fast.edit(extra={"samples": [8.0, 10.0, 5.0]})
    again = speed.ratio(slow.edit(extra={"samples": [16.0, 10.0, 40.0]}), few)
    assert (again.value, again.low) == (2.0, None)
    assert str(again) == "2.00"


def test_times_are_of_one_device_and_of_the_kernels(records):
    other = [r.edit(device="another GPU") for r in records[:2]]
    found = speed.kernel_times([*other, *records], **speed.STANDARD)
    assert {r.device for r in found} == {"a GPU"}
    assert {r.parameters["implementation"] for r in found} == {"triton"}
    assert len(found) == 12


def test_the_table_keeps_measured_and_published_apart(records):
    table = speed.speed_table(records)
    assert table.loc["Variant\u00a02", "parallel"] == "43.69"
    assert table.loc["Variant\u00a02", "parallel, published"] == "30.18"
    assert table.loc["Variant\u00a02", "ratio"].startswith("4.00 [")
    assert table.loc["Baseline", "parallel"] == "no such form"
    assert table.loc["Baseline", "recurrent, published"] == "4.30"


def test_without_records_the_table_says_so_and_shows_no_number_of_ours():
    table = speed.speed_table([])
    mine = [cell for name in table if not name.endswith("published") for cell in table[name]]
    assert set(mine) == {"not measured yet", "no such form", ""}
    assert speed.comparison_table([]) is None
    assert speed.comparison_table([], "training") is None
    assert speed.first_call_table([]) is None


def test_comparisons_are_ratios_to_the_same_case(records):
    table = speed.comparison_table(records)
    assert table.loc[("Variant\u00a06", "parallel"), "times torch.compile"].startswith("3.00")
    assert table.loc[("Variant\u00a06", "parallel"), "achieved"] == "50%"
    assert table.loc[("Variant\u00a06", "parallel"), "torch.compile, peak (GiB)"] == "0.25"
    both = speed.comparison_table(records, "training")
    assert list(both.index) == [("Baseline", "recurrent"), ("Variant\u00a02", "parallel")]
    assert "floor (ms)" not in both
    first = speed.first_call_table(records)
    assert first.loc[("Variant\u00a02", "parallel"), "empty cache (s)"] == "6.00"


@pytest.mark.parametrize("axis", ["tokens", "chunk", "width"])
def test_a_sweep_has_every_size_along_its_axis(records, axis):
    from analysis.speed.suites import AXES

    _, rows = speed_plots.sweep(records, axis)
    assert {row[axis] for row in rows} == set(AXES[axis])
    assert len(rows) == 2 * 4 * len(AXES[axis])
    assert csv_text(rows, "sweep")


def test_every_figure_can_be_drawn_and_marks_its_rows(records, tmp_path):
    for figure, rows in (
        speed_plots.ladder(records),
        speed_plots.achieved(records),
        speed_plots.training(records),
        speed_plots.sweep(records, "tokens"),
    ):
        figure.savefig(tmp_path / "figure.svg")
        text = (tmp_path / "figure.svg").read_text()
        assert rows and text.count('id="rows-') == len(set(text.split('id="rows-')[1:]))
        assert f"-{len(rows)}" in text


def test_figures_without_times_are_empty_or_say_so(tmp_path):
    assert speed_plots.sweep([], "width")[1] == []
    assert speed_plots.achieved([])[1] == []
    figure, rows = speed_plots.training([])
    assert rows == []
    for axes in (figure.axes[0], figure.axes[2]):
        assert [text.get_text() for text in axes.texts] == ["not measured yet"]
    _, rows = speed_plots.ladder([])
    assert rows and all("published" in row["series"] for row in rows)


def retrained_record(variant, seed=0):
    return Record(
        question="retrained",
        metric="perplexity",
        value=10.0,
        seeds=(seed,),
        parameters={"family": "lact_lm", "variant": variant, "training_steps": 100},
        extra={"curve": {"steps": [50.0, 100.0], "outer_loss": [3.0, 2.0]}},
    )


def test_a_loss_is_drawn_by_steps_and_by_the_time_that_the_steps_take():
    runs = [retrained_record("baseline"), retrained_record("v2")]
    steps = [step_record("baseline", 20.0), step_record("v2", 10.0)]
    figure, rows = speed_plots.training([*steps, *runs])
    ends = [[line.get_xdata()[-1] for line in axes.lines] for axes in figure.axes[1:]]
    assert ends == [[100.0, 100.0], [2.0, 1.0]], "Variant 2 is there in half the time"
    assert [row["seconds"] for row in rows if "seconds" in row] == [1.0, 2.0, 0.5, 1.0]
    assert [row["step"] for row in rows if "step" in row] == [50.0, 100.0] * 2
    figure, rows = speed_plots.training(runs)
    assert not figure.axes[2].lines and len(rows) == 4, "without times of a step there is no time to draw"


def test_what_another_implementation_computes_otherwise_stands_beside_its_ratio(records):
    (ours,) = speed.kernel_times(records, **speed.STANDARD, variant="v6", form="parallel")
    other = ours.edit(
        parameters={**ours.parameters, "implementation": "flash-linear-attention"},
        extra={**ours.extra, "samples": [3 * x for x in ours.extra["samples"]], "note": "causal by token"},
    )
    said = speed_sentences.beside_flash([*records, other])
    assert "(causal by token)" in said and "3.00 [3.00, 3.00] times as fast" in said
    assert speed_sentences.beside_flash(records) == speed_sentences.beside_flash([]) == ""


def test_what_the_times_on_a_processor_come_to(records):
    times = speed.kernel_times(records, **speed.STANDARD)
    said = speed_sentences.on_processor(times)
    assert "4.00 to 4.00 times as fast in parallel form (faster: all)" in said
    mixed = [
        r.edit(extra={**r.extra, "samples": [50.0] * 25})
        if (r.parameters["variant"], r.parameters["form"]) == ("v3", "parallel")
        else r
        for r in times
    ]
    told = speed_sentences.on_processor(mixed)
    assert "slower: Variant\u00a03" in told and "faster: Variant\u00a02, Variant\u00a04" in told
    unsure = [r.edit(extra={**r.extra, "samples": r.extra["samples"][:3]}) for r in times]
    assert "not told apart from the recurrent form: all" in speed_sentences.on_processor(unsure)


def test_training_steps_of_another_commit_say_so(records):
    times = speed.kernel_times(records, **speed.STANDARD)
    steps = [r.edit(commit="a" * 40) for r in times[:2]]
    said = speed_sentences.built_apart(steps, times)
    assert "aaaaaaaaaa" in said and "another commit" in said
    assert "another commit" not in speed_sentences.built_apart(times[:2], times)
    assert speed_sentences.built_apart([], times) == ""


def test_those_that_miss_a_goal_are_the_slow_parallel_forms(records):
    assert speed.behind(records, "torch.compile", 3.1) == speed.kernel_times(
        records, **speed.STANDARD, form="parallel"
    )
    assert speed.behind(records, "torch.compile", 2.9) == []
    assert speed.behind([], "torch.compile", 3.1) == []


def test_times_on_a_processor_have_a_row_for_every_shape_and_rung(records):
    times = [
        r.edit(extra={**r.extra, "fastest_ms": 1.0, "errors": {"outputs": 1e-12}})
        for tokens in (32768, 8192)
        for r in speed.kernel_times(records, **{**speed.STANDARD, "tokens": tokens})
        if r.parameters["variant"] in ("v2", "v6")
    ]
    batched = [
        r.edit(parameters={**r.parameters, "batch": 8}, extra={**r.extra, "threads": 2}) for r in times
    ]
    shape = "4 heads of 384, 8,192 tokens in chunks of 2,048"
    assert list(speed.by_shape(batched))[1] == f"8 sequences at once, {shape}, 2 threads"
    table = speed.processor_table(times)
    assert len(table) == 3, "the shorter one has both forms of Variant 2 alone"
    assert table.loc[(shape, "Variant\u00a02"), "largest error"] == "1.0e-12"
    assert table.loc[(shape, "Variant\u00a02"), "times as fast in parallel form"].startswith("4.00")
    _, rows = speed_plots.ladder([], times)
    assert sum(row["series"] == "measured, this processor" for row in rows) == 2, "the first shape alone"
    assert speed.processor_table([]) is None


def test_the_parallel_claim_turns_with_the_times(records):
    assert parallel_is_faster(records).verdict == verdicts.REPRODUCED
    assert parallel_is_faster([]).verdict == verdicts.MISSING

    def slowed(record: Record, rung: str) -> Record:
        where = record.parameters
        hit = where.get("variant") == rung and where.get("form") == "parallel" and "samples" in record.extra
        return record.edit(extra={**record.extra, "samples": [9.0] * 25}) if hit else record

    slow = [slowed(record, "v4") for record in records]
    found = parallel_is_faster(slow)
    assert found.verdict == verdicts.FAILED and "v4" in found.reason
    without = [r for r in records if r.parameters.get("variant") != "v3"]
    assert parallel_is_faster(without).verdict == verdicts.MISSING


@pytest.mark.parametrize(
    ("milliseconds", "verdict"),
    [(10.0, verdicts.REPRODUCED), (18.0, verdicts.FAILED), (20.0, verdicts.FAILED)],
)
def test_the_training_claim_turns_with_the_steps(milliseconds, verdict):
    steps = [step_record("baseline", 20.0), step_record("v2", milliseconds)]
    assert training_is_faster(steps).verdict == verdict
    assert training_is_faster(steps[:1]).verdict == verdicts.MISSING
    other = [steps[0], steps[1].edit(device="another GPU")]
    assert training_is_faster(other).verdict == verdicts.MISSING


def test_an_interval_across_the_printed_speedup_leaves_the_claim_open():
    noisy = [20.0 / (1.19 + 0.05 * (-1) ** index) for index in range(25)]
    fast = step_record("v2", 16.8).edit(extra={"samples": noisy})
    slow = step_record("baseline", 20.0).edit(extra={"samples": [20.0] * 25})
    assert training_is_faster([slow, fast]).verdict == verdicts.OPEN


def test_few_calls_have_no_interval_and_decide_nothing(records):
    steps = [
        step_record(name, 20.0).edit(extra={"samples": [t] * 3}) for name, t in (("baseline", 20), ("v2", 10))
    ]
    assert training_is_faster(steps).verdict == verdicts.OPEN
    few = [
        r.edit(extra={**r.extra, "samples": r.extra["samples"][:3]}) for r in records if "samples" in r.extra
    ]
    assert parallel_is_faster(records).verdict == verdicts.REPRODUCED
    found = parallel_is_faster(few)
    assert found.verdict == verdicts.OPEN and found.reason == "too few calls for an interval"


def test_a_folder_of_times_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(ParameterError, match="records expects a folder of recorded times"):
        speed.recorded(tmp_path / "none")
    assert {row.question for row in speed.recorded(tmp_path)} == {"retrained"}
    assert speed.standard_shape() == "batch 1, 4 heads of 384, 32,768 tokens, chunks of 2,048, bfloat16"


@pytest.mark.parametrize("has_times", [False, True])
def test_the_notebook_runs_with_and_without_recorded_times(records, has_times, tmp_path, monkeypatch):
    """Its cells in one namespace, on toy sizes; figures go to a folder of the test."""
    from analysis import paths

    monkeypatch.setattr(paths, "FIGURES", tmp_path / "figures")
    (tmp_path / "records").mkdir()
    store = Store(tmp_path / "records")
    for record in records if has_times else []:
        store.put(record)
    cells = json.loads((NOTEBOOKS / "08_parallel_throughput.ipynb").read_text(encoding="utf-8"))["cells"]
    names: dict = {}
    for cell in cells:
        if cell["cell_type"] == "code":
            exec("".join(cell["source"]), names)
            if "parameters" in cell["metadata"].get("tags", []):
                names |= {"records": str(tmp_path / "records"), "tokens": 64, "chunk": 16, "repeats": 2}
    drawn = {path.stem for path in (tmp_path / "figures").glob("*.svg")}
    swept = {f"speed-by-{axis}" for axis in ("tokens", "chunk", "width")}
    assert drawn == {"parallel-throughput", "training-speed"} | (
        swept | {"floor-achieved"} if has_times else set()
    )
    assert bool(names["times"]) == has_times
    assert not select(names["live"], device="a GPU")
