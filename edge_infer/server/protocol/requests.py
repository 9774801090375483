"""The Open Inference Protocol, version 2: requests to tensors.

Specification: https://github.com/kserve/open-inference-protocol, with the extension of binary tensors. `data` may be
flat or nested. JSON has no NaN and no infinity; as in protobuf's JSON mapping they are the texts "NaN", "Infinity" and
"-Infinity", in both directions. The answers are written in `edge_infer.server.response.writing`.
"""

from __future__ import annotations

import json
import sys
from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple

from edge_infer.errors import InputError, did_you_mean, listed
from edge_infer.formats.safetensors import read_strings
from edge_infer.server.errors import UnsupportedMediaType
from edge_infer.server.protocol.elements import expected, flatten, kind_of, pack_elements, shown
from edge_infer.server.scheduling.request import LOWEST_PRIORITY, QUALITIES
from edge_infer.tensors.datatypes import DATATYPES
from edge_infer.tensors.dtypes import DType
from edge_infer.tensors.tensor import Tensor

if TYPE_CHECKING:
    from collections.abc import Sequence

    from edge_infer.tensors.tensor import TensorSpec

#: JSON from this size on is read and written in a thread: 64 KiB take about a millisecond.
LARGE_BYTES = 64 * 2**10
_REQUEST_FIELDS = ("id", "inputs", "outputs", "parameters", "model_name", "model_version")
_INPUT_FIELDS = ("name", "shape", "datatype", "data", "parameters")
_OUTPUT_FIELDS = ("name", "parameters")
#: More dimensions than any engine takes.
MAX_RANK = 32
#: What the dimensions of an empty tensor may be together, but for those of 0: numpy multiplies them as if it were full.
_MAX_ELEMENTS = sys.maxsize // 8
#: The longest timeout, in microseconds: Triton's has 64 bits.
MAX_TIMEOUT_US = 2**64 - 1
_EXAMPLE = '{"inputs": [{"name": "x", "shape": [1, 2], "datatype": "FP32", "data": [0.5, 1]}]}'


class InferRequest(NamedTuple):
    """A parsed request.

    Attributes:
        id: What the client calls it; it comes back in the answer.
        inputs: The tensors by name.
        outputs: The names of the outputs wanted, None for all.
        priority: 1 is the most urgent, 255 the least, 0 the default.
        timeout_s: How long its answer is of use, in seconds; 0 for always.
        binary: The outputs wanted as bytes behind the JSON.
        prefers_binary: Whether the client takes bytes where it did not say so of an output.
        quality: Which of a model's two variants is wanted, one of `QUALITIES`; empty unsaid.
    """

    id: str | None
    inputs: dict[str, Any]
    outputs: list[str] | None
    priority: int = 0
    timeout_s: float = 0.0
    binary: frozenset[str] = frozenset()
    prefers_binary: bool = False
    quality: str = ""


class _Tail:
    """The bytes of binary tensors behind the JSON, taken one after the other."""

    def __init__(self, data: memoryview) -> None:
        self._data = data
        self.offset = 0

    @property
    def left(self) -> int:
        return len(self._data) - self.offset

    def take(self, size: int) -> memoryview:
        part = self._data[self.offset : self.offset + size]
        self.offset += size
        return part


def parse_request(
    body: bytes, specs: Sequence[TensorSpec], outputs: Sequence[TensorSpec], json_length: int | None = None
) -> InferRequest:
    """Parse and check the body of a request.

    Args:
        body: JSON, and behind it the bytes of binary tensors.
        specs: The model's inputs.
        outputs: The model's outputs.
        json_length: The bytes of the JSON; None where there is nothing else.

    Raises:
        InputError: It is not JSON, or a field is not what it must be; the message names the field.
        UnsupportedMediaType: It uses shared memory.
    """
    if not body:
        raise InputError("The body is empty, expected JSON", hint='{"inputs": [...]}')
    if json_length is not None and json_length > len(body):
        raise InputError(
            f"`Inference-Header-Content-Length` is {json_length}, the body has {len(body)} bytes",
            hint="it counts the bytes of the JSON in front of the tensors",
            expected=json_length,
            got=len(body),
        )
    tail = None if json_length is None else _Tail(memoryview(body)[json_length:])
    document = _object(_load(body[:json_length]), "the request")
    _refuse_unknown(document, _REQUEST_FIELDS, "the request")
    id_ = document.get("id")
    if id_ is not None and not isinstance(id_, str):
        raise InputError(f"`id` is {kind_of(id_)}, expected text", hint='"id": "1"', field="id")
    parameters = _parameters(document, "`parameters`")
    if parameters.get("sequence_id"):
        raise InputError(
            "`parameters.sequence_id` asks for a model with state, which this server does not have",
            hint="leave it out and send the state as a tensor",
            field="parameters.sequence_id",
        )

    known = {spec.name: spec for spec in specs}
    inputs: dict[str, Any] = {}
    entries = document.get("inputs")
    if not isinstance(entries, list):
        raise InputError(f"`inputs` is {kind_of(entries)}, expected a list", hint=_EXAMPLE, field="inputs")
    for i, entry in enumerate(entries):
        where = f"inputs[{i}]"
        entry = _object(entry, where)
        name = _name(entry, where, list(inputs), list(known), "Input")
        inputs[name] = _parse_tensor(entry, where, known[name], tail)
    missing = [spec for spec in specs if spec.name not in inputs]
    if missing:
        raise InputError(f"Input `{missing[0].name}` is missing", hint=expected(missing[0]), input=missing[0].name)
    if tail is not None and tail.left:
        raise InputError(
            f"The body has {tail.left} bytes behind the last tensor",
            hint="name every tensor's bytes in its `binary_data_size`",
            got=tail.left,
        )
    prefers_binary = parameters.get("binary_data_output") is True
    names, binary = _parse_outputs(document.get("outputs"), outputs, prefers_binary)
    return InferRequest(
        None if id_ is None else id_.encode("utf-8", "replace").decode(),
        inputs,
        names,
        _whole(parameters, "priority", LOWEST_PRIORITY),
        _whole(parameters, "timeout", MAX_TIMEOUT_US) / 1e6,
        binary,
        prefers_binary,
        _quality(parameters),
    )


def parse_raw(body: bytes, specs: Sequence[TensorSpec]) -> InferRequest:
    """Parse a body that is nothing but the bytes of the model's only input; at most one dimension may be free.

    Raises:
        InputError: The model has more inputs, or the bytes do not tell the shape.
    """
    if len(specs) != 1:
        raise InputError(
            f"The body is one tensor's bytes, the model has {len(specs)} inputs",
            hint="send JSON, or binary tensors behind JSON",
        )
    spec = specs[0]
    if spec.dtype is DType.STRING:
        texts = read_strings(body)
        body_size, unit = len(texts), 1
    else:
        texts, body_size, unit = [], len(body) * 8, spec.dtype.bits
    free = [i for i, dim in enumerate(spec.shape) if isinstance(dim, str)]
    shape = [dim if isinstance(dim, int) else 1 for dim in spec.shape]
    known = prod(shape) * unit
    if len(free) == 1 and known:
        shape[free[0]] = body_size // known
    if len(free) > 1 or prod(shape) * unit != body_size or (spec.dtype is DType.BOOL and max(body, default=0) > 1):
        raise InputError(
            f"The body has {len(body)} bytes, which do not make a {spec}",
            hint="send JSON, or binary tensors behind JSON" if len(free) > 1 else f"expected {spec}, row-major",
            input=spec.name,
            got=len(body),
        )
    return InferRequest(None, {spec.name: Tensor(texts if texts else body, spec.dtype, shape)}, None)


def describe(specs: Sequence[TensorSpec]) -> list[dict[str, Any]]:
    """Describe specs as the protocol's metadata does: a free dimension is -1."""
    return [
        {
            "name": spec.name,
            "datatype": DATATYPES[spec.dtype],
            "shape": [dim if isinstance(dim, int) else -1 for dim in spec.shape],
        }
        for spec in specs
    ]


# -- reading --


def _load(body: bytes) -> Any:
    def refuse(literal: str) -> Any:
        raise InputError(
            f"The body has the literal {literal}, which JSON does not know", hint=f'write it as text: "{literal}"'
        )

    try:
        return json.loads(body, parse_constant=refuse)
    except InputError:
        raise
    except (ValueError, RecursionError) as error:
        reason = "it is nested too deeply" if isinstance(error, RecursionError) else error
        raise InputError(f"The body is not JSON: {reason}", hint=_EXAMPLE) from error


def _whole(parameters: dict[str, Any], name: str, largest: int) -> int:
    value = parameters.get(name, 0)
    if type(value) is not int or not 0 <= value <= largest:
        raise InputError(
            f"`parameters.{name}` is {shown(value)}, expected a whole number from 0 to {largest}",
            hint=f'"parameters": {{"{name}": 1}}',
            field=f"parameters.{name}",
        )
    return value


def _quality(parameters: dict[str, Any]) -> str:
    value = parameters.get("quality", "")
    if value not in ("", *QUALITIES) or not isinstance(value, str):
        raise InputError(
            f"`parameters.quality` is {shown(value)}; choose from {listed(list(QUALITIES))}",
            hint='"parameters": {"quality": "best"}',
            field="parameters.quality",
        )
    return value


def _refuse_shared_memory(parameters: dict[str, Any], where: str) -> None:
    if "shared_memory_region" in parameters:
        raise UnsupportedMediaType(
            f"{where} uses `shared_memory_region`, this server reads tensors from the body",
            hint="in tritonclient: `set_data_from_numpy(x)`",
            field=f"{where}.parameters.shared_memory_region",
        )


def _parse_tensor(entry: dict[str, Any], where: str, spec: TensorSpec, tail: _Tail | None) -> Tensor:
    _refuse_unknown(entry, _INPUT_FIELDS, where)
    parameters = _parameters(entry, f"{where}.parameters")
    _refuse_shared_memory(parameters, where)
    datatype = entry.get("datatype")
    if datatype != DATATYPES[spec.dtype]:
        raise InputError(
            f"Input `{spec.name}` has datatype {shown(datatype)}, expected {DATATYPES[spec.dtype]}",
            hint=expected(spec),
            input=spec.name,
            expected=DATATYPES[spec.dtype],
            got=datatype if isinstance(datatype, str) else None,
        )
    shape = entry.get("shape")
    if not isinstance(shape, list) or not all(type(dim) is int and 0 <= dim < 2**63 for dim in shape):
        raise InputError(
            f"Input `{spec.name}` has shape {shown(shape)}, expected a list of whole numbers",
            hint=expected(spec),
            input=spec.name,
        )
    if len(shape) > MAX_RANK or not spec.accepts(shape):
        raise InputError(
            f"Input `{spec.name}` has shape {shown(shape)}, expected {list(spec.shape)}",
            hint=expected(spec),
            input=spec.name,
            expected=list(spec.shape),
            got=shape[:MAX_RANK],
        )
    if 0 in shape and prod(dim for dim in shape if dim) > _MAX_ELEMENTS:
        raise InputError(
            f"Input `{spec.name}` has shape {shown(shape)}, whose dimensions are too large together",
            hint=expected(spec),
            input=spec.name,
            got=shape,
        )
    if "binary_data_size" in parameters:
        return _take_binary(parameters["binary_data_size"], "data" in entry, shape, spec, tail)
    data = entry.get("data")
    if not isinstance(data, list):
        raise InputError(
            f"Input `{spec.name}` has as data {kind_of(data)}, expected a list", hint=expected(spec), input=spec.name
        )
    return pack_elements(flatten(data, shape, spec), shape, spec)


def _take_binary(size: Any, has_data: bool, shape: list[int], spec: TensorSpec, tail: _Tail | None) -> Tensor:
    """Read a tensor from the bytes behind the JSON."""

    def wrong(message: str) -> InputError:
        hint = "`binary_data_size` counts the tensor's bytes, `Inference-Header-Content-Length` those of the JSON"
        return InputError(f"Input `{spec.name}` {message}", hint=hint, input=spec.name)

    if tail is None:
        raise wrong("is binary, but the header `Inference-Header-Content-Length` is missing")
    if has_data:
        raise wrong("has both `data` and `binary_data_size`")
    if type(size) is not int or size < 0:
        raise wrong(f"has a `binary_data_size` of {shown(size)}, expected a whole number")
    if size > tail.left:
        raise wrong(f"has a `binary_data_size` of {size}, {tail.left} bytes are left in the body")
    data = tail.take(size)
    if spec.dtype is DType.STRING:
        texts = read_strings(data)
        if len(texts) != prod(shape):
            raise wrong(f"has {len(texts)} texts, its shape {shape} has {prod(shape)}")
        return Tensor(texts, spec.dtype, shape)
    if size != spec.dtype.nbytes(shape):
        raise wrong(f"has {size} bytes, shape {shape} of {DATATYPES[spec.dtype]} takes {spec.dtype.nbytes(shape)}")
    if spec.dtype is DType.BOOL and max(data, default=0) > 1:
        raise wrong("has a byte that is neither 0 nor 1")
    return Tensor(data, spec.dtype, shape)


def _parse_outputs(
    entries: Any, specs: Sequence[TensorSpec], prefers_binary: bool
) -> tuple[list[str] | None, frozenset[str]]:
    """Return the names of the outputs asked for, or None for all, and which of them are wanted in binary."""
    known = [spec.name for spec in specs]
    if entries is None:
        return None, frozenset(known if prefers_binary else ())
    if not isinstance(entries, list):
        raise InputError(
            f"`outputs` is {kind_of(entries)}, expected a list", hint='"outputs": [{"name": "..."}]', field="outputs"
        )
    names: list[str] = []
    binary: list[str] = []
    for i, entry in enumerate(entries):
        where = f"outputs[{i}]"
        entry = _object(entry, where)
        _refuse_unknown(entry, _OUTPUT_FIELDS, where)
        name = _name(entry, where, names, known, "Output")
        names.append(name)
        parameters = _parameters(entry, f"{where}.parameters")
        _refuse_shared_memory(parameters, where)
        if "classification" in parameters:
            raise InputError(
                f"{where} asks for the extension `classification`, which this server does not have",
                hint="read the scores and sort them",
                field=f"{where}.parameters.classification",
            )
        wanted = parameters.get("binary_data")
        if prefers_binary if wanted is None else wanted is True:
            binary.append(name)
    if not names:
        return None, frozenset(known if prefers_binary else ())
    return names, frozenset(binary)


def _name(entry: dict[str, Any], where: str, seen: list[str], known: list[str], what: str) -> str:
    name = entry.get("name")
    if not isinstance(name, str):
        raise InputError(f"{where}: `name` is {kind_of(name)}, expected text", hint=_EXAMPLE, field=f"{where}.name")
    if name in seen:
        raise InputError(f"{what} `{name}` is given twice", hint=f"leave {where} out", field=where)
    if name not in known:
        raise InputError(
            f"{what} `{name[:128]}` is not known; choose from {listed(known)}",
            hint=(did_you_mean(name[:128], known) or f'"name": "{known[0]}"') if known else "leave it out",
            field=where,
            allowed=known,
        )
    return name


# -- what errors say --


def _parameters(holder: dict[str, Any], where: str) -> dict[str, Any]:
    """Return the parameters of a request, an input or an output; `null` is as good as none."""
    found = holder.get("parameters")
    return {} if found is None else _object(found, where)


def _object(value: Any, where: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise InputError(f"{where[0].upper()}{where[1:]} is {kind_of(value)}, expected an object", hint=_EXAMPLE)
    return value


def _refuse_unknown(entry: dict[str, Any], allowed: Sequence[str], where: str) -> None:
    for field in entry:
        if field not in allowed:
            hint = did_you_mean(field[:128], list(allowed)) or f"the fields are {listed(list(allowed))}"
            raise InputError(f"{where[0].upper()}{where[1:]} has an unknown field `{field[:128]}`", hint=hint)
