"""Shapes, strides and types of one call: what compiled kernels and captured graphs depend on, and nothing else."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from analysis.kernels.plan import Plan
from analysis.kernels.tiles import DTYPES

SLOTS = ("q", "k", "v", "out", "momentum", "rate_0", "rate_1", "rate_2", "w_0", "w_1", "w_2")
Q, K, V, OUT, MOMENTUM, RATES, WEIGHTS = 0, 1, 2, 3, 4, 5, 8
ROW = 12
"""Elements of one row of the table of addresses: its slots, and one more so that every row starts on 16 bytes."""


@dataclass(frozen=True)
class Signature:
    """One call without its addresses; strides are (batch, heads, tokens), of weights (batch, heads, in, out)."""

    device: torch.device
    dtype: torch.dtype
    weight_dtype: torch.dtype
    batch: int
    heads: int
    tokens: int
    update_tokens: int
    width: int
    hidden: int
    values: int
    q: tuple[int, int, int]
    k: tuple[int, int, int]
    v: tuple[int, int, int]
    rate: tuple[int, int, int]
    momentum: tuple[int, int, int]
    weights: tuple[tuple[int, ...], ...]

    @property
    def total_z(self) -> int:
        """Batch times heads."""
        return self.batch * self.heads

    def shape(self, name: str, network: str) -> tuple[int, int]:
        """Rows and columns [in, out] of a fast weight."""
        if network == "linear":
            return self.width, self.values
        return (self.hidden, self.values) if name == "w_out" else (self.width, self.hidden)


@dataclass(frozen=True)
class Operands:
    """The tensors of one call, in a form the kernels can address: aligned, unit last stride, float32 rates and gates."""

    q: Tensor
    k: Tensor
    v: Tensor
    rates: tuple[Tensor, ...]
    momentum: Tensor | None
    weights: dict[str, Tensor]
    update_tokens: int

    def signature(self) -> Signature:
        """Return what a compiled call depends on."""
        first = next(iter(self.weights.values()))
        hidden = first.shape[3] if len(self.weights) > 1 else self.v.shape[3]
        return Signature(
            device=self.q.device,
            dtype=self.q.dtype,
            weight_dtype=first.dtype,
            batch=self.q.shape[0],
            heads=self.q.shape[1],
            tokens=self.q.shape[2],
            update_tokens=self.update_tokens,
            width=self.q.shape[3],
            hidden=hidden,
            values=self.v.shape[3],
            q=_strides(self.q),
            k=_strides(self.k),
            v=_strides(self.v),
            rate=_strides(self.rates[0]) if self.rates else (0, 0, 0),
            momentum=(0, 0, 0) if self.momentum is None else _strides(self.momentum),
            weights=tuple(weight.stride() for weight in self.weights.values()),
        )

    def addresses(self, out: Tensor) -> list[int]:
        """Return one address per slot of the table; slots that a call does not use hold that of q."""
        unused = self.q.data_ptr()
        rates = [rate.data_ptr() for rate in self.rates]
        weights = [weight.data_ptr() for weight in self.weights.values()]
        return [
            self.q.data_ptr(),
            self.k.data_ptr(),
            self.v.data_ptr(),
            out.data_ptr(),
            unused if self.momentum is None else self.momentum.data_ptr(),
            *([unused] * (3 - len(rates)) + rates),
            *(weights + [unused] * (3 - len(weights))),
        ]


def _strides(tensor: Tensor) -> tuple[int, int, int]:
    batch, heads, tokens = tensor.stride()[:3]
    return batch, heads, tokens


def _addressable(tensor: Tensor) -> Tensor:
    """Return the tensor, or a copy where its last axis is strided or it does not start on 16 bytes."""
    tensor = tensor.detach()
    if (tensor.stride(-1) == 1 or tensor.shape[-1] == 1) and tensor.data_ptr() % 16 == 0:
        return tensor
    return tensor.clone(memory_format=torch.contiguous_format)


def prepare(
    plan: Plan,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    rates: Mapping[str, Tensor],
    momentum: Tensor | None,
    weights: Mapping[str, Tensor],
    update_tokens: int,
) -> Operands:
    """Return the call's tensors as operands; a copy is made only where a kernel could not address the original."""
    each = [_addressable(rates[name].float()) for name in plan.rates]
    if len({rate.stride() for rate in each}) > 1:
        each = [rate.contiguous() for rate in each]
    return Operands(
        q=_addressable(k if plan.reads_keys else q),
        k=_addressable(k),
        v=_addressable(v),
        rates=tuple(each),
        momentum=_addressable(momentum.float())
        if momentum is not None and plan.momentum == "per token"
        else None,
        weights=_addressable_weights(weights, plan.names),
        update_tokens=update_tokens,
    )


def _addressable_weights(weights: Mapping[str, Tensor], names: tuple[str, ...]) -> dict[str, Tensor]:
    found = {name: weights[name].detach() for name in names}
    if len({weight.dtype for weight in found.values()}) > 1 or found[names[0]].dtype not in DTYPES:
        found = {name: weight.float() for name, weight in found.items()}
    return {name: weight if weight.data_ptr() % 16 == 0 else weight.clone() for name, weight in found.items()}
