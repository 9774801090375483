"""TensorSpec, and Tensor, an array that needs no numpy.

A `Tensor` is a shape, a dtype and contiguous little-endian bytes. It offers the subset of `numpy.ndarray` that an
application needs to read a result, and the buffer protocol, so that `memoryview(t)` and `numpy.asarray(t)` see it
without a copy. Two 4-bit values share a byte, the first in the low half, as in ONNX and TFLite.
"""

from __future__ import annotations

import sys
from math import prod

from edge_infer.errors import InputError
from edge_infer.tensors import elements
from edge_infer.tensors.dtypes import DType

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import Any, Self

    #: A `numpy.ndarray` or an `edge_infer.Tensor`; numpy is optional, so the type cannot be named.
    Array = Any


Dim = int | str


class TensorSpec:
    """The name, dtype and shape of one input or output of a model.

    Args:
        name: The tensor's name.
        dtype: Its element type.
        shape: Its dimensions: an int where it is fixed, a symbol such as `"batch"` where it is free, equal symbols
            standing for equal sizes.
        is_rank_known: Whether the model says how many dimensions there are; if not, `shape` is empty and any fits.
    """

    __slots__ = ("dtype", "is_rank_known", "name", "shape")

    def __init__(self, name: str, dtype: DType | str, shape: Sequence[Dim], *, is_rank_known: bool = True) -> None:
        self.name = name
        self.dtype = dtype if isinstance(dtype, DType) else DType.parse(dtype)
        self.shape = tuple(shape)
        self.is_rank_known = is_rank_known

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, TensorSpec):
            return NotImplemented
        return (self.name, self.dtype, self.shape) == (other.name, other.dtype, other.shape)

    def __hash__(self) -> int:
        return hash((self.name, self.dtype, self.shape))

    def __repr__(self) -> str:
        return f"TensorSpec({self.name!r}, {str(self.dtype)!r}, {self.shape!r})"

    def __str__(self) -> str:
        return f"{self.name}: {self.dtype}[{', '.join(map(str, self.shape))}]"

    @property
    def is_fixed(self) -> bool:
        """Whether every dimension is a number."""
        return self.is_rank_known and all(isinstance(dim, int) for dim in self.shape)

    def accepts(self, shape: Sequence[int]) -> bool:
        """Tell whether a concrete shape fits: the same rank, and equal where a dimension is fixed."""
        if not self.is_rank_known:
            return True
        if len(shape) != len(self.shape):
            return False
        return all(isinstance(want, str) or want == got for want, got in zip(self.shape, shape, strict=True))

    def to_json(self) -> dict[str, Any]:
        """Describe this spec as the manifest does."""
        return {"name": self.name, "dtype": str(self.dtype), "shape": list(self.shape)}


class Tensor:
    """An n-dimensional array that needs no numpy: the portable subset, the same on `numpy.ndarray`.

    `.shape .dtype .size .nbytes .tolist() .argmax(axis) [i] len() iter() float() int() .reshape() memoryview(x)`

    Args:
        data: Contiguous bytes (any object with the buffer protocol; kept, not copied), or for strings a flat list.
        dtype: The element type.
        shape: Its dimensions, in elements.

    Raises:
        InputError: The bytes are not as many as dtype and shape need.

    >>> from array import array
    >>> t = Tensor(array("f", [1, 5, 2, 7]), "float32", (2, 2))
    >>> t.argmax(axis=1).tolist(), t[1].tolist()
    ([1, 1], [2.0, 7.0])
    """

    _bytes: memoryview
    _strings: list[str]
    dtype: DType
    shape: tuple[int, ...]

    #: Where the data lies: `host` memory, an `engine`'s own memory, or a `device` such as a GPU.
    location = "host"

    if sys.version_info < (3, 12):

        def __new__(cls, data: Any, dtype: DType | str, shape: Sequence[int]) -> Self:
            """Make an object that exports the buffer protocol: before PEP 688 only a ctypes object can."""
            kind = DType.parse(dtype)
            if kind is DType.STRING or any(dim < 0 for dim in shape) or not memoryview(data).c_contiguous:
                return super().__new__(cls)
            if memoryview(data).nbytes != kind.nbytes(shape):
                return super().__new__(cls)
            view = memoryview(data)
            source = bytearray(view) if view.readonly else view
            own: Any = cls
            tensor: Self = _exporting(own, kind, tuple(shape)).from_buffer(source)
            tensor._bytes = memoryview(source)
            return tensor

    def __init__(self, data: Any, dtype: DType | str, shape: Sequence[int]) -> None:
        self.dtype = dtype if isinstance(dtype, DType) else DType.parse(dtype)
        self.shape = tuple(shape)
        if any(dim < 0 for dim in self.shape):
            raise InputError(f"A tensor has shape {self.shape}, expected no negative dimension", got=list(self.shape))
        data = self.__dict__.get("_bytes", data)
        if self.dtype is DType.STRING:
            self._strings = list(data)
            self._bytes = memoryview(b"")
            found, needed, unit = len(self._strings), prod(self.shape), "strings"
        else:
            self._strings = []
            view = memoryview(data)
            if not view.c_contiguous:
                raise InputError("A tensor's data are not contiguous", hint="pass `x.tobytes()`")
            self._bytes = view.cast("B") if view.nbytes else memoryview(b"")
            found, needed, unit = view.nbytes, self.dtype.nbytes(self.shape), "bytes"
        if found != needed:
            raise InputError(
                f"A {self.dtype} tensor of shape {self.shape} takes {needed} {unit}, got {found}",
                expected=needed,
                got=found,
            )

    @classmethod
    def from_list(cls, values: Any, dtype: DType | str, shape: Sequence[int] | None = None) -> Self:
        """Make a tensor from a number, a string, or nested lists of them.

        Args:
            values: The elements.
            dtype: The element type.
            shape: The shape to check the nesting against, or None.

        Raises:
            InputError: The lists are ragged, or an element does not fit the dtype.
        """
        dtype = DType.parse(dtype)
        found, flat = elements.flatten(values)
        if shape is not None and tuple(shape) != found:
            raise InputError(
                f"Nested lists have shape {found}, expected {tuple(shape)}", expected=list(shape), got=list(found)
            )
        if dtype is DType.STRING:
            if not all(isinstance(value, str) for value in flat):
                raise InputError("A value does not fit string: it is not a text", dtype=str(dtype))
            return cls(flat, dtype, found)
        return cls(elements.pack(flat, dtype), dtype, found)

    # -- what it is --

    @property
    def ndim(self) -> int:
        """The number of dimensions."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """The number of elements."""
        return prod(self.shape)

    @property
    def nbytes(self) -> int:
        """The bytes of the data; 0 for strings."""
        return self.dtype.nbytes(self.shape)

    def data(self) -> memoryview:
        """Return the bytes, flat, without a copy."""
        return self._bytes

    def __buffer__(self, flags: int) -> memoryview:
        """Export the data with its shape (PEP 688; for Python 3.11 see `__new__`)."""
        if self.dtype is DType.STRING:
            raise BufferError("a tensor of strings has no buffer; use .tolist()")
        return elements.shaped(self._bytes, self.dtype, self.shape)

    def __setitem__(self, index: object, value: object) -> None:
        raise TypeError("a Tensor is read-only; write into the buffer that it was made of")

    def __reduce__(self) -> tuple[Any, ...]:
        data = self._values() if self.dtype is DType.STRING else bytes(self.data())
        return Tensor, (data, str(self.dtype), self.shape)

    def __repr__(self) -> str:
        text = repr(self.tolist() if self.size <= 32 else self._first(8))
        return f"Tensor({text if self.size <= 32 else text[:-1] + ', ...]'}, {str(self.dtype)!r}, {self.shape})"

    def _repr_html_(self) -> str:
        """Show the tensor as a table in a notebook: its first elements only."""
        from edge_infer.tensors.notebook import html_table

        shown = [f"{value:.6g}" if isinstance(value, float) else str(value) for value in self._first(8)]
        values = [*shown, *(["…"] if self.size > 8 else [])]
        return html_table(
            "Tensor", [("dtype", self.dtype), ("shape", str(self.shape)), ("elements", ", ".join(values))]
        )

    # -- its elements --

    def _values(self) -> list[Any]:
        """All elements, flat, as Python values."""
        if self.dtype is DType.STRING:
            return self._strings
        return elements.unpack(self._bytes, self.dtype, prod(self.shape))

    def _first(self, count: int) -> list[Any]:
        """So many elements at most, without the work for the others."""
        if self.dtype is DType.STRING:
            return self._strings[:count]
        return elements.unpack(self._bytes, self.dtype, min(count, prod(self.shape)))

    def tolist(self) -> Any:
        """Return the elements as nested lists, or one Python value for a tensor of shape ()."""
        return elements.nest(self._values(), self.shape)

    def item(self) -> Any:
        """Return the only element as a Python value.

        Raises:
            ValueError: There is not exactly one element.
        """
        if self.size != 1:
            raise ValueError(f"only a tensor of one element has an item, this one has {self.size}")
        return self._values()[0]

    def __float__(self) -> float:
        return float(self.item())

    def __int__(self) -> int:
        return int(self.item())

    def __bool__(self) -> bool:
        return bool(self.item())

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("len() of a tensor of shape ()")
        return self.shape[0]

    def __iter__(self) -> Iterator[Any]:
        if not self.shape:
            raise TypeError("iteration over a tensor of shape ()")
        return iter(self._values()) if len(self.shape) == 1 else (self[i] for i in range(self.shape[0]))

    def __getitem__(self, index: int | tuple[int, ...]) -> Any:
        """Take the part at an index, or at one index per leading axis: a value, or a tensor that shares the data."""
        indices = index if isinstance(index, tuple) else (index,)
        if len(indices) > len(self.shape):
            raise IndexError(f"too many indices: the tensor has {len(self.shape)} dimensions, {len(indices)} given")
        start = 0
        for axis, i in enumerate(indices):
            size = self.shape[axis]
            if not -size <= i < size:
                raise IndexError(f"index {i} is out of bounds for axis {axis} with size {size}")
            start += (i % size) * prod(self.shape[axis + 1 :])
        shape = self.shape[len(indices) :]
        count = prod(shape)
        if self.dtype is DType.STRING:
            part = self._strings[start : start + count]
            return part[0] if not shape else Tensor(part, self.dtype, shape)
        bits = self.dtype.bits
        if bits < 8 or not shape:
            values = elements.unpack(self._bytes, self.dtype, prod(self.shape))[start : start + count]
            return values[0] if not shape else Tensor(elements.pack(values, self.dtype), self.dtype, shape)
        step = bits // 8
        return Tensor(self._bytes[start * step : (start + count) * step], self.dtype, shape)

    def argmax(self, axis: int | None = None) -> Any:
        """Return the index of the largest element: of all, flat, or along an axis as an int64 tensor.

        The first of equal elements wins, and a NaN wins over all, as in numpy.

        Raises:
            ValueError: There is no element.
        """
        values = self._values()
        if axis is None or (axis in (0, -1) and len(self.shape) == 1):
            if not values:
                raise ValueError("attempt to get argmax of an empty sequence")
            return elements.argmax(values)
        if not -len(self.shape) <= axis < len(self.shape):
            raise IndexError(f"axis {axis} is out of bounds for a tensor of {len(self.shape)} dimensions")
        axis %= len(self.shape)
        length, inner = self.shape[axis], prod(self.shape[axis + 1 :])
        shape = self.shape[:axis] + self.shape[axis + 1 :]
        if length == 0 and self.size != prod(shape):
            raise ValueError("attempt to get argmax of an empty sequence")
        block = length * inner
        found = [
            elements.argmax(values[outer * block + i : (outer + 1) * block : inner])
            for outer in range(prod(self.shape[:axis]))
            for i in range(inner)
        ]
        return Tensor(elements.pack(found, DType.INT64), DType.INT64, shape)

    def reshape(self, *shape: int | Sequence[int]) -> Tensor:
        """Return a tensor of another shape over the same data; one dimension may be -1.

        Raises:
            ValueError: The shape has another number of elements.
        """
        first = shape[0] if len(shape) == 1 else shape
        dims: Any = (first,) if isinstance(first, int) else first
        wanted = [int(dim) for dim in dims]
        known = prod(dim for dim in wanted if dim != -1)
        if wanted.count(-1) == 1 and known and self.size % known == 0:
            wanted[wanted.index(-1)] = self.size // known
        if prod(wanted) != self.size or any(dim < 0 for dim in wanted):
            raise ValueError(f"cannot reshape a tensor of size {self.size} into shape {tuple(wanted)}")
        return Tensor(self._strings if self.dtype is DType.STRING else self._bytes, self.dtype, wanted)

    # -- where it is --

    def to_host(self) -> Tensor:
        """Return this tensor with its data in host memory: itself, where it is there already."""
        return self

    def close(self) -> None:
        """Give back the engine's memory, where the tensor lies there. A second call does nothing."""


class EngineTensor(Tensor):
    """A tensor that stays in an engine's memory; the base of each engine's own. Reading it copies it to the host."""

    location = "engine"

    def __new__(cls, *_: Any) -> Self:
        """Make an object that is not a buffer itself: its data is the engine's."""
        return object.__new__(cls)

    def __init__(self, dtype: DType, shape: Sequence[int]) -> None:
        self.dtype = dtype
        self.shape = tuple(shape)

    def to_host(self) -> Tensor:
        """Copy the data to host memory.

        Raises:
            InputError: The tensor was closed.
        """
        raise NotImplementedError(f"{type(self).__name__} must say how it is copied to the host")

    def data(self) -> memoryview:
        """Return a copy of the bytes."""
        return self.to_host().data()

    def __buffer__(self, flags: int) -> memoryview:
        return memoryview(self.to_host())

    def __getitem__(self, index: int | tuple[int, ...]) -> Any:
        return self.to_host()[index]

    def reshape(self, *shape: int | Sequence[int]) -> Tensor:
        """Return a copy of another shape in host memory."""
        return self.to_host().reshape(*shape)

    def _values(self) -> list[Any]:
        return self.to_host()._values()


# A class for each shape seen lately. Bounded: it takes some kB, and a growing cache has a new shape at each step.
_EXPORTING: dict[tuple[Any, DType, tuple[int, ...]], Any] = {}
_MAX_EXPORTING = 64


def _exporting(cls: Any, dtype: DType, shape: tuple[int, ...]) -> Any:
    key = (cls, dtype, shape)
    made = _EXPORTING.get(key)
    if made is None:
        if len(_EXPORTING) >= _MAX_EXPORTING:
            _EXPORTING.clear()
        bases = (cls, elements.ctypes_array(dtype, shape))
        made = _EXPORTING[key] = type(cls.__name__, bases, {"__module__": cls.__module__})
    return made
