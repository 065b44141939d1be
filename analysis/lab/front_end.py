"""Whether anyone can see a control panel: the notebook runner says so in an environment variable, nothing is guessed."""

from __future__ import annotations

import os

from analysis.errors import ParameterError
from analysis.publish.kernels import PANELS_VARIABLE


def panels_shown() -> bool:
    """Return whether panels are shown: yes, unless TTT_ANALYSIS_PANELS is 'off', as the notebook runner sets it.

    Raises:
        ParameterError: the variable holds something else than 'on' or 'off'.
    """
    said = os.environ.get(PANELS_VARIABLE, "on")
    if said not in ("on", "off"):
        raise ParameterError(
            f"{PANELS_VARIABLE} must be on or off, received {said!r}; set one of those or unset it."
        )
    return said == "on"
