"""Saved figures: three files, the same bytes every time, a caption from records, one look per variant."""

from __future__ import annotations

import itertools

import pytest

from analysis.errors import ReportError
from analysis.publish import Caption, caption, look, save_figure, styled
from analysis.publish.figures import csv_text
from analysis.publish.style import BACKENDS, FAMILIES, INK, QUANTITIES, VARIANTS
from analysis.spec import Family, QuerySource, baseline
from tests.sample_records import make

pytestmark = [
    pytest.mark.filterwarnings("error"),
    # files that earlier tests left open are collected at any time, and are not ours to judge
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]
ALT = "One falling line from one to zero over three inner steps."
ROWS = [{"steps": 0, "loss": 1.0}, {"steps": 1, "loss": 1 / 3}, {"steps": 2, "loss": None}]


def draw():
    from matplotlib import pyplot as plt

    fig, ax = plt.subplots()
    ax.plot([0, 1, 2], [1, 0.3, 0], **look("inner loss").line())
    ax.legend()
    return fig


def test_a_figure_is_written_three_ways_with_the_same_bytes_twice(project):
    contents = []
    for _ in range(2):
        with styled():
            shown = save_figure(draw(), "sweep", ROWS, "The loss falls.", ALT)
        files = sorted((project / "figures").iterdir())
        assert [file.name for file in files] == ["sweep.csv", "sweep.png", "sweep.svg"]
        contents.append([file.read_bytes() for file in files])
    assert contents[0] == contents[1]
    assert contents[0][0] == b"steps,loss\n0,1\n1,0.3333333333\n2,\n"
    assert INK in shown.svg, "the theme recolours exactly this value"


def test_a_figure_displays_as_picture_caption_and_data(project):
    data, metadata = save_figure(draw(), "sweep", ROWS, "The loss falls.", ALT)._repr_mimebundle_()
    assert {"image/svg+xml", "image/png", "text/html", "text/plain"} == set(data)
    assert metadata["figure"]["alt"] == ALT
    assert metadata["figure"]["caption"] == [["Shown", "The loss falls."]]
    assert metadata["figure"]["csv"].startswith("steps,loss\n")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"name": "Sweep 1"}, "lower-case words"),
        ({"name": "../sweep"}, "lower-case words"),
        ({"alt": "a line"}, "alternative text"),
        ({"caption": "  "}, "what is shown"),
        ({"table": []}, "empty table"),
        ({"table": {"a": [1], "b": [1, 2]}}, "one length"),
        ({"table": 3}, "received int"),
    ],
)
def test_an_unusable_figure_is_refused_and_nothing_is_written(project, changes, message):
    given = {"name": "sweep", "table": ROWS, "caption": "The loss falls.", "alt": ALT} | changes
    with pytest.raises(ReportError, match=message):
        save_figure(draw(), given["name"], given["table"], given["caption"], given["alt"])
    assert not (project / "figures").exists()


def test_a_figure_folder_that_cannot_be_written_is_one_sentence(project):
    (project / "figures").write_text("a file where the folder should be")
    with pytest.raises(ReportError, match="writable folder for figures"):
        save_figure(draw(), "sweep", ROWS, "The loss falls.", ALT)


def test_tables_of_every_kind_give_the_same_csv():
    import pandas as pd

    columns = {"steps": [0, 1], "loss": [1.0, float("nan")]}
    rows = [{"steps": 0, "loss": 1.0}, {"steps": 1, "loss": float("nan")}]
    frame = pd.DataFrame(columns)
    texts = {csv_text(table, "x") for table in (columns, rows, frame, frame.set_index("steps"))}
    assert texts == {"steps,loss\n0,1\n1,\n"}


def test_no_two_looks_of_one_group_are_alike_even_in_grey():
    for group in (VARIANTS[:7], FAMILIES, QUANTITIES[:4], BACKENDS):
        for one, other in itertools.combinations(group, 2):
            assert one.color != other.color
            assert (one.marker, one.linestyle) != (other.marker, other.linestyle)
            assert one.marker != other.marker


def test_an_unknown_look_is_refused_with_the_nearest_name():
    assert look("v3") == look("Variant 3")
    with pytest.raises(ReportError, match="did you mean 'Variant 3'"):
        look("Variant3")


def test_a_caption_tells_trained_and_run_specification_apart():
    trained = baseline(Family.LACT_LM)
    run = {name: loop.edit(steps=4) for name, loop in trained.items()}
    record = make(
        trained_spec=trained, run_spec=run, device="cpu", commit="0123456789abcdef", command="probe steps"
    )
    made = caption("Loss against steps", [record], notes=["bars: 95 % interval"])
    assert made.parts() == [
        ["Shown", "Loss against steps."],
        [
            "Model",
            "trained with LaCT-LM baseline; run with LaCT-LM baseline edited (steps: 1 -> 4); difference: steps: 1 -> 4.",
        ],
        [
            "Measured",
            "command probe steps; seeds 0, 1; 64 samples per point; device cpu; commit 0123456789; bars: 95 % interval.",
        ],
    ]
    same = caption("Loss", [make(trained_spec=trained, run_spec=trained)])
    assert same.model == "trained with LaCT-LM baseline; run as trained."


@pytest.mark.parametrize("family", [Family.LACT_LM, Family.VITTT])
def test_a_caption_over_several_edits_says_them_in_words(family):
    trained = baseline(family)
    edits = [
        {name: loop.frozen() for name, loop in trained.items()},
        trained,
        *({name: loop.edit(steps=k) for name, loop in trained.items()} for k in (2, 4, 8)),
        {name: loop.edit(query=QuerySource.KEY) for name, loop in trained.items()},
    ]
    made = caption("Sweep", [make(trained_spec=trained, run_spec=run) for run in edits])
    assert made.model == (
        f"trained with {family.title} baseline; run as trained, without updates, with the key as query and "
        "with 2, 4 and 8 inner steps."
    )


def test_a_caption_names_the_loop_where_the_loops_of_a_layer_are_run_differently():
    trained = baseline(Family.VITTT)
    first = next(iter(trained))
    run = {name: loop.edit(steps=2) if name == first else loop for name, loop in trained.items()}
    rows = [make(trained_spec=trained, run_spec=spec) for spec in (trained, run)]
    assert f"with {first}.steps 2" in caption("Sweep", rows).model


@pytest.mark.parametrize("family", list(Family))
def test_a_model_that_was_trained_without_updates_is_called_that(family):
    frozen = {name: loop.frozen() for name, loop in baseline(family).items()}
    made = caption("Loss", [make(trained_spec=frozen, run_spec=frozen)])
    assert made.model == f"trained with {family.title} without updates; run as trained."
    moving = make(trained_spec=baseline(family), run_spec=baseline(family))
    assert "without updates" not in caption("Loss", [moving]).model


def test_a_caption_says_how_activations_were_replaced():
    trained = baseline(Family.LACT_LM)
    arms = ("as trained", "values of shuffled tokens")
    rows = [make(trained_spec=trained, run_spec=trained, parameters={"arm": arm}) for arm in arms]
    assert caption("Wrong pairs", rows).model == (
        "trained with LaCT-LM baseline; run as trained and with values of shuffled tokens."
    )
    assert caption("Wrong pairs", rows[:1]).model == "trained with LaCT-LM baseline; run as trained."
    only = caption("Wrong pairs", rows[1:]).model
    assert only == "trained with LaCT-LM baseline; run with values of shuffled tokens."


def test_published_values_never_stand_unnamed_among_measured_ones():
    published = make(kind="published", source="Table 2", trained_spec={}, run_spec={}, checkpoint="", data="")
    with pytest.raises(ReportError, match="say which are published"):
        caption("Accuracy of every rung", [make(), published])
    made = caption("Accuracy, measured here (dots) and published (stars)", [make(), published])
    assert "published values from Table 2" in made.measured


def test_caption_parts_are_escaped():
    assert Caption(shown="a < b").html() == "<b>Shown.</b> a &lt; b"
