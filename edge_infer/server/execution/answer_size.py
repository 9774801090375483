"""The size of a model's answer in bytes: before it runs where the shapes of its outputs tell, else after."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

from edge_infer.errors import PayloadTooLarge
from edge_infer.tensors.dtypes import DType

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from edge_infer.tensors.tensor import Array, TensorSpec


class AnswerSize:
    """Tells the size of answers, and refuses those that are too large.

    An output's size is known where each of its dimensions is a number, or has the name of one of an input.

    Args:
        inputs: The model's inputs.
        outputs: Its outputs.
        most: The most bytes of an answer; 0 for any number.

    Attributes:
        most: As given.
        is_known: Whether the size of every output is known before it is computed.
    """

    def __init__(self, inputs: Sequence[TensorSpec], outputs: Sequence[TensorSpec], most: int) -> None:
        self.most = most
        self._places = {
            dim: (spec.name, axis)
            for spec in reversed(inputs)
            for axis, dim in enumerate(spec.shape)
            if isinstance(dim, str)
        }
        self._known: dict[str, tuple[int, tuple[str, ...]]] = {}
        for spec in outputs:
            names = tuple(dim for dim in spec.shape if isinstance(dim, str))
            if spec.dtype is DType.STRING or not spec.is_rank_known or not self._places.keys() >= set(names):
                continue
            self._known[spec.name] = prod(dim for dim in spec.shape if isinstance(dim, int)) * spec.dtype.bits, names
        self.is_known = len(self._known) == len(outputs)
        self._row_bits, self._rows = self._of_a_row()

    def before(self, inputs: Mapping[str, Array], outputs: Sequence[str] | None) -> int:
        """Return the bytes of an answer, of those outputs whose size is known before the model runs.

        Args:
            inputs: Those of the request.
            outputs: The outputs that it wants; None for all.

        Raises:
            PayloadTooLarge: They are more than an answer may have.
        """
        if self._rows is not None and outputs is None:  # almost every model and request
            name, axis = self._rows
            bits: int = inputs[name].shape[axis] * self._row_bits
        else:
            bits = 0
            for name in self._known if outputs is None else outputs:
                if name in self._known:
                    unit, dims = self._known[name]
                    bits += unit * prod(self._length(inputs, dim) for dim in dims)
        self.check(bits // 8)
        return bits // 8

    def after(self, outputs: Mapping[str, Array]) -> int:
        """Return the bytes of an answer that the model gave, of those outputs whose size was not known before.

        Raises:
            PayloadTooLarge: They are more than an answer may have.
        """
        size: int = sum(value.nbytes for name, value in outputs.items() if name not in self._known)
        self.check(size)
        return size

    def check(self, size: int) -> None:
        """Refuse so many bytes where they are too many.

        Raises:
            PayloadTooLarge: They are more than an answer may have.
        """
        if self.most and size > self.most:
            raise PayloadTooLarge(
                f"The answer has {size} bytes, the server gives {self.most}",
                hint="ask for less, or serve with a larger --max-answer-mb",
                expected=self.most,
                got=size,
            )

    def _length(self, inputs: Mapping[str, Array], dim: str) -> int:
        name, axis = self._places[dim]
        shape: Sequence[int] = inputs[name].shape
        return shape[axis] if len(shape) > axis else 1

    def _of_a_row(self) -> tuple[int, tuple[str, int] | None]:
        """Return the bits of all outputs for each of the one free dimension that they share, and where that is."""
        names = {names for _, names in self._known.values()}
        if not self.is_known or len(names) != 1 or len(only := next(iter(names))) != 1:
            return 0, None
        return sum(unit for unit, _ in self._known.values()), self._places[only[0]]
