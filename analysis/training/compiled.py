"""Fusing the pointwise work of a host with torch.compile, for training only.

One compiled function serves all blocks of a host: a block is an argument, and the place in the site names, which differs
from block to block, is left out while nothing is recorded. Evaluation and recorded passes run the plain code.

A language-model loop that is sequential over chunks would be unrolled into an endless graph, so there the pieces around the
inner loop are compiled, and the loop itself runs on the backend `compiled`, chunk by chunk.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn

from analysis.inner.compiled import allow_many_graphs
from analysis.models.host import Host
from analysis.models.inner_call import Call
from analysis.models.sites import SILENT, Scope
from analysis.spec import Family, reducibility

MANY_CHUNKS = 1 << 10
_PIECES = ("attn._attention", "attn._inner_inputs", "mlp.forward")


def is_sequential(host: Host) -> bool:
    """Whether a loop of the host must run chunk after chunk."""
    return any(
        loop.chunk is not None and not reducibility(loop, MANY_CHUNKS).is_parallel
        for loop in host.loops.values()
    )


def training_backend(host: Host, compiled: bool) -> str:
    """The backend that trains a host; named, because what `auto` picks may not run inside a captured step."""
    if not is_sequential(host):
        return "parallel"
    return "compiled" if compiled else "recurrent"


def compile_blocks(host: Host) -> None:
    """Replace the forward of every block, or of its pieces, by a compiled one that acts while gradients are recorded."""
    allow_many_graphs()  # each recipe of a process is another one
    names = _PIECES if host.family is Family.LACT_LM and is_sequential(host) else ("forward",)
    for name in names:
        owners = [_owner(block, name) for block in _blocks(host)]
        method = name.rpartition(".")[2]
        compiled = torch.compile(getattr(type(owners[0]), method), dynamic=False)
        for owner in owners:
            object.__setattr__(owner, method, _guarded(owner, method, compiled))


def _guarded(owner: nn.Module, method: str, compiled: Callable[..., Any]) -> Callable[..., Any]:
    plain = getattr(owner, method)

    def call(*arguments: Any) -> Any:
        passed = next((one for one in arguments if isinstance(one, Call)), None)
        is_recorded = passed is not None and passed.site.tape is not SILENT
        if is_recorded or not torch.is_grad_enabled() or not owner.training:
            return plain(*arguments)
        return compiled(owner, *(_without_place(one) for one in arguments))

    return call


def _without_place(argument: Any) -> Any:
    return dataclasses.replace(argument, site=Scope(SILENT)) if isinstance(argument, Call) else argument


def _owner(block: nn.Module, name: str) -> nn.Module:
    path = name.rpartition(".")[0]
    return block.get_submodule(path) if path else block


def _blocks(host: Host) -> Iterator[nn.Module]:
    if host.family is Family.LACT_LM:
        yield from host.model.layers  # type: ignore[misc, union-attr]
    elif host.family is Family.LACT_NVS:
        yield from host.blocks  # type: ignore[misc]
    else:
        yield from host.token_blocks  # type: ignore[misc]
