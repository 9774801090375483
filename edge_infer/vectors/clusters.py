"""k-means: vectors to groups, by Lloyd's iterations from k-means++ seeds. It needs numpy."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from edge_infer.errors import InputError

if TYPE_CHECKING:
    import numpy as np


class Clusters(NamedTuple):
    """The result of `kmeans`.

    Attributes:
        centers: [k, dimension] of float32.
        labels: For each vector the number of its nearest center.
        inertia: The sum of the squared distances to these.
    """

    centers: np.ndarray
    labels: np.ndarray
    inertia: float


def kmeans(vectors: Any, k: int, *, iterations: int = 100, seed: int = 0) -> Clusters:
    """Group vectors around k centers; the same seed gives the same groups.

    Args:
        vectors: [n, dimension], numbers.
        k: How many groups, at most n.
        iterations: The most iterations; it ends where no vector changes its group.
        seed: Of the first centers, which k-means++ draws (Arthur and Vassilvitskii, 2007).

    Raises:
        InputError: There are fewer vectors than groups, or one is not finite.

    >>> kmeans([[0, 0], [0, 1], [9, 9]], 2).labels.tolist() in ([0, 0, 1], [1, 1, 0])
    True
    """
    import numpy as np

    rows = np.asarray(vectors, "f8")
    if rows.ndim != 2 or not 1 <= k <= len(rows) or not np.isfinite(rows).all():
        raise InputError(
            f"{k} groups of vectors of shape {list(rows.shape)}, expected [n, dimension] of finite numbers, n >= {k}",
            hint="kmeans(vectors, 5)",
        )
    chance = np.random.default_rng(seed)
    centers = rows[[chance.integers(len(rows))]]
    for _ in range(1, k):
        near = _distances(rows, centers).min(1)
        share = near / near.sum() if near.sum() > 0 else None
        centers = np.concatenate([centers, rows[[chance.choice(len(rows), p=share)]]])
    labels = np.full(len(rows), -1)
    for _ in range(iterations):
        before, labels = labels, _distances(rows, centers).argmin(1)
        if (before == labels).all():
            break
        for i in range(k):
            if (labels == i).any():  # a center without vectors stays
                centers[i] = rows[labels == i].mean(0)
    distances = _distances(rows, centers)
    return Clusters(centers.astype("f4"), distances.argmin(1), float(distances.min(1).sum()))


def _distances(rows: np.ndarray, centers: np.ndarray) -> np.ndarray:
    squares: np.ndarray = (rows**2).sum(1)[:, None] - 2 * rows @ centers.T + (centers**2).sum(1)
    found: np.ndarray = squares.clip(0)
    return found
