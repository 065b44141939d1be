"""The hosts a notebook studies, each with its evaluation task: the shipped checkpoints, or the reader's own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from analysis import paths
from analysis.errors import CheckpointError
from analysis.models.checkpoints import load
from analysis.models.host import Host
from analysis.probes.task import Task, evaluation_task
from analysis.spec import Family


@dataclass(frozen=True)
class Subject:
    """A host and what it is evaluated on."""

    host: Host
    task: Task

    @property
    def title(self) -> str:
        """Name of the family as the report prints it."""
        return self.host.family.title

    def __repr__(self) -> str:
        name = "untrained" if self.host.checkpoint is None else self.host.checkpoint.path.name
        return f"Subject({self.title} {name}, {self.task.samples} examples of {self.task.name})"


def shipped(family: Family, variant: str = "baseline", seed: int = 0) -> Path:
    """Return the folder of a shipped checkpoint.

    Raises:
        CheckpointError: it is not among the shipped ones.
    """
    folder = paths.CHECKPOINTS / f"{family.value}-{variant}-s{seed}"
    if not folder.is_dir():
        known = ", ".join(sorted(one.name for one in paths.CHECKPOINTS.glob(f"{family.value}-*"))) or "none"
        raise CheckpointError(
            f"expected a shipped checkpoint {folder.name}, found {known}; train it with "
            f"`make train RECIPE={family.value}-{variant}`."
        )
    return folder


def subjects(
    checkpoint: str = "",
    data: str = "",
    *,
    samples: Mapping[str, int] | None = None,
    variant: str = "baseline",
) -> dict[str, Subject]:
    """Return the subjects of a study by family name: one for `checkpoint`, or the three shipped ones of a variant.

    samples: how many examples are evaluated, by family; a family left out takes its default.

    Raises:
        CheckpointError, DataError: a path is missing or does not hold what it should.
    """
    folders = [Path(checkpoint)] if checkpoint else [shipped(family, variant) for family in Family]
    found = {}
    for folder in folders:
        host = load(folder)
        name = host.family.value
        found[name] = Subject(host, evaluation_task(host, (samples or {}).get(name), data or None))
    return found
