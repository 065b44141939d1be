"""How an inner loop is run: a reference, a closed-form recurrence, a parallel form, and streaming in pieces."""

from analysis.inner.backends import BACKENDS, Backend, Capability, run
from analysis.inner.types import FastWeights, Inputs, Result, State, Trace

__all__ = ["BACKENDS", "Backend", "Capability", "FastWeights", "Inputs", "Result", "State", "Trace", "run"]
