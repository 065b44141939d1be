"""How different two clouds of vectors are, measured in their own space (a t-SNE picture alone proves nothing).

Four measures that fail in different ways: a classifier that tells the clouds apart, a kernel distance with a permutation
test, the angle between the centres, and whose neighbours a point's nearest neighbours are.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from analysis.errors import InputError

FLOOR = 10


@dataclass(frozen=True)
class Mismatch:
    """The four measures for one pair of clouds, with what no difference at all would give.

    Attributes:
        classifier_accuracy: cross-validated accuracy of telling the clouds apart (0.5: indistinguishable).
        mmd: unbiased squared maximum mean discrepancy with a Gaussian kernel of median width (0: same distribution).
        mmd_p_value: share of random relabellings with an MMD at least as large, as if vectors were independent. Those of
            one example are not, and never below 1 / (1 + permutations): a small value alone is weak evidence.
        centroid_cosine: cosine of the angle between the two means (1: same direction).
        neighbour_overlap: share of foreign points among nearest neighbours over the share expected of mixed clouds (1: mixed).
        samples: vectors per cloud.
        width: their dimension.
    """

    classifier_accuracy: float
    mmd: float
    mmd_p_value: float
    centroid_cosine: float
    neighbour_overlap: float
    samples: int
    width: int

    def as_dict(self) -> dict[str, float]:
        """Return the four measures and the p-value by name."""
        return {
            "classifier_accuracy": self.classifier_accuracy,
            "mmd": self.mmd,
            "mmd_p_value": self.mmd_p_value,
            "centroid_cosine": self.centroid_cosine,
            "neighbour_overlap": self.neighbour_overlap,
        }


def check_cloud(points: np.ndarray) -> str | None:
    """Return why these points carry no distribution (too few, not finite, no spread), or None when they do."""
    if points.ndim != 2:
        raise InputError(
            f"a cloud must be [points, width], received shape {points.shape}; flatten the token axes."
        )
    if len(points) < FLOOR:
        return f"{len(points)} points are fewer than the floor of {FLOOR}"
    if not np.isfinite(points).all():
        return "some values are not finite"
    spread = float(points.std(axis=0).max())
    if spread <= 1e-6 * max(float(np.abs(points).max()), 1e-30):
        return "all points coincide"
    return None


def compare(
    a: np.ndarray, b: np.ndarray, *, neighbours: int = 10, permutations: int = 200, seed: int = 0
) -> Mismatch:
    """Measure the mismatch of two clouds [points, width] of equal size.

    Raises:
        InputError: different widths, or a cloud without spread, too small or not finite.
    """
    if a.shape[1:] != b.shape[1:]:
        raise InputError(
            f"two clouds must share their width, received {a.shape} and {b.shape}; compare like with like."
        )
    for name, points in (("first", a), ("second", b)):
        if why := check_cloud(points):
            raise InputError(
                f"the {name} cloud needs points with spread, but {why}; choose another site or more samples."
            )
    size = min(len(a), len(b))
    a, b = a[:size].astype(np.float64), b[:size].astype(np.float64)
    mmd, p_value = _mmd(a, b, permutations, seed)
    cosine = float(a.mean(0) @ b.mean(0) / max(np.linalg.norm(a.mean(0)) * np.linalg.norm(b.mean(0)), 1e-30))
    return Mismatch(
        classifier_accuracy=_classifier_accuracy(a, b, seed),
        mmd=mmd,
        mmd_p_value=p_value,
        centroid_cosine=cosine,
        neighbour_overlap=_neighbour_overlap(a, b, min(neighbours, size - 1)),
        samples=size,
        width=a.shape[1],
    )


def _classifier_accuracy(a: np.ndarray, b: np.ndarray, seed: int) -> float:
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import StratifiedKFold, cross_val_score
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    labels = np.repeat([0, 1], [len(a), len(b)])
    folds = StratifiedKFold(5, shuffle=True, random_state=seed)
    model = make_pipeline(StandardScaler(), LogisticRegression(max_iter=500))
    return float(cross_val_score(model, np.concatenate([a, b]), labels, cv=folds).mean())


def _mmd(a: np.ndarray, b: np.ndarray, permutations: int, seed: int) -> tuple[float, float]:
    """Unbiased MMD^2 and its permutation p-value; relabelled sums come from one Gram matrix."""
    from scipy.spatial.distance import pdist, squareform

    squared = squareform(pdist(np.concatenate([a, b]), "sqeuclidean"))
    kernel = np.exp(-squared / np.median(squared[squared > 0]))
    np.fill_diagonal(kernel, 0.0)
    size, rng = len(a), np.random.default_rng(seed)
    signs = np.repeat([1.0, -1.0], size)
    relabelled = np.stack([signs, *(rng.permutation(signs) for _ in range(permutations))], 1)
    across = np.einsum("ij,ij->j", relabelled, kernel @ relabelled)
    total = kernel.sum()
    within = (total + across) / 2
    values = within / (size * (size - 1)) - (total - across) / 2 / size**2
    return float(values[0]), float((1 + (values[1:] >= values[0]).sum()) / (1 + permutations))


def _neighbour_overlap(a: np.ndarray, b: np.ndarray, neighbours: int) -> float:
    from sklearn.neighbors import NearestNeighbors

    points = np.concatenate([a, b])
    found = NearestNeighbors(n_neighbors=neighbours + 1).fit(points).kneighbors(points, return_distance=False)
    labels = np.repeat([0, 1], [len(a), len(b)])
    own = np.arange(len(points))[:, None]
    foreign = (labels[found] != labels[:, None]) & (found != own)
    expected = len(b) / (len(points) - 1)
    return float(foreign.sum(1).mean() / neighbours / expected)
