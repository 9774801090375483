"""Reader of a TFLite file's tables, and of its tensors and signatures.

The layout is FlatBuffers' (https://flatbuffers.dev/internals), the field numbers those of
tensorflow/lite/schema/schema.fbs, version 3. Weights are not read, so this costs microseconds per tensor.
"""

from __future__ import annotations

from struct import calcsize, unpack_from
from struct import error as struct_error
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from typing import Any, Literal

IDENTIFIER = b"TFL3"
_TYPE_NAMES = """
float32 float16 int32 uint8 int64 string bool int16 complex64 int8 float64 complex128 uint64 resource variant uint32
uint16 int4 bfloat16 int2 uint4 float8_e4m3fn float8_e5m2
"""
#: TensorType of the schema, in its order, as numpy spells them.
TYPES = (*_TYPE_NAMES.split(),)
#: Those that cannot be passed to an interpreter, natively either.
_NOT_PASSED = (*TYPES[13:15], *TYPES[19:])

# BuiltinOperator of the schema: the kernels that may write to variable tensors (CUSTOM may be any), and the resources.
_WITH_VARIABLE_TENSORS = {16, 24, 27, 32, 35, 44, 46, 52}  # LSTM, RNN, SVDF, CUSTOM, one- and bidirectional sequences
_VAR_HANDLE = 142


class Table:
    """A table of a FlatBuffers file; an absent field has its default.

    Its methods raise IndexError or struct.error where an offset leads out of the file.
    """

    __slots__ = ("_content", "_place", "_size", "_vtable")

    def __init__(self, content: bytes, place: int) -> None:
        self._content = content
        self._place = place
        self._vtable = place - unpack_from("<i", content, place)[0]
        if self._vtable < 0:
            raise IndexError(self._vtable)
        (self._size,) = unpack_from("<H", content, self._vtable)

    @classmethod
    def root(cls, content: bytes) -> Table:
        """Return the table that a file starts with."""
        return cls(content, unpack_from("<I", content, 0)[0])

    def _at(self, number: int) -> int:
        if 6 + 2 * number > self._size:
            return 0
        (offset,) = unpack_from("<H", self._content, self._vtable + 4 + 2 * number)
        return self._place + offset if offset else 0

    def place(self, number: int) -> int:
        """Return where a field lies in the file, 0 where it is absent."""
        return self._at(number)

    def number(self, number: int, code: str, default: int = 0) -> int:
        """Return a number, whose `struct` code is given."""
        place = self._at(number)
        return int(unpack_from(f"<{code}", self._content, place)[0]) if place else default

    def real(self, number: int) -> float:
        """Return a float32, 0 where it is absent."""
        place = self._at(number)
        return float(unpack_from("<f", self._content, place)[0]) if place else 0.0

    def table(self, number: int) -> Table | None:
        """Return a table, or None."""
        place = self._at(number)
        return Table(self._content, place + unpack_from("<I", self._content, place)[0]) if place else None

    def vector(self, number: int, item_size: int = 1) -> tuple[int, int]:
        """Return where the items of a vector start, 0 where there is none, and how many there are."""
        place = self._at(number)
        if not place:
            return 0, 0
        start = place + unpack_from("<I", self._content, place)[0] + 4
        (count,) = unpack_from("<I", self._content, start - 4)
        if start + count * item_size > len(self._content):
            raise IndexError(start)
        return start, count

    def tables(self, number: int, most: int | None = None) -> Iterator[Table]:
        """Give the tables of a vector, the first `most` of them."""
        start, count = self.vector(number, 4)
        for at in range(start, start + 4 * (count if most is None else min(most, count)), 4):
            yield Table(self._content, at + unpack_from("<I", self._content, at)[0])

    def numbers(self, number: int, code: str) -> tuple[Any, ...]:
        """Return a vector of numbers, whose `struct` code is given."""
        start, count = self.vector(number, calcsize(f"<{code}"))
        return unpack_from(f"<{count}{code}", self._content, start) if count else ()

    def bytes(self, number: int) -> memoryview | None:
        """Return a vector of bytes, or None where it is empty."""
        start, count = self.vector(number)
        return memoryview(self._content)[start : start + count] if count else None

    def text(self, number: int) -> str:
        """Return a string, empty where there is none."""
        return str(self.bytes(number) or b"", "utf-8")

    def texts(self, number: int) -> list[str]:
        """Return a vector of strings."""
        start, count = self.vector(number, 4)
        found = []
        for at in range(start, start + 4 * count, 4):
            place = at + unpack_from("<I", self._content, at)[0]
            end = place + 4 + unpack_from("<I", self._content, place)[0]
            found.append(str(self._content[place + 4 : end], "utf-8"))
        return found


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


def end_names(names: Iterable[str], side: str) -> list[str]:
    """Name the ends of a graph without a signature: one without a name is called by its side and place, `input_0`.

    Args:
        names: What the file calls them.
        side: `input` or `output`.
    """
    return [name or f"{side}_{i}" for i, name in enumerate(names)]


def read_tables(content: bytes) -> TfliteTables:
    """Read a file's tables.

    Raises:
        ValueError: The bytes are not a TFLite file, or refer to places outside themselves.
    """
    try:
        if content[4:8] == IDENTIFIER:
            return _read(Table.root(content))
    except (struct_error, IndexError, UnicodeDecodeError):
        pass
    raise ValueError("The model is not a valid Flatbuffer buffer")


def hidden_state(content: bytes) -> Literal["", "tensors", "resources"]:
    """Tell what a file keeps from one run of an interpreter to the next.

    Returns:
        `tensors` for variable tensors, as LSTM and SVDF have, which an interpreter can reset; `resources` for resource
        variables (VAR_HANDLE), which only a new interpreter starts over; nothing for a file without state, or one that
        cannot be read.
    """
    try:
        model = Table.root(content)
        codes = {max(code.number(0, "b"), code.number(3, "i")) for code in model.tables(1)}
        if _VAR_HANDLE in codes:
            return "resources"
        if codes & _WITH_VARIABLE_TENSORS and any(
            tensor.number(5, "B") for subgraph in model.tables(2) for tensor in subgraph.tables(0)
        ):
            return "tensors"
    except (struct_error, IndexError):
        pass
    return ""


def interface_fault(content: bytes) -> str:
    """Say which input or output of a file has the number of a tensor that there is not.

    LiteRT checks these numbers only in part; its calls then fail, or answer for another tensor.

    Returns:
        What is wrong; nothing where all is right, or the file cannot be read.
    """
    try:
        model = Table.root(content)
        subgraphs = list(model.tables(2))
        counts = [subgraph.vector(0, 4)[1] for subgraph in subgraphs]
        if not subgraphs:
            return ""
        ends = [("The main graph", counts[0], subgraphs[0].numbers(field, "i")) for field in (1, 2)]
        for one in model.tables(7):
            graph = one.number(4, "I")
            if graph >= len(counts):
                return f"Signature `{one.text(2)}` is of graph {graph}, there are {len(counts)}"
            for field in (0, 1):
                numbers = tuple(entry.number(1, "I") for entry in one.tables(field))
                ends.append((f"Signature `{one.text(2)}`", counts[graph], numbers))
    except (struct_error, IndexError, UnicodeDecodeError):
        return ""
    for who, count, numbers in ends:
        for number in numbers:
            if not 0 <= number < count:
                return f"{who} names tensor {number} as an input or output, there are {count} tensors"
    return ""


def _read(model: Table) -> TfliteTables:
    subgraph = next(model.tables(2), None)
    if subgraph is None:
        raise IndexError
    tensors = [_tensor(table) for table in subgraph.tables(0)]
    signatures = [
        TfliteSignature(table.text(2), _named(table, 0), _named(table, 1))
        for table in model.tables(7)
        if table.number(4, "I") == 0
    ]
    inputs, outputs = (list(subgraph.numbers(field, "i")) for field in (1, 2))
    for number in (
        *inputs,
        *outputs,
        *(n for one in signatures for n in (*one.inputs.values(), *one.outputs.values())),
    ):
        if not 0 <= number < len(tensors):
            raise IndexError(number)
    return TfliteTables(tensors, inputs, outputs, signatures)


def _tensor(table: Table) -> TfliteTensor:
    shape = table.numbers(0, "i")
    kind = table.number(1, "B")
    dtype = TYPES[kind] if kind < len(TYPES) else ""
    quantization = table.table(4)
    return TfliteTensor(
        table.text(3),
        "unknown" if dtype in ("", *_NOT_PASSED) else dtype,
        shape,
        table.numbers(7, "i") or shape,
        quantization.numbers(2, "f") if quantization else (),
        quantization.numbers(3, "q") if quantization else (),
        quantization.number(6, "i") if quantization else 0,
    )


def _named(table: Table, field: int) -> dict[str, int]:
    return {entry.text(0): entry.number(1, "I") for entry in table.tables(field)}
