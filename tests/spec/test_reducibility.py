import pytest

from analysis.spec import (
    PRESETS,
    Identity,
    InnerLoop,
    NewtonSchulz,
    NormMode,
    ReducibilityClass,
    SquaredError,
    Trained,
    WeightNorm,
    reducibility,
)

LAST = InnerLoop(chunk=4, trained=Trained.LAST)


@pytest.mark.parametrize(
    ("spec", "num_chunks", "kind", "field"),
    [
        (PRESETS["lact_nvs"], 1, ReducibilityClass.SINGLE_UPDATE, None),
        (PRESETS["lact_nvs"].edit(steps=2), 1, ReducibilityClass.SEQUENTIAL, "trained"),
        (PRESETS["lact_lm"], 3, ReducibilityClass.SEQUENTIAL, "trained"),
        (LAST.edit(weight_norm=WeightNorm()), 3, ReducibilityClass.SEQUENTIAL, "weight_norm"),
        (LAST.edit(weight_norm=WeightNorm(NormMode.PRE)), 3, ReducibilityClass.ADDITIVE_PER_CHUNK, None),
        (LAST, 3, ReducibilityClass.ADDITIVE, None),
        (LAST.edit(transform=NewtonSchulz()), 3, ReducibilityClass.ADDITIVE_PER_CHUNK, None),
        (LAST.edit(loss=SquaredError()), 3, ReducibilityClass.AFFINE, None),
        (
            LAST.edit(loss=SquaredError(), transform=NewtonSchulz()),
            3,
            ReducibilityClass.SEQUENTIAL,
            "transform",
        ),
        (
            LAST.edit(loss=SquaredError(), weight_norm=WeightNorm()),
            3,
            ReducibilityClass.SEQUENTIAL,
            "weight_norm",
        ),
        (PRESETS["lact_lm"].frozen(), 9, ReducibilityClass.ADDITIVE, None),
    ],
)
def test_the_class_and_the_field_at_fault(spec, num_chunks, kind, field):
    verdict = reducibility(spec, num_chunks)
    assert (verdict.kind, verdict.field) == (kind, field)
    assert verdict.is_parallel == (kind is not ReducibilityClass.SEQUENTIAL)
    assert verdict.reason


def test_a_sequential_verdict_cites_the_appendix():
    assert "appendix I.1" in reducibility(PRESETS["lact_lm"], 2).reason
    assert LAST.transform == Identity()
