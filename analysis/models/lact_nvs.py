"""LaCT novel-view synthesis as published: posed input images in, images from other cameras out.

All views become tokens, input views first. Each block attends within views, updates its fast weights once from the
input-view tokens and applies them to all tokens, so a target token learns about the scene through fast weights alone.
That splits the work: `reconstruct` the inputs once, then `render` any number of cameras from the updated fast weights.

    batch: images [B, V, 3, h, w] in 0..1, c2w [B, V, 4, 4], fxfycxcy [B, V, 4], target_c2w [B, Vt, 4, 4],
           target_fxfycxcy [B, Vt, 4]; target_images [B, Vt, 3, h, w] for loss and metrics
    output: images [B, Vt, 3, h, w] in 0..1

Cameras are OpenCV (x right, y down, z forward), intrinsics in pixels of the given images.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import cast

import torch
from jaxtyping import Float
from torch import Tensor, nn

from analysis.errors import InputError
from analysis.models import lact_nvs_config as sublayers
from analysis.models.host import Host
from analysis.models.inner_call import Call
from analysis.models.lact_nvs_config import LOOP, LaCTNVSConfig
from analysis.models.lact_nvs_layers import (
    NORM_EPS,
    FastWeights,
    FastWeightsOfLayer,
    FeedForward,
    SelfAttention,
    Span,
)
from analysis.models.lact_nvs_rays import CHANNELS, images_from_tokens, view_tokens
from analysis.models.sites import SILENT, Scope
from analysis.spec import Family, InnerLoop, Loops

_INIT_STD = 0.02


@dataclass(frozen=True)
class NVSState:
    """A scene as the network holds it: per layer the updated fast weights [B, H, in, out], and the loops that made them."""

    fast_weights: tuple[FastWeightsOfLayer, ...]
    loops: Loops

    def num_bytes(self) -> int:
        """Memory of the state."""
        return sum(weight.nbytes for layer in self.fast_weights for weight in layer.values())


class SubLayer(nn.Module):
    """A sub-layer `f` behind its layer norm `ln`; the residual is added by the block."""

    def __init__(self, dim: int, entry: sublayers.SubLayer, loop: InnerLoop | None) -> None:
        super().__init__()
        self.ln = nn.LayerNorm(dim, eps=NORM_EPS, bias=False)
        self.f: SelfAttention | FastWeights | FeedForward
        if isinstance(entry, sublayers.FastWeights):
            assert loop is not None
            self.f = FastWeights(dim, entry, loop)
        elif isinstance(entry, sublayers.SelfAttention):
            self.f = SelfAttention(dim, entry)
        else:
            self.f = FeedForward(dim, entry)


class Block(nn.Module):
    """The configured sub-layers in order, each x + f(ln(x))."""

    def __init__(self, config: LaCTNVSConfig, loop: InnerLoop | None) -> None:
        super().__init__()
        self.module_list = nn.ModuleList(SubLayer(config.dim, entry, loop) for entry in config.block_config)

    @property
    def sublayers(self) -> Sequence[SubLayer]:
        """The sub-layers in the order they run."""
        return cast(Sequence[SubLayer], self.module_list)

    @property
    def fast(self) -> FastWeights | None:
        """The fast-weight sub-layer, or None."""
        return next((layer.f for layer in self.sublayers if isinstance(layer.f, FastWeights)), None)

    def forward(
        self, x: Float[Tensor, "B T C"], span: Span, call: Call, fast: FastWeightsOfLayer | None = None
    ) -> tuple[Float[Tensor, "B T C"], FastWeightsOfLayer]:
        """Run the block; with `fast` those weights are applied as they are. Returns the fast weights that were applied."""
        applied = fast or {}
        for layer in self.sublayers:
            normed = layer.ln(x)
            if isinstance(layer.f, FastWeights):
                if fast is None:
                    branch, applied = layer.f(normed, span, call)
                else:
                    branch = layer.f.apply_only(normed, call, fast)
            elif isinstance(layer.f, SelfAttention):
                branch = layer.f(normed, span, call)
            else:
                branch = layer.f(normed)
            x = x + branch
        return x, applied


class LaCTNVS(Host):
    """The novel-view host; `loops` defaults to the inner loop that the configuration describes."""

    family = Family.LACT_NVS
    config: LaCTNVSConfig

    def __init__(self, config: LaCTNVSConfig, loops: Loops | None = None) -> None:
        super().__init__(config, config.default_loops() if loops is None else loops)
        expected = {LOOP} if config.fast_weights is not None else set()
        if set(self.loops) != expected:
            raise InputError(
                f"expected loops {sorted(expected) or 'none'} for this block_config, received {sorted(self.loops) or 'none'}; "
                "a block has an inner loop exactly when it lists a fast-weight sub-layer"
            )
        loop, patch_area = self.loops.get(LOOP), config.patch_size**2
        self.input_linear = nn.Linear(patch_area * CHANNELS, config.dim, bias=False)
        self.input_layernorm = nn.LayerNorm(config.dim, eps=NORM_EPS, bias=False)
        self.blocks = nn.ModuleList(Block(config, loop) for _ in range(config.layers))
        self.image_token_decoder = nn.Sequential(
            nn.LayerNorm(config.dim, eps=NORM_EPS, bias=False),
            nn.Linear(config.dim, patch_area * 3, bias=False),
            nn.Sigmoid(),
        )
        self.initialise()

    def initialise(self) -> None:
        """Draw all parameters: std 0.02 for projections, fast weights as published, norms at 1, biases 0."""
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.normal_(module.weight, std=_INIT_STD)
                if module.bias is not None:
                    nn.init.zeros_(module.bias)
        for block in self.token_blocks:
            if block.fast is not None:
                block.fast.initialise()

    @property
    def token_blocks(self) -> Sequence[Block]:
        """All blocks in the order they run."""
        return cast(Sequence[Block], self.blocks)

    @property
    def num_layers(self) -> int:
        """Number of blocks."""
        return self.config.layers

    def layer_sites(self) -> tuple[str, ...]:
        """Attention within views: q, k, v per head [B V, H, T/V, D]; its output o [B V, T/V, C]."""
        has_attention = any(isinstance(entry, sublayers.SelfAttention) for entry in self.config.block_config)
        return ("attention.q", "attention.k", "attention.v", "attention.o") if has_attention else ()

    def initial_weights(self, layer: int) -> dict[str, FastWeightsOfLayer]:
        """Initial fast weights of a layer, [heads, in, out]; empty without a fast-weight sub-layer."""
        fast = self.token_blocks[layer].fast
        return {} if fast is None else {LOOP: fast.initial_weights()}

    def compute(self, batch: Mapping[str, Tensor], call: Call) -> Float[Tensor, "B Vt 3 h w"]:
        """Images from the target cameras, in one pass over input and target tokens."""
        inputs, size, per_view = self._input_tokens(batch)
        self._require(batch, ("target_c2w", "target_fxfycxcy"))
        targets = view_tokens(
            batch["target_c2w"], batch["target_fxfycxcy"], None, size, self.config.patch_size
        )
        if len(targets) != len(inputs):
            raise InputError(
                f"expected target cameras of the {len(inputs)} scenes of the batch, received those of {len(targets)}; pass "
                "views of the same scenes"
            )
        x = self._embed(torch.cat((inputs, targets), dim=1))
        x, _ = self._run_blocks(x, Span(per_view, inputs.shape[1]), call)
        return self._decode(x[:, inputs.shape[1] :], size)

    def reconstruct(self, batch: Mapping[str, Tensor], loops: Loops | None = None) -> NVSState:
        """Update the fast weights of every layer from the input views; `loops` overrides the trained ones."""
        run_loops = self.loops if loops is None else self.resolve(loops)
        tokens, _, per_view = self._input_tokens(batch)
        call = Call(run_loops, Scope(SILENT), self.backend, self.options)
        _, fast = self._run_blocks(self._embed(tokens), Span(per_view, tokens.shape[1]), call)
        return NVSState(fast, run_loops)

    def render(
        self,
        state: NVSState,
        target_c2w: Float[Tensor, "B Vt 4 4"],
        target_fxfycxcy: Float[Tensor, "B Vt 4"],
        height: int,
        width: int,
    ) -> Float[Tensor, "B Vt 3 h w"]:
        """Images from the given cameras of a reconstructed scene; equal to the one-pass `forward`.

        Views do not see each other, so any number may be rendered together or one after the other.
        """
        size = (height, width)
        tokens = view_tokens(target_c2w, target_fxfycxcy, None, size, self.config.patch_size)
        span = Span(tokens.shape[1] // target_c2w.shape[1], 0)
        call = Call(state.loops, Scope(SILENT), self.backend, self.options)
        x, _ = self._run_blocks(self._embed(tokens), span, call, state)
        return self._decode(x, size)

    def _run_blocks(
        self, x: Float[Tensor, "B T C"], span: Span, call: Call, state: NVSState | None = None
    ) -> tuple[Float[Tensor, "B T C"], tuple[FastWeightsOfLayer, ...]]:
        applied = []
        for index, block in enumerate(self.token_blocks):
            fast = None if state is None else state.fast_weights[index]
            x, weights = block(x, span, call.inside("layers").inside(index), fast)
            applied.append(weights)
        return x, tuple(applied)

    def _embed(self, tokens: Float[Tensor, "B T PPC"]) -> Float[Tensor, "B T C"]:
        return self.input_layernorm(self.input_linear(tokens.to(self.input_linear.weight.dtype)))

    def _decode(self, x: Float[Tensor, "B T C"], size: tuple[int, int]) -> Float[Tensor, "B Vt 3 h w"]:
        return images_from_tokens(self.image_token_decoder(x), size, self.config.patch_size)

    def _input_tokens(
        self, batch: Mapping[str, Tensor]
    ) -> tuple[Float[Tensor, "B T PPC"], tuple[int, int], int]:
        self._require(batch, ("images", "c2w", "fxfycxcy"))
        images = batch["images"]
        if images.ndim != 5 or images.shape[2] != 3 or not images.is_floating_point():
            raise InputError(
                f"expected floating-point images [B, V, 3, h, w] in 0..1, received {tuple(images.shape)} {images.dtype}; "
                "composite an alpha channel on a background and divide bytes by 255"
            )
        size = (images.shape[3], images.shape[4])
        tokens = view_tokens(batch["c2w"], batch["fxfycxcy"], images, size, self.config.patch_size)
        return tokens, size, tokens.shape[1] // images.shape[1]

    @staticmethod
    def _require(batch: Mapping[str, Tensor], names: tuple[str, ...]) -> None:
        missing = [name for name in names if name not in batch]
        if missing:
            raise InputError(
                f"expected a batch with {', '.join(names)}, missing {', '.join(missing)}; add them"
            )

    def loss(self, output: Tensor, batch: Mapping[str, Tensor]) -> Tensor:
        """Mean squared error over all pixels of all target views."""
        wide = output.to(torch.promote_types(output.dtype, torch.float32))
        return (wide - self._targets(output, batch)).square().mean()

    def metrics(self, output: Tensor, batch: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Per scene: psnr and mse [B], means over views, and per view: psnr_by_view and mse_by_view [B, Vt].

        PSNR = -10 log10(MSE) with both images clamped to 0..1, over all pixels with the background of the data and no mask,
        in float32 or wider.
        """
        dtype = torch.promote_types(output.dtype, torch.float32)
        difference = output.to(dtype).clamp(0, 1) - self._targets(output, batch).to(dtype).clamp(0, 1)
        mse = difference.square().mean(dim=(-3, -2, -1))
        psnr = -10 * mse.clamp_min(torch.finfo(dtype).tiny).log10()
        return {"psnr": psnr.mean(1), "mse": mse.mean(1), "psnr_by_view": psnr, "mse_by_view": mse}

    def _targets(self, output: Tensor, batch: Mapping[str, Tensor]) -> Tensor:
        self._require(batch, ("target_images",))
        targets = batch["target_images"]
        if targets.shape != output.shape:
            raise InputError(
                f"expected target_images of shape {tuple(output.shape)} like the rendering, received {tuple(targets.shape)}; "
                "views are rendered at the size of the input images"
            )
        return targets
