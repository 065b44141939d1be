"""t-SNE of several clouds in one plane, guarded against inputs that crash it or mean nothing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from analysis.probes.mismatch import check_cloud


@dataclass(frozen=True)
class Embedding:
    """Points in the plane by cloud name, the perplexity used, or the reason why there is no picture.

    places: (example, head, token) of every point, the same for all clouds, where it is known.
    """

    points: dict[str, np.ndarray]
    perplexity: float
    skipped: str | None = None
    places: np.ndarray | None = None


def embed(clouds: Mapping[str, np.ndarray], *, perplexity: float = 30.0, seed: int = 0) -> Embedding:
    """Embed clouds [points, width] together by t-SNE; perplexity is lowered when there are few points.

    A cloud without spread, with non-finite values or below the floor is skipped with its reason, because t-SNE ends the
    process without a message on constant data.
    """
    for name, points in clouds.items():
        if why := check_cloud(points):
            return Embedding({}, perplexity, f"{name}: {why}")
    from sklearn.manifold import TSNE

    joined = np.concatenate(list(clouds.values())).astype(np.float64)
    used = float(min(perplexity, (len(joined) - 1) / 3))
    model = TSNE(n_components=2, perplexity=used, init="pca", learning_rate="auto", random_state=seed)
    plane = model.fit_transform(joined)
    ends = np.cumsum([len(points) for points in clouds.values()])[:-1]
    return Embedding(dict(zip(clouds, np.split(plane, ends), strict=True)), used)
