"""Test-time training layers as linear attention."""

__version__ = "0.1.0"
