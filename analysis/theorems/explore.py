"""One loop of the reader's choice, held against every form that might describe it: where the identity holds, where it breaks."""

from __future__ import annotations

import dataclasses
from typing import Any

import torch
from torch import Tensor

from analysis.inner import BACKENDS, run
from analysis.inner.attention_map import evaluate_inside_momentum
from analysis.inner.effective import EffectiveAttention, effective, evaluate
from analysis.spec import (
    DepthwiseConv3x3,
    Identity,
    InnerLoop,
    Order,
    Reduction,
    Trained,
    parse_field,
    reducibility,
)
from analysis.theorems.claims import APPROXIMATE, relative_error
from analysis.theorems.draws import Problem, Sizes, draw

IDENTITY_TOLERANCE = 1e-10


def loop_of(sizes: Sizes, **fields: Any) -> InnerLoop:
    """Return the loop whose fields are given as plain values ('swiglu', 'squared_error', 'none', ...), in chunks.

    Raises:
        SpecError: an unknown field or value, with the nearest known one.
    """
    spec = InnerLoop().edit(**{name: parse_field(name, value) for name, value in fields.items()})
    return spec if isinstance(spec.network, DepthwiseConv3x3) else spec.edit(chunk=sizes.chunk)


def explore(spec: InnerLoop, sizes: Sizes, seed: int = 0) -> list[dict[str, Any]]:
    """Compare the autograd reference with each form on one random draw: rows of form, relative error, verdict, remark.

    What the inner loop adds to the outputs of the initial weights is compared, lest a large S_0 hide a difference.
    """
    problem = draw(spec, sizes, seed)
    first = problem.reference(spec.frozen()).outputs
    expected = problem.reference().outputs - first
    verdict = reducibility(spec, 1 if spec.chunk is None else len(problem.spans()))
    view = effective(spec, problem.inputs, problem.weights)
    rows = [
        _row(
            "linear attention with extracted q_eff, k_eff, v_eff",
            relative_error(evaluate(view) - first, expected),
            "features and values follow the state",
        ),
        _row(
            "parallel form",
            _parallel_error(problem, first, expected),
            f"{verdict.kind.value}: {verdict.reason}",
        ),
        _row(
            "sum of pairs from the initial weights, mask C",
            relative_error(evaluate(static(view, problem)) - first, expected),
            "needs the additive class",
        ),
    ]
    if spec.transform != Identity() and spec.weight_norm is None:
        error = relative_error(evaluate_inside_momentum(view) - first, expected)
        rows.append(_row("transform moved inside the momentum sum", error, "needs momentum off"))
    return rows


def _row(form: str, error: float | None, remark: str) -> dict[str, Any]:
    if error is None:
        found = "refused"
    elif error <= IDENTITY_TOLERANCE:
        found = "identity"
    else:
        found = "approximation" if error <= APPROXIMATE else "false"
    return {"form": form, "relative error": error, "verdict": found, "remark": remark}


def _parallel_error(problem: Problem, first: Tensor, expected: Tensor) -> float | None:
    if not BACKENDS["parallel"].capability(problem.spec, problem.inputs).is_capable:
        return None
    outputs = run(problem.spec, problem.inputs, problem.weights, "parallel").outputs
    return relative_error(outputs - first, expected)


def static(view: EffectiveAttention, problem: Problem) -> EffectiveAttention:
    """The same pairs as if features and values were all computed from the initial weights, and no norm or transform acted."""
    bare = view.spec.edit(
        chunk=None,
        order=Order.APPLY_THEN_UPDATE,
        steps=1,
        momentum=None,
        transform=Identity(),
        weight_norm=None,
        trained=Trained.LAST,
    )
    plain_loss = dataclasses.replace(view.spec.loss, reduction=Reduction.SUM)
    start = effective(
        bare.edit(loss=plain_loss), dataclasses.replace(problem.inputs, update_tokens=None), problem.weights
    )
    token = torch.tensor(
        [t for tokens, _ in view.steps for t in range(*tokens)], dtype=torch.long, device=view.s_0.device
    )
    averaged = view.spec.loss.reduction is Reduction.MEAN
    share = view.v_eff.new_tensor(
        [1 / (stop - first if averaged else 1) for (first, stop), _ in view.steps for _ in range(first, stop)]
    )
    return dataclasses.replace(
        view,
        q_eff=start.q_eff,
        k_eff=start.k_eff[:, :, token],
        v_eff=start.v_eff[:, :, token] * share.unsqueeze(-1),
        output_gate=start.output_gate,
        value_scale=None,
        value_mixing=None,
        norm_scale=None,
    )
