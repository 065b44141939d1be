"""Layer views of a panel: the effective attention map of a head, and where its q, k, v and o lie."""

from __future__ import annotations

import torch
from torch import Tensor

from analysis.inner.attention_map import attention_map, mask_text, visible
from analysis.inner.effective import effective
from analysis.lab.edits import Choice
from analysis.lab.passes import Pass
from analysis.lab.pictures import drawing, titled
from analysis.models.host import EditedHost
from analysis.publish.style import RULE, look
from analysis.spec import NewtonSchulz

POINTS = 400


def attention_view(seen: Pass, edited: EditedHost, choice: Choice, prefix: str) -> str:
    """Return the effective attention of the chosen example, layer and head, with what no query can see left grey."""
    head, loop = choice.head, edited.loops[choice.loop]
    inputs, weights = seen.inner(prefix, choice.example, head)
    with torch.no_grad():
        view = effective(loop, inputs, weights)
        found, shown = attention_map(view, 0)[0].float().cpu(), visible(view).cpu()
    mask = mask_text(loop, inputs)
    note = (
        f"Weight of every token's value in every output before the output gate, head {head} of layer {choice.layer}. "
        f"Visible: {mask}."
    )
    if not bool(shown.any()):
        return titled("Effective attention", note, "")
    if isinstance(loop.transform, NewtonSchulz):
        note += " The orthogonaliser mixes value channels; shown is its diagonal part."
    alt = f"Effective attention map of layer {choice.layer}, head {head}, {len(found)} by {len(found)} tokens; {mask}."
    if not bool(torch.isfinite(found).all()):
        return titled(
            "Effective attention", f"{note} The weights are not finite: the inner loop diverged.", ""
        )
    return titled(
        "Effective attention", note, drawing(lambda figure: _draw_map(figure, found, shown), alt, (3.9, 3.3))
    )


def _draw_map(figure, weights: Tensor, seen: Tensor) -> None:
    import numpy as np

    axes = figure.add_subplot()
    values = weights[seen].abs().numpy()
    limit = float(np.quantile(values, 0.99)) or float(values.max()) or 1.0
    shown = np.ma.masked_where(~seen.numpy(), weights.numpy())
    axes.set_facecolor(RULE)
    axes.grid(False)
    mesh = axes.imshow(shown, cmap="RdBu_r", vmin=-limit, vmax=limit, interpolation="nearest", aspect="equal")
    figure.colorbar(mesh, ax=axes, shrink=0.85, extend="both")
    axes.set_xlabel("token whose value is read")
    axes.set_ylabel("token that reads")


def distribution_view(seen: Pass, choice: Choice, prefix: str) -> str:
    """Return q with k and v with o of one layer and head in the plane of their two main components."""
    layer, head = choice.layer, choice.head
    clouds = {kind: seen.tape[prefix + kind][:, head].flatten(0, 1).double().cpu() for kind in "qkvo"}
    chosen = torch.randperm(len(clouds["q"]), generator=torch.Generator().manual_seed(0))[:POINTS]
    planes = [_plane({kind: clouds[kind][chosen] for kind in pair}) for pair in ("qk", "vo")]
    alt = f"Scatter of q with k and of v with o in layer {layer}, head {head}, in their two main components."
    note = f"Head {head} of layer {layer}, {len(chosen)} tokens, first two principal components of each pair."
    return titled(
        "Queries and keys, values and outputs",
        note,
        drawing(lambda figure: _draw_planes(figure, planes), alt, (5.6, 2.7)),
    )


def _plane(clouds: dict[str, Tensor]) -> dict[str, Tensor]:
    joined = torch.cat(list(clouds.values()))
    joined = torch.nan_to_num(joined - joined.mean(0))
    _, _, directions = torch.linalg.svd(joined, full_matrices=False)
    flat = joined @ directions[:2].T
    return dict(zip(clouds, flat.split([len(cloud) for cloud in clouds.values()]), strict=True))


def _draw_planes(figure, planes: list[dict[str, Tensor]]) -> None:
    for axes, plane in zip(figure.subplots(1, len(planes)), planes, strict=True):
        for name, points in plane.items():
            axes.scatter(*points.T.numpy(), s=7, **look(name).cloud())
        axes.set_xticks([])
        axes.set_yticks([])
        axes.legend(markerscale=1.8, handletextpad=0.1)
