"""Two processes under the environment of torchrun train like one with the joint batch."""

from __future__ import annotations

import os
import socket
import subprocess
import sys

import pytest
import torch

from analysis.errors import ParameterError
from analysis.paths import ROOT
from analysis.training.distributed import Team, check_divisible
from analysis.training.run import Run
from analysis.training.tasks import rows
from tests.training.toys import CPU, toy

SCRIPT = """
import sys, torch
from pathlib import Path
from analysis.training.distributed import join
from analysis.training.run import Run
from analysis.training.tasks import load_task
from tests.training.toys import toy
team, folder = join("cpu"), Path(sys.argv[1])
recipe = toy("vittt-v1", steps=2)
run = Run(recipe, load_task(recipe, team.device), team, folder)
run.advance(1)
if team.leads:
    torch.save([p.grad for p in run.host.parameters()], folder / "gradients.pt")
run.advance(1)
assert run.team.any(team.rank == 1)
run.finish()
"""


def test_two_processes_have_the_gradients_of_one_with_the_joint_batch(task, tmp_path):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    shared = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": "2", "OMP_NUM_THREADS": "1"}
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", SCRIPT, str(tmp_path)],
            env={**os.environ, **shared, "RANK": str(rank), "LOCAL_RANK": str(rank)},
            cwd=ROOT,
        )
        for rank in range(2)
    ]
    assert [process.wait(timeout=120) for process in processes] == [0, 0]
    assert (tmp_path / "manifest.json").is_file()
    run = Run(toy("vittt-v1", steps=2), task("vittt"), Team(0, 1, CPU), tmp_path / "one")
    run.advance(1)
    together = torch.load(tmp_path / "gradients.pt", weights_only=True)
    for ours, theirs in zip((p.grad for p in run.host.parameters()), together, strict=True):
        torch.testing.assert_close(theirs, ours, rtol=1e-4, atol=1e-6)


def test_processes_share_a_joint_batch_without_overlap():
    batch = {"tokens": torch.arange(12).reshape(6, 2)}
    parts = [rows(batch, rank, 3)["tokens"] for rank in range(3)]
    assert torch.equal(torch.stack(parts, 1).reshape(6, 2), batch["tokens"])
    with pytest.raises(ParameterError, match="share evenly"):
        check_divisible(6, Team(0, 4, CPU))
