"""The common request, parsed in a few microseconds.

What `parse` cannot read at once, for whatever reason, it leaves to `edge_infer.server.protocol.requests`, which accepts
the same language and says of every fault where it is. So this file needs no error messages, and nothing is accepted
here that is refused there.
"""

from __future__ import annotations

from math import inf, prod
from struct import error as struct_error
from struct import pack
from typing import TYPE_CHECKING, Any

import msgspec
import numpy

from edge_infer.errors import InputError, PayloadTooLarge
from edge_infer.server.protocol.requests import LARGE_BYTES, MAX_TIMEOUT_US, InferRequest, parse_raw, parse_request
from edge_infer.server.scheduling.request import QUALITIES
from edge_infer.tensors.arrays import to_numpy
from edge_infer.tensors.datatypes import DATATYPES
from edge_infer.tensors.dtypes import DType
from edge_infer.tensors.tensor import Tensor

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from edge_infer.tensors.tensor import Array, TensorSpec

_FLOATS = frozenset({DType.FLOAT32, DType.FLOAT64, DType.FLOAT16})
_INTEGERS = frozenset(
    {
        DType.INT8,
        DType.UINT8,
        DType.INT16,
        DType.UINT16,
        DType.INT32,
        DType.UINT32,
        DType.INT64,
        DType.UINT64,
    }
)


#: What `data` is where it is left out.
_ABSENT = msgspec.Raw()


class _InputParameters(msgspec.Struct, forbid_unknown_fields=True):
    binary_data_size: int | msgspec.UnsetType = msgspec.UNSET


class _Input(msgspec.Struct, forbid_unknown_fields=True):
    name: str
    shape: list[int]
    datatype: str
    parameters: _InputParameters | None = None
    data: msgspec.Raw = _ABSENT


class _OutputParameters(msgspec.Struct, forbid_unknown_fields=True):
    binary_data: bool | None = None


class _Output(msgspec.Struct, forbid_unknown_fields=True):
    name: str
    parameters: _OutputParameters | None = None


class _Parameters(msgspec.Struct, forbid_unknown_fields=True):
    binary_data_output: bool = False
    priority: int = 0
    timeout: int = 0
    quality: str = ""


class _Request(msgspec.Struct, forbid_unknown_fields=True):
    inputs: list[_Input]
    outputs: list[_Output] | None = None
    id: str | None = None
    parameters: _Parameters | None = None


_decode = msgspec.json.Decoder(_Request).decode
_decode_floats = msgspec.json.Decoder(list[float]).decode
_decode_integers = msgspec.json.Decoder(list[int]).decode
_MAX_PRIORITY = 255
#: How much of a long list is read at once: 64 KiB take up to a millisecond, in which no other thread runs.
_PIECE = 64 * 2**10
_IN_NUMBERS = b"0123456789+-.eE \t\r\n"
#: The most values that the careful parser reads: it makes an object of each, of about 64 bytes.
MAX_CAREFUL_VALUES = 2**21


class Parser:
    """Reads requests for one model.

    Args:
        inputs: The specs of its inputs.
        outputs: The specs of its outputs.
        max_rows: The most that the first dimensions of its inputs may be; 0 for anything.
        steps: The inputs that have a dimension of steps before that of rows.
    """

    def __init__(
        self,
        inputs: Sequence[TensorSpec],
        outputs: Sequence[TensorSpec],
        max_rows: int = 0,
        steps: Collection[str] = (),
    ) -> None:
        self._max_rows = max_rows
        self._steps = steps
        self._inputs = tuple(inputs)
        self._outputs = tuple(outputs)
        self._specs = {spec.name: spec for spec in inputs}
        self._output_names = frozenset(spec.name for spec in outputs)
        self._raw_row_bytes = _row_bytes(self._inputs)
        known = self._inputs[0].shape[1:] if self._raw_row_bytes else ()
        self._raw_shape = (-1, *(dim for dim in known if isinstance(dim, int)))
        self._raw_dtype = numpy.dtype(self._inputs[0].dtype) if self._raw_row_bytes else None

    def parse(self, body: bytes | memoryview, json_length: int | None = None) -> InferRequest:
        """Parse a request.

        Args:
            body: JSON, and behind it the bytes of binary tensors.
            json_length: The bytes of the JSON; None where there is nothing else.

        Raises:
            InputError: It is not what it must be, or has too many rows; the message names the field.
            PayloadTooLarge: It has too many values to say what is wrong with it.
            UnsupportedMediaType: It uses shared memory.
        """
        try:
            found = self._parse(body, json_length)
        except (msgspec.MsgspecError, struct_error, OverflowError, UnicodeDecodeError, RecursionError):
            found = None
        if found is None:
            found = self._parse_carefully(bytes(body), json_length)
        return found

    def _parse_carefully(self, body: bytes, json_length: int | None) -> InferRequest:
        # A comma inside a text counts too: there is room for it.
        if sum(body.count(mark, 0, json_length) for mark in (b",", b"[", b"{")) > MAX_CAREFUL_VALUES:
            raise PayloadTooLarge(
                f"The JSON is not plain lists of numbers for this model, and has more than {MAX_CAREFUL_VALUES} values",
                hint="check names, datatypes and shapes of the inputs, or send tensors in binary",
                expected=MAX_CAREFUL_VALUES,
            )
        found = parse_request(body, self._inputs, self._outputs, json_length)
        for name, value in found.inputs.items():
            self._check_rows(name, value.shape)
        return found._replace(inputs={name: _native(value) for name, value in found.inputs.items()})

    def _check_rows(self, name: str, shape: Sequence[int]) -> None:
        """Refuse a tensor of too many rows, before its data is read where that is possible.

        Raises:
            InputError: It has more than are taken.
        """
        most = self._max_rows
        if not most or (rows := shape[1] if name in self._steps else shape[0]) <= most:
            return
        raise InputError(
            f"Input `{name}` has {rows} rows, the server takes {most} in one request",
            hint=f"send at most {most} rows at once, or serve with a larger --max-rows",
            input=name,
            expected=most,
            got=rows,
        )

    def parse_raw(self, body: bytes | memoryview) -> InferRequest:
        """Parse a body that is nothing but the bytes of the only input.

        Raises:
            InputError: The model has more inputs, the bytes do not tell the shape, or there are too many rows.
        """
        row = self._raw_row_bytes
        if row and len(body) % row == 0:
            value = numpy.frombuffer(body, self._raw_dtype).reshape(self._raw_shape)
            inputs: dict[str, Array] = {self._inputs[0].name: value}
            found = InferRequest(None, inputs, None)
        else:
            found = parse_raw(bytes(body), self._inputs)
            found = found._replace(inputs={name: _native(value) for name, value in found.inputs.items()})
        for name, value in found.inputs.items():
            self._check_rows(name, value.shape)
        return found

    def _parse(self, body: bytes | memoryview, json_length: int | None) -> InferRequest | None:
        if json_length is not None and json_length > len(body):
            return None
        document = _decode(body if json_length is None else body[:json_length])
        if len(document.inputs) != len(self._specs):
            return None
        inputs: dict[str, Array] = {}
        offset = len(body) if json_length is None else json_length
        for entry in document.inputs:
            spec = self._specs.get(entry.name)
            if spec is None or entry.name in inputs or entry.datatype != DATATYPES[spec.dtype]:
                return None
            shape = entry.shape
            if not spec.accepts(shape) or min(shape, default=1) < 1:  # numpy does not take every empty shape
                return None
            if self._max_rows:
                self._check_rows(entry.name, shape)
            size = entry.parameters.binary_data_size if entry.parameters is not None else msgspec.UNSET
            if size is msgspec.UNSET:
                value = _numbers(entry.data, spec.dtype, shape)
            else:
                value = None
                if entry.data is _ABSENT and spec.dtype in _ANY_NUMBERS and size == spec.dtype.nbytes(shape):
                    if offset + size > len(body):
                        return None
                    value = numpy.frombuffer(body, spec.dtype, prod(shape), offset).reshape(shape)
                    offset += size
            if value is None:
                return None
            inputs[entry.name] = value
        if offset != len(body):
            return None
        parameters = document.parameters or _Parameters()
        if parameters.quality and parameters.quality not in QUALITIES:
            return None
        if not 0 <= parameters.priority <= _MAX_PRIORITY or not 0 <= parameters.timeout <= MAX_TIMEOUT_US:
            return None
        prefers_binary = parameters.binary_data_output
        names, binary = self._wanted(document.outputs, prefers_binary)
        if binary is None:
            return None
        timeout_s = parameters.timeout / 1e6
        return InferRequest(
            document.id, inputs, names, parameters.priority, timeout_s, binary, prefers_binary, parameters.quality
        )

    def _wanted(self, entries: list[_Output] | None, default: bool) -> tuple[list[str] | None, frozenset[str] | None]:
        """Return the outputs wanted and which of them in binary; None for the latter where something is wrong."""
        if not entries:
            return None, self._output_names if default else frozenset()
        names, binary = [], []
        for entry in entries:
            if entry.name not in self._output_names or entry.name in names:
                return None, None
            names.append(entry.name)
            asked = entry.parameters.binary_data if entry.parameters is not None else None
            if default if asked is None else asked:
                binary.append(entry.name)
        return names, frozenset(binary)


_ANY_NUMBERS = _FLOATS | _INTEGERS


def _row_bytes(specs: Sequence[TensorSpec]) -> int:
    """Return the bytes of a row where a model has one input of numbers whose first dimension alone is free, else 0."""
    if len(specs) != 1 or specs[0].dtype not in _ANY_NUMBERS or not specs[0].shape:
        return 0
    first, *rest = specs[0].shape
    known = [dim for dim in rest if isinstance(dim, int)]
    return 0 if isinstance(first, int) or len(known) != len(rest) else specs[0].dtype.nbytes(known)


def _numbers(data: msgspec.Raw, dtype: DType, shape: list[int]) -> Array | None:
    if data is _ABSENT:
        return None
    if len(data) >= LARGE_BYTES:
        return _many_numbers(bytes(data), dtype, shape)
    if dtype in _FLOATS:
        flat: list[Any] = _decode_floats(data)
        if inf in flat or -inf in flat:
            return None
    elif dtype in _INTEGERS:
        flat = _decode_integers(data)
    else:
        return None
    if len(flat) != prod(shape):
        return None
    packed = pack(f"<{len(flat)}{dtype.buffer_format}", *flat)
    return numpy.frombuffer(packed, dtype).reshape(shape)


def _many_numbers(text: bytes, dtype: DType, shape: list[int]) -> Array | None:
    """Read a long list, flat or nested, piece by piece: a number of two bytes takes forty while it is a Python object.

    Args:
        text: The list, which is known to be JSON.
        dtype: That of the tensor.
        shape: That of the tensor, no dimension of it 0.
    """
    count = prod(shape)
    if dtype not in _ANY_NUMBERS or not text.startswith(b"[") or count > len(text) // 2:
        return None
    decode: Callable[[bytes], list[Any]] = _decode_floats if dtype in _FLOATS else _decode_integers
    if text.find(b"[", 1) > 0:
        if text.translate(None, _IN_NUMBERS) != _brackets(shape):
            return None
        text = b"[%b]" % text.translate(None, b"[]")
    values = numpy.empty(count, dtype)
    at, last, filled = 1, len(text) - 1, 0
    while at < last:
        end = last if last - at <= _PIECE else text.rfind(b",", at, at + _PIECE)
        if end < 0:
            return None
        flat = decode(b"[%b]" % text[at:end])
        if filled + len(flat) > count:
            return None
        values[filled : filled + len(flat)] = numpy.frombuffer(pack(f"<{len(flat)}{dtype.buffer_format}", *flat), dtype)
        filled += len(flat)
        at = end + 1
    if filled < count or (dtype in _FLOATS and numpy.isinf(values).any()):
        return None
    return values.reshape(shape)


def _brackets(shape: Sequence[int]) -> bytes:
    """Return what is left of a nested list without its numbers.

    >>> _brackets([2, 3])
    b'[[,,],[,,]]'
    """
    found = b""
    for dim in reversed(shape):
        found = b"[%b]" % ((found + b",") * (dim - 1) + found)
    return found


def _native(value: Array) -> Array:
    """Return a tensor as a numpy array, where numpy has its dtype."""
    return to_numpy(value) if isinstance(value, Tensor) and value.dtype is not DType.STRING else value
