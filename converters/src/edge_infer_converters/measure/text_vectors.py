"""How near the vectors of texts are to the source's: what users of a model for feature-extraction see of it.

An SQNR over the vectors of all tokens says little about them: errors of tokens that are pooled cancel out, and what
compares texts sees the angle between two vectors, not their length.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from edge_infer.tasks.definition import Definition
    from edge_infer_converters.data.calibration import CalibrationSet

    Arrays = Mapping[str, np.ndarray]

#: The cosines from which on a variant is good enough for its task: on average, and of the text that is farthest.
GOOD_MEAN, GOOD_LEAST = 0.98, 0.95
_TOKENS, _VECTORS = 3, 2


class Nearness(NamedTuple):
    """The cosines of vectors with the source's.

    Attributes:
        mean: Their mean.
        least: That of the text that is farthest.
    """

    mean: float
    least: float

    @property
    def is_good(self) -> bool:
        """Whether a user may take one model for the other."""
        return self.mean >= GOOD_MEAN and self.least >= GOOD_LEAST

    def __str__(self) -> str:
        """Write both for a person."""
        return f"the vectors of texts have a cosine of {self.mean:.4f} with the source's, {self.least:.4f} at least"


class TextVectors:
    """Pools a model's outputs as its pipeline does.

    Args:
        output: The output that holds a vector for each text, or one for each token.
        method: How tokens are pooled: `mean`, `first`, `last` or `max`.
        mask: The input that says which tokens count, or None.
        data: The inputs of each call.
    """

    def __init__(self, output: str, method: str, mask: str | None, data: CalibrationSet) -> None:
        self._output, self._method, self._mask = output, method, mask
        self._calls = data.calls

    @classmethod
    def of(
        cls, definition: Definition | None, data: CalibrationSet, references: Sequence[Arrays]
    ) -> TextVectors | None:
        """Return what pools the outputs of a pipeline.

        Returns:
            None where the task is another one, or the pipeline gives no vector for each text.
        """
        if definition is None or definition.task != "feature-extraction" or not references:
            return None
        first = definition.outputs[0]
        output = first.parameters.get("tensor") or next(iter(references[0]))
        method = first.parameters["method"] if first.name == "post.pool" else ""
        rank = references[0][output].ndim if output in references[0] else 0
        is_pooled = first.name == "post.tensor" and rank == _VECTORS
        if not is_pooled and not (rank == _TOKENS and method not in ("", "none")):
            return None
        steps = [step for chain in definition.inputs.values() for step in chain if step.name == "text.tokenize"]
        mask = steps[0].parameters["tensors"].get("mask") if steps else None
        return cls(output, method, mask, data)

    def compare(self, references: Sequence[Arrays], results: Sequence[Arrays]) -> Nearness:
        """Compare the vectors of all texts with the source's."""
        cosines = [
            _cosine(want, got)
            for call, reference, result in zip(self._calls, references, results, strict=True)
            for want, got in zip(self._pooled(call, reference), self._pooled(call, result), strict=True)
        ]
        return Nearness(float(np.mean(cosines)), float(np.min(cosines)))

    def _pooled(self, call: Arrays, outputs: Arrays) -> list[np.ndarray]:
        values = outputs[self._output].astype(np.float64)
        if values.ndim == _VECTORS:
            return list(values)
        counts = call[self._mask] if self._mask is not None and self._mask in call else np.ones(values.shape[:2])
        pooled = []
        for tokens, mask in zip(values, counts, strict=True):
            kept = tokens[np.asarray(mask) != 0]
            pool = {"mean": lambda one: one.mean(0), "first": lambda one: one[0], "last": lambda one: one[-1]}
            pooled.append(pool.get(self._method, lambda one: one.max(0))(kept))
        return pooled


def _cosine(want: np.ndarray, got: np.ndarray) -> float:
    sizes = float(np.linalg.norm(want) * np.linalg.norm(got))
    if not np.isfinite(sizes):
        return -1.0
    return float(want @ got) / sizes if sizes else float(not want.any() and not got.any())
