"""The TFLite graph while it is built: tensors, operators, and the two orders that a tensor's axes may have."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence


class Layout(Enum):
    """The order of a tensor's axes: as the ONNX model has it (NCHW), or with the channels last (NHWC)."""

    PLAIN = "plain"
    CHANNELS_LAST = "channels-last"


def to_channels_last(rank: int) -> tuple[int, ...]:
    """Return the permutation that moves axis 1 to the end."""
    return (0, *range(2, rank), 1)


def from_channels_last(rank: int) -> tuple[int, ...]:
    """Return the permutation that moves the last axis to place 1."""
    return (0, rank - 1, *range(1, rank - 1))


@dataclass(frozen=True, eq=False, slots=True)
class Quantization:
    """The meaning of a tensor's integers: scale * (integer - zero point).

    Attributes:
        scales: One scale for the tensor, or one for each index of `axis`; empty where there are blocks.
        zero_point: The integer that stands for zero.
        axis: The axis that `scales` runs along.
        bits: 4 for integers that are stored in pairs, else what the type says.
        blocks: The scales of blocks along the last axis, [rows, blocks] in float16, or None.
        block_size: The elements of a block.
    """

    scales: np.ndarray
    zero_point: int = 0
    axis: int = 0
    bits: int = 8
    blocks: Tensor | None = None
    block_size: int = 0

    def is_same(self, other: Quantization | None) -> bool:
        """Tell whether another one gives the same meaning, both having one scale."""
        if other is None or len(self.scales) != 1 or len(other.scales) != 1:
            return False
        return self.zero_point == other.zero_point and bool(self.scales[0] == other.scales[0])


@dataclass(eq=False, slots=True)
class Tensor:
    """A value of the TFLite graph.

    Attributes:
        name: Unique in the graph.
        shape: Its dimensions, a free batch being 1.
        signature: The same with -1 for a free dimension.
        dtype: Its element type.
        data: Its value where it is constant, else None; integers of 4 bits as int8.
        quantization: What its integers stand for, or None where they are what they are.
        is_variable: Whether it keeps its value from one run to the next.
    """

    name: str
    shape: tuple[int, ...]
    signature: tuple[int, ...]
    dtype: np.dtype
    data: np.ndarray | None = None
    quantization: Quantization | None = None
    is_variable: bool = False

    @property
    def rank(self) -> int:
        """The number of dimensions."""
        return len(self.shape)


@dataclass(eq=False, slots=True)
class Operator:
    """A TFLite operator.

    Attributes:
        code: Its name in `schema.BuiltinOperator`.
        inputs: What it reads; None for an optional input left out.
        outputs: What it gives.
        options: An object of the schema's options class, or None.
        version: The lowest version of the operator that knows these options.
    """

    code: str
    inputs: list[Tensor | None]
    outputs: list[Tensor]
    options: object | None = None
    version: int = 1


@dataclass(slots=True)
class Graph:
    """Operators in the order in which they run, and the tensors at both ends."""

    inputs: list[Tensor] = field(default_factory=list)
    outputs: list[Tensor] = field(default_factory=list)
    operators: list[Operator] = field(default_factory=list)
    _names: set[str] = field(default_factory=set)
    _numbers: dict[str, int] = field(default_factory=dict)
    _constants: dict[tuple[str, tuple[int, ...], bytes], Tensor] = field(default_factory=dict)

    def reserve(self, names: Sequence[str]) -> None:
        """Keep names for `interface`: no tensor in between gets one of them."""
        self._names.update(names)

    def interface(self, name: str, signature: Sequence[int], dtype: np.dtype) -> Tensor:
        """Make an input or output, under a reserved name."""
        return Tensor(name, _shape_of(signature), tuple(signature), dtype)

    def tensor(self, name: str, signature: Sequence[int], dtype: np.dtype) -> Tensor:
        """Make a value; a name that is taken gets a number."""
        return Tensor(self._unique(name), _shape_of(signature), tuple(signature), dtype)

    def constant(self, name: str, value: np.ndarray) -> Tensor:
        """Make a constant, or return the one that holds the same value."""
        value = np.ascontiguousarray(value).reshape(value.shape)  # the former makes a scalar one-dimensional
        key = (value.dtype.str, value.shape, value.tobytes())
        if key not in self._constants:
            self._constants[key] = Tensor(self._unique(name), value.shape, value.shape, value.dtype, value)
        return self._constants[key]

    def store(self, tensor: Tensor, value: np.ndarray) -> None:
        """Give a constant another value of its shape and type."""
        value = np.ascontiguousarray(value)
        self._constants = {key: one for key, one in self._constants.items() if one is not tensor}
        tensor.data = value
        self._constants.setdefault((value.dtype.str, value.shape, value.tobytes()), tensor)

    def add(
        self,
        code: str,
        inputs: Sequence[Tensor | None],
        outputs: Sequence[Tensor],
        options: object | None = None,
        version: int = 1,
    ) -> None:
        """Append an operator."""
        self.operators.append(Operator(code, list(inputs), list(outputs), options, version))

    def _unique(self, name: str) -> str:
        candidate, count = name, self._numbers.get(name, 1)
        while candidate in self._names:
            count += 1
            candidate = f"{name}_{count}"
        self._names.add(candidate)
        self._numbers[name] = count
        return candidate


def dimensions(name: str, signature: Sequence[int]) -> list[int | str]:
    """Name the free dimensions of an input or output: the first is the batch."""
    names = ["batch", *(f"{name}_{axis}" for axis in range(1, len(signature)))]
    return [dim if dim >= 0 else names[axis] for axis, dim in enumerate(signature)]


def _shape_of(signature: Sequence[int]) -> tuple[int, ...]:
    """Return a signature with a free batch of 1."""
    return tuple(1 if dim == -1 else dim for dim in signature)
