"""What a `.tflite` file says of its tensors and signatures, read without flatbuffers or numpy.

The layout is FlatBuffers' (https://flatbuffers.dev/internals), the field numbers those of
tensorflow/lite/schema/schema.fbs, version 3. Weights are not looked at, so this costs microseconds per tensor.
"""

from __future__ import annotations

from struct import error as struct_error
from struct import unpack_from
from typing import NamedTuple

_IDENTIFIER = b"TFL3"
#: TensorType of the schema, by its numbers, as numpy spells them; the others cannot be passed natively either.
_DTYPES = {
    0: "float32",
    1: "float16",
    2: "int32",
    3: "uint8",
    4: "int64",
    5: "string",
    6: "bool",
    7: "int16",
    8: "complex64",
    9: "int8",
    10: "float64",
    11: "complex128",
    12: "uint64",
    15: "uint32",
    16: "uint16",
    17: "int4",
    18: "bfloat16",
}


class TfliteTensor(NamedTuple):
    """A tensor of the main subgraph.

    Attributes:
        name: Its name in the file; a signature may call it otherwise.
        dtype: Its element type, in numpy's spelling.
        shape: The shape that the file gives it; 1 where a dimension is free, mostly.
        signature: The shape with -1 for free dimensions.
        scales: The steps of its quantization: none, one, or one for each slice.
        zero_points: The stored values that stand for zero.
        dimension: The axis of the slices.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    signature: tuple[int, ...]
    scales: tuple[float, ...]
    zero_points: tuple[int, ...]
    dimension: int


class TfliteSignature(NamedTuple):
    """A signature: its inputs and outputs by name, each with the number of its tensor."""

    key: str
    inputs: dict[str, int]
    outputs: dict[str, int]


class TfliteTables(NamedTuple):
    """The main subgraph of a file: its tensors, the numbers of inputs and outputs, and its signatures."""

    tensors: list[TfliteTensor]
    inputs: list[int]
    outputs: list[int]
    signatures: list[TfliteSignature]


def read_tables(content: bytes) -> TfliteTables:
    """Read a file's tables.

    Raises:
        ValueError: The bytes are no TFLite file, or refer to places outside themselves.
    """
    if content[4:8] != _IDENTIFIER:
        raise ValueError("The model is not a valid Flatbuffer buffer")
    try:
        return _read(_Reader(content))
    except (struct_error, IndexError, UnicodeDecodeError):
        raise ValueError("The model is not a valid Flatbuffer buffer") from None


def _read(file: _Reader) -> TfliteTables:
    model = file.follow(0)
    subgraph = file.tables(model, 2)[0]
    tensors = [_tensor(file, place) for place in file.tables(subgraph, 0)]
    signatures = [
        TfliteSignature(file.text(place, 2), _named(file, place, 0), _named(file, place, 1))
        for place in file.tables(model, 7)
        if file.number(place, 4, "<I") == 0
    ]
    inputs, outputs = (list(file.numbers(subgraph, field, "i")) for field in (1, 2))
    for number in (
        *inputs,
        *outputs,
        *(n for one in signatures for n in (*one.inputs.values(), *one.outputs.values())),
    ):
        if not 0 <= number < len(tensors):
            raise IndexError(number)
    return TfliteTables(tensors, inputs, outputs, signatures)


def _tensor(file: _Reader, place: int) -> TfliteTensor:
    shape = file.numbers(place, 0, "i")
    quantization = file.table(place, 4)
    return TfliteTensor(
        file.text(place, 3),
        _DTYPES.get(file.number(place, 1, "<b"), "unknown"),
        shape,
        file.numbers(place, 7, "i") or shape,
        file.numbers(quantization, 2, "f") if quantization else (),
        file.numbers(quantization, 3, "q") if quantization else (),
        file.number(quantization, 6, "<i") if quantization else 0,
    )


def _named(file: _Reader, place: int, field: int) -> dict[str, int]:
    return {file.text(entry, 0): file.number(entry, 1, "<I") for entry in file.tables(place, field)}


class _Reader:
    """Follows offsets; a struct.error or IndexError where one leads out of the bytes."""

    def __init__(self, content: bytes) -> None:
        self._content = content

    def follow(self, place: int) -> int:
        return place + self._unpack("<I", place)

    def _unpack(self, form: str, place: int) -> int:
        if place < 0:
            raise IndexError(place)
        return int(unpack_from(form, self._content, place)[0])

    def _field(self, table: int, number: int) -> int:
        vtable = table - self._unpack("<i", table)
        if 6 + 2 * number > self._unpack("<H", vtable):
            return 0
        offset = self._unpack("<H", vtable + 4 + 2 * number)
        return table + offset if offset else 0

    def _vector(self, table: int, number: int, item_size: int) -> tuple[int, int]:
        """Return where the items of a vector start, and how many there are."""
        place = self._field(table, number)
        if not place:
            return 0, 0
        start = self.follow(place)
        count = self._unpack("<I", start)
        if start + 4 + count * item_size > len(self._content):
            raise IndexError(start)
        return start + 4, count

    def table(self, table: int, number: int) -> int:
        place = self._field(table, number)
        return self.follow(place) if place else 0

    def tables(self, table: int, number: int) -> list[int]:
        start, count = self._vector(table, number, 4)
        return [self.follow(start + 4 * i) for i in range(count)]

    def numbers(self, table: int, number: int, kind: str) -> tuple[int, ...]:
        start, count = self._vector(table, number, 8 if kind == "q" else 4)
        return unpack_from(f"<{count}{kind}", self._content, start) if count else ()

    def number(self, table: int, number: int, form: str) -> int:
        place = self._field(table, number)
        return self._unpack(form, place) if place else 0

    def text(self, table: int, number: int) -> str:
        start, count = self._vector(table, number, 1)
        return self._content[start : start + count].decode()
