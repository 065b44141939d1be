"""The two sizes at which every variant can be trained: what data, which host, how many steps, which rate."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

from analysis.models import lact_nvs_config, vittt_config
from analysis.models.lact_lm_config import LaCTLMConfig
from analysis.spec import Family


@dataclass(frozen=True, kw_only=True)
class TextData:
    """Windows of `length` tokens; `crops` of them are evaluated. `source` None is the embedded corpus, else a folder."""

    length: int = 1024
    crops: int = 512
    source: str | None = None

    def summary(self) -> str:
        """Return what is prepared before the first step, in words."""
        return f"text in windows of {self.length:,} tokens, {self.crops:,} of them for evaluation"


@dataclass(frozen=True, kw_only=True)
class SceneData:
    """Procedural scenes: how many, views of each, their side in pixels, and which become inputs and targets."""

    scenes: int = 12_000
    views: int = 8
    size: int = 64
    inputs: int = 2
    targets: int = 6
    evaluation_scenes: int = 512
    evaluation_targets: int = 3
    source: str | None = None

    def summary(self) -> str:
        """Return what is prepared before the first step, in words."""
        return f"{self.scenes:,} scenes for training and {self.evaluation_scenes:,} for evaluation"


@dataclass(frozen=True, kw_only=True)
class ImageData:
    """Rendered images for classification: how many, their side in pixels, and how many are evaluated."""

    images: int = 150_000
    size: int = 48
    evaluation_images: int = 4000
    source: str | None = None

    def summary(self) -> str:
        """Return what is prepared before the first step, in words."""
        return f"{self.images:,} images for training and {self.evaluation_images:,} for evaluation"


Data = TextData | SceneData | ImageData


def _lm(hidden: int, layers: int, heads: int, lact_heads: int, **fields: Any) -> LaCTLMConfig:
    return LaCTLMConfig(
        hidden_size=hidden,
        num_hidden_layers=layers,
        num_attn_heads=heads,
        num_lact_heads=lact_heads,
        use_muon=True,
        **fields,
    )


_SMALL_LM = _lm(
    128,
    4,
    4,
    2,
    intermediate_size=344,
    vocab_size=1024,
    window_size=64,
    lact_chunk_size=64,
    tie_word_embeddings=True,
    initializer_range=0.02,
    zero_init_ttt_scale=True,
)
_PAPER_LM = _lm(1536, 24, 24, 4, w0_w2_low_rank=32, rope_theta=1e6)

# Small: sizes and rates that show the paper's phenomena in minutes. Paper: appendix A; what it leaves open (peak rate,
# warm-up, decay) follows the published training code. Batches are over all devices: 8 x 4, 4 x 128 and 2 x 256.
SCALES: dict[str, dict[Family, dict[str, Any]]] = {
    "small": {
        Family.LACT_LM: {
            "config": _SMALL_LM, "data": TextData(), "steps": 3000, "batch": 64, "lr": 3e-3, "warmup": 100,
        },
        Family.LACT_NVS: {
            "config": lact_nvs_config.CONFIGS["small"], "data": SceneData(),
            "steps": 6000, "batch": 32, "lr": 3e-3, "warmup": 200,
        },
        Family.VITTT: {
            "config": vittt_config.CONFIGS["small"], "data": ImageData(),
            "steps": 4000, "batch": 128, "lr": 2e-3, "warmup": 200,
        },
    },
    "paper": {
        Family.LACT_LM: {
            "config": _PAPER_LM, "data": TextData(length=32768, source="fineweb-edu"),
            "steps": 20_000, "batch": 32, "lr": 5e-4, "warmup": 1024, "final_lr": 0.1, "weight_decay": 0.1,
        },
        Family.LACT_NVS: {
            "config": lact_nvs_config.CONFIGS["l12_d768_ttt2x"], "data": SceneData(size=128, source="re10k"),
            "steps": 20_000, "batch": 512, "lr": 4e-4, "warmup": 2500, "final_lr": 0.0,
        },
        Family.VITTT: {
            "config": dataclasses.replace(vittt_config.CONFIGS["vittt_base"], drop_path_rate=0.4, label_smoothing=0.1),
            "data": ImageData(size=224, images=1_281_167, evaluation_images=50_000, source="imagenet"),
            "steps": 60 * 1_281_167 // 512, "batch": 512, "lr": 5e-4, "warmup": 20 * 1_281_167 // 512, "final_lr": 0.02,
            "betas": (0.9, 0.999),
        },
    },
}  # fmt: skip
