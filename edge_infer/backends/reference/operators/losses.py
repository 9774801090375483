"""Losses, and the steps of optimizers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from edge_infer.backends.reference.operators.normalization import softmax_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from edge_infer.backends.reference.call import Array, Call, Operator


def likelihood_loss(call: Call, x: Array, target: Array, weight: Array | None = None) -> Array:
    """Compute NegativeLogLikelihoodLoss."""
    ignored = call.get("ignore_index", None)
    lives = np.ones(target.shape, bool) if ignored is None else target != ignored
    safe = np.where(lives, target, 0)
    loss = -np.take_along_axis(x, np.expand_dims(safe, 1), 1).squeeze(1)
    shares = np.ones(target.shape, x.dtype) if weight is None else weight[safe]
    shares = np.where(lives, shares, 0).astype(x.dtype)
    loss = np.where(lives, loss, 0) * shares
    reduction = call.get("reduction", "mean")
    if reduction == "mean":
        loss = loss.sum() / shares.sum()
    elif reduction == "sum":
        loss = loss.sum()
    return np.asarray(loss).astype(x.dtype)


def cross_entropy_loss(call: Call, x: Array, target: Array, weight: Array | None = None) -> tuple[Array, Array]:
    """Compute SoftmaxCrossEntropyLoss, and the logarithms of the chances."""
    chances = softmax_of(x, 1, is_log=True)
    return likelihood_loss(call, chances, target, weight), chances


def _stepping(count: int, step: Callable[..., tuple[Any, ...]]) -> Operator:
    """Make an operator that steps several tensors; each has `count` inputs, in groups of the same kind."""

    def run(call: Call, rate: Array, time: Array, *tensors: Array) -> tuple[Array, ...]:
        each = len(tensors) // count
        results = [step(call, rate, time, *(tensors[i + k * each] for k in range(count))) for i in range(each)]
        return tuple(
            np.asarray(result[k]).astype(tensors[0].dtype) for k in range(len(results[0])) for result in results
        )

    return run


def _adagrad(call: Call, rate: Array, time: Array, x: Array, gradient: Array, squares: Array) -> tuple[Any, ...]:
    rate = rate / (1 + time * call.get("decay_factor", 0.0))
    gradient = call.get("norm_coefficient", 0.0) * x + gradient
    squares = squares + gradient * gradient
    return x - rate * gradient / (np.sqrt(squares) + call.get("epsilon", 1e-6)), squares


def _adam(
    call: Call, rate: Array, time: Array, x: Array, gradient: Array, mean: Array, squares: Array
) -> tuple[Any, ...]:
    alpha, beta = call.get("alpha", 0.9), call.get("beta", 0.999)
    gradient = call.get("norm_coefficient", 0.0) * x + gradient
    mean = alpha * mean + (1 - alpha) * gradient
    squares = beta * squares + (1 - beta) * gradient * gradient
    if time > 0:
        rate = rate * np.sqrt(1 - beta**time) / (1 - alpha**time)
    x = x - rate * mean / (np.sqrt(squares) + call.get("epsilon", 1e-6))
    return (1 - call.get("norm_coefficient_post", 0.0)) * x, mean, squares


def _momentum(call: Call, rate: Array, time: Array, x: Array, gradient: Array, speed: Array) -> tuple[Any, ...]:
    alpha = call.get("alpha", 0.9)
    gradient = call.get("norm_coefficient", 0.0) * x + gradient
    speed = alpha * speed + (call.get("beta", 1.0) if time > 0 else 1) * gradient
    move = speed if call.get("mode", "standard") == "standard" else gradient + alpha * speed
    return x - rate * move, speed


OPERATORS: dict[str, Operator] = {
    "NegativeLogLikelihoodLoss": likelihood_loss,
    "SoftmaxCrossEntropyLoss": cross_entropy_loss,
}
TRAINING: dict[str, Operator] = {
    "Adagrad": _stepping(3, _adagrad),
    "Adam": _stepping(4, _adam),
    "Momentum": _stepping(3, _momentum),
}
