"""The integers that a model's constants carry: the codes behind their floats, with their scales."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from edge_infer_converters.passes.carried_scales import Scales, key_of
from edge_infer_converters.writers.tflite.graph import Quantization, Tensor
from edge_infer_converters.writers.tflite.quantize.schemes import INT8

if TYPE_CHECKING:
    from collections.abc import Mapping

_LOWEST, _HIGHEST = INT8.lowest, INT8.highest
#: By how much of a step a stored weight may be beside its integer: it was computed in float32 from it.
_NEAR = 1e-2


class Constants:
    """The integers of a graph's constants by the scales that it carries, which `key_of` names; each is found once."""

    def __init__(self, scales: Mapping[str, Scales]) -> None:
        self._scales = scales
        self._codes: dict[int, tuple[np.ndarray, Scales] | None] = {}

    def stored(self, tensor: Tensor) -> Tensor | None:
        """Return a constant as its integers; None where it has none of its own."""
        known = self._carried(tensor)
        if known is None:
            return None
        codes, scales = known
        if len(scales.values) == 1:
            return coded(tensor, codes, Quantization(scales.values, int(scales.zero_points[0])))
        for axis, size in enumerate(tensor.shape):
            shape = [-1 if i == axis else 1 for i in range(tensor.rank)]
            is_along = size == len(scales.values) and not scales.zero_points.any()
            if is_along and is_exact(tensor.data, codes, scales.values.reshape(shape), 0):
                return coded(tensor, codes, Quantization(scales.values, axis=axis))
        return None

    def operand(self, tensor: Tensor) -> Tensor | None:
        """Return a constant operand in integers of one scale, None where that would change it."""
        stored = self.stored(tensor)
        if stored is not None and stored.quantization is not None and len(stored.quantization.scales) == 1:
            return stored
        if tensor.data is None or tensor.data.size == 0 or np.unique(tensor.data).size > 1:
            return None
        value = float(tensor.data.reshape(-1)[0])
        meaning = Quantization(np.array([abs(value) / _HIGHEST or 1.0], np.float32), 0)
        return coded(tensor, np.full(tensor.shape, np.sign(value) * _HIGHEST), meaning)

    def weights(self, code: str, weights: Tensor, axis: int) -> Tensor | None:
        """Return weights in integers around zero, None where they have no scales or another zero."""
        known = self._carried(weights)
        if known is None or known[1].zero_points.any():
            return None
        scales = known[1].values
        if len(scales) == 1 and code != "FULLY_CONNECTED":  # convolutions have a scale for each channel
            scales = np.full(weights.shape[axis], scales[0], np.float32)
        if len(scales) not in (1, weights.shape[axis]):
            return None
        if len(scales) > 1:
            shape = [-1 if i == axis else 1 for i in range(weights.rank)]
            if not is_exact(weights.data, known[0], scales.reshape(shape), 0):
                return None
        return coded(weights, known[0], Quantization(scales, axis=axis))

    def _carried(self, tensor: Tensor) -> tuple[np.ndarray, Scales] | None:
        """Return the integers of a constant, and their scales; None where it has none of its own."""
        if id(tensor) not in self._codes:
            self._codes[id(tensor)] = None if tensor.data is None else self._found(tensor.data)
        return self._codes[id(tensor)]

    def _found(self, data: np.ndarray) -> tuple[np.ndarray, Scales] | None:
        scales = self._scales.get(key_of(data))
        if scales is None:
            return None
        for shape in _shapes(data.shape, len(scales.values)):
            by_slice = scales.values.astype(np.float64).reshape(shape)
            zero_points = scales.zero_points.reshape(shape)
            codes = np.rint(data / by_slice) + zero_points
            if is_exact(data, codes, by_slice, zero_points) and codes.min() >= _LOWEST and codes.max() <= _HIGHEST:
                return codes, scales
        return None


def _shapes(shape: tuple[int, ...], count: int) -> list[list[int]]:
    """List the ways in which scales can lie along a constant's axes."""
    if count == 1:
        return [[1] * len(shape)]
    return [[count if i == axis else 1 for i in range(len(shape))] for axis, size in enumerate(shape) if size == count]


def is_exact(data: np.ndarray | None, codes: np.ndarray, scales: np.ndarray, zero_points: np.ndarray | int) -> bool:
    """Tell whether floats are what these integers stand for."""
    if data is None:
        return False
    return bool((np.abs((codes - zero_points) * scales - data) <= _NEAR * np.abs(scales)).all())


def codes_of(values: np.ndarray, meaning: Quantization) -> np.ndarray:
    """Return the nearest integers of floats."""
    codes: np.ndarray = np.clip(np.rint(values / meaning.scales[0]) + meaning.zero_point, _LOWEST, _HIGHEST)
    return codes


def coded(tensor: Tensor, codes: np.ndarray, meaning: Quantization) -> Tensor:
    """Return a constant that holds integers in the place of its floats."""
    data = codes.astype(np.int8)
    return Tensor(f"{tensor.name}/int8", tensor.shape, tensor.shape, data.dtype, data, meaning)
