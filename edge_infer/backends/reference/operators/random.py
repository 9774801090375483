"""Operators that draw numbers; a seed makes them the same in each run of this engine, and not those of another."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from edge_infer.backends.reference.elements import cast, decode, number_of

if TYPE_CHECKING:
    from edge_infer.backends.reference.call import Array, Call, Operator


def _drawn(call: Call, shape: tuple[int, ...], kind: int, *, normal: bool) -> Array:
    seed = call.get("seed", None)
    generator = np.random.default_rng(None if seed is None else abs(int(seed)))
    if normal:
        drawn = generator.normal(call.get("mean", 0.0), call.get("scale", 1.0), shape)
    else:
        drawn = generator.uniform(call.get("low", 0.0), call.get("high", 1.0), shape)
    return cast(drawn, kind)


def random_like(call: Call, x: Array, *, normal: bool) -> Array:
    """Compute RandomNormalLike or RandomUniformLike."""
    return _drawn(call, x.shape, call.get("dtype", 0) or number_of(x.dtype), normal=normal)


def random_of(call: Call, *, normal: bool) -> Array:
    """Compute RandomNormal or RandomUniform."""
    return _drawn(call, tuple(call.get("shape", [])), call.get("dtype", 1), normal=normal)


def bernoulli(call: Call, x: Array) -> Array:
    """Compute Bernoulli."""
    drawn = _drawn(call, x.shape, 11, normal=False)
    return cast(drawn < decode(x), call.get("dtype", 0) or number_of(x.dtype))


def multinomial(call: Call, x: Array) -> Array:
    """Compute Multinomial: classes by the exponentials of their logits."""
    chances = np.exp(x - x.max(1, keepdims=True))
    edges = np.cumsum(chances / chances.sum(1, keepdims=True), 1)
    drawn = _drawn(call, (x.shape[0], call.get("sample_size", 1)), 11, normal=False)
    found = [np.searchsorted(row, one) for row, one in zip(edges, drawn, strict=True)]
    return cast(np.clip(np.array(found), 0, x.shape[1] - 1), call.get("dtype", 6))


OPERATORS: dict[str, Operator] = {
    "Bernoulli": bernoulli,
    "Multinomial": multinomial,
    "RandomNormal": lambda call: random_of(call, normal=True),
    "RandomNormalLike": lambda call, x: random_like(call, x, normal=True),
    "RandomUniform": lambda call: random_of(call, normal=False),
    "RandomUniformLike": lambda call, x: random_like(call, x, normal=False),
}
