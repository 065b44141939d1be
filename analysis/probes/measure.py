"""One measurement: a host on a task, its task metric and what its inner loops did, as records."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from tqdm import tqdm

from analysis.models.evaluation import evaluate
from analysis.models.host import EditedHost, Host, unwrap
from analysis.models.sites import Replace, Tape
from analysis.probes.task import Task
from analysis.records import Record, Store, code_digest
from analysis.records.provenance import commit, versions
from analysis.spec import Loops, to_dict
from analysis.statistics import interval

_PER_EXAMPLE = {"perplexity": "nll", "psnr": "psnr", "top1": "correct"}
INNER = ("inner_loss_before", "inner_loss_after", "update_norm")
_INNER_DEFINITION = "mean over tokens, heads and chunks; a layer's loops added; then the mean over layers"


class _Observed:
    """Collects, batch by batch and by layer, inner losses and update sizes of every example, and which backends ran."""

    def __init__(self, host: Host | EditedHost, replace: Mapping[str, Replace]) -> None:
        updates = any(loop.moving for loop in host.loops.values())
        kinds = ("backend", *INNER, "measured_by") if updates else ("backend",)
        names = [name for name in host.sites() if _kind(name) in kinds]
        self.tape = Tape(names, replace=replace)
        self.host = host
        self.rows: dict[str, list[Tensor]] = {}
        self.ran: dict[str, set[str]] = {"backend": set(), "measured_by": set()}

    def forward(self, batch: Mapping[str, Tensor]) -> Tensor:
        output = self.host(batch, tape=self.tape)
        for name, found in self.tape.items():
            kind = _kind(name)
            if kind in self.ran:
                self.ran[kind].add(found)
                continue
            values = _with_a_size(found) if kind == "update_norm" else found
            self.rows.setdefault(name, []).append(values.double().flatten(1).mean(1).cpu())
        return output

    def backends(self, kind: str) -> dict[str, list[str]]:
        """Return what ran, for a record: 'backend' gave the outputs and with them the metric, 'measured_by' inner losses."""
        return {"backends": sorted(self.ran[kind])}

    def per_example(self, kind: str) -> Tensor | None:
        """Mean over layers of the sum over a layer's loops, [examples]."""
        found = {name: torch.cat(rows) for name, rows in self.rows.items() if name.endswith("." + kind)}
        if not found:
            return None
        return torch.stack(list(found.values())).sum(0) / self.host.num_layers

    def by_site(self, kind: str) -> dict[str, float]:
        return {
            name.removesuffix("." + kind): float(torch.cat(rows).mean())
            for name, rows in self.rows.items()
            if name.endswith("." + kind)
        }


def _kind(site: str) -> str:
    return site.rsplit(".", 1)[-1]


def _with_a_size(updates: Tensor) -> Tensor:
    """Leave the first chunk out of [B, H, N] where the state starts at zero: its update is relative to nothing."""
    starts_at_zero = updates.shape[-1] > 1 and bool(updates[..., 0].isinf().all())
    return updates[..., 1:] if starts_at_zero else updates


def specs(loops: Loops) -> dict[str, Any]:
    """Return loops as plain dictionaries, for a record."""
    return {name: to_dict(loop) for name, loop in loops.items()}


def module_of(host: Host | EditedHost) -> Host:
    """Return the module itself, out of an edit, `torch.compile` or a data-parallel wrapper."""
    return host.host if isinstance(host, EditedHost) else unwrap(host)


def variant_of(module: Host) -> str:
    """Return the variant that a checkpoint of ours was trained as, 'own' for any other."""
    manifest = getattr(module.checkpoint, "manifest", None)
    recipe = manifest.recipe if manifest is not None else {}
    return str(recipe.get("variant", "own")) if isinstance(recipe, Mapping) else "own"


def device_name(device: torch.device) -> str:
    """Return the name of the hardware that ran: 'cpu', or the GPU's own name."""
    return torch.cuda.get_device_name(device) if device.type == "cuda" else device.type


def measure(
    question: str,
    host: Host | EditedHost,
    task: Task,
    *,
    parameters: Mapping[str, Any] | None = None,
    replace: Mapping[str, Replace] | None = None,
    command: str = "",
    store: Store | None = None,
) -> tuple[Record, ...]:
    """Evaluate `host` on `task` and return the task metric first, then inner losses and update size; cached by content.

    The backends that ran are named in `extra`; inner losses come from another one where that of the metric keeps none.
    `replace` intervenes at named sites; such a run must be told apart by its `parameters`.
    """
    host = host if isinstance(host, EditedHost) else unwrap(host)
    base = _base(question, host, task, dict(parameters or {}), command)
    inputs = {
        **{k: v for k, v in base.items() if k not in ("versions", "commit", "command")},
        "code": code_digest(),
    }
    return (store or Store()).cached_all(inputs, lambda: _measure(base, host, task, replace or {}))


def _base(
    question: str, host: Host | EditedHost, task: Task, parameters: dict[str, Any], command: str
) -> dict[str, Any]:
    module = module_of(host)
    manifest = getattr(module.checkpoint, "manifest", None)
    seed = getattr(manifest, "seed", None)
    device = next(module.parameters()).device
    return {
        "question": question,
        "checkpoint": module.checkpoint.digest if module.checkpoint is not None else "",
        "trained_spec": specs(host.trained_loops),
        "run_spec": specs(host.loops),
        "data": task.digest,
        "seeds": () if seed is None else (seed,),
        "samples": task.samples,
        "device": device_name(device),
        "parameters": {
            "family": host.family.value,
            "variant": variant_of(module),
            "training_steps": getattr(manifest, "step", None),
            "backend": module.backend,
            **parameters,
        },
        "versions": versions(),
        "commit": commit(),
        "command": command,
    }


def _measure(
    base: Mapping[str, Any], host: Host | EditedHost, task: Task, replace: Mapping[str, Replace]
) -> tuple[Record, ...]:
    seen = _Observed(host, replace)
    with tqdm(total=task.samples, desc=base["question"], leave=False) as bar:
        found = evaluate(
            host,
            task.batches(),
            progress=lambda done: bar.update(done - bar.n),
            token_bytes=task.token_bytes,
            forward=seen.forward,
        )
    each = found.per_example[_PER_EXAMPLE.get(found.metric, found.metric)]
    if found.metric == "perplexity":
        each = each / found.per_example["tokens"]
    ran = seen.backends("backend")
    records = [
        _record(
            base,
            found.metric,
            found.unit,
            found.value,
            found.ci_low,
            found.ci_high,
            {
                "per_example": _numbers(each),
                "definition": found.definition,
                "lower_is_better": found.lower_is_better,
                **ran,
            },
        )
    ]
    records += [
        _record(base, name, other.unit, other.value, other.ci_low, other.ci_high, ran)
        for name, other in found.others.items()
    ]
    if found.metric == "perplexity" and base["question"] == "evaluation":
        curve = [round(float(value), 5) for value in found.mean_by_position()]
        records[1] = records[1].edit(extra={"by_position": curve, **ran})
    for kind in INNER:
        values = seen.per_example(kind)
        if values is not None:
            extra = {"by_site": seen.by_site(kind), "definition": _INNER_DEFINITION}
            records.append(_inner_record(base, kind, values, extra | seen.backends("measured_by")))
    return tuple(records)


def _numbers(values: Tensor) -> list[float]:
    """Return the values rounded for storage; whole ones as integers, since a record lists thousands."""
    return [int(value) if float(value).is_integer() else round(float(value), 5) for value in values]


def _inner_record(base: Mapping[str, Any], kind: str, values: Tensor, extra: dict[str, Any]) -> Record:
    finite = bool(torch.isfinite(values).all())
    if finite and len(values) > 1:
        found = interval(values.numpy(), "bootstrap")
        bounds = (found.mean, found.low, found.high)
    else:
        bounds = (float(values.mean()), None, None)
    return _record(base, kind, "", *bounds, extra)


def _record(
    base: Mapping[str, Any],
    metric: str,
    unit: str,
    value: float,
    low: float | None,
    high: float | None,
    extra: dict[str, Any],
) -> Record:
    numbers = [number for number in (value, low, high) if number is not None]
    diverged = not all(torch.isfinite(torch.tensor(numbers)))
    return Record(
        **base,
        metric=metric,
        unit=unit,
        value=value,
        ci_low=low,
        ci_high=high,
        extra=extra,
        diverged=diverged,
    )
