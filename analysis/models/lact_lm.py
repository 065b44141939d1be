"""The LaCT language model as published: a hybrid of window attention and fast weights in every layer.

Parameter names are those of the published checkpoints. Outputs of a chunk use fast weights made from earlier chunks only,
and the last chunk never updates (`Order.APPLY_THEN_UPDATE`, `Tail.APPLY_ONLY`). Two batch formats are understood:

    {"tokens": int64 [B, T+1]}                       logits [B, T, V]; every position is scored against the next token
    {"input_ids": int64 [B, S], "labels": [B, S]}    logits [B, S, V]; labels are shifted inside, -100 is ignored

`attention_mask` (0 = padding) may accompany either. Fast weights would learn from padding, so each prompt of a padded
batch is run on its own length; prompts of one length share a pass.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import cast

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from analysis.errors import InputError
from analysis.models.host import Host
from analysis.models.inner_call import Call
from analysis.models.lact_lm_config import LOOP, LaCTLMConfig, check_loop
from analysis.models.lact_lm_layer import LaCTBlock
from analysis.models.lact_lm_stream import LayerState, LMStream
from analysis.spec import Family, InnerLoop, Loops

IGNORED = -100


class LaCTBackbone(nn.Module):
    """Embedding, blocks and final norm (the published name space `model.`)."""

    def __init__(self, config: LaCTLMConfig, loop: InnerLoop | None) -> None:
        super().__init__()
        self.embeddings = nn.Embedding(config.vocab_size, config.hidden_size)
        self.layers = nn.ModuleList(LaCTBlock(config, loop) for _ in range(config.num_hidden_layers))
        self.norm = nn.RMSNorm(config.hidden_size, eps=config.norm_eps)


class LaCTLM(Host):
    """The language-model host; `loops` defaults to the inner loop that the configuration describes."""

    family = Family.LACT_LM
    config: LaCTLMConfig

    def __init__(self, config: LaCTLMConfig, loops: Loops | None = None) -> None:
        super().__init__(config, config.default_loops() if loops is None else loops)
        loop = self.loops.get(LOOP)
        if (loop is not None) != config.ttt_branch or set(self.loops) - {LOOP}:
            raise InputError(
                f"expected {'one loop ' + repr(LOOP) if config.ttt_branch else 'no loop'} with ttt_branch = "
                f"{config.ttt_branch}, received {', '.join(self.loops) or 'none'}; change one of the two"
            )
        if loop is not None:
            check_loop(loop)
        self.model = LaCTBackbone(config, loop)
        self.lm_head = nn.Linear(config.hidden_size, config.vocab_size, bias=False)
        self.tie()
        self.initialise()

    def tied_names(self) -> tuple[str, ...]:
        """The output head, when it is the embedding."""
        return ("lm_head.weight",) if self.config.tie_word_embeddings else ()

    def tie(self) -> None:
        """Let the output head be the embedding, when the configuration says so."""
        if self.config.tie_word_embeddings:
            self.lm_head.weight = self.model.embeddings.weight

    def initialise(self) -> None:
        """Draw all parameters as published: std `initializer_range` for projections and embedding, norms at 1, biases 0."""
        for module in self.modules():
            if isinstance(module, (nn.Linear, nn.Embedding)):
                nn.init.normal_(module.weight, std=self.config.initializer_range)
                if isinstance(module, nn.Linear) and module.bias is not None:
                    nn.init.zeros_(module.bias)
        for block in self.blocks:
            block.attn.initialise()

    @property
    def blocks(self) -> list[LaCTBlock]:
        """The layers in the order they run."""
        return list(cast("Iterable[LaCTBlock]", self.model.layers))

    @property
    def num_layers(self) -> int:
        """Number of layers."""
        return self.config.num_hidden_layers

    def layer_sites(self) -> tuple[str, ...]:
        """Window attention: q, k (after rotary), v per attention head [B, H, T, D]; its output o [B, T, C]."""
        return ("attention.q", "attention.k", "attention.v", "attention.o")

    def initial_weights(self, layer: int) -> dict[str, dict[str, Tensor]]:
        """Initial fast weights of a layer, [heads, in, out]; empty without a TTT branch."""
        return {LOOP: self.blocks[layer].attn.initial_weights()} if self.loops else {}

    def compute(self, batch: Mapping[str, Tensor], call: Call) -> Float[Tensor, "B T V"]:
        """Logits of every position."""
        tokens, mask = self.input_tokens(batch), batch.get("attention_mask")
        if mask is None or bool(mask.bool().all()):
            return self.logits(tokens, call)
        if call.site.tape.patterns or call.site.tape.replacements:
            raise InputError(
                "expected prompts of one length while sites are recorded, received a padded batch; pass unpadded prompts "
                "of one length, one batch per length"
            )
        return self._unpadded_logits(tokens, mask[:, : tokens.shape[1]].bool(), call)

    def _unpadded_logits(self, tokens: Tensor, mask: Tensor, call: Call) -> Tensor:
        lengths = mask.sum(1)
        edges = (mask[:, 1:] != mask[:, :-1]).sum(1)
        if bool((edges > 1).any()) or bool((lengths == 0).any()):
            raise InputError(
                "expected padding on one side of each prompt, received an attention_mask with holes or an empty prompt; "
                "pass prompts as contiguous runs of ones"
            )
        logits = None
        for length in torch.unique(lengths).tolist():
            rows = lengths == length
            piece = self.logits(tokens[rows][mask[rows]].view(-1, length), call)
            if logits is None:
                logits = piece.new_zeros(*tokens.shape, piece.shape[-1])
            place = mask & rows[:, None]
            logits[place] = piece.flatten(0, 1)
        assert logits is not None
        return logits

    def logits(
        self, tokens: Int[Tensor, "B T"], call: Call, states: Sequence[LayerState] | None = None
    ) -> Float[Tensor, "B T V"]:
        """Logits for a batch of sequences without padding; with `states` they continue earlier pieces."""
        x = self.model.embeddings(tokens)
        for index, block in enumerate(self.blocks):
            x = block(x, call.inside("layers").inside(index), None if states is None else states[index])
        return self.lm_head(self.model.norm(x))

    def input_tokens(self, batch: Mapping[str, Tensor]) -> Int[Tensor, "B T"]:
        """Return the tokens that are fed; raises `InputError` for a malformed batch."""
        if ("tokens" in batch) == ("input_ids" in batch):
            raise InputError(
                f"expected a batch with either tokens or input_ids, received {', '.join(batch) or 'nothing'}"
            )
        tokens = batch["tokens"][..., :-1] if "tokens" in batch else batch["input_ids"]
        if tokens.ndim != 2 or 0 in tokens.shape or tokens.dtype not in (torch.int64, torch.int32):
            raise InputError(
                f"expected integer tokens [batch, length], at least one to feed, received {tuple(tokens.shape)} "
                f"{tokens.dtype}; pass token ids"
            )
        # On an accelerator this check would stall the queue; the embedding's own check fires there instead.
        if tokens.device.type == "cpu" and not torch.compiler.is_compiling():
            low, high = int(tokens.min()), int(tokens.max())
            if low < 0 or high >= self.config.vocab_size:
                raise InputError(
                    f"expected token ids in 0..{self.config.vocab_size - 1}, received {low}..{high}; "
                    "use the tokenizer this checkpoint was trained with"
                )
        return tokens

    def targets(self, batch: Mapping[str, Tensor]) -> Int[Tensor, "B T"]:
        """Return the label of every logit, -100 where there is none."""
        if "tokens" in batch:
            targets = batch["tokens"][:, 1:]
        else:
            targets = F.pad(batch.get("labels", batch["input_ids"])[:, 1:], (0, 1), value=IGNORED)
        mask = batch.get("attention_mask")
        if mask is None:
            return targets
        mask = mask.bool()
        scored = mask[:, 1:] & mask[:, :-1]
        scored = scored if "tokens" in batch else F.pad(scored, (0, 1))
        return targets.masked_fill(~scored, IGNORED)

    def loss(self, output: Tensor, batch: Mapping[str, Tensor]) -> Tensor:
        """Mean cross entropy in nats over all scored positions."""
        return F.cross_entropy(
            _wide(output).flatten(0, 1), self.targets(batch).flatten().long(), ignore_index=IGNORED
        )

    def metrics(self, output: Tensor, batch: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Per example: nll (sum in nats) [B], tokens (scored) [B], nll_by_position [B, T] (NaN where unscored).

        With `token_bytes` [V] in the batch (UTF-8 bytes of each token) also bytes [B], for bits per byte.
        """
        targets = self.targets(batch).long()
        nll = F.cross_entropy(_wide(output).transpose(1, 2), targets, ignore_index=IGNORED, reduction="none")
        scored = targets != IGNORED
        values = {
            "nll": nll.sum(1),
            "tokens": scored.sum(1),
            "nll_by_position": nll.masked_fill(~scored, math.nan),
        }
        if "token_bytes" in batch:
            sizes = batch["token_bytes"].to(targets.device)[targets.clamp_min(0)]
            values["bytes"] = (sizes * scored).sum(1)
        return values

    def stream(self, loops: Loops | None = None) -> LMStream:
        """Return a stream that is fed a sequence piece by piece and carries all state; equal to one pass."""
        return LMStream(self, self.loops if loops is None else self.resolve(loops))


def _wide(logits: Tensor) -> Tensor:
    return logits.float() if logits.dtype in (torch.bfloat16, torch.float16) else logits
