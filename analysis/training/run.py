"""One training run as an object that is advanced step by step, so that several may share a process and a device."""

from __future__ import annotations

import itertools
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from tqdm import tqdm

from analysis.errors import AnalysisError
from analysis.models import checkpoints, families
from analysis.models.evaluation import Evaluation, evaluate
from analysis.models.sites import Tape
from analysis.records.provenance import commit, versions
from analysis.training.compiled import compile_blocks, training_backend
from analysis.training.distributed import Team, check_divisible
from analysis.training.recipes import Recipe
from analysis.training.resume import read_state, remove_state, restoring, write_state
from analysis.training.step import GraphedStep, OuterStep, choose_graph, on_stream
from analysis.training.tasks import Task, rows

CURVE_POINTS = 60
INNER_POINTS = 12
_INNER = ("inner_loss_before", "inner_loss_after")


class DivergedError(AnalysisError):
    """The outer loss is no longer a finite number; the message names the step."""


@dataclass
class Curve:
    """What was seen on the way: inner losses on fixed evaluation examples, at the steps given."""

    steps: list[int] = field(default_factory=list)
    inner_loss_before: list[float] = field(default_factory=list)
    inner_loss_after: list[float] = field(default_factory=list)


class Run:
    """A recipe being trained: host, optimiser, data and curves; `advance` enqueues steps, `finish` evaluates and saves.

    folder: where the checkpoint and the state for resuming go. graph: auto, on or off; `graph_reason` says what was
    decided and why. compiled: fuse pointwise work with torch.compile. With `resume`, the state in the folder is continued.
    commit_name: the git commit to record, for machines that hold no repository.
    """

    def __init__(
        self,
        recipe: Recipe,
        task: Task,
        team: Team,
        folder: Path,
        *,
        graph: str = "auto",
        compiled: bool = False,
        resume: bool = True,
        commit_name: str | None = None,
    ) -> None:
        check_divisible(recipe.batch, team)
        self.recipe, self.task, self.team, self.folder = recipe, task, team, folder
        self.commit_name = commit_name
        torch.manual_seed(recipe.seed)
        self.host = families.build(recipe.family, recipe.config, recipe.loops).to(team.device).train()
        self.host.backend = self.backend = training_backend(self.host, compiled)
        if compiled:
            compile_blocks(self.host)
        self.generator = torch.Generator(team.device).manual_seed(recipe.seed)
        joint = task.sampler(recipe.batch, self.generator)
        self.outer = OuterStep(
            team.wrap(self.host), recipe, lambda: rows(joint(), team.rank, team.world), team.device
        )
        self.step, self.seconds, self.curve = 0, 0.0, Curve()
        if team.rank:
            torch.manual_seed(recipe.seed + team.rank)  # stochastic depth differs between processes
        if resume and (state := read_state(folder, recipe, team.device)) is not None:
            with restoring(folder):
                self._restore(state)
        is_graphed, self.graph_reason = choose_graph(graph, team.device, team.world)
        self.graph_reason += ", compiled" if compiled else ""
        self.stream = torch.cuda.Stream(team.device) if is_graphed else None  # type: ignore[no-untyped-call]
        self.take = GraphedStep(self.outer, self.generator, self.stream) if self.stream else self.outer
        if self.stream is not None:
            self.stream.wait_stream(torch.cuda.current_stream(team.device))

    @property
    def done(self) -> bool:
        """Whether all steps were taken."""
        return self.step >= self.recipe.steps

    def advance(self, steps: int) -> None:
        """Enqueue up to `steps` steps; the inner losses are read whenever a point of their curve is passed."""
        interval = max(1, self.recipe.steps // INNER_POINTS)
        for _ in range(min(steps, self.recipe.steps - self.step)):
            if self.step % interval == 0:
                self._read_inner_losses()
            self.take()
            self.step += 1

    def check(self) -> float:
        """Wait for the steps enqueued so far and return the mean outer loss of the last few.

        Raises:
            DivergedError: a loss is not finite.
        """
        self.synchronise()
        losses = self.outer.losses[: self.step]
        if not bool(torch.isfinite(losses).all()):
            first = int((~torch.isfinite(losses)).nonzero()[0])
            raise DivergedError(
                f"expected a finite outer loss in {self.recipe.name} with seed {self.recipe.seed}, received "
                f"{float(losses[first])} at step {first + 1}; lower lr or clip, or train in float32."
            )
        return float(losses[-50:].mean()) if self.step else float("nan")

    def synchronise(self) -> None:
        """Wait for the device."""
        if self.stream is not None:
            self.stream.synchronize()
        elif self.team.device.type == "cuda":
            torch.cuda.synchronize(self.team.device)

    def _read_inner_losses(self) -> None:
        if not any(loop.moving for loop in self.recipe.loops.values()):
            return
        pattern = "layers.*.*." if len(self.host.loops) > 1 else "layers.*."
        tape = Tape([pattern + name for name in _INNER])
        with on_stream(self.stream), torch.no_grad():
            # on a device auto would run the kernels for outputs that nobody reads
            self.host.eval().backend = "recurrent"
            self.host(self.task.probe, tape=tape)
            self.host.train().backend = self.backend
            self.curve.steps.append(self.step)
            for name in _INNER:
                values = [value.mean() for site, value in tape.items() if site.endswith(name)]
                getattr(self.curve, name).append(round(float(torch.stack(values).mean()), 5))

    def save_state(self) -> None:
        """Write all that is needed to continue: model, optimiser, generators, curves (by the leading process)."""
        self.synchronise()
        if not self.team.leads:
            return
        state: dict[str, Any] = {
            "step": self.step,
            "seconds": self.seconds,
            "host": self.host.state_dict(),
            "optimiser": self.outer.optimiser.state_dict(),
            "losses": self.outer.losses,
            "norms": self.outer.norms,
            "generator": self.generator.get_state(),
            "rng": torch.get_rng_state(),
            "curve": dict(vars(self.curve)),
        }
        if self.team.device.type == "cuda":
            state["cuda_rng"] = torch.cuda.get_rng_state(self.team.device)
        write_state(self.folder, self.recipe, state)

    def _restore(self, state: dict[str, Any]) -> None:
        self.step, self.seconds = int(state["step"]), float(state["seconds"])
        self.host.load_state_dict(state["host"])
        self.outer.optimiser.load_state_dict(state["optimiser"])
        self.outer.losses.copy_(state["losses"])
        self.outer.norms.copy_(state["norms"])
        self.outer.counter.fill_(self.step)
        self.generator.set_state(state["generator"].cpu())
        self.curve = Curve(**state["curve"])
        if self.team.leads:
            torch.set_rng_state(state["rng"].cpu())
            if "cuda_rng" in state:
                torch.cuda.set_rng_state(state["cuda_rng"].cpu(), self.team.device)
        else:
            torch.manual_seed(self.recipe.seed + self.team.rank + self.step)

    def finish(self, *, progress: bool = False) -> Evaluation | None:
        """Evaluate the weights as they are stored (bfloat16) and write the checkpoint; returns the evaluation.

        Only the leading process does so; the others wait and get None. progress: show how many examples are evaluated.
        """
        self.check()
        evaluation = None
        if self.team.leads:
            with on_stream(self.stream), torch.no_grad():
                self._read_inner_losses()
                self.host.backend = "auto"
                for parameter in self.host.parameters():
                    parameter.copy_(parameter.bfloat16().float())
                with tqdm(desc="evaluating", unit=" examples", disable=not progress) as bar:
                    evaluation = evaluate(
                        self.host,
                        self.task.evaluation(),
                        progress=lambda done: bar.update(done - bar.n),
                        token_bytes=self.task.token_bytes,
                    )
                self._write_checkpoint(evaluation)
            remove_state(self.folder)
        self.team.wait()
        return evaluation

    def _write_checkpoint(self, evaluation: Evaluation) -> None:
        manifest = {
            "recipe": self.recipe.to_dict(),
            "data_digest": self.task.digest,
            "seed": self.recipe.seed,
            "step": self.step,
            "metrics": {
                evaluation.metric: evaluation.value,
                "evaluation": {
                    "metric": evaluation.metric,
                    "value": evaluation.value,
                    "ci_low": evaluation.ci_low,
                    "ci_high": evaluation.ci_high,
                    "unit": evaluation.unit,
                    "samples": evaluation.samples,
                    "data_digest": self.task.evaluation_digest,
                    **{name: estimate.value for name, estimate in evaluation.others.items()},
                },
                "curve": self.outer_curve(),
                "inner_curve": dict(vars(self.curve)),
                "seconds": round(self.seconds, 1),
                "device": device_name(self.team),
                "graph": self.graph_reason,
            },
            "commit": self.commit_name or commit(),
            "versions": versions(),
        }
        checkpoints.save(self.host, self.folder, manifest)

    def outer_curve(self) -> dict[str, list[float]]:
        """Outer loss and gradient norm as means over equal stretches of the run, with the last step of each stretch."""
        count = min(CURVE_POINTS, max(1, self.step))
        edges = [round(i * self.step / count) for i in range(count + 1)]
        losses, norms = self.outer.losses.cpu(), self.outer.norms.cpu()
        spans = list(itertools.pairwise(edges))
        return {
            "steps": [float(stop) for _, stop in spans],
            "outer_loss": [round(float(losses[start:stop].mean()), 5) for start, stop in spans],
            "gradient_norm": [round(float(norms[start:stop].mean()), 5) for start, stop in spans],
        }


def device_name(team: Team) -> str:
    """Return what a team trains on: the accelerator's name or the kind of device, times the number of processes."""
    name = torch.cuda.get_device_name(team.device) if team.device.type == "cuda" else team.device.type
    return name if team.world == 1 else f"{team.world} x {name}"


class Stopwatch:
    """Adds the time since it was made or last read to a run's seconds."""

    def __init__(self) -> None:
        self.last = time.monotonic()

    def lap(self) -> float:
        """Return the seconds since the last call."""
        now = time.monotonic()
        passed, self.last = now - self.last, now
        return passed
