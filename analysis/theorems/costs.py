"""What each form costs: floating-point operations and state bytes as formulas, checked against counted products and tensors.

Only products are counted (2 per multiply-add), as torch's counter does; elementwise work and scans of sums are not. All
formulas are for one head of one sequence, T tokens in chunks of L, key width K, hidden features D, value width V.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from analysis.inner import run
from analysis.spec import (
    ConstantRate,
    InnerLoop,
    Linear,
    NewtonSchulz,
    PerTokenMomentum,
    PerTokenRate,
    SquaredError,
    SwiGLU,
    Trained,
)
from analysis.theorems.claims import Claim, Sides
from analysis.theorems.draws import Sizes, draw

GROUP = "costs"


def feature_flops(network: SwiGLU | Linear, width: int, hidden: int) -> int:
    """Products per token for phi: two K x D projections for SwiGLU, none for a single linear layer."""
    return 4 * width * hidden if isinstance(network, SwiGLU) else 0


def linear_flops(network: SwiGLU | Linear, sizes: Sizes) -> float:
    """Per token, recurrent or parallel: phi of key and query, one outer product and one read-out of D V each."""
    hidden = sizes.width if isinstance(network, Linear) else sizes.hidden
    return 2 * feature_flops(network, sizes.width, hidden) + 4 * hidden * sizes.values


def moving_flops(sizes: Sizes) -> float:
    """Per token for SwiGLU with all weights moving: also v W_out^T and the outer products of gate and up."""
    inner = 2 * sizes.values * sizes.hidden + 4 * sizes.width * sizes.hidden
    return linear_flops(SwiGLU(), sizes) + inner


def orthogonalise_flops(rows: int, columns: int, iterations: int = 5) -> int:
    """Per matrix and update: X X^T, its square, and their product with X, on the smaller side m of n."""
    small, large = min(rows, columns), max(rows, columns)
    return iterations * (4 * small * small * large + 2 * small**3)


def quadratic_flops(network: SwiGLU | Linear, sizes: Sizes) -> float:
    """Per token for the masked product (Phi(Q) Phi(K)^T * C) V and Phi(Q) W_0: grows with T."""
    hidden = sizes.width if isinstance(network, Linear) else sizes.hidden
    per_pair = 2 * hidden + 2 * sizes.values
    return (
        2 * feature_flops(network, sizes.width, hidden) + sizes.tokens * per_pair + 2 * hidden * sizes.values
    )


def affine_scan_flops(sizes: Sizes) -> float:
    """Per token for the squared error's scan with a linear layer: K^T K, K^T V, log2 N passes over K x K maps, read-out."""
    width, values, count = sizes.width, sizes.values, sizes.chunks
    passes = [count - 2**step for step in range(math.ceil(math.log2(count)))] if count > 1 else []
    compose = 2 * width**3 + 2 * width**2 * values
    total = sum(passes) * compose + count * 2 * width**2 * values
    return 2 * width**2 + 2 * width * values + total / sizes.tokens + 2 * width * values


def state_bytes(spec: InnerLoop, sizes: Sizes, itemsize: int = 4) -> int:
    """Bytes one head carries from chunk to chunk: every moving weight, its momentum, and its norms; independent of T."""
    hidden = sizes.width if isinstance(spec.network, Linear) else sizes.hidden
    shapes = {
        "w_gate": (sizes.width, hidden),
        "w_up": (sizes.width, hidden),
        "w_out": (hidden, sizes.values),
    }
    copies = 1 if spec.momentum is None else 2
    entries = sum(copies * shapes[name][0] * shapes[name][1] for name in spec.moving)
    norms = sum(shapes[name][1] for name in spec.moving) if spec.weight_norm is not None else 0
    return itemsize * (entries + norms)


def cache_bytes(sizes: Sizes, itemsize: int = 4) -> int:
    """Bytes one head of softmax attention keeps: keys and values of all T tokens."""
    return itemsize * sizes.tokens * (sizes.width + sizes.values)


def cost_table(sizes: Sizes, itemsize: int = 4) -> list[dict[str, float | str]]:
    """Return rows of form, FLOPs per token and state bytes (in all and per token) for one head."""
    last = InnerLoop(trained=Trained.LAST, lr=ConstantRate(0.1))
    matrix = itemsize * sizes.hidden * sizes.values
    update = orthogonalise_flops(sizes.hidden, sizes.values) / sizes.chunk
    rows: list[tuple[str, float, int]] = [
        ("recurrent, all weights move", moving_flops(sizes), state_bytes(InnerLoop(), sizes, itemsize)),
        ("recurrent, last layer moves", linear_flops(SwiGLU(), sizes), state_bytes(last, sizes, itemsize)),
        (
            "the same with orthogonalisation",
            linear_flops(SwiGLU(), sizes) + update,
            state_bytes(last, sizes, itemsize),
        ),
        ("parallel over chunks", linear_flops(SwiGLU(), sizes), matrix * (sizes.chunks + 1)),
        ("masked product", quadratic_flops(SwiGLU(), sizes), itemsize * sizes.tokens**2),
        ("single linear layer", linear_flops(Linear(), sizes), itemsize * sizes.width * sizes.values),
        (
            "softmax attention, all pairs",
            2 * sizes.tokens * (sizes.width + sizes.values),
            cache_bytes(sizes, itemsize),
        ),
    ]
    return [
        {
            "form": form,
            "FLOPs per token": flops,
            "state bytes": float(held),
            "state bytes per token": held / sizes.tokens,
        }
        for form, flops, held in rows
    ]


def counted(function: Callable[[], object]) -> int:
    """Products that torch counts while `function` runs."""
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        function()
    return counter.get_total_flops()


def _whole(sizes: Sizes) -> Sizes:
    """The same sizes without an incomplete chunk, which the parallel form pads."""
    return Sizes(sizes.chunks, sizes.chunk, sizes.width, sizes.hidden, sizes.values, sizes.heads, sizes.batch)


def _compare(measured: float, formula: float) -> Sides:
    count = partial(torch.tensor, dtype=torch.float64)
    return Sides({"count": count([measured])}, {"count": count([formula])})


def _backend_flops(
    network: SwiGLU | Linear, backend: str, trained: Trained, sizes: Sizes, seed: int, twin: bool
) -> Sides:
    sizes = _whole(sizes)
    spec = InnerLoop(network=network, chunk=sizes.chunk, trained=trained, lr=PerTokenRate())
    problem = draw(spec, sizes, seed)
    measured = counted(lambda: run(spec, problem.inputs, problem.weights, backend))
    per_token = linear_flops(network, sizes) if trained is Trained.LAST else moving_flops(sizes)
    tokens = sizes.batch * sizes.heads * (sizes.tokens + int(twin) * sizes.chunk)
    return _compare(measured, per_token * tokens)


def _orthogonal_flops(sizes: Sizes, seed: int, twin: bool) -> Sides:
    sizes = _whole(sizes)
    spec = InnerLoop(chunk=sizes.chunk, trained=Trained.LAST, lr=PerTokenRate(), transform=NewtonSchulz())
    problem = draw(spec, sizes, seed)
    measured = counted(lambda: run(spec, problem.inputs, problem.weights, "recurrent"))
    update = orthogonalise_flops(sizes.hidden, sizes.values, 4 if twin else 5)
    formula = sizes.tokens * linear_flops(SwiGLU(), sizes) + sizes.chunks * update
    return _compare(measured, sizes.batch * sizes.heads * formula)


def _quadratic(sizes: Sizes, seed: int, twin: bool) -> Sides:
    problem = draw(InnerLoop(network=Linear()), _whole(sizes), seed)
    x, tokens = problem.inputs, problem.inputs.q.shape[2]
    mask = torch.ones(tokens, tokens, dtype=torch.float64).tril()

    def masked() -> Tensor:
        return ((x.q @ x.k.mT) * mask) @ x.v + x.q @ problem.start

    per_token = linear_flops(Linear(), sizes) if twin else quadratic_flops(Linear(), _whole(sizes))
    return _compare(counted(masked), sizes.batch * sizes.heads * tokens * per_token)


def _affine(sizes: Sizes, seed: int, twin: bool) -> Sides:
    sizes = _whole(sizes)
    spec = InnerLoop(
        network=Linear(),
        loss=SquaredError(),
        chunk=sizes.chunk,
        trained=Trained.LAST,
        lr=PerTokenRate(),
    )
    problem = draw(spec, sizes, seed)
    measured = counted(lambda: run(spec, problem.inputs, problem.weights, "parallel"))
    per_token = linear_flops(Linear(), sizes) if twin else affine_scan_flops(sizes)
    return _compare(measured, sizes.batch * sizes.heads * sizes.tokens * per_token)


def _state(sizes: Sizes, seed: int, twin: bool) -> Sides:
    spec = InnerLoop(chunk=sizes.chunk, lr=PerTokenRate(), momentum=PerTokenMomentum())
    problem = draw(spec, sizes, seed)
    state = problem.reference().state
    held = [*(state.fast_weights[name] for name in spec.moving), *(state.momentum or {}).values()]
    measured = sum(tensor.numel() * tensor.element_size() for tensor in held)
    formula = cache_bytes(sizes, 8) if twin else state_bytes(spec, sizes, 8)
    return _compare(measured, sizes.batch * sizes.heads * formula)


def _claim(id: str, statement: str, assumptions: str, check: Callable[[Sizes, int, bool], Sides]) -> Claim:
    return Claim(
        id, GROUP, statement, assumptions, "section 6.2, appendix H; counted by torch", check, tolerance=1e-12
    )


_COUNT = "products counted, elementwise work not; dot product, only the last layer moves"

CLAIMS = (
    _claim(
        "flops-linear-layer",
        "A single linear layer costs 4 K V per token: one outer product and one read-out.",
        _COUNT,
        partial(_backend_flops, Linear(), "recurrent", Trained.LAST),
    ),
    _claim(
        "flops-last-layer",
        "A static SwiGLU kernel costs 8 K D + 4 D V per token.",
        _COUNT,
        partial(_backend_flops, SwiGLU(), "recurrent", Trained.LAST),
    ),
    _claim(
        "flops-parallel",
        "The parallel form does the same products as the recurrence: its gain is order, not work.",
        _COUNT,
        partial(_backend_flops, SwiGLU(), "parallel", Trained.LAST),
    ),
    _claim(
        "flops-moving-kernel",
        "Moving all weights adds 2 D V + 4 K D per token.",
        "products counted, elementwise work not; dot product, SwiGLU",
        partial(_backend_flops, SwiGLU(), "recurrent", Trained.ALL),
    ),
    _claim(
        "flops-orthogonalisation",
        "Orthogonalisation adds 5 (4 m^2 n + 2 m^3) per update, m the smaller of D and V: independent of tokens.",
        _COUNT,
        _orthogonal_flops,
    ),
    _claim(
        "flops-masked-product",
        "Appendix H's masked product costs T (2 K + 2 V) + 2 K V per token for a linear layer: quadratic in all.",
        _COUNT,
        _quadratic,
    ),
    _claim(
        "flops-affine-scan",
        "The squared error's scan pays for composing K x K maps, in log2 N passes over the chunks.",
        "linear layer, squared error, parallel backend",
        _affine,
    ),
    _claim(
        "state-bytes",
        "What is carried from chunk to chunk does not grow with T: each moving weight, once more for its momentum.",
        "SwiGLU, all weights move, momentum",
        _state,
    ),
)
