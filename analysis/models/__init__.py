"""The hosts, their checkpoints and the named places inside them."""

from analysis.models.checkpoints import CheckpointSummary, inspect, load, save
from analysis.models.evaluation import Estimate, Evaluation, evaluate
from analysis.models.families import build
from analysis.models.host import EditedHost, Host, unwrap
from analysis.models.sites import Tape

__all__ = [
    "CheckpointSummary",
    "EditedHost",
    "Estimate",
    "Evaluation",
    "Host",
    "Tape",
    "build",
    "evaluate",
    "inspect",
    "load",
    "save",
    "unwrap",
]
