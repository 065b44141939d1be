"""Whether what was handed to an inner loop are tensors that can be computed with, and of one type."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from analysis.errors import InputError
from analysis.inner.types import FastWeights, Inputs
from analysis.spec import InnerLoop

DTYPES = (torch.float64, torch.float32, torch.bfloat16, torch.float16)
_ADVICE = "pass floating-point tensors"


def require_tensors(spec: InnerLoop, inputs: Inputs, weights: FastWeights) -> None:
    """Refuse anything but floating-point tensors of one device.

    Raises:
        InputError: the first thing that is none, by name.
    """
    for name, value, kind in (
        ("spec", spec, InnerLoop),
        ("inputs", inputs, Inputs),
        ("weights", weights, Mapping),
        ("rates", getattr(inputs, "rates", {}), Mapping),
    ):
        if not isinstance(value, kind):
            raise InputError(
                f"{name} must be of type {kind.__name__}, received {type(value).__name__}; pass run(spec, inputs, weights)."
            )
    for name, tensor in _named(spec, inputs, weights).items():
        if not isinstance(tensor, Tensor):
            raise InputError(f"{name} must be a tensor, received {type(tensor).__name__}; {_ADVICE}.")
        if tensor.dtype not in DTYPES:
            raise InputError(
                f"{name} must be one of {', '.join(map(str, DTYPES))}, received {tensor.dtype}; {_ADVICE}."
            )
        if tensor.device != inputs.q.device:
            raise InputError(
                f"{name} must lie on the device of q, {inputs.q.device}, received {tensor.device}; move it there."
            )


def require_one_dtype(spec: InnerLoop, inputs: Inputs, weights: FastWeights) -> None:
    """Refuse a mixture of floating-point types, unless an autocast sorts it out.

    Raises:
        InputError: the first tensor whose type is not that of q, by name.
    """
    if torch.is_autocast_enabled(inputs.q.device.type):
        return
    for name, tensor in _named(spec, inputs, weights).items():
        if tensor.dtype != inputs.q.dtype:
            raise InputError(
                f"{name} must have the type of q, {inputs.q.dtype}, received {tensor.dtype}; convert one of them."
            )


def _named(spec: InnerLoop, inputs: Inputs, weights: FastWeights) -> dict[str, Any]:
    """Every tensor that takes part, q first; a fast weight or rate that is missing is left to the check of names."""
    momentum = {} if inputs.momentum is None else {"momentum": inputs.momentum}
    return {
        **{name: getattr(inputs, name) for name in ("q", "k", "v")},
        **{f"rates[{name!r}]": inputs.rates[name] for name in spec.rate_names if name in inputs.rates},
        **momentum,
        **{f"fast weight {name}": weights[name] for name in spec.network.fast_weights if name in weights},
    }
