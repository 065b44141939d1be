"""Several processes under torchrun: who this process is, and the few things they do together."""

from __future__ import annotations

import os
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor, nn

from analysis.errors import ParameterError


@dataclass(frozen=True)
class Team:
    """The processes of one run: this one's rank, how many there are, and the device it computes on."""

    rank: int
    world: int
    device: torch.device

    @property
    def leads(self) -> bool:
        """Whether this process writes files and logs."""
        return self.rank == 0

    def wrap(self, host: nn.Module) -> nn.Module:
        """Return the host, behind a data-parallel wrapper that averages gradients when there are several processes."""
        if self.world == 1:
            return host
        devices = [self.device.index] if self.device.type == "cuda" else None
        return nn.parallel.DistributedDataParallel(host, device_ids=devices)

    def mean(self, tensor: Tensor) -> Tensor:
        """Return the mean of a tensor over the processes."""
        if self.world == 1:
            return tensor
        total = tensor.clone()
        dist.all_reduce(total)
        return total / self.world

    def any(self, flag: bool) -> bool:
        """Return whether any process says yes, so that all stop at the same step."""
        if self.world == 1:
            return flag
        votes = torch.tensor([float(flag)], device=self.device)
        dist.all_reduce(votes)
        return bool(votes.item() > 0)

    def wait(self) -> None:
        """Wait until every process has come here."""
        if self.world > 1:
            dist.barrier()


def join(device: str | torch.device | None = None) -> Team:
    """Join the processes that torchrun started, or form a team of one.

    device: for a team of one; None takes the first CUDA device, else the CPU. Under torchrun each process takes the CUDA
    device of its local rank, or the CPU when there is none or `device` says cpu.

    Raises:
        ParameterError: more local processes than CUDA devices, or an environment that torchrun did not make.
    """
    world = _number("WORLD_SIZE", "1")
    has_cuda = torch.cuda.is_available() and (device is None or torch.device(device).type == "cuda")
    if world == 1:
        chosen = torch.device(device) if device is not None else torch.device("cuda:0" if has_cuda else "cpu")
        return Team(0, 1, chosen)
    rank, local = _number("RANK"), _number("LOCAL_RANK")
    if has_cuda and local >= torch.cuda.device_count():
        raise ParameterError(
            f"expected at most {torch.cuda.device_count()} processes on this machine, one for each CUDA device, received "
            f"local rank {local}; lower --nproc-per-node."
        )
    chosen = torch.device("cuda", local) if has_cuda else torch.device("cpu")
    if has_cuda:
        torch.cuda.set_device(chosen)
    if not dist.is_initialized():
        dist.init_process_group("nccl" if has_cuda else "gloo")
    return Team(rank, world, chosen)


def _number(name: str, default: str = "") -> int:
    text = os.environ.get(name, default)
    if not text.isdecimal():
        raise ParameterError(
            f"expected torchrun to set {name} to a number, received {text!r}; start several processes with torchrun, or unset "
            "WORLD_SIZE."
        )
    return int(text)


def check_divisible(batch: int, team: Team) -> None:
    """Refuse a batch that the processes cannot share evenly.

    Raises:
        ParameterError: the batch is not a multiple of the number of processes.
    """
    if batch % team.world:
        raise ParameterError(
            f"expected a batch that {team.world} processes can share evenly, received {batch}; change one of the two."
        )
