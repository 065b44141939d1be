"""The queue: order of jobs, a whole run with worker processes, and tar files of limited size."""

from __future__ import annotations

import tarfile

import pytest

from analysis.errors import ParameterError
from analysis.training.packing import pack
from analysis.training.plan import CORE, Job, parse_jobs, shortened, standard_plan
from analysis.training.queue import run_queue, table
from tests.training.toys import toy


def test_the_standard_plan_puts_the_core_of_every_seed_first():
    jobs = standard_plan(seeds=(0, 1))
    core = [job for job in jobs if job.block == 0]
    assert len(core) == 2 * 3 * len(CORE) and all(job.recipe.variant in CORE for job in core)
    assert [job.block for job in jobs] == sorted(job.block for job in jobs)
    assert core == sorted(core, key=lambda job: -job.seconds())
    assert len({job.name for job in jobs}) == len(jobs)
    assert not any(job.name.startswith("vittt-v2") for job in jobs)


def test_jobs_are_read_in_order_of_priority():
    jobs = parse_jobs("vittt-v6:1 lact_nvs-*:0 vittt-v2:0,1")
    assert jobs[0].name == "vittt-v6-s1"
    assert {job.name for job in jobs[-2:]} == {"vittt-v1-s0", "vittt-v1-s1"}
    assert shortened(jobs, 0.5)[0].recipe.steps == jobs[0].recipe.steps // 2
    for bad, message in (
        ("vittt-v6", "NAME:SEED"),
        ("vittt-x*:0", "pattern"),
        ("vittt-v66:0", "did you mean"),
    ):
        with pytest.raises(ParameterError, match=message):
            parse_jobs(bad)


def test_a_queue_trains_what_fits_and_says_what_did_not(tmp_path):
    jobs = [
        Job(toy("vittt-v1", steps=210)),
        Job(toy("vittt-none", steps=3)),
        Job(toy("vittt-v6", steps=10**9), 1),
    ]
    rows = run_queue(jobs, tmp_path, 60, devices=["cpu"], slots=2, commit_name="abc")
    assert [row["state"] for row in rows] == ["finished", "finished", "not started"]
    assert (tmp_path / "vittt-v1-s0" / "model.safetensors").is_file()
    assert "vittt-none-s0" in table(rows)
    again = run_queue(jobs[:1], tmp_path, 60, devices=["cpu"])
    assert again[0]["state"] == "was there"


def test_packing_keeps_every_manifest_and_weights_by_priority(tmp_path):
    folders = []
    for index, size in enumerate((5000, 60_000, 5000)):
        folder = tmp_path / f"run-{index}"
        folder.mkdir()
        (folder / "manifest.json").write_text("{}")
        (folder / "model.safetensors").write_bytes(bytes(size))
        folders.append(folder)
    left_out = pack(folders, tmp_path / "tars", files=2, size=50_000)
    assert left_out == ["run-1"]
    names = set()
    for path in (tmp_path / "tars").iterdir():
        assert path.stat().st_size < 50_000
        with tarfile.open(path) as archive:
            names |= set(archive.getnames())
    assert names == {f"run-{i}/manifest.json" for i in range(3)} | {
        f"run-{i}/model.safetensors" for i in (0, 2)
    }
