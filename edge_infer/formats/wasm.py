"""The sections and numbers of a WebAssembly module (https://webassembly.github.io/spec/core/binary)."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import TypeVar

    #: Of a view the sections are views, not copies.
    Module = TypeVar("Module", bytes, memoryview)

MAGIC = b"\0asm\1\0\0\0"
#: The numbers of the sections that are read here.
CUSTOM, DATA = 0, 11
#: A number of 32 bits takes at most so many bytes.
_MAX_NUMBER_BYTES = 5


def sections(module: Module) -> Iterator[tuple[int, Module]]:
    """Give the number and the content of each section.

    Raises:
        ValueError: It is not a module, or is cut short.
    """
    if module[: len(MAGIC)] != MAGIC:
        raise ValueError("it does not begin as a WebAssembly module does")
    place = len(MAGIC)
    while place < len(module):
        kind = module[place]
        size, place = unsigned(module, place + 1)
        if place + size > len(module):
            raise ValueError("it is cut short")
        yield kind, module[place : place + size]
        place += size


def unsigned(data: bytes | memoryview, place: int) -> tuple[int, int]:
    """Read an unsigned LEB128 number of 32 bits; return it and where it ends.

    Raises:
        ValueError: It is cut short or too long.
    """
    value = 0
    for i, byte in enumerate(data[place : place + _MAX_NUMBER_BYTES]):
        value |= (byte & 127) << 7 * i
        if byte < 128:
            return value, place + i + 1
    raise ValueError("a number is cut short or too long")


def signed(data: bytes | memoryview, place: int) -> tuple[int, int]:
    """Read a signed LEB128 number of 32 bits; return it and where it ends.

    Raises:
        ValueError: It is cut short or too long.
    """
    value, end = unsigned(data, place)
    bits = 7 * (end - place)
    return (value - (1 << bits) if data[end - 1] & 64 else value), end


def name(data: bytes | memoryview, place: int = 0) -> tuple[str, int]:
    """Read a name; return it and where it ends.

    Raises:
        ValueError: It is cut short, or is not UTF-8.
    """
    size, place = unsigned(data, place)
    if place + size > len(data):
        raise ValueError("a name is cut short")
    return str(data[place : place + size], "utf-8"), place + size
