"""The verbs that compute: verify, probe, evaluate, train, bench."""

from __future__ import annotations


def verify() -> int:
    """Check every theorem, show the verdicts, and return 0 when each came out as stated, 1 otherwise."""
    from analysis.commands import show
    from analysis.theorems import verify as check

    outcome = check()
    show.show(outcome)
    return 0 if outcome.ok else 1
