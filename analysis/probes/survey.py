"""Measure a folder of trained checkpoints: `python -m analysis.probes.survey FOLDER RECORDS [--device cuda]`.

Every checkpoint is evaluated as it is; baseline, ascent, Variant 1 and the models trained with more inner steps also get the
inner-step sweep, and the baseline the frozen-model interventions and the mismatch of its distributions. The records are
committed, so that readers without a GPU see all seeds.
"""

from __future__ import annotations

import argparse
import logging
from collections.abc import Sequence
from pathlib import Path

from analysis.models.checkpoints import load
from analysis.models.host import Host
from analysis.probes import paradoxes
from analysis.probes.distributions import mismatch
from analysis.probes.measure import variant_of
from analysis.probes.subjects import Subject
from analysis.probes.task import Task, evaluation_task
from analysis.records import Record, Store
from analysis.spec import Family

LOG = logging.getLogger(__name__)
SAMPLES = {Family.LACT_LM: 128, Family.LACT_NVS: 512, Family.VITTT: 4000}
SWEPT = ("baseline", "ascent", "v1", "steps2", "steps4")
STEPS = (1, 2, 3, 4, 6, 8)
MISMATCH_SAMPLES = {Family.LACT_LM: 8, Family.LACT_NVS: 16, Family.VITTT: 100}


def survey_one(
    folder: Path, store: Store, *, device: str = "cpu", samples: int | None = None
) -> list[Record]:
    """Measure one checkpoint and return its records."""
    host = load(folder, device=device)
    task = evaluation_task(host, samples or SAMPLES[host.family])
    variant = variant_of(host)
    rows = list(paradoxes.evaluation(host, task, store=store))
    if variant in SWEPT and host.loops:
        rows += paradoxes.inner_steps(host, task, STEPS, store=store)
    if variant == "baseline":
        rows += _interventions(host, task, store)
        rows += mismatch(host, evaluation_task(host, MISMATCH_SAMPLES[host.family]), store=store)
    return rows


def own_records(
    subject: Subject, steps: Sequence[int] = STEPS, *, data: str = "", store: Store | None = None
) -> list[Record]:
    """Put every question that one checkpoint can answer to a subject; the records are those of the notebooks 02 to 05.

    A host without inner loops is evaluated only.
    """
    host, task = subject.host, subject.task
    rows = list(paradoxes.evaluation(host, task, store=store))
    if not host.loops:
        return rows
    rows += paradoxes.inner_steps(host, task, steps, store=store)
    rows += _interventions(host, task, store)
    few = min(task.samples, MISMATCH_SAMPLES[host.family])
    return [*rows, *mismatch(host, evaluation_task(host, few, data or None), store=store)]


def _interventions(host: Host, task: Task, store: Store | None) -> list[Record]:
    """Put every question to a host that intervenes on its frozen model."""
    probes = (paradoxes.gradient_ascent, paradoxes.query_to_key, paradoxes.feeding)
    return [row for probe in probes for row in probe(host, task, store=store)]


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure every checkpoint below a folder."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("folder", type=Path, help="folder that holds the checkpoint folders")
    parser.add_argument("records", type=Path, help="folder of the records")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--samples", type=int, help="examples instead of the full evaluation sets")
    parser.add_argument("--part", default="0/1", help="I/N: every N-th checkpoint, starting at I")
    chosen = parser.parse_args(arguments)
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    first, stride = (int(number) for number in chosen.part.split("/"))
    folders = sorted(path.parent for path in chosen.folder.glob("*/manifest.json"))[first::stride]
    for folder in folders:
        rows = survey_one(folder, Store(chosen.records), device=chosen.device, samples=chosen.samples)
        LOG.info("%s: %d records, %s %.4g", folder.name, len(rows), rows[0].metric, rows[0].value)


if __name__ == "__main__":
    main()
