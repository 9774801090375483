"""k-means finds the groups that are there, as scikit-learn does."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.cluster import KMeans

from edge_infer import InputError
from edge_infer.vectors.clusters import kmeans


def test_the_groups_of_a_hundred_vectors_are_as_good_as_those_of_scikit_learn() -> None:
    rows = np.random.default_rng(4).normal(size=(100, 10))
    ours = min(kmeans(rows, 5, seed=seed).inertia for seed in range(10))
    assert ours <= KMeans(5, n_init=10, random_state=0).fit(rows).inertia_ * 1.02


def test_clear_groups_are_found_and_the_same_seed_gives_the_same() -> None:
    chance = np.random.default_rng(1)
    places = np.array([[0, 0], [20, 0], [0, 20]])
    truth = np.repeat(np.arange(3), 40)
    found = kmeans(places[truth] + chance.normal(size=(120, 2)), 3)
    assert len({tuple(found.labels[truth == i]) for i in range(3)}) == 3
    assert all(len(set(found.labels[truth == i])) == 1 for i in range(3))
    again = kmeans(places[truth] + np.random.default_rng(1).normal(size=(120, 2)), 3)
    assert again.centers.tobytes() == found.centers.tobytes()


@pytest.mark.parametrize(("rows", "k"), [([[1.0, 2]], 2), ([[1.0, 2]], 0), ([1.0, 2], 1), ([[float("nan")]], 1)])
def test_what_cannot_be_grouped_is_refused(rows: object, k: int) -> None:
    with pytest.raises(InputError, match="expected"):
        kmeans(rows, k)
