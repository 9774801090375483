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

from edge_infer.dtypes import DType
from edge_infer.errors import InputError
from edge_infer.server.protocol.elements import DATATYPES
from edge_infer.server.protocol.requests import MAX_TIMEOUT_US, InferRequest, parse_raw, parse_request
from edge_infer.tensors import Tensor
from edge_infer.values import to_numpy

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from edge_infer.backends.base import Array
    from edge_infer.tensors import TensorSpec

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


class _Request(msgspec.Struct, forbid_unknown_fields=True):
    inputs: list[_Input]
    outputs: list[_Output] | None = None
    id: str | None = None
    parameters: _Parameters | None = None


_decode = msgspec.json.Decoder(_Request).decode
_decode_floats = msgspec.json.Decoder(list[float]).decode
_decode_integers = msgspec.json.Decoder(list[int]).decode
_MAX_PRIORITY = 255


class Parser:
    """Reads requests for one model.

    Args:
        inputs: The specs of its inputs.
        outputs: The specs of its outputs.
        max_rows: The most that the first dimensions of its inputs may be; 0 for anything.
    """

    def __init__(self, inputs: Sequence[TensorSpec], outputs: Sequence[TensorSpec], max_rows: int = 0) -> None:
        self._max_rows = max_rows
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
            UnsupportedMediaType: It uses shared memory.
        """
        try:
            found = self._parse(body, json_length)
        except (msgspec.MsgspecError, struct_error, OverflowError, UnicodeDecodeError, RecursionError):
            found = None
        if found is None:
            found = parse_request(bytes(body), self._inputs, self._outputs, json_length)
            found = found._replace(inputs={name: _native(value) for name, value in found.inputs.items()})
        check_rows(found.inputs, self._max_rows)
        return found

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
        check_rows(found.inputs, self._max_rows)
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
        if not 0 <= parameters.priority <= _MAX_PRIORITY or not 0 <= parameters.timeout <= MAX_TIMEOUT_US:
            return None
        prefers_binary = parameters.binary_data_output
        names, binary = self._wanted(document.outputs, prefers_binary)
        if binary is None:
            return None
        timeout_s = parameters.timeout / 1e6
        return InferRequest(document.id, inputs, names, parameters.priority, timeout_s, binary, prefers_binary)

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


def check_rows(inputs: Mapping[str, Array], most: int) -> None:
    """Refuse inputs of too many rows; 0 for any number.

    Raises:
        InputError: One has more than `most`.
    """
    if not most:
        return
    for name, value in inputs.items():
        if value.shape[0] > most:
            raise InputError(
                f"Input `{name}` has {value.shape[0]} rows, the server takes {most} in one request",
                hint=f"send at most {most} rows at once, or serve with a larger --max-rows",
                input=name,
                expected=most,
                got=value.shape[0],
            )


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


def _native(value: Array) -> Array:
    """Return a tensor as a numpy array, where numpy has its dtype."""
    return to_numpy(value) if isinstance(value, Tensor) and value.dtype is not DType.STRING else value
