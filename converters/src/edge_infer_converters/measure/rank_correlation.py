"""Spearman's rank correlation: how alike two lists of numbers order the same samples."""

from __future__ import annotations

import numpy as np


def spearman(one: np.ndarray, other: np.ndarray) -> float:
    """Return the correlation of the ranks, from -1 to 1; equal numbers share the mean of their ranks.

    0 where one of the lists does not order anything. Source: Spearman, "The proof and measurement of association
    between two things", 1904.

    Args:
        one: Numbers `[samples]`.
        other: As many.
    """
    first, second = (_ranks(np.asarray(values, np.float64)) for values in (one, other))
    first, second = first - first.mean(), second - second.mean()
    size = float(np.sqrt((first**2).sum() * (second**2).sum()))
    return float((first * second).sum()) / size if size else 0.0


def _ranks(values: np.ndarray) -> np.ndarray:
    _, which, counts = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    means: np.ndarray = (last - (counts - 1) / 2)[which]
    return means
