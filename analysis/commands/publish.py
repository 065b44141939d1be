"""The verbs that make pages: figures and report."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import typer

from analysis.commands.assignments import split_assignments
