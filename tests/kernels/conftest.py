"""Every test of the kernels starts without layers that another one has built."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def fresh_layers(poisoned_memory):
    """Build every layer anew, on buffers full of NaN, so that no test lives on another's leftovers."""
    from analysis.kernels.forward import forget

    forget()
    yield
    forget()
