"""ViTTT classifiers as published: flat (ViT^3) and hierarchical (H-ViT^3), an inner loop pair in every block.

    batch: images [B, 3, H, W], labels int64 [B] for loss and metrics
    output: logits [B, classes]

Layers are numbered through all stages in the site names. The published EMA weights have the same parameter names.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import cast

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from analysis.errors import InputError
from analysis.models.host import Host
from analysis.models.inner_call import Call
from analysis.models.vittt_block import TTT, Block
from analysis.models.vittt_config import (
    AnyViTTTConfig,
    HierarchicalViTTTConfig,
    ViTTTConfig,
    default_loops,
)
from analysis.models.vittt_layers import ConvStem, Downsample, PatchEmbed, initialise, stage_grid
from analysis.spec import Family, Loops


class _Classifier(Host):
    """What both shapes share; subclasses name their `token_blocks` and compute `features`."""

    family = Family.VITTT
    config: AnyViTTTConfig
    head: nn.Linear

    def __init__(self, config: AnyViTTTConfig, loops: Loops | None = None) -> None:
        super().__init__(config, default_loops(config) if loops is None else loops)
        if bool(self.loops) != config.ttt_branch:
            raise InputError(
                f"expected {'loops' if config.ttt_branch else 'no loops'} with ttt_branch = {config.ttt_branch}, received "
                f"{', '.join(self.loops) or 'none'}; change one of the two"
            )

    @property
    def token_blocks(self) -> Sequence[Block]:
        """All blocks in the order they run."""
        raise NotImplementedError

    def features(self, images: Float[Tensor, "B 3 H W"], call: Call) -> Float[Tensor, "B C"]:
        """The normed mean token, what the head gets."""
        raise NotImplementedError

    def initialise(self) -> None:
        """Draw all parameters: truncated normal 0.02 for linear maps and fast weights, convolutions as torch does."""
        for module in self.modules():
            initialise(module)
        for module in self.modules():
            if isinstance(module, TTT):
                module.initialise()

    @property
    def num_layers(self) -> int:
        """Number of blocks."""
        return len(self.token_blocks)

    def initial_weights(self, layer: int) -> dict[str, dict[str, Tensor]]:
        """Initial fast weights of a layer by loop, [heads, in, out]; empty without a TTT branch."""
        return self.token_blocks[layer].attn.initial_weights() if self.loops else {}

    def compute(self, batch: Mapping[str, Tensor], call: Call) -> Float[Tensor, "B K"]:
        """Logits of every image."""
        images = batch.get("images")
        channels = self.config.in_chans
        if (
            images is None
            or images.ndim != 4
            or images.shape[1] != channels
            or 0 in images.shape
            or not self._takes(images.dtype, images.device)
        ):
            received = "none" if images is None else f"{tuple(images.shape)} {images.dtype}"
            raise InputError(
                f"expected images [B, {channels}, H, W] of type {self.head.weight.dtype} in the batch, received {received}; "
                "convert them"
            )
        return self.head(self.features(images, call))

    def _takes(self, dtype: torch.dtype, device: torch.device) -> bool:
        return dtype == self.head.weight.dtype or (
            dtype.is_floating_point and torch.is_autocast_enabled(device.type)
        )

    def loss(self, output: Tensor, batch: Mapping[str, Tensor]) -> Tensor:
        """Mean cross entropy in nats; `config.label_smoothing` applies in training mode only."""
        smoothing = self.config.label_smoothing if self.training else 0.0
        return F.cross_entropy(_wide(output), self._labels(output, batch), label_smoothing=smoothing)

    def metrics(self, output: Tensor, batch: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Per image: correct (0 or 1) and cross_entropy in nats without smoothing, both [B]."""
        labels = self._labels(output, batch)
        return {
            "correct": (output.argmax(-1) == labels).to(_wide(output).dtype),
            "cross_entropy": F.cross_entropy(_wide(output), labels, reduction="none"),
        }

    @staticmethod
    def _labels(output: Tensor, batch: Mapping[str, Tensor]) -> Tensor:
        labels = batch.get("labels")
        if labels is None or labels.shape != output.shape[:1] or labels.is_floating_point():
            received = "none" if labels is None else f"{tuple(labels.shape)} {labels.dtype}"
            raise InputError(
                f"expected integer labels [{output.shape[0]}] in the batch, received {received}; add them"
            )
        # On an accelerator this check would stall the queue.
        if labels.device.type == "cpu" and not torch.compiler.is_compiling() and len(labels):
            low, high = int(labels.min()), int(labels.max())
            if low < 0 or high >= output.shape[1]:
                raise InputError(
                    f"expected labels in 0..{output.shape[1] - 1}, received {low}..{high}; use the classes of the checkpoint"
                )
        return labels.long()


class ViTTT(_Classifier):
    """ViT^3: patches, equal blocks, layer norm, mean over tokens, head; any image whose sides are multiples of the patch."""

    config: ViTTTConfig

    def __init__(self, config: ViTTTConfig, loops: Loops | None = None) -> None:
        super().__init__(config, loops)
        dim = config.embed_dim
        rates = _drop_path_rates(config.drop_path_rate, config.depth)
        self.patch_embed = PatchEmbed(config.patch_size, config.in_chans, dim)
        self.blocks = nn.ModuleList(_block(config, dim, config.num_heads, self.loops, rate) for rate in rates)
        self.norm = nn.LayerNorm(dim, eps=1e-6)
        self.head = nn.Linear(dim, config.num_classes)
        self.initialise()

    @property
    def token_blocks(self) -> Sequence[Block]:
        """All blocks in the order they run."""
        return cast(Sequence[Block], self.blocks)

    def features(self, images: Float[Tensor, "B 3 H W"], call: Call) -> Float[Tensor, "B C"]:
        """The normed mean token."""
        x, grid = self.patch_embed(images)
        for index, block in enumerate(self.blocks):
            x = block(x, grid, call.inside("layers").inside(index))
        return self.norm(x).mean(1)


class Stage(nn.Module):
    """Blocks at one resolution, then halving it unless the stage is the last."""

    def __init__(self, blocks: Sequence[Block], downsample: Downsample | None) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(blocks)
        self.downsample = downsample

    @property
    def token_blocks(self) -> Sequence[Block]:
        """The blocks in the order they run."""
        return cast(Sequence[Block], self.blocks)


class HierarchicalViTTT(_Classifier):
    """H-ViT^3: convolution stem, stages with rotary blocks, batch norm, mean over tokens, head; square images of img_size."""

    config: HierarchicalViTTTConfig

    def __init__(self, config: HierarchicalViTTTConfig, loops: Loops | None = None) -> None:
        super().__init__(config, loops)
        self.patch_embed = ConvStem(config.in_chans, config.dim[0])
        rates = iter(_drop_path_rates(config.drop_path_rate, sum(config.depths)))
        stages = []
        for index, (dim, depth, heads) in enumerate(
            zip(config.dim, config.depths, config.num_heads, strict=True)
        ):
            grid = stage_grid(config.img_size, index)
            blocks = [_block(config, dim, heads, self.loops, next(rates), grid) for _ in range(depth)]
            is_last = index == len(config.dim) - 1
            stages.append(Stage(blocks, None if is_last else Downsample(dim, config.dim[index + 1])))
        self.layers = nn.ModuleList(stages)
        self.norm = nn.BatchNorm1d(config.dim[-1])
        self.head = nn.Linear(config.dim[-1], config.num_classes)
        self.initialise()

    @property
    def stages(self) -> Sequence[Stage]:
        """The stages in the order they run."""
        return cast(Sequence[Stage], self.layers)

    @property
    def token_blocks(self) -> Sequence[Block]:
        """All blocks in the order they run, stage by stage."""
        return [block for stage in self.stages for block in stage.token_blocks]

    def features(self, images: Float[Tensor, "B 3 H W"], call: Call) -> Float[Tensor, "B C"]:
        """The normed mean token; raises InputError when the image is not of the configured size."""
        side = self.config.img_size
        if tuple(images.shape[-2:]) != (side, side):
            raise InputError(
                f"expected {side}x{side} images, received {images.shape[-2]}x{images.shape[-1]}; rotary tables are saved "
                "with the checkpoint, so resize to the size it was trained on"
            )
        x, grid = self.patch_embed(images)
        index = 0
        for stage in self.stages:
            for block in stage.token_blocks:
                x = block(x, grid, call.inside("layers").inside(index))
                index += 1
            if stage.downsample is not None:
                x, grid = stage.downsample(x, grid)
        return self.norm(x.transpose(1, 2)).mean(2)


def build_vittt(config: AnyViTTTConfig, loops: Loops | None = None) -> ViTTT | HierarchicalViTTT:
    """Return the host that the kind of configuration asks for."""
    if isinstance(config, HierarchicalViTTTConfig):
        return HierarchicalViTTT(config, loops)
    return ViTTT(config, loops)


def _block(
    config: AnyViTTTConfig,
    dim: int,
    num_heads: int,
    loops: Loops,
    drop_path_rate: float,
    rope_grid: tuple[int, int] | None = None,
) -> Block:
    return Block(
        dim,
        num_heads,
        loops,
        mlp_ratio=config.mlp_ratio,
        qkv_bias=config.qkv_bias,
        drop_path_rate=drop_path_rate,
        rope_grid=rope_grid,
    )


def _drop_path_rates(last: float, depth: int) -> list[float]:
    return torch.linspace(0, last, depth, device="cpu").tolist()


def _wide(logits: Tensor) -> Tensor:
    return logits.float() if logits.dtype in (torch.bfloat16, torch.float16) else logits
