"""What attention, linear attention and test-time training cost as sequences grow: counted operations and measured time.

The forms follow the path from softmax attention to test-time training. All take queries, keys and values [1, 1, T, D] in
float32. Operations are counted by torch's own counter, so they are the same on every machine; times are medians on this one.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from analysis.errors import ParameterError
from analysis.inner import Inputs, run
from analysis.probes.measure import device_name
from analysis.records import Record, Store, code_digest
from analysis.records.provenance import commit, versions
from analysis.spec import InnerLoop, Linear, SwiGLU

Form = Callable[[Tensor, Tensor, Tensor], Tensor]
CHUNK = 64


def feature_map(x: Tensor) -> Tensor:
    """elu(x) + 1: a positive feature map of the width of its input."""
    return F.elu(x) + 1


def softmax_attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """softmax(q k^T / sqrt(D)) v, every query seeing every key."""
    scores = q @ k.transpose(-2, -1) / q.shape[-1] ** 0.5
    return scores.softmax(-1) @ v


def linear_attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """phi(q) S / (phi(q) z) with S = sum phi(k)^T v and z = sum phi(k)."""
    phi_q, phi_k = feature_map(q), feature_map(k)
    state, normaliser = phi_k.transpose(-2, -1) @ v, phi_k.sum(-2, keepdim=True).transpose(-2, -1)
    return (phi_q @ state) / (phi_q @ normaliser)


def causal_linear_attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """The same for growing prefixes as a recurrence over tokens: S_t = S_{t-1} + phi(k_t)^T v_t, z likewise."""
    phi_q, phi_k = feature_map(q), feature_map(k)
    state = q.new_zeros(*q.shape[:2], q.shape[-1], v.shape[-1])
    normaliser = q.new_zeros(*q.shape[:2], q.shape[-1], 1)
    outputs = []
    for t in range(q.shape[2]):
        key = phi_k[:, :, t : t + 1].transpose(-2, -1)
        state, normaliser = state + key @ v[:, :, t : t + 1], normaliser + key
        query = phi_q[:, :, t : t + 1]
        outputs.append((query @ state) / (query @ normaliser))
    return torch.cat(outputs, 2)


def test_time_training(spec: InnerLoop, weights: Mapping[str, Tensor]) -> Form:
    """Return the form that runs an inner loop from the given initial fast weights."""
    return lambda q, k, v: run(spec, Inputs(q, k, v), weights).outputs


def forms(width: int = 64, seed: int = 0) -> dict[str, Form]:
    """Return every form by name; the inner loops share one draw of initial fast weights."""
    generator = torch.Generator().manual_seed(seed)

    def draw(rows: int, columns: int) -> Tensor:
        return torch.randn(1, 1, rows, columns, generator=generator) / rows**0.5

    linear = {"w_out": torch.zeros(1, 1, width, width)}
    swiglu = {"w_gate": draw(width, width), "w_up": draw(width, width), "w_out": draw(width, width)}
    return {
        "softmax attention": softmax_attention,
        "linear attention": linear_attention,
        "linear attention, token by token": causal_linear_attention,
        "TTT, linear, whole sequence": test_time_training(InnerLoop(network=Linear()), linear),
        "TTT, SwiGLU, whole sequence": test_time_training(InnerLoop(network=SwiGLU()), swiglu),
        f"TTT, SwiGLU, chunks of {CHUNK}": test_time_training(
            InnerLoop(network=SwiGLU(), chunk=CHUNK), swiglu
        ),
    }


def costs(
    lengths: Sequence[int], *, width: int = 64, repeats: int = 5, store: Store | None = None
) -> tuple[Record, ...]:
    """Count operations and measure time of every form at every length; one record each, cached by content.

    Raises:
        ParameterError: no lengths, or one below 1.
    """
    if not lengths or min(lengths) < 1 or width < 1 or repeats < 1:
        raise ParameterError(
            f"lengths, width and repeats must be at least 1, received {list(lengths)}, {width}, {repeats}; raise them."
        )
    base = {"question": "cost", "device": device_name(torch.device("cpu"))}
    asked = {**base, "lengths": list(lengths), "width": width, "repeats": repeats, "code": code_digest()}
    return (store or Store()).cached_all(asked, lambda: _measure(base, lengths, width, repeats))


def _measure(base: Mapping[str, str], lengths: Sequence[int], width: int, repeats: int) -> list[Record]:
    rows = []
    for name, form in forms(width).items():
        for length in lengths:
            torch.manual_seed(0)
            q, k, v = (torch.randn(1, 1, length, width) for _ in range(3))
            with torch.no_grad():
                operations, milliseconds = count(form, q, k, v), median_time(form, q, k, v, repeats)
            where = {"form": name, "tokens": length, "width": width, "threads": torch.get_num_threads()}
            for metric, value, unit in (("operations", operations, "FLOP"), ("time", milliseconds, "ms")):
                rows.append(
                    Record(
                        **base,
                        metric=metric,
                        value=float(value),
                        unit=unit,
                        parameters=where,
                        versions=versions(),
                        commit=commit(),
                        command="probe cost",
                    )
                )
    return rows


def count(form: Form, q: Tensor, k: Tensor, v: Tensor) -> int:
    """Return the floating-point operations of the matrix products of one call."""
    with FlopCounterMode(display=False) as counter:
        form(q, k, v)
    return int(counter.get_total_flops())


def median_time(form: Form, q: Tensor, k: Tensor, v: Tensor, repeats: int) -> float:
    """Return the median wall-clock milliseconds of a call, after one to warm up."""
    form(q, k, v)
    seconds = []
    for _ in range(repeats):
        start = time.perf_counter()
        form(q, k, v)
        seconds.append(time.perf_counter() - start)
    return 1000 * statistics.median(seconds)
