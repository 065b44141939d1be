"""What training runs found, as records: `python -m analysis.training.results FOLDER RECORDS`.

A manifest holds the evaluation that the trainer made on the full evaluation set at the end of its run, on its device. These
records travel with the repository, so that readers see every seed without an accelerator.
"""

from __future__ import annotations

import argparse
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from analysis.models.manifest import MANIFEST_FILE, Manifest, read_manifest
from analysis.records import Record, Store
from analysis.spec import to_dict

LOG = logging.getLogger(__name__)
INNER_DEFINITION = (
    "mean over tokens, heads, layers and the loops of a layer, on the first held-out batch alone (not on all samples), "
    "before the weights were rounded for storage"
)
"""Not the measure of the probes, which add the loops of a layer: signs compare with theirs, sizes only for a single loop."""


def training_records(manifest: Manifest) -> list[Record]:
    """Return the records of one run: task metric with its interval over examples, and the inner losses at the last step."""
    found = manifest.metrics["evaluation"]
    recipe = manifest.recipe if isinstance(manifest.recipe, dict) else {}
    loops = {name: to_dict(loop) for name, loop in manifest.loops.items()}
    base: dict[str, Any] = {
        "question": "retrained",
        "checkpoint": manifest.sha256,
        "trained_spec": loops,
        "run_spec": loops,
        "data": found["data_digest"],
        "seeds": () if manifest.seed is None else (manifest.seed,),
        "samples": found["samples"],
        "device": manifest.metrics["device"],
        "parameters": {
            "family": manifest.family.value,
            "variant": recipe.get("variant", "own"),
            "training_steps": manifest.step,
        },
        "versions": manifest.versions,
        "commit": manifest.commit,
        "command": f"make train RECIPE={recipe.get('name', '')}",
    }
    rows = [
        Record(
            **base,
            metric=found["metric"],
            unit=found["unit"],
            value=found["value"],
            ci_low=found["ci_low"],
            ci_high=found["ci_high"],
            extra={"seconds": manifest.metrics["seconds"], "curve": manifest.metrics["curve"]},
        )
    ]
    curve = manifest.metrics["inner_curve"]
    if curve.get("inner_loss_after"):
        for side in ("inner_loss_before", "inner_loss_after"):
            history = {"steps": curve["steps"], "values": curve[side]}
            extra = {"history": history, "definition": INNER_DEFINITION}
            rows.append(Record(**base, metric=side, value=curve[side][-1], extra=extra))
    return rows


def main(arguments: Sequence[str] | None = None) -> None:
    """Write the records of every checkpoint below a folder."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("folder", type=Path, help="folder that holds the checkpoint folders")
    parser.add_argument("records", type=Path, help="folder of the records")
    chosen = parser.parse_args(arguments)
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    store = Store(chosen.records)
    for path in sorted(chosen.folder.glob(f"*/{MANIFEST_FILE}")):
        rows = [store.put(record) for record in training_records(read_manifest(path.parent))]
        LOG.info("%s: %s %.4g", path.parent.name, rows[0].metric, rows[0].value)


if __name__ == "__main__":
    main()
