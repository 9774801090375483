"""Read what a GGUF file says: its metadata, and where its tensors lie. Nothing is trusted before it is checked.

Source: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md, versions 2 and 3. The reader of the package `gguf`
(0.19) is not used: it believes the counts of the file, so that an array of 2^60 numbers in a file of 100 bytes keeps it
busy for ever, and it checks neither overlaps nor the end of a string.
"""

from __future__ import annotations

import math
import mmap
import struct
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from edge_infer.errors import ConversionError, UnsupportedModel

if TYPE_CHECKING:
    from pathlib import Path
    from types import TracebackType

_MAGIC = b"GGUF"
_VERSIONS = (2, 3)
_SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_STRING, _ARRAY = 8, 9
# Published files have names of at most 64 bytes and some 10 million bytes of metadata.
_MOST_NAME, _MOST_STRING, _MOST_DIMENSIONS = 65_535, 2**26, 4
_MOST_VALUES = 2**48
_AGAIN = "download it again"


class Layout(NamedTuple):
    """How a type of tensors is stored: a name, the values of a block, and its bytes."""

    name: str
    values: int
    nbytes: int


#: By the number of ggml (`enum ggml_type`), the types that are read.
LAYOUTS = {
    0: Layout("F32", 1, 4),
    1: Layout("F16", 1, 2),
    2: Layout("Q4_0", 32, 18),
    8: Layout("Q8_0", 32, 34),
    14: Layout("Q6_K", 256, 210),
    30: Layout("BF16", 1, 2),
}
_OTHERS = {3: "Q4_1", 6: "Q5_0", 7: "Q5_1", 9: "Q8_1", 10: "Q2_K", 11: "Q3_K", 12: "Q4_K", 13: "Q5_K", 15: "Q8_K"}
_OTHERS |= dict.fromkeys((*range(16, 24), 29), "IQ") | {24: "I8", 25: "I16", 26: "I32", 27: "I64", 28: "F64"}
_OTHERS |= {34: "TQ1_0", 35: "TQ2_0", 39: "MXFP4", 40: "NVFP4"}


class Stored(NamedTuple):
    """Where a tensor lies.

    Attributes:
        layout: How its values are stored.
        shape: Rows first; the file has the dimensions in the other order.
        start: The first byte in the file.
        nbytes: How many bytes it has.
    """

    layout: Layout
    shape: tuple[int, ...]
    start: int
    nbytes: int


class GgufFile:
    """A GGUF file, memory-mapped; use it in a `with` statement.

    Args:
        path: The file.

    Raises:
        ConversionError: It is not a GGUF file, or is damaged.
        UnsupportedModel: It has another version, is one part of several, or a tensor is of a type that is not read.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            with path.open("rb") as file:
                self.data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except (OSError, ValueError) as error:  # an empty file cannot be mapped
            raise ConversionError(f"`{path}` cannot be read: {error}", hint=_AGAIN) from error
        #: The metadata by its key.
        self.metadata: dict[str, Any] = {}
        #: The tensors by their name.
        self.tensors: dict[str, Stored] = {}
        self._at, self._size = 0, len(self.data)
        try:
            self._read()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Unmap the file. A second call does nothing."""
        with suppress(BufferError):  # a view of it is alive still: it is unmapped with that
            self.data.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def wrong(self, what: str, **details: Any) -> ConversionError:
        """Return the error of a damaged file."""
        return ConversionError(f"`{self.path}`: {what}", hint=_AGAIN, **details)

    def _read(self) -> None:
        if self.data[:4] != _MAGIC:
            raise self.wrong(f"it begins with {self.data[:4]!r}, expected {_MAGIC!r}: it is not a GGUF file")
        self._at = 4
        version = self._number("I")
        if version not in _VERSIONS:
            swapped = int.from_bytes(version.to_bytes(4, "big"), "little") in _VERSIONS
            what = "it is for machines of the other byte order" if swapped else f"it is of version {version}"
            raise UnsupportedModel(
                f"`{self.path}`: {what}; versions 2 and 3, little-endian, are read", hint="take a current file"
            )
        tensors, entries = self._number("Q"), self._number("Q")
        self._check_count("entries of metadata", entries, 13)
        for _ in range(entries):
            key = self._text(_MOST_NAME)
            if key in self.metadata:
                raise self.wrong(f"the metadata has `{key}` twice")
            self.metadata[key] = self._value(self._number("I"), key)
        if self.metadata.get("split.count", 1) not in (0, 1):
            raise UnsupportedModel(
                f"`{self.path}` is one of {self.metadata['split.count']!r} parts, which are not read",
                hint="put them together: llama-gguf-split --merge FIRST.gguf WHOLE.gguf",
            )
        self._check_count("tensors", tensors, 24)
        self._read_tensors(tensors)

    def _read_tensors(self, count: int) -> None:
        alignment = self.metadata.get("general.alignment", 32)
        if type(alignment) is not int or not 1 <= alignment <= 2**20 or alignment & (alignment - 1):
            raise self.wrong(f"`general.alignment` is {alignment!r}, expected a power of 2")
        found: list[tuple[str, Layout, tuple[int, ...], int]] = []
        for _ in range(count):
            name, dimensions = self._text(_MOST_NAME), self._number("I")
            if not 1 <= dimensions <= _MOST_DIMENSIONS:
                raise self.wrong(f"tensor `{name}` has {dimensions} dimensions, expected 1 to {_MOST_DIMENSIONS}")
            shape = tuple(self._number("Q") for _ in range(dimensions))[::-1]
            found.append((name, self._layout(name, self._number("I")), shape, self._number("Q")))
        base = -(-self._at // alignment) * alignment
        for name, layout, shape, offset in found:
            values = math.prod(shape)
            if not 0 < values <= _MOST_VALUES or shape[-1] % layout.values:
                raise self.wrong(f"tensor `{name}` has shape {list(shape)} in blocks of {layout.values}", tensor=name)
            nbytes = values // layout.values * layout.nbytes
            if offset % alignment or base + offset + nbytes > self._size:
                raise self.wrong(
                    f"tensor `{name}` takes {nbytes} bytes from {offset}, and the file has {self._size - base} for all",
                    tensor=name,
                )
            if name in self.tensors:
                raise self.wrong(f"it has the tensor `{name}` twice", tensor=name)
            self.tensors[name] = Stored(layout, shape, base + offset, nbytes)
        reached, before = 0, ""
        for name, one in sorted(self.tensors.items(), key=lambda item: item[1].start):
            if one.start < reached:
                raise self.wrong(f"the tensors `{before}` and `{name}` overlap", tensor=name)
            reached, before = one.start + one.nbytes, name

    def _layout(self, name: str, number: int) -> Layout:
        if number in LAYOUTS:
            return LAYOUTS[number]
        kind = _OTHERS.get(number)
        if kind is None:
            raise self.wrong(f"tensor `{name}` is of the type {number}, which ggml does not have", tensor=name)
        raise UnsupportedModel(
            f"`{self.path}`: tensor `{name}` is stored as {kind}, which is not read; "
            f"{', '.join(one.name for one in LAYOUTS.values())} are",
            hint="take the file of the same model that ends in Q8_0, Q4_0 or F16, or its folder with safetensors",
            tensor=name,
            got=kind,
        )

    def _number(self, kind: str) -> Any:
        size = struct.calcsize(f"<{kind}")
        if self._at + size > self._size:
            raise self.wrong(f"it ends at byte {self._size}, where a number of its header is expected")
        (value,) = struct.unpack_from(f"<{kind}", self.data, self._at)
        self._at += size
        return value

    def _text(self, most: int) -> str:
        length = self._number("Q")
        if length > min(most, self._size - self._at):
            raise self.wrong(
                f"a text at byte {self._at} has {length} bytes, which the file does not have, or over {most}"
            )
        data = self.data[self._at : self._at + length]
        self._at += length
        try:
            return data.decode()
        except UnicodeDecodeError as error:
            raise self.wrong(f"a text at byte {self._at - length} is not UTF-8: {error.reason}") from error

    def _value(self, kind: int, key: str) -> Any:
        if kind in _SCALARS:
            return self._number(_SCALARS[kind])
        if kind == _STRING:
            return self._text(_MOST_STRING)
        if kind != _ARRAY:
            raise self.wrong(f"`{key}` is of the type {kind}, which GGUF does not have", field=key)
        inner, count = self._number("I"), self._number("Q")
        if inner == _STRING:
            self._check_count(f"texts of `{key}`", count, 8)
            return [self._text(_MOST_STRING) for _ in range(count)]
        if inner not in _SCALARS:
            raise self.wrong(f"`{key}` is a list of the type {inner}, expected numbers or texts", field=key)
        size = struct.calcsize(f"<{_SCALARS[inner]}")
        self._check_count(f"numbers of `{key}`", count, size)
        values = struct.unpack_from(f"<{count}{_SCALARS[inner]}", self.data, self._at)
        self._at += size * count
        return list(values)

    def _check_count(self, what: str, count: int, least: int) -> None:
        """Refuse a count whose items the rest of the file cannot hold."""
        if count > (self._size - self._at) // least:
            raise self.wrong(f"{count} {what} are promised, and {self._size - self._at} bytes are left", got=count)
