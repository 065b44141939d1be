"""How Q differs from K, and V from O, in every layer of a trained host (section 4.3, Figure 2)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from analysis.errors import ParameterError
from analysis.models.host import EditedHost, Host
from analysis.models.sites import Tape
from analysis.probes.embedding import Embedding, embed
from analysis.probes.measure import device_name, module_of, specs, variant_of
from analysis.probes.mismatch import check_cloud, compare
from analysis.probes.task import Task
from analysis.records import Record, Store, code_digest
from analysis.records.provenance import commit, versions

PAIRS = (("q", "k"), ("v", "o"))
Shape = tuple[int, ...]


@dataclass(frozen=True)
class Clouds:
    """Sampled vectors of one loop of one layer: q, k, v, o as [points, width], heads and tokens mixed.

    places: (example, head, token) of every point, the same for q, k, v and o.
    """

    site: str
    points: dict[str, np.ndarray]
    places: np.ndarray | None = None


class _Draw:
    """Positions drawn once a batch and used for every tensor of the same size (stages of a hierarchical host differ)."""

    def __init__(self, share: int, generator: torch.Generator) -> None:
        self.share, self.generator = share, generator
        self.chosen: dict[Shape, Tensor] = {}
        self.shapes: dict[str, Shape] = {}

    def __call__(self, name: str, tensor: Tensor) -> Tensor:
        flat, shape = tensor.flatten(0, 2), tuple(tensor.shape[:3])
        if shape not in self.chosen:
            self.chosen[shape] = torch.randperm(len(flat), generator=self.generator)[: self.share]
        self.shapes[name] = shape
        return flat[self.chosen[shape].to(flat.device)]

    def places(self, name: str, first: int) -> np.ndarray:
        """Return (example, head, token) of what was drawn from a site; `first` is the number of the batch's first example."""
        shape = self.shapes[name]
        found = np.stack(np.unravel_index(self.chosen[shape].numpy(), shape), 1)
        return np.add(found, [first, 0, 0])


def capture(
    host: Host | EditedHost, task: Task, *, vectors: int = 600, loop: str | None = None, seed: int = 0
) -> list[Clouds]:
    """Record q, k, v and o of every layer and draw the same `vectors` (example, head, token) triples from each.

    A fresh draw per batch keeps memory to what is kept. For hosts with several loops, `loop` chooses one (default: the first).

    Raises:
        ParameterError: vectors below 1, or no such loop.
    """
    _require_count("vectors", vectors, 1)
    module = module_of(host)
    prefixes = _prefixes(module, loop)
    names = [f"{prefix}{kind}" for prefix in prefixes for kind in "qkvo"]
    batches = list(task.batches())
    share = -(-vectors // len(batches))
    generator = torch.Generator().manual_seed(seed)
    kept: dict[str, list[np.ndarray]] = {name: [] for name in names}
    places: dict[str, list[np.ndarray]] = {prefix: [] for prefix in prefixes}
    examples = 0
    for batch in batches:
        draw = _Draw(share, generator)
        tape = Tape(names, reduce=draw)
        with torch.no_grad():
            module(batch, loops=host.loops, tape=tape)
        for name, tensor in tape.items():
            kept[name].append(tensor.float().cpu().numpy())
        for prefix in prefixes:
            places[prefix].append(draw.places(prefix + "q", examples))
        examples += len(next(iter(batch.values())))
    return [
        Clouds(
            prefix.rstrip("."),
            {kind: np.concatenate(kept[prefix + kind])[:vectors] for kind in "qkvo"},
            np.concatenate(places[prefix])[:vectors],
        )
        for prefix in prefixes
    ]


def _prefixes(module: Any, loop: str | None) -> list[str]:
    inner = module.loop_prefix(_chosen(module, loop))
    return [f"layers.{index}.{inner}" for index in range(module.num_layers)]


def _chosen(module: Any, loop: str | None) -> str:
    if not module.loops or (loop is not None and loop not in tuple(module.loops)):
        known = ", ".join(module.loops) or "none: this host has no inner loop"
        raise ParameterError(
            f"loop must be one of the host's ({known}), received {loop!r}; name one, or load another checkpoint."
        )
    return next(iter(module.loops)) if loop is None else loop


def _require_count(name: str, value: Any, least: int) -> None:
    if type(value) is not int or value < least:
        raise ParameterError(
            f"{name} must be an integer of at least {least}, received {value!r}; ask for a few hundred."
        )


def mismatch(
    host: Host | EditedHost,
    task: Task,
    *,
    vectors: int = 600,
    permutations: int = 200,
    loop: str | None = None,
    store: Store | None = None,
) -> tuple[Record, ...]:
    """Measure the Q/K and V/O mismatch of every layer; one record per layer, pair and measure, cached by content.

    A pair whose vectors carry no distribution (no spread, not finite, too few) gives no record; `explain_gaps` says why.

    Raises:
        ParameterError: vectors or permutations below 1, no such loop, or no pair that carries a distribution.
    """
    _require_count("vectors", vectors, 1)
    _require_count("permutations", permutations, 1)
    module, base = module_of(host), _base(host, task)
    settings = {
        "family": host.family.value,
        "variant": variant_of(module),
        "loop": _chosen(module, loop),
        "vectors": vectors,
        "permutations": permutations,
    }
    inputs = {**base, **settings, "code": code_digest()}

    def compute() -> list[Record]:
        found = capture(host, task, vectors=vectors, loop=loop)
        rows = [
            row
            for clouds in found
            for pair in PAIRS
            for row in _pair(base, settings, clouds, pair, permutations)
        ]
        if not rows:
            raise ParameterError(
                f"expected vectors that carry a distribution, received none ({explain_gaps(found)[0]}); ask for more vectors "
                "and samples, or load another checkpoint."
            )
        return rows

    return (store or Store()).cached_all(inputs, compute)


def _base(host: Host | EditedHost, task: Task) -> dict[str, Any]:
    module = module_of(host)
    manifest = getattr(module.checkpoint, "manifest", None)
    return {
        "question": "distribution mismatch",
        "checkpoint": module.checkpoint.digest if module.checkpoint is not None else "",
        "trained_spec": specs(host.trained_loops),
        "run_spec": specs(host.loops),
        "data": task.digest,
        "seeds": () if manifest is None else (manifest.seed,),
        "samples": task.samples,
        "device": device_name(next(module.parameters()).device),
    }


def _pair(
    base: Mapping[str, Any],
    settings: Mapping[str, Any],
    clouds: Clouds,
    pair: tuple[str, str],
    permutations: int,
) -> list[Record]:
    a, b = (clouds.points[kind] for kind in pair)
    if check_cloud(a) or check_cloud(b):
        return []
    found = compare(a, b, permutations=permutations)
    where = {**settings, "layer": int(clouds.site.split(".")[1]), "pair": "/".join(pair).upper()}
    return [
        Record(
            **base,
            metric=name,
            value=value,
            parameters=where,
            versions=versions(),
            commit=commit(),
            command="probe distributions",
            extra={"width": found.width},
        )
        for name, value in found.as_dict().items()
    ]


def explain_gaps(clouds: list[Clouds]) -> list[str]:
    """Return one sentence for every cloud that carries no distribution, for the report to show in its place."""
    return [
        f"{cloud.site}.{kind}: {why}"
        for cloud in clouds
        for kind, points in cloud.points.items()
        if (why := check_cloud(points))
    ]


def embed_pairs(clouds: Clouds, *, perplexity: float = 30.0, seed: int = 0) -> dict[str, Embedding]:
    """Return the t-SNE of Q with K and of V with O of one layer."""
    found = {
        "/".join(pair).upper(): embed(
            {kind: clouds.points[kind] for kind in pair}, perplexity=perplexity, seed=seed
        )
        for pair in PAIRS
    }
    return {pair: replace(embedding, places=clouds.places) for pair, embedding in found.items()}
