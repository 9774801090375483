"""Public `MiniModel`: one linear layer without an engine, for the smallest of classifiers."""

from __future__ import annotations

from array import array
from math import isfinite
from typing import TYPE_CHECKING

from edge_infer.errors import InputError
from edge_infer.vectors.similarity import cosine_similarity

if TYPE_CHECKING:
    from collections.abc import Iterable

_MAX = 2**24


class MiniModel:
    """One linear layer, `weights @ input + bias`, in float32: the same bits in Python and in JavaScript.

    Each output is added up in double precision, from the bias over the first to the last input, and rounded once.

    Args:
        inputs: The numbers that it takes.
        outputs: The numbers that it gives.

    Raises:
        InputError: They are not whole numbers from 1 on, or more than 2^24 weights.

    >>> model = MiniModel(2, 3)
    >>> model.load_weights([1, 0, 0, 1, 1, 1, 0, 0, -3])
    >>> model.predict([2, 5])
    [2.0, 5.0, 4.0]
    """

    def __init__(self, inputs: int, outputs: int) -> None:
        for name, value in (("inputs", inputs), ("outputs", outputs)):
            if type(value) is not int or not 1 <= value <= _MAX:
                raise InputError(f"`{name}` is {value!r}, expected a whole number from 1 on", hint="MiniModel(128, 10)")
        if inputs * outputs > _MAX:
            raise InputError(f"{inputs} x {outputs} weights are too many", hint="edge_infer.load runs larger models")
        self.inputs, self.outputs = inputs, outputs
        self._weights = array("f", bytes(4 * inputs * outputs))
        self._bias = array("f", bytes(4 * outputs))

    def __repr__(self) -> str:
        return f"MiniModel({self.inputs}, {self.outputs})"

    def load_weights(self, weights: Iterable[float]) -> None:
        """Take the weights, output by output, and behind them the bias of each output where there is one.

        Args:
            weights: `inputs * outputs` numbers, or `outputs` more.

        Raises:
            InputError: There are more or fewer, or one is not finite; the old ones stay.
        """
        found = _floats(weights)
        size = self.inputs * self.outputs
        if len(found) not in (size, size + self.outputs):
            raise InputError(
                f"there are {len(found)} weights, expected {size}, or {size + self.outputs} with a bias",
                hint="give them output by output",
                expected=size,
                got=len(found),
            )
        self._weights = found[:size]
        self._bias = found[size:] or array("f", bytes(4 * self.outputs))

    def predict(self, values: Iterable[float]) -> list[float]:
        """Return the outputs.

        Args:
            values: As many numbers as the model takes.

        Raises:
            InputError: There are more or fewer, or one is not finite.
        """
        given = _floats(values)
        if len(given) != self.inputs:
            raise InputError(
                f"there are {len(given)} numbers, the model takes {self.inputs}",
                hint="give one vector",
                expected=self.inputs,
                got=len(given),
            )
        found = array("f")
        for place, bias in enumerate(self._bias):
            total = bias
            row = self._weights[place * self.inputs : (place + 1) * self.inputs]
            for weight, value in zip(row, given, strict=True):
                total += weight * value
            found.append(total)
        return found.tolist()

    @staticmethod
    def cosine_similarity(first: Iterable[float], second: Iterable[float]) -> float:
        """Return the cosine of the angle between two vectors; see `edge_infer.cosine_similarity`."""
        return cosine_similarity(first, second)


def _floats(values: Iterable[float]) -> array[float]:
    numbers = values.tolist() if hasattr(values, "tolist") else list(values)
    try:
        found = array("f", numbers)
    except (TypeError, OverflowError) as error:
        raise InputError(f"not all of them are numbers in float32: {error}", hint="give one flat list") from error
    if not all(map(isfinite, found)):
        raise InputError("one of the numbers is not finite in float32", hint="give finite numbers")
    return found
