"""Made-up vectors, and each way to compute on this machine."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from edge_infer.vectors.ways import arithmetics

if TYPE_CHECKING:
    from pathlib import Path

    from edge_infer.vectors.index import Index

WAYS = [*arithmetics()]


def vectors(seed: int, count: int, dimension: int) -> np.ndarray[Any, np.dtype[np.float32]]:
    """Return vectors that lie in clusters, as those of texts do."""
    rng = np.random.default_rng(seed)
    centres = rng.normal(size=(16, dimension))
    return (centres[rng.integers(0, 16, count)] + 0.7 * rng.normal(size=(count, dimension))).astype(np.float32)


def computing(index: Index, way: str) -> Index:
    """Let an index compute in one way."""
    index._arithmetic = arithmetics()[way]
    return index


def answers(index: Index, queries: Any, k: int = 10, **options: Any) -> list[list[tuple[int, float]]]:
    """Return the ids and scores of many searches."""
    return [[(hit.id, hit.score) for hit in index.search(query, k, **options)] for query in queries]


def files(folder: Path) -> dict[str, bytes]:
    """Return what an index consists of."""
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name != ".lock"
    }
