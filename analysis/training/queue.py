"""Train a list of recipes and seeds on all devices within a time budget: `python -m analysis.training.queue --help`.

One process per device trains several runs side by side. A run that would not finish within the budget is not started; one
that is finished is written at once. At the end the checkpoints are packed into a few tar files.
"""

from __future__ import annotations

import argparse
import json
import logging
import multiprocessing
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import torch

from analysis import paths
from analysis.training.packing import pack
from analysis.training.plan import Job, parse_jobs, shortened, standard_plan
from analysis.training.worker import CLAIMS, STATUS, Settings, is_finished, work

LOG = logging.getLogger(__name__)
GRACE = 8.0
"""Seconds after the deadline at which workers that still run are stopped."""


def run_queue(
    jobs: Sequence[Job],
    output: Path,
    budget: float,
    *,
    devices: Sequence[str] | None = None,
    slots: int = 4,
    corpus: Path | None = None,
    commit_name: str | None = None,
    graph: str = "auto",
    compiled: bool = False,
    processes: int = 1,
) -> list[dict[str, object]]:
    """Train `jobs` in order of priority into `output`; returns one row per job with its state and result.

    budget: seconds from now. devices: None takes all CUDA devices, else the CPU. processes: of each device.
    slots: runs side by side in a process. compiled: fuse pointwise work with torch.compile; while one process compiles,
    another of the same device trains.
    """
    deadline = time.time() + budget
    output.mkdir(parents=True, exist_ok=True)
    for name in (CLAIMS, STATUS):  # those of an earlier queue on this folder
        for stale in (output / name).glob("*"):
            stale.unlink()
    if devices is None:
        devices = [f"cuda:{i}" for i in range(torch.cuda.device_count())] or ["cpu"]
    waiting = [job for job in jobs if not is_finished(output / job.name)]
    settings = Settings(output, deadline, slots, slots * processes, corpus, commit_name, graph, compiled)
    context = multiprocessing.get_context("spawn")
    workers = [
        context.Process(target=work, args=(device, waiting, settings))
        for device in devices
        for _ in range(processes)
    ]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(max(0.0, deadline + GRACE - time.time()))
        if worker.is_alive():
            LOG.warning("a worker passed the deadline and is stopped; its unfinished runs are lost")
            worker.terminate()
            worker.join(5)
        elif worker.exitcode:
            LOG.error("a worker ended with exit code %s; its unfinished runs are lost", worker.exitcode)
    return [_row(job, output) for job in jobs]


def _row(job: Job, output: Path) -> dict[str, object]:
    status = output / STATUS / f"{job.name}.json"
    if status.is_file():
        row: dict[str, object] = json.loads(status.read_text(encoding="utf-8"))
        return row
    if is_finished(output / job.name):
        state = "was there"
    else:
        state = "unfinished" if (output / CLAIMS / job.name).exists() else "not started"
    return {"name": job.name, "state": state, "result": "", "seconds": 0.0, "milliseconds": 0.0, "loss": 0.0}


def table(rows: Sequence[dict[str, object]]) -> str:
    """Return the rows of a queue as aligned text."""
    lines = [f"{'run':32} {'state':12} {'seconds':>8} {'ms/step':>8} {'loss':>8}  result"]
    lines += [
        f"{row['name']:32} {row['state']:12} {row['seconds']:8} {row['milliseconds']:8} {row['loss']:8}  {row['result']}"
        for row in rows
    ]
    return "\n".join(lines) + "\n"


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = argparse.ArgumentParser(prog="python -m analysis.training.queue", description=run_queue.__doc__)
    made.add_argument(
        "--jobs", help="NAME:SEED,SEED ... in order of priority, '*' allowed; without it the standard plan"
    )
    made.add_argument("--seeds", default="0,1,2", help="seeds of the standard plan")
    made.add_argument("--output", type=Path, default=paths.CHECKPOINTS, help="folder of the checkpoints")
    made.add_argument("--pack", type=Path, help="folder for the tar files; only runs of this call are packed")
    made.add_argument(
        "--skip", type=Path, help="folder of finished checkpoints that need not be trained again"
    )
    made.add_argument("--budget", type=float, default=3600.0, help="seconds")
    made.add_argument("--slots", type=int, default=4, help="runs side by side in each process")
    made.add_argument("--processes", type=int, default=1, help="processes on each device")
    made.add_argument("--compiled", action="store_true", help="fuse pointwise work with torch.compile")
    made.add_argument("--corpus", type=Path, help="folder with the exported text corpus")
    made.add_argument("--fraction", type=float, default=1.0, help="share of the steps of each recipe")
    made.add_argument("--graph", default="auto", choices=["auto", "on", "off"])
    made.add_argument("--commit", help="git commit to record, where no repository is")
    return made


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the queue, write the table of its runs to standard output, pack the checkpoints."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s", datefmt="%H:%M:%S")
    given = parser().parse_args(arguments)
    jobs = (
        parse_jobs(given.jobs)
        if given.jobs
        else standard_plan([int(seed) for seed in given.seeds.split(",")])
    )
    if given.skip is not None:
        jobs = [job for job in jobs if not is_finished(given.skip / job.name)]
    rows = run_queue(
        shortened(jobs, given.fraction),
        given.output,
        given.budget,
        slots=given.slots,
        corpus=given.corpus,
        commit_name=given.commit,
        graph=given.graph,
        compiled=given.compiled,
        processes=given.processes,
    )
    sys.stdout.write(table(rows))
    if given.pack is not None:
        done = [given.output / str(row["name"]) for row in rows if row["state"] == "finished"]
        left_out = pack(done, given.pack)
        sys.stdout.write(
            f"packed {len(done)} checkpoints, without weights: {', '.join(left_out) or 'none'}\n"
        )


if __name__ == "__main__":
    main()
