"""Without a GPU the kernels run in Triton's interpreter, which reads this variable when a kernel is defined."""

from __future__ import annotations

import os

import pytest
import torch

if not torch.cuda.is_available():
    os.environ.setdefault("TRITON_INTERPRET", "1")


@pytest.fixture(autouse=True)
def fresh_layers(poisoned_memory):
    """Build every layer anew, on buffers full of NaN, so that no test lives on another's leftovers."""
    from analysis.kernels.forward import forget

    forget()
    yield
    forget()
