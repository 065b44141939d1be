"""The inner loops as published, each field with its source in the published code."""

from __future__ import annotations

from analysis.spec.choices import (
    GLU,
    ConstantRate,
    DepthwiseConv3x3,
    DotProduct,
    FrobeniusScaling,
    Identity,
    NewtonSchulz,
    PerTokenMomentum,
    PerTokenRate,
    SoftClip,
    SwiGLU,
    WeightNorm,
)
from analysis.spec.enums import NormMode, Order, Reduction, Schedule, Tail, Trained
from analysis.spec.families import Family, Loops
from analysis.spec.inner_loop import InnerLoop


def lact_lm(
    *, chunk: int = 2048, muon: bool = True, momentum: bool = True, prenorm: bool = False
) -> InnerLoop:
    """LaCT language model: chunk-causal, outputs before the chunk's own update, the final chunk never updates.

    The keyword arguments are the switches of the published config.json (`lact_chunk_size`, `use_muon`, `use_momentum`,
    `ttt_prenorm`); the official configuration has all of them as the defaults here.
    """
    return InnerLoop(
        network=SwiGLU(),
        loss=DotProduct(),
        chunk=chunk,
        order=Order.APPLY_THEN_UPDATE,
        trained=Trained.ALL,
        lr=PerTokenRate(shared=False),
        momentum=PerTokenMomentum() if momentum else None,
        transform=NewtonSchulz(Schedule.LACT_LM) if muon else Identity(),
        weight_norm=WeightNorm(NormMode.PRE if prenorm else NormMode.POST, detach_target=False),
        tail=Tail.APPLY_ONLY,
    )


def lact_nvs(*, muon: bool = True) -> InnerLoop:
    """LaCT novel-view synthesis: one update from all input-view tokens, applied to every token, no momentum.

    `muon=False` is the published `muon_update_steps: 0`, which still divides the gradient by its Frobenius norm.
    """
    return InnerLoop(
        network=SwiGLU(),
        loss=DotProduct(),
        chunk=None,
        order=Order.UPDATE_THEN_APPLY,
        trained=Trained.ALL,
        lr=PerTokenRate(shared=False),
        transform=NewtonSchulz(Schedule.LACT_NVS) if muon else FrobeniusScaling(),
        weight_norm=WeightNorm(NormMode.POST, detach_target=True),
    )


_VITTT_LOSS = DotProduct(scale=1 / 3, reduction=Reduction.MEAN)


def vittt_glu() -> InnerLoop:
    """ViTTT's gated linear unit: one full-batch step on the mean dot-product loss times 1/3, soft-clipped, rate 1."""
    return InnerLoop(network=GLU(), loss=_VITTT_LOSS, lr=ConstantRate(1.0), transform=SoftClip())


def vittt_conv() -> InnerLoop:
    """ViTTT's depthwise 3x3 convolution: the same loss, rate and clipping, per channel kernel."""
    return InnerLoop(network=DepthwiseConv3x3(), loss=_VITTT_LOSS, lr=ConstantRate(1.0), transform=SoftClip())


def baseline(family: Family, *, chunk: int = 2048) -> Loops:
    """Return the published inner loops of a family by name; `chunk` applies to the language model."""
    if family is Family.LACT_LM:
        return {"fast_weights": lact_lm(chunk=chunk)}
    if family is Family.LACT_NVS:
        return {"fast_weights": lact_nvs()}
    return {"glu": vittt_glu(), "conv": vittt_conv()}


PRESETS: dict[str, InnerLoop] = {
    "lact_lm": lact_lm(),
    "lact_lm_prenorm": lact_lm(prenorm=True),
    "lact_lm_plain": lact_lm(muon=False, momentum=False),
    "lact_nvs": lact_nvs(),
    "lact_nvs_frobenius": lact_nvs(muon=False),
    "vittt_glu": vittt_glu(),
    "vittt_conv": vittt_conv(),
}
