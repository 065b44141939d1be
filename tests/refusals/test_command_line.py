"""Mistakes on the command line: one line on standard error, exit code 2, nothing overwritten."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

from analysis import cli
from analysis.commands.assignments import parse_assignments
from analysis.commands.run import edited
from analysis.errors import ParameterError, SpecError
from analysis.paths import ROOT
from tests.cli.test_main import waiting_command


def refused(capsys, *arguments: str) -> str:
    with pytest.raises(SystemExit) as left:
        cli.main(list(arguments))
    assert left.value.code == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("error: ")
    return line


@pytest.mark.parametrize(
    "arguments",
    [
        ["train", "vittt-baseline", "--output", ""],
        ["train", "vittt-baseline", "--output="],
        ["report", "--checkpoint", ""],
        ["inspect", ""],
    ],
)
def test_an_empty_path_is_not_taken_for_the_current_folder(capsys, arguments):
    assert "expects a value, received none" in refused(capsys, *arguments)


def test_a_sentence_of_several_lines_becomes_one(capsys, monkeypatch):
    def refuse(chunks):
        raise SpecError("expected one line,\n  received two")

    monkeypatch.setattr("analysis.commands.show.ladder_table", refuse)
    assert refused(capsys, "ladder") == "error: expected one line, received two"


def test_a_refusal_of_the_file_system_is_one_line(capsys, monkeypatch):
    def refuse(chunks):
        raise PermissionError(13, "Permission denied", "/somewhere")

    monkeypatch.setattr("analysis.commands.show.ladder_table", refuse)
    line = refused(capsys, "ladder")
    assert "Permission denied at /somewhere" in line


def test_a_full_disk_under_the_output_is_one_line():
    if not os.path.exists("/dev/full"):
        return
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "analysis", "recipes"],
            cwd=ROOT,
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
        )
    assert done.returncode == 2
    assert done.stderr.startswith("error: ") and len(done.stderr.splitlines()) == 1


def test_a_kill_cleans_up_like_an_interrupt():
    process = waiting_command()
    process.send_signal(signal.SIGTERM)
    _, errors = process.communicate(timeout=30)
    assert process.returncode == 130 and errors.startswith("interrupted: ")


def test_a_name_that_looks_like_markup_is_shown_as_it_is(capsys):
    from rich.table import Table

    from analysis.commands.show import show

    table = Table(title="[red]x[/y]")
    table.add_column("name")
    table.add_row("[/bold] :smile:")
    show(table)
    text = capsys.readouterr().out
    assert "[red]x[/y]" in text and "[/bold] :smile:" in text


@pytest.mark.parametrize(
    ("text", "value"), [("1,2,4", [1, 2, 4]), ("1e-3, 2", [1e-3, 2]), ("a,b", "a,b"), ("1,", "1,")]
)
def test_numbers_with_commas_are_a_list(text, value):
    assert parse_assignments([f"x={text}"]) == {"x": value}


def test_a_value_nested_without_end_is_text():
    assert parse_assignments([f"x={'[' * 100_000}"])["x"].startswith("[[[")


def test_the_sweep_of_the_readme_is_understood(tmp_path, capsys):
    from analysis.models.checkpoints import save
    from analysis.models.vittt import build_vittt
    from analysis.models.vittt_config import ViTTTConfig

    save(
        build_vittt(
            ViTTTConfig(img_size=16, patch_size=8, embed_dim=32, depth=1, num_heads=4, num_classes=16)
        ),
        tmp_path,
    )
    common = [
        "probe",
        "steps",
        "--checkpoint",
        str(tmp_path),
        "--samples",
        "2",
        "--records",
        str(tmp_path / "r"),
    ]
    for steps in ("1,2", "2"):
        with pytest.raises(SystemExit) as left:
            cli.main([*common, "--set", f"steps={steps}"])
        assert left.value.code == 0
        assert "inner_steps=2" in " ".join(capsys.readouterr().out.split())
    (tmp_path / "file").write_text("")
    assert "expected to write" in refused(capsys, *common[:-1], str(tmp_path / "file"), "--set", "steps=1")


@pytest.mark.parametrize("device", ["cpu:1", "cuda:²"])
def test_a_device_with_a_number_it_cannot_have_is_refused(device):
    from analysis.commands.device import usable

    with pytest.raises(ParameterError, match="--device expects"):
        usable(device)


@pytest.mark.parametrize("name", ["name", "variant", "note"])
def test_what_names_a_recipe_cannot_be_set(name):
    from analysis.training.recipes import find

    with pytest.raises(ParameterError, match="knows steps"):
        edited(find("vittt-baseline"), {name: "../../x"})


def test_other_settings_do_not_replace_a_shipped_checkpoint(capsys, monkeypatch):
    monkeypatch.setattr("analysis.training.trainer.load_task", None)  # nothing may be rendered
    said = refused(capsys, "train", "vittt-baseline", "--set", "steps=3")
    assert "--output" in said and "steps is 4000, asked 3" in said
