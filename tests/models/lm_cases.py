"""A small seeded language-model host, and what tests of checkpoints do with hosts."""

from __future__ import annotations

import torch

from analysis.models.lact_lm import LaCTLM
from analysis.models.lact_lm_config import LOOP, LaCTLMConfig

SMALL = {
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attn_heads": 2,
    "num_lact_heads": 2,
    "inter_multi": 1,
    "lact_chunk_size": 16,
    "window_size": 16,
    "vocab_size": 128,
    "use_muon": True,
    "initializer_range": 0.1,
}


def small_config(**changes) -> LaCTLMConfig:
    return LaCTLMConfig(**{**SMALL, **changes})


def small_lm(edit=None, seed=0, **changes) -> LaCTLM:
    """Build the small host; `edit` changes its inner loop before it is built. Rates are raised so that updates tell."""
    torch.manual_seed(seed)
    config = small_config(**changes)
    loops = config.default_loops()
    if edit is not None:
        loops = {LOOP: edit(loops[LOOP])}
    host = LaCTLM(config, loops).eval()
    with torch.no_grad():
        for block in host.model.layers:
            if hasattr(block.attn, "lr_proj"):
                block.attn.lr_proj.bias.fill_(3.0)
            if hasattr(block.attn, "ttt_scale_proj"):
                block.attn.ttt_scale_proj.bias.fill_(2.0)
    return host


def tokens(batch=2, length=40, seed=1, vocab=128):
    return torch.randint(vocab, (batch, length), generator=torch.Generator().manual_seed(seed))


def trained(host, seed=7):
    """Move every parameter away from its initial value, as training would."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in host.parameters():
            parameter.add_(0.05 * torch.randn(parameter.shape, generator=generator))
    return host


def state(host):
    return {name: tensor.clone() for name, tensor in host.state_dict().items()}


def same(first, second):
    pairs = zip(first.state_dict().values(), second.state_dict().values(), strict=True)
    return all(torch.equal(a, b) for a, b in pairs)
