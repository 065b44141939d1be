"""Two lanes of work on the GPU: updates on the caller's stream, read-outs beside them; one lane elsewhere."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch


class Lanes:
    """Orders read-outs of operand slots against the updates that overwrite them."""

    def __init__(self, device: torch.device, *, enabled: bool) -> None:
        self.enabled = enabled and device.type == "cuda"
        self.stream = torch.cuda.Stream(device) if self.enabled else None
        self.pending: dict[int, torch.cuda.Event] = {}

    @contextmanager
    def side(self, slot: int) -> Iterator[None]:
        """Run the body beside the caller's stream, after everything enqueued there so far; it reads `slot`."""
        if not self.enabled:
            yield
            return
        ready = torch.cuda.Event()
        ready.record()
        assert self.stream is not None
        with torch.cuda.stream(self.stream):
            self.stream.wait_event(ready)
            yield
            done = torch.cuda.Event()
            done.record()
        self.pending[slot] = done

    def before_write(self, slot: int) -> None:
        """Make the caller's stream wait until the read-outs of `slot` are done."""
        if slot in self.pending:
            torch.cuda.current_stream().wait_event(self.pending.pop(slot))

    def join(self) -> None:
        """Make the caller's stream wait for every read-out."""
        for slot in list(self.pending):
            self.before_write(slot)
