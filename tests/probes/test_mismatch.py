import numpy as np
import pytest

from analysis.errors import InputError
from analysis.probes.embedding import embed
from analysis.probes.mismatch import compare


def clouds(shift, size=300, width=8, seed=0):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(size, width)), rng.normal(size=(size, width)) + shift


def test_equal_distributions_are_not_told_apart():
    found = compare(*clouds(0.0))
    assert 0.4 < found.classifier_accuracy < 0.6
    assert found.mmd_p_value > 0.05
    assert 0.9 < found.neighbour_overlap < 1.1


def test_distant_distributions_are_told_apart_by_every_measure():
    found = compare(*clouds(4.0))
    assert found.classifier_accuracy > 0.99
    assert found.mmd_p_value < 0.01 and found.mmd > 0.1
    assert found.neighbour_overlap < 0.05


def test_the_centroid_cosine_sees_direction():
    a, b = clouds(0.0)
    assert compare(a + 10, b + 10).centroid_cosine > 0.99
    assert compare(a + 10, b - 10).centroid_cosine < -0.99


def test_the_unbiased_kernel_distance_matches_its_definition():
    a, b = clouds(0.5, size=12, width=3)
    points = np.concatenate([a, b])
    squared = ((points[:, None] - points[None]) ** 2).sum(-1)
    kernel = np.exp(-squared / np.median(squared[squared > 0]))
    within = sum(
        kernel[i, j] for side in (range(12), range(12, 24)) for i in side for j in side if i != j
    ) / (12 * 11)
    across = kernel[:12, 12:].mean()
    assert compare(a, b).mmd == pytest.approx(within - 2 * across, abs=1e-12)


def test_shuffled_labels_of_distant_clouds_look_mixed():
    a, b = clouds(4.0)
    points = np.random.default_rng(1).permutation(np.concatenate([a, b]))
    assert compare(points[:300], points[300:]).mmd_p_value > 0.05


@pytest.mark.parametrize(
    "points",
    [
        np.ones((60, 16)),
        np.zeros((60, 16)),
        1 + 1e-9 * np.random.default_rng(0).normal(size=(60, 16)),
        np.full((60, 16), np.nan),
    ],
    ids=["ones", "zeros", "nearly constant", "nan"],
)
def test_clouds_without_spread_are_skipped_with_a_reason(points):
    healthy = np.random.default_rng(0).normal(size=(60, 16))
    assert embed({"q": healthy, "k": points}).skipped.startswith("k: ")
    with pytest.raises(InputError, match="second cloud"):
        compare(healthy, points)


@pytest.mark.parametrize(
    ("size", "perplexity"), [(3, None), (8, None), (10, 19 / 3), (20, 13.0), (31, 61 / 3), (100, 30.0)]
)
def test_perplexity_adapts_to_the_number_of_points(size, perplexity):
    rng = np.random.default_rng(0)
    found = embed({"q": rng.normal(size=(size, 4)), "k": rng.normal(size=(size, 4))})
    if perplexity is None:
        assert "floor" in found.skipped
        return
    assert found.perplexity == pytest.approx(perplexity)
    assert set(found.points) == {"q", "k"} and found.points["q"].shape == (size, 2)


def test_different_widths_are_refused():
    with pytest.raises(InputError, match="share their width"):
        compare(np.ones((20, 3)), np.ones((20, 4)))
