"""Support vector machines: a vote between every two classes, and probabilities."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from edge_infer.backends.reference.operators.elementwise import sigmoid
from edge_infer.backends.reference.operators.tables import labels_of, posted, svm_scores

if TYPE_CHECKING:
    from edge_infer.backends.reference.call import Array, Call, Operator

_EDGE = 1e-7


def svm_classifier(call: Call, x: Array) -> tuple[Array, Array]:
    """Compute SVMClassifier as libsvm does: a decision for each pair of classes."""
    labels, counts = labels_of(call), call.get("vectors_per_class", None) or []
    transform = call.get("post_transform", "NONE")
    weights = np.array(call.get("coefficients", []), np.float64)
    rho = np.array(call.get("rho", [0.0]), np.float64)
    if not counts:  # linear: weights for each class
        scores = x.astype(np.float64) @ weights.reshape(len(labels), -1).T + rho[0]
        best = scores.argmax(1)
        if len(labels) == 2 and rho.size == 1:  # as ONNX Runtime does: the second where any score is enough
            is_enough = scores.max(1) >= 0.5 if (weights >= 0).all() else scores.max(1) > 0
            best = np.where(is_enough, 1, best)
        return labels[best], posted(scores, transform).astype(np.float32)
    decisions = _decisions(counts, svm_scores(call, x), weights.reshape(len(counts) - 1, -1), rho)
    pairs = [(i, j) for i in range(len(counts)) for j in range(i + 1, len(counts))]
    votes = np.zeros((len(x), len(counts)))
    for place, (i, j) in enumerate(pairs):
        wins = decisions[:, place] > 0
        votes[:, i] += wins
        votes[:, j] += ~wins
    slopes = np.array(call.get("prob_a", None) or [], np.float64)
    if slopes.size:
        offsets = np.array(call.get("prob_b", []), np.float64)
        chances = np.clip(sigmoid(-(decisions * slopes + offsets)), _EDGE, 1 - _EDGE)
        decisions = np.stack([_coupled(row, pairs, len(counts)) for row in chances])
    elif len(pairs) == 1:
        is_soft = transform in ("SOFTMAX", "SOFTMAX_ZERO")
        decisions = np.concatenate([(1 if is_soft else 0) - decisions, decisions], 1)
        transform = "NONE" if is_soft else transform  # ONNX Runtime does not transform these pairs
    # Votes decide also where the chances say another class, as in ONNX Runtime.
    return labels[votes.argmax(1)], posted(decisions, transform).astype(np.float32)


def _decisions(counts: list[int], kernels: Array, weights: Array, rho: Array) -> Array:
    ends = np.cumsum(counts)
    at = [slice(end - count, end) for end, count in zip(ends, counts, strict=True)]
    found: list[Array] = []
    for i in range(len(counts)):
        for j in range(i + 1, len(counts)):
            first, second = kernels[:, at[i]] @ weights[j - 1, at[i]], kernels[:, at[j]] @ weights[i, at[j]]
            found.append(first + second + rho[len(found)])
    return np.stack(found, 1)


def _coupled(chances: Array, pairs: list[tuple[int, int]], count: int) -> Array:
    """Return the probabilities that suit those of all pairs best: libsvm's multiclass_probability."""
    r = np.zeros((count, count))
    for chance, (i, j) in zip(chances, pairs, strict=True):
        r[i, j], r[j, i] = chance, 1 - chance
    q = -r.T * r
    q[np.diag_indices(count)] = np.square(r).sum(0)
    p = np.full(count, 1 / count)
    for _ in range(max(100, count)):
        product = q @ p
        total = p @ product
        if np.abs(product - total).max() < 0.005 / count:
            break
        for t in range(count):
            step = (total - product[t]) / q[t, t]
            p[t] += step
            total = (total + step * (step * q[t, t] + 2 * product[t])) / (1 + step) ** 2
            product = (product + step * q[t]) / (1 + step)
            p /= 1 + step
    return p


OPERATORS: dict[str, Operator] = {"SVMClassifier": svm_classifier}
