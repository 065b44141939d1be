"""Feeding the language model a sequence in pieces, down to single tokens, with all state carried explicitly.

The published code keeps only attention keys and values between decoding steps, so every step starts from the initial
fast weights again. Here each layer carries its fast weights, their momentum, the unfinished chunk, and the keys and
values of the attention window; any split of a sequence gives the logits of one pass.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from jaxtyping import Float, Int
from torch import Tensor

from analysis.errors import InputError, UnsupportedSpecError
from analysis.inner import Inputs, State, streaming
from analysis.models.inner_call import Call
from analysis.models.sites import SILENT, Scope
from analysis.spec import Loops, Order, Trained

if TYPE_CHECKING:
    from analysis.models.lact_lm import LaCTLM


@dataclass
class LayerState:
    """What one layer remembers: tokens seen, keys and values in reach of the window, and the inner loop's state."""

    position: int = 0
    keys: Tensor | None = None
    values: Tensor | None = None
    inner: State | None = None

    def extend_window(self, k: Tensor, v: Tensor, window: int | None) -> tuple[Tensor, Tensor]:
        """Return keys and values in reach of the new queries, and keep those that the next piece can still see."""
        if self.keys is not None and self.values is not None:
            k, v = torch.cat((self.keys, k), 2), torch.cat((self.values, v), 2)
        reach = k.shape[2] if window is None else window - 1
        first = max(0, k.shape[2] - reach)
        self.keys, self.values = k[:, :, first:], v[:, :, first:]
        return k, v

    def continue_loop(self, call: Call, loop: str, inputs: Inputs, weights: Mapping[str, Tensor]) -> Tensor:
        """Run the inner loop on the next tokens; returns their outputs."""
        spec = call.loops[loop]
        if self.inner is None:
            batch = inputs.q.shape[0]
            self.inner = streaming.begin(
                spec, {name: w.expand(batch, *w.shape) for name, w in weights.items()}
            )
        outputs, self.inner = streaming.feed(
            spec, self.inner, inputs, newton_schulz_dtype=call.options.get("newton_schulz_dtype")
        )
        return outputs


class LMStream:
    """A running sequence of a language model; `feed` pieces, read `layers` for the state after them.

    Raises `UnsupportedSpecError` when the loop updates before it applies: the outputs of a chunk would then depend on
    tokens that have not come yet.
    """

    def __init__(self, host: LaCTLM, loops: Loops) -> None:
        for name, loop in loops.items():
            if loop.order is not Order.APPLY_THEN_UPDATE and loop.trained is not Trained.NONE:
                raise UnsupportedSpecError(
                    f"expected order apply_then_update to stream, received {loop.order.value} in loop {name}: its outputs need "
                    "the whole chunk; run the sequence in one pass instead"
                )
        self.host = host
        self.loops = loops
        self.layers = [LayerState() for _ in range(host.num_layers)]
        self._batch: int | None = None

    @property
    def position(self) -> int:
        """Number of tokens fed so far."""
        return self.layers[0].position

    @torch.no_grad()
    def feed(self, tokens: Int[Tensor, "B n"]) -> Float[Tensor, "B n V"]:
        """Take in the next tokens of every sequence and return their logits."""
        tokens = self.host.input_tokens({"input_ids": tokens})
        if self._batch is not None and tokens.shape[0] != self._batch:
            raise InputError(
                f"expected {self._batch} sequences as before, received {tokens.shape[0]}; start another stream"
            )
        self._batch = tokens.shape[0]
        call = Call(self.loops, Scope(SILENT), self.host.backend, self.host.options)
        return self.host.logits(tokens, call, self.layers)
