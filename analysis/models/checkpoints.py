"""Loading, saving and inspecting checkpoints of the three families, in the published formats and our own.

    host = load("checkpoints/lact_lm-baseline-s0")            our folder: model.safetensors + manifest.json
    host = load("lact-760M/")                                 HuggingFace folder, single file or shards
    host = load("lact_l24.pt", config="lact_l24.yaml")        LaCT view synthesis
    host = load("h_vittt_b.pth", weights="ema")               ViTTT; raw weights with weights="model"

Nothing in a file is executed. A missing parameter, another shape, NaN, or a digest that differs from the manifest stops
the load; tensors the host does not know are accepted with a note in `host.notes`.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import save_file
from torch import Tensor

from analysis.errors import CheckpointError, ParameterError, StorageError
from analysis.models import families
from analysis.models.checkpoint_sources import Source, read_source
from analysis.models.host import Host, unwrap
from analysis.models.manifest import (
    MANIFEST_FILE,
    WEIGHTS_FILE,
    Manifest,
    check_provenance,
    sha256_of,
    write_manifest,
)
from analysis.models.state_dicts import (
    MatchReport,
    looks_untrained,
    match,
    require_complete,
    require_finite,
    require_numbers,
)
from analysis.paths import replacing
from analysis.spec import Family, Loops


@dataclass(frozen=True, repr=False)
class CheckpointSummary:
    """What a checkpoint is, without its tensors: for reports, records and the `inspect` verb."""

    path: Path
    layout: str
    family: Family
    config: Any
    loops: Loops
    digest: str
    num_parameters: int
    weights: str
    storage: str
    manifest: Manifest | None
    match: MatchReport
    notes: tuple[str, ...]

    def __repr__(self) -> str:
        return (
            f"CheckpointSummary({self.path.name}: {self.family.title}, layout {self.layout}, {self.num_parameters:,} "
            f"parameters in {self.storage}, sha256 {self.digest[:12]})"
        )


def load(
    path: str | os.PathLike[str],
    weights: str | None = None,
    *,
    config: str | os.PathLike[str] | Mapping[str, Any] | None = None,
    device: str | torch.device = "cpu",
) -> Host:
    """Load a checkpoint of any supported layout as a host in evaluation mode, its weights in float32.

    weights: 'model', 'ema', or None. A file that holds both (hierarchical ViTTT) gives the averaged ones by default, because
    the published numbers are theirs; `host.notes` says which were taken, and 'ema' is refused where there are none.
    config: a configuration file or mapping, for files that carry none.

    Raises `CheckpointError` saying what was expected, what came and what to do.
    """
    source = read_source(Path(path), weights, _config_argument(config), shapes_only=False)
    report = _checked_match(source)
    require_finite({name: source.tensors[name] for name in report.matched}, source.path.name)
    if not any(note.startswith("untrained") for note in source.notes) and looks_untrained(source.tensors):
        source.notes.append(
            "untrained: all norm weights are one and all biases zero, as before the first step"
        )
    host = families.skeleton(source.family, source.config, source.loops)
    tensors = {name: _wide(source.tensors[name]) for name in report.matched}
    placeholders = {name: host.state_dict()[name] for name in host.tied_names()}
    host.load_state_dict({**placeholders, **tensors}, strict=True, assign=True)
    host.tie()
    host.checkpoint = _summary(source, report, host)
    host.notes.extend(host.checkpoint.notes)
    try:
        return host.to(device).eval()
    except (RuntimeError, AssertionError) as error:
        raise ParameterError(f"expected a device of this machine, received {device!r}; use 'cpu'") from error


def inspect(
    path: str | os.PathLike[str],
    weights: str | None = None,
    *,
    config: str | os.PathLike[str] | Mapping[str, Any] | None = None,
) -> CheckpointSummary:
    """Summarise a checkpoint without loading it into a host; safetensors files are not even read beyond their header.

    Raises `CheckpointError` as `load` does, except for what only the values of the weights can show.
    """
    source = read_source(Path(path), weights, _config_argument(config), shapes_only=True)
    report = _checked_match(source)
    host = families.skeleton(source.family, source.config, source.loops)
    return _summary(source, report, host)


def save(
    host: Host,
    folder: str | os.PathLike[str],
    manifest: Mapping[str, Any] | None = None,
    *,
    dtype: torch.dtype = torch.bfloat16,
) -> Manifest:
    """Write a host as our own checkpoint, file by file under a temporary name; returns the manifest as written.

    manifest: provenance, any of recipe, data_digest, seed, step, metrics, commit, versions. dtype: storage of the
    parameters; buffers keep theirs. The manifest is replaced last, so that an interrupted save is noticed by its digest.
    """
    host, folder = unwrap(host), Path(folder)
    provenance = check_provenance(manifest or {})
    if not dtype.is_floating_point:
        raise CheckpointError(
            f"expected a floating-point dtype to store weights in, received {dtype}; pass torch.bfloat16"
        )
    tied, parameters = host.tied_names(), dict(host.named_parameters())
    tensors = {
        name: (tensor.detach().to("cpu", dtype) if name in parameters else tensor.detach().cpu()).contiguous()
        for name, tensor in host.state_dict().items()
        if name not in tied
    }
    require_finite(tensors, "the host to be saved")
    with replacing(folder / WEIGHTS_FILE) as partial:
        try:
            save_file(tensors, partial)
        except SafetensorError as error:  # its way of reporting a full disk
            raise StorageError(
                f"expected to write {folder / WEIGHTS_FILE}, received: {error}; free space"
            ) from error
        written = Manifest(
            family=host.family,
            config=families.write_config(host),
            loops=host.loops,
            sha256=sha256_of(partial),
            num_parameters=host.num_parameters(),
            storage=str(dtype).removeprefix("torch."),
            **provenance,
        )
    write_manifest(written, folder / MANIFEST_FILE)
    return written


def _checked_match(source: Source) -> MatchReport:
    expected = families.tensors_of(source.family, source.config, source.loops)
    shapes, found = (
        {name: tuple(tensor.shape) for name, tensor in tensors.items()}
        for tensors in (expected, source.tensors)
    )
    report = dataclasses.replace(match(shapes, found), stripped=source.stripped)
    require_complete(report, source.path.name, families.explain_mismatch(source.config, report.mismatched))
    require_numbers(source.tensors, {name: expected[name] for name in report.matched}, source.path.name)
    return report


def _summary(source: Source, report: MatchReport, host: Host) -> CheckpointSummary:
    notes = list(source.notes)
    extra = [name for name in report.unexpected if name not in host.tied_names()]
    if extra:
        notes.append(
            f"{len(extra)} tensors are not part of this host and were left out: {', '.join(extra[:5])}"
        )
    if source.stripped:
        notes.append(f"the prefix {source.stripped!r} was removed from the names")
    first = source.tensors[report.matched[0]].dtype
    return CheckpointSummary(
        path=source.path,
        layout=source.layout,
        family=source.family,
        config=source.config,
        loops=host.loops,
        digest=source.digest(),
        num_parameters=host.num_parameters(),
        weights=source.weights,
        storage=source.manifest.storage if source.manifest else str(first).removeprefix("torch."),
        manifest=source.manifest,
        match=report,
        notes=tuple(notes),
    )


def _config_argument(config: Any) -> Path | Mapping[str, Any] | None:
    return config if config is None or isinstance(config, Mapping) else Path(config)


def _wide(tensor: Tensor) -> Tensor:
    """Parameters are computed with in float32, however they are stored."""
    return tensor.float() if tensor.is_floating_point() else tensor
