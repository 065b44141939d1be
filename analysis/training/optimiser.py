"""The outer optimiser: AdamW with decay on matrices only, and a learning rate with warm-up and cosine decay."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from analysis.training.recipes import Recipe


def learning_rate(recipe: Recipe, step: int) -> float:
    """lr (step + 1) / warmup during warm-up; then lr (f + (1 - f) (1 + cos(pi x)) / 2), x the share of steps done since.

    f is `final_lr`; `step` counts from 0.
    """
    if step < recipe.warmup:
        return recipe.lr * (step + 1) / recipe.warmup
    share = (step - recipe.warmup) / max(1, recipe.steps - recipe.warmup)
    return recipe.lr * (recipe.final_lr + (1 - recipe.final_lr) * (1 + math.cos(math.pi * share)) / 2)


def rate_table(recipe: Recipe, device: torch.device) -> Tensor:
    """The learning rate of every step as a float32 tensor [steps], so that a captured step can look it up."""
    return torch.tensor([learning_rate(recipe, step) for step in range(recipe.steps)], device=device)


def adamw(host: nn.Module, recipe: Recipe, device: torch.device) -> torch.optim.AdamW:
    """AdamW over the parameters of a host; `weight_decay` acts on those with two axes or more.

    The rate of each group is a tensor on `device`, written anew before every step, so that a CUDA graph may hold it.
    """
    parameters = [parameter for parameter in host.parameters() if parameter.requires_grad]
    groups = [
        {"params": [p for p in parameters if p.ndim >= 2], "weight_decay": recipe.weight_decay},
        {"params": [p for p in parameters if p.ndim < 2], "weight_decay": 0.0},
    ]
    for group in groups:
        group["lr"] = torch.tensor(recipe.lr, dtype=torch.float32, device=device)
    is_accelerated = device.type == "cuda"
    return torch.optim.AdamW(
        [group for group in groups if group["params"]],
        lr=recipe.lr,
        betas=recipe.betas,
        capturable=is_accelerated,
        fused=is_accelerated,
        foreach=False if not is_accelerated else None,
    )
