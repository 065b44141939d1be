"""Where a loaded model comes from and what its loader had to say, as a table for a notebook."""

from __future__ import annotations

import html
from collections.abc import Mapping
from dataclasses import dataclass

from analysis.models.host import Host
from analysis.publish.captions import nearest_name


@dataclass(frozen=True)
class Provenance:
    """The origin of a host in rows of name and value; built by `provenance`."""

    rows: tuple[tuple[str, str], ...]
    notes: tuple[str, ...]

    def _repr_html_(self) -> str:
        body = "".join(
            f"<tr><th style='text-align:left'>{name}</th><td style='text-align:left'>{html.escape(value)}</td></tr>"
            for name, value in self.rows
        )
        notes = "".join(f"<li>{html.escape(note)}</li>" for note in self.notes)
        said = (
            f"<p>The loader notes:</p><ul>{notes}</ul>" if notes else "<p>The loader had nothing to note.</p>"
        )
        return f"<table><tbody>{body}</tbody></table>{said}"

    def __repr__(self) -> str:
        return "\n".join(
            f"{name}: {value}" for name, value in (*self.rows, *(("note", note) for note in self.notes))
        )


def provenance(host: Host) -> Provenance:
    """Return where a host comes from: file, layout, digest, which weights, the run that trained it, the loader's notes."""
    found = host.checkpoint
    rows = [("family", host.family.title), ("parameters", f"{host.num_parameters():,}")]
    if host.loops:
        rows.append(("inner loops as trained", nearest_name(host.loops)))
    if found is None:
        return Provenance((*rows, ("checkpoint", "none: built in this session")), tuple(host.notes))
    rows.insert(0, ("file", found.path.name))
    rows.append(("sha256", found.digest[:16] + " …"))
    for name, text in (("layout", "layout"), ("weights", "weights taken"), ("storage", "stored as")):
        if value := getattr(found, name, ""):
            rows.append((text, str(value)))
    rows += _training(found.manifest)
    return Provenance(tuple(rows), tuple(host.notes))


def _training(manifest: object) -> list[tuple[str, str]]:
    """What our own manifest says about the run; an official file says nothing."""
    if manifest is None:
        return [("training run", "not stated in the file")]
    recipe = getattr(manifest, "recipe", None)
    variant = recipe.get("variant", "") if isinstance(recipe, Mapping) else ""
    named = (
        ("variant", variant),
        ("seed", getattr(manifest, "seed", None)),
        ("outer steps", getattr(manifest, "step", None)),
        ("trained at commit", str(getattr(manifest, "commit", None) or "")[:10]),
    )
    return [(name, str(value)) for name, value in named if value not in (None, "")]
