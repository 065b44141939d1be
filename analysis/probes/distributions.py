"""How Q differs from K, and V from O, in every layer of a trained host (section 4.3, Figure 2)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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
    loop: str
    points: dict[str, np.ndarray]
    places: np.ndarray | None = None

    @property
    def layer(self) -> int:
        """Number of the layer, from 0."""
        return int(self.site.split(".")[1])


class _Draw:
    """Positions drawn once a batch and used for every tensor of a loop of the same size (stages of a host may differ in it).

    A loop draws from a generator of its own: what is drawn from it does not depend on which others are captured.
    """

    def __init__(
        self, share: int, generators: Mapping[str, torch.Generator], loop_of: Mapping[str, str]
    ) -> None:
        self.share, self.generators, self.loop_of = share, generators, loop_of
        self.chosen: dict[tuple[str, Shape], Tensor] = {}
        self.drawn: dict[str, tuple[str, Shape]] = {}

    def __call__(self, name: str, tensor: Tensor) -> Tensor:
        flat, drawn = tensor.flatten(0, 2), (self.loop_of[name], tuple(tensor.shape[:3]))
        if drawn not in self.chosen:
            generator = self.generators[drawn[0]]
            self.chosen[drawn] = torch.randperm(len(flat), generator=generator)[: self.share]
        self.drawn[name] = drawn
        return flat[self.chosen[drawn].to(flat.device)]

    def places(self, name: str, first: int) -> np.ndarray:
        """Return (example, head, token) of what was drawn from a site; `first` is the number of the batch's first example."""
        drawn = self.drawn[name]
        found = np.stack(np.unravel_index(self.chosen[drawn].numpy(), drawn[1]), 1)
        return np.add(found, [first, 0, 0])


def capture(
    host: Host | EditedHost, task: Task, *, vectors: int = 600, loop: str | None = None, seed: int = 0
) -> list[Clouds]:
    """Record q, k, v and o of every loop of every layer and draw the same `vectors` (example, head, token) triples from each.

    A fresh draw per batch keeps memory to what is kept. For hosts with several loops, `loop` chooses one (default: all,
    in the order of their names).

    Raises:
        ParameterError: vectors below 1, or no such loop.
    """
    _require_count("vectors", vectors, 1)
    module = module_of(host)
    loops = {prefix: name for name in _chosen(module, loop) for prefix in _prefixes(module, name)}
    loop_of = {f"{prefix}{kind}": name for prefix, name in loops.items() for kind in "qkvo"}
    generators = {name: torch.Generator().manual_seed(seed) for name in loops.values()}
    batches = list(task.batches())
    share = -(-vectors // len(batches))
    kept: dict[str, list[np.ndarray]] = {name: [] for name in loop_of}
    places: dict[str, list[np.ndarray]] = {prefix: [] for prefix in loops}
    examples = 0
    for batch in batches:
        draw = _Draw(share, generators, loop_of)
        tape = Tape(loop_of, reduce=draw)
        with torch.no_grad():
            module(batch, loops=host.loops, tape=tape)
        for name, tensor in tape.items():
            kept[name].append(tensor.float().cpu().numpy())
        for prefix in loops:
            places[prefix].append(draw.places(prefix + "q", examples))
        examples += len(next(iter(batch.values())))
    return [
        Clouds(
            prefix.rstrip("."),
            name,
            {kind: np.concatenate(kept[prefix + kind])[:vectors] for kind in "qkvo"},
            np.concatenate(places[prefix])[:vectors],
        )
        for prefix, name in loops.items()
    ]


def _prefixes(module: Any, loop: str) -> list[str]:
    return [f"layers.{index}.{module.loop_prefix(loop)}" for index in range(module.num_layers)]


def _chosen(module: Any, loop: str | None) -> tuple[str, ...]:
    """The loops to measure, by name: a host read from a manifest does not know in which order they were specified."""
    if not module.loops or (loop is not None and loop not in tuple(module.loops)):
        known = ", ".join(module.loops) or "none: this host has no inner loop"
        raise ParameterError(
            f"loop must be one of the host's ({known}), received {loop!r}; name one, or load another checkpoint."
        )
    return tuple(sorted(module.loops)) if loop is None else (loop,)


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
    """Measure the Q/K and V/O mismatch of every layer; one record per loop, layer, pair and measure, cached by content.

    Every inner loop of the host is measured, or the one named `loop`; records name theirs. A pair whose vectors
    carry no distribution (no spread, not finite, too few) gives no record; `explain_gaps` says why.

    Raises:
        ParameterError: vectors or permutations below 1, no such loop, or no pair that carries a distribution.
    """
    _require_count("vectors", vectors, 1)
    _require_count("permutations", permutations, 1)
    module, base = module_of(host), _base(host, task)
    settings = {
        "family": host.family.value,
        "variant": variant_of(module),
        "vectors": vectors,
        "permutations": permutations,
    }
    inputs = {**base, **settings, "loops": _chosen(module, loop), "code": code_digest()}

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
    where = {**settings, "loop": clouds.loop, "layer": clouds.layer, "pair": "/".join(pair).upper()}
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
    """Return the t-SNE of Q with K and of V with O of one loop of one layer."""
    found = {
        "/".join(pair).upper(): embed(
            {kind: clouds.points[kind] for kind in pair}, perplexity=perplexity, seed=seed
        )
        for pair in PAIRS
    }
    return {pair: replace(embedding, places=clouds.places) for pair, embedding in found.items()}


def embed_layers(
    found: Sequence[Clouds], *, perplexity: float = 30.0, seed: int = 0
) -> dict[str, dict[str, Embedding]]:
    """Return the t-SNE of every pair by layer, as `plots.embeddings` draws them; with several loops, a pair names its loop."""
    several = len({clouds.loop for clouds in found}) > 1
    layers: dict[str, dict[str, Embedding]] = {}
    for clouds in found:
        for pair, embedding in embed_pairs(clouds, perplexity=perplexity, seed=seed).items():
            named = f"{clouds.loop}: {pair}" if several else pair
            layers.setdefault(f"layer {clouds.layer}", {})[named] = embedding
    return layers
