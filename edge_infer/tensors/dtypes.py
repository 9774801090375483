"""The element types: numpy's names, their sizes, and how the buffer protocol spells them."""

from __future__ import annotations

from math import prod

from edge_infer.errors import InputError, listed

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import ClassVar


class _Members(type):
    """The metaclass of named constants that can be iterated; importing `enum` would cost a device 4 ms at its start."""

    def __iter__(cls) -> Iterator[DType]:
        return iter(_MEMBERS.values())

    def __len__(cls) -> int:
        return len(_MEMBERS)


class DType(str, metaclass=_Members):
    """The element types, spelt as numpy spells them. A `DType` is its name: `DType.FLOAT32 == "float32"`.

    There is one object of each: `DType("float32") is DType.FLOAT32`, and `DType("float31")` is a ValueError.

    Attributes:
        bits: The bits of one element; 0 for strings, whose elements have no fixed size.
        buffer_format: The `struct` code that the buffer protocol uses for it; bfloat16 travels as `H`, 4-bit types as
            `B`.
    """

    __slots__ = ("bits", "buffer_format")

    bits: int
    buffer_format: str

    FLOAT32: ClassVar[DType]
    FLOAT64: ClassVar[DType]
    FLOAT16: ClassVar[DType]
    BFLOAT16: ClassVar[DType]
    INT4: ClassVar[DType]
    UINT4: ClassVar[DType]
    INT8: ClassVar[DType]
    UINT8: ClassVar[DType]
    INT16: ClassVar[DType]
    UINT16: ClassVar[DType]
    INT32: ClassVar[DType]
    UINT32: ClassVar[DType]
    INT64: ClassVar[DType]
    UINT64: ClassVar[DType]
    BOOL: ClassVar[DType]
    STRING: ClassVar[DType]

    def __new__(cls, name: str) -> DType:  # noqa: PYI034  there is one object of each
        """Return the dtype of this name."""
        found = _MEMBERS.get(name)
        if found is None:
            raise ValueError(f"{name!r} is not a dtype")
        return found

    def __repr__(self) -> str:
        return f"DType.{self.upper()}"

    def __reduce__(self) -> tuple[type[DType], tuple[str]]:
        return DType, (str(self),)

    def nbytes(self, shape: Sequence[int]) -> int:
        """Count the bytes of a tensor of this dtype: `shape` in elements."""
        return (prod(shape) * self.bits + 7) // 8

    @classmethod
    def parse(cls, name: object) -> DType:
        """Read a dtype from its name or from a `numpy.dtype`.

        Raises:
            InputError: The name is none of the known ones.
        """
        text = str(name)
        found = _MEMBERS.get(_ALIASES.get(text, text))
        if found is None:
            known = list(_MEMBERS)
            raise InputError(f"DType `{name}` is not known; choose from {listed(known)}", dtype=text, allowed=known)
        return found


_MEMBERS: dict[str, DType] = {}
for _name, _bits, _format in (
    ("float32", 32, "f"),
    ("float64", 64, "d"),
    ("float16", 16, "e"),
    ("bfloat16", 16, "H"),
    ("int4", 4, "B"),
    ("uint4", 4, "B"),
    ("int8", 8, "b"),
    ("uint8", 8, "B"),
    ("int16", 16, "h"),
    ("uint16", 16, "H"),
    ("int32", 32, "i"),
    ("uint32", 32, "I"),
    ("int64", 64, "q"),
    ("uint64", 64, "Q"),
    ("bool", 8, "?"),
    ("string", 0, ""),
):
    _member = str.__new__(DType, _name)
    _member.bits, _member.buffer_format = _bits, _format
    _MEMBERS[_name] = _member
    setattr(DType, _name.upper(), _member)
# `object` and `<U5` are what numpy calls arrays of strings.
_ALIASES = {"object": "string", "str": "string", "bool_": "bool"}

# The buffer formats by which a dtype may arrive. C compilers disagree on the size of `l`, and ctypes writes `<f`.
_FROM_FORMAT = {
    "f": DType.FLOAT32,
    "d": DType.FLOAT64,
    "e": DType.FLOAT16,
    "b": DType.INT8,
    "B": DType.UINT8,
    "c": DType.UINT8,
    "h": DType.INT16,
    "H": DType.UINT16,
    "i": DType.INT32,
    "I": DType.UINT32,
    "q": DType.INT64,
    "Q": DType.UINT64,
    "?": DType.BOOL,
}


def dtype_of_buffer(view: memoryview) -> DType | None:
    """Tell which dtype a buffer holds by its format, or None where no dtype has that format."""
    code = view.format.lstrip("@=<")
    if code in ("l", "L"):
        return {(4, "l"): DType.INT32, (4, "L"): DType.UINT32, (8, "l"): DType.INT64, (8, "L"): DType.UINT64}.get(
            (view.itemsize, code)
        )
    return _FROM_FORMAT.get(code)
