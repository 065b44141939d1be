"""`--device` on the command line."""

from __future__ import annotations

from analysis.errors import ParameterError


def usable(name: str) -> str:
    """Return the name of a device that this machine has.

    Raises:
        ParameterError: no such kind of device, or none of it here.
    """
    import torch

    kind, _, number = name.partition(":")
    if kind not in ("cpu", "cuda") or (number and not (kind == "cuda" and number.isdecimal())):
        raise ParameterError(f"--device expects cpu, cuda or cuda:N, received {name!r}; pass one of those.")
    if kind == "cuda" and int(number or 0) >= torch.cuda.device_count():
        raise ParameterError(
            f"--device {name} needs a CUDA device, this machine shows {torch.cuda.device_count()}; use cpu."
        )
    return name
