"""Outer gradients of the parallel form: all chunks at once, the last layer's running sum summed from its end."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from torch import Tensor

from analysis.kernels import adjoint
from analysis.kernels.adjoint import Tensors
from analysis.kernels.backward import Gradients, Piece, Walk
from analysis.kernels.plan import Plan
from analysis.kernels.signature import Operands


class ParallelWalk(Walk):
    """The way back through read-outs, running sum, transform, momentum scan and gradients.

    states: what `Runner.parallel_states` returned after the forward pass.
    """

    def __init__(
        self,
        plan: Plan,
        operands: Operands,
        d_out: Tensor,
        d_state: dict[str, Tensors],
        states: Sequence[Tensor],
    ) -> None:
        super().__init__(plan, operands, d_out, d_state)
        each = iter(states)
        self.last = next(each)
        self.d = next(each) if plan.reshapes and self.chunks.updates else None
        self.alpha = next(each) if plan.momentum is not None else None

    def run(self) -> Gradients:
        """Return the gradients of all inputs."""
        chunks, plan, found = self.chunks, self.plan, self.found.weights
        d_states = self._zeros(chunks.updates + 1, *found["w_out"].shape)
        d_states[-1] = found["w_out"]
        for first, piece in self._read_pieces():
            slot = min(first + plan.inclusive, chunks.updates)
            d_last = d_states[slot : slot + piece.chunks].flatten(0, 1)
            last = self.last[slot : slot + piece.chunks].flatten(0, 1)
            self.read(piece, self.weights | {"w_out": last}, found | {"w_out": d_last})
        d_sums = d_states.flip(0).cumsum(0).flip(0) if chunks.updates else d_states
        found["w_out"] = d_sums[0]
        if chunks.updates:
            d_grads = self._gradients_back(d_sums[1:]).to(self.dtype).contiguous()
            for first, piece in self._pieces(chunks.updates, chunks.updates):
                self.learn(
                    piece, self.weights, {"w_out": d_grads[first : first + piece.chunks].flatten(0, 1)}
                )
        return self.finish()

    def _gradients_back(self, d_sums: Tensor) -> Tensor:
        """Return the derivatives by the gradients of all chunks, [chunks, sequences, in, out]."""
        plan, d = self.plan, self.d
        d_grads = plan.step * d_sums
        if d is not None:
            d_grads = adjoint.transform_adjoint(plan, d, d_grads, self.dtype)
        if "carry" in self.d_state:
            d_grads[-1] += self.d_state["carry"]["w_out"].flatten(0, 1)
        if self.alpha is not None and d is not None:
            for chunk in range(self.chunks.updates - 1, 0, -1):
                d_grads[chunk - 1].addcmul_(self.alpha[chunk].view(-1, 1, 1), d_grads[chunk])
            self.d_alpha[1 : self.chunks.updates] = (d_grads[1:] * d[:-1]).sum((-2, -1))
        return d_grads

    def _read_pieces(self) -> Iterator[tuple[int, Piece]]:
        """Return runs of chunks with the first of them; the states that a run reads lie one after the other."""
        chunks, plan = self.chunks, self.plan
        if plan.chunk is None:
            return ((0, piece) for piece in self.cut(0, self.sign.tokens))
        # a last chunk that reads the state of the one before it goes by itself
        return self._pieces(chunks.count, chunks.updates + (not plan.inclusive))

    def _pieces(self, chunks: int, together: int) -> Iterator[tuple[int, Piece]]:
        """Cut chunks into runs; only full ones among the first `together` share a run."""
        length = self.chunks.length
        together = min(chunks, together, self.sign.update_tokens // length)
        at_once, first = max(1, self.at_once // length), 0
        while first < chunks:
            count = max(1, min(at_once, together - first))
            start, stop = first * length, self.span(first + count - 1)[1]
            pieces = self.cut(start, stop) if count == 1 else (Piece(start, stop, count, length),)
            yield from ((first, piece) for piece in pieces)
            first += count
