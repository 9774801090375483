"""The Open Inference Protocol, version 2, with plain JSON bodies: requests to tensors, tensors to answers.

Specification: https://github.com/kserve/open-inference-protocol. `data` may be flat or nested. JSON has no NaN and no
infinity; as in protobuf's JSON mapping they are the texts "NaN", "Infinity" and "-Infinity", in both directions.
"""

from __future__ import annotations

import json
import re
from itertools import chain
from math import inf, isfinite, nan, prod
from struct import error as struct_error
from struct import pack
from typing import TYPE_CHECKING, Any, NamedTuple

from edge_infer.dtypes import DType
from edge_infer.errors import InputError, did_you_mean, listed
from edge_infer.server.problems import UnsupportedMediaType
from edge_infer.tensors import Tensor

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from edge_infer.tensors import TensorSpec

#: The protocol's name of each dtype; it has none for 4-bit integers, whose names here follow its pattern.
DATATYPES = {
    DType.FLOAT32: "FP32",
    DType.FLOAT64: "FP64",
    DType.FLOAT16: "FP16",
    DType.BFLOAT16: "BF16",
    DType.INT4: "INT4",
    DType.UINT4: "UINT4",
    DType.INT8: "INT8",
    DType.UINT8: "UINT8",
    DType.INT16: "INT16",
    DType.UINT16: "UINT16",
    DType.INT32: "INT32",
    DType.UINT32: "UINT32",
    DType.INT64: "INT64",
    DType.UINT64: "UINT64",
    DType.BOOL: "BOOL",
    DType.STRING: "BYTES",
}
_FLOATS = (DType.FLOAT32, DType.FLOAT64, DType.FLOAT16, DType.BFLOAT16)
#: JSON can write half of a pair (`"\ud800"`), which no encoding can.
_SURROGATE = re.compile("[\ud800-\udfff]")
_NOT_NUMBERS = {"NaN": nan, "Infinity": inf, "-Infinity": -inf}
_REQUEST_FIELDS = ("id", "inputs", "outputs", "parameters", "model_name", "model_version")
_INPUT_FIELDS = ("name", "shape", "datatype", "data", "parameters")
_OUTPUT_FIELDS = ("name", "parameters")
#: More dimensions than any engine takes.
_MAX_RANK = 32
_KINDS = {dict: "an object", list: "a list", str: "text", bool: "a truth value", int: "a number", float: "a number"}
_EXAMPLE = '{"inputs": [{"name": "x", "shape": [1, 2], "datatype": "FP32", "data": [0.5, 1]}]}'


class InferRequest(NamedTuple):
    """A parsed request: its id, the inputs by name, and the names of the outputs wanted (None for all)."""

    id: str | None
    inputs: dict[str, Tensor]
    outputs: list[str] | None


def parse_request(body: bytes, specs: Sequence[TensorSpec], outputs: Sequence[TensorSpec]) -> InferRequest:
    """Parse and check the body of a request.

    Args:
        body: JSON.
        specs: The model's inputs.
        outputs: The model's outputs.

    Raises:
        InputError: It is not JSON, or a field is not what it must be; the message names the field.
        UnsupportedMediaType: It uses binary tensors or shared memory, which are extensions of the protocol.
    """
    document = _object(_load(body), "the request")
    _refuse_unknown(document, _REQUEST_FIELDS, "the request")
    id_ = document.get("id")
    if id_ is not None and not isinstance(id_, str):
        raise InputError(f"`id` is {_kind(id_)}, expected text", hint='"id": "1"', field="id")
    _object(document.get("parameters", {}), "`parameters`")

    known = {spec.name: spec for spec in specs}
    inputs: dict[str, Tensor] = {}
    entries = document.get("inputs")
    if not isinstance(entries, list):
        raise InputError(f"`inputs` is {_kind(entries)}, expected a list", hint=_EXAMPLE, field="inputs")
    for i, entry in enumerate(entries):
        where = f"inputs[{i}]"
        entry = _object(entry, where)
        name = _name(entry, where, list(inputs), list(known), "Input")
        inputs[name] = _parse_tensor(entry, where, known[name])
    missing = [spec for spec in specs if spec.name not in inputs]
    if missing:
        raise InputError(f"Input `{missing[0].name}` is missing", hint=_expected(missing[0]), input=missing[0].name)
    return InferRequest(id_, inputs, _parse_outputs(document.get("outputs"), outputs))


def write_answer(
    model: str, version: str, request: InferRequest, outputs: Mapping[str, Tensor], specs: Sequence[TensorSpec]
) -> bytes:
    """Write the body of the answer: the outputs in the order that was asked for, else the model's."""
    names = request.outputs if request.outputs is not None else [spec.name for spec in specs]
    document: dict[str, Any] = {"model_name": model, "model_version": version}
    if request.id is not None:
        document["id"] = request.id
    document["outputs"] = [_write_tensor(name, outputs[name].to_host()) for name in names]
    return json.dumps(document, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode("utf-8", "replace")


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


def _parse_tensor(entry: dict[str, Any], where: str, spec: TensorSpec) -> Tensor:
    _refuse_unknown(entry, _INPUT_FIELDS, where)
    parameters = _object(entry.get("parameters", {}), f"{where}.parameters")
    for extension in ("binary_data_size", "shared_memory_region"):
        if extension in parameters:
            raise UnsupportedMediaType(
                f"{where} uses `{extension}`, this server reads tensors as JSON",
                hint='put the numbers in "data"; in tritonclient: `set_data_from_numpy(x, binary_data=False)`',
                field=f"{where}.parameters.{extension}",
            )
    datatype = entry.get("datatype")
    if datatype != DATATYPES[spec.dtype]:
        raise InputError(
            f"Input `{spec.name}` has datatype {_shown(datatype)}, expected {DATATYPES[spec.dtype]}",
            hint=_expected(spec),
            input=spec.name,
            expected=DATATYPES[spec.dtype],
            got=datatype if isinstance(datatype, str) else None,
        )
    shape = entry.get("shape")
    if not isinstance(shape, list) or not all(type(dim) is int and 0 <= dim < 2**63 for dim in shape):
        raise InputError(
            f"Input `{spec.name}` has shape {_shown(shape)}, expected a list of whole numbers",
            hint=_expected(spec),
            input=spec.name,
        )
    if len(shape) > _MAX_RANK or not spec.accepts(shape):
        raise InputError(
            f"Input `{spec.name}` has shape {_shown(shape)}, expected {list(spec.shape)}",
            hint=_expected(spec),
            input=spec.name,
            expected=list(spec.shape),
            got=shape[:_MAX_RANK],
        )
    data = entry.get("data")
    if not isinstance(data, list):
        raise InputError(
            f"Input `{spec.name}` has as data {_kind(data)}, expected a list", hint=_expected(spec), input=spec.name
        )
    return _pack(_flat(data, shape, spec), shape, spec)


def _flat(data: list[Any], shape: list[int], spec: TensorSpec) -> list[Any]:
    """Return the elements of `data`, which is flat or nested as the shape says."""
    count = prod(shape)
    if not any(isinstance(item, list) for item in data):
        if len(data) == count:
            return data
        raise _wrong_length(spec, shape, f"{len(data)} numbers", count)
    level: list[Any] = [data]
    for axis, dim in enumerate(shape):
        for item in level:
            if not isinstance(item, list) or len(item) != dim:
                got = f"a list of {len(item)}" if isinstance(item, list) else _kind(item)
                raise _wrong_length(spec, shape, f"{got} at depth {axis + 1}", dim)
        level = list(chain.from_iterable(level))
    return level


def _wrong_length(spec: TensorSpec, shape: list[int], got: str, expected: int) -> InputError:
    return InputError(
        f"Input `{spec.name}` of shape {shape} has {got}, expected {expected}",
        hint="give `data` flat in row-major order, or nested as `shape` says",
        input=spec.name,
        expected=expected,
    )


def _pack(flat: list[Any], shape: list[int], spec: TensorSpec) -> Tensor:
    dtype = spec.dtype
    allowed: set[type] = {bool} if dtype is DType.BOOL else {str} if dtype is DType.STRING else {int}
    allowed |= {float, str} if dtype in _FLOATS else set()
    strange = set(map(type, flat)) - allowed
    if strange:
        raise InputError(
            f"Input `{spec.name}` has {_kind(next(v for v in flat if type(v) in strange))} in its data, "
            f"expected {_element(dtype)}",
            hint=_expected(spec),
            input=spec.name,
        )
    if dtype is DType.STRING:
        if any(map(_SURROGATE.search, flat)):
            raise InputError(
                f"Input `{spec.name}` has half a surrogate pair in a text", hint="send valid Unicode", input=spec.name
            )
        return Tensor(flat, dtype, shape)
    if dtype in _FLOATS:
        flat = _finite_or_spelt(flat, spec)
    if dtype in (DType.BFLOAT16, DType.INT4, DType.UINT4):
        return Tensor.from_list(flat, dtype).reshape(*shape) if flat else Tensor(b"", dtype, shape)
    try:
        return Tensor(pack(f"<{len(flat)}{dtype.buffer_format}", *flat), dtype, shape)
    except (struct_error, OverflowError) as error:
        raise InputError(
            f"Input `{spec.name}` has a value that does not fit {DATATYPES[dtype]}: {error}",
            hint=_expected(spec),
            input=spec.name,
        ) from error


def _finite_or_spelt(flat: list[Any], spec: TensorSpec) -> list[Any]:
    """Put the numbers that JSON cannot write in the place of their names; refuse literals that overflowed, as 1e999."""
    if inf in flat or -inf in flat:
        raise InputError(
            f"Input `{spec.name}` has a number that no float can hold", hint='write "Infinity"', input=spec.name
        )
    if not any(type(value) is str for value in flat):
        return flat
    try:
        return [_NOT_NUMBERS[value] if type(value) is str else value for value in flat]
    except KeyError as error:
        raise InputError(
            f"Input `{spec.name}` has the text {_shown(error.args[0])} in its data, expected numbers",
            hint=f"the only texts are {listed(list(_NOT_NUMBERS))}",
            input=spec.name,
        ) from None


def _parse_outputs(entries: Any, specs: Sequence[TensorSpec]) -> list[str] | None:
    """Return the names of the outputs asked for, or None for all."""
    if entries is None:
        return None
    if not isinstance(entries, list):
        raise InputError(
            f"`outputs` is {_kind(entries)}, expected a list", hint='"outputs": [{"name": "..."}]', field="outputs"
        )
    known = [spec.name for spec in specs]
    names: list[str] = []
    for i, entry in enumerate(entries):
        where = f"outputs[{i}]"
        entry = _object(entry, where)
        _refuse_unknown(entry, _OUTPUT_FIELDS, where)
        names.append(_name(entry, where, names, known, "Output"))
        if "classification" in _object(entry.get("parameters", {}), f"{where}.parameters"):
            raise InputError(
                f"{where} asks for the extension `classification`, which this server does not have",
                hint="read the scores and sort them",
                field=f"{where}.parameters.classification",
            )
    return names or None


def _name(entry: dict[str, Any], where: str, seen: list[str], known: list[str], what: str) -> str:
    name = entry.get("name")
    if not isinstance(name, str):
        raise InputError(f"{where}: `name` is {_kind(name)}, expected text", hint=_EXAMPLE, field=f"{where}.name")
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


# -- writing --


def _write_tensor(name: str, tensor: Tensor) -> dict[str, Any]:
    flat = tensor.reshape(-1).tolist() if tensor.shape else [tensor.item()]
    if tensor.dtype in _FLOATS and not all(map(isfinite, flat)):
        flat = [value if isfinite(value) else _spelt(value) for value in flat]
    return {"name": name, "datatype": DATATYPES[tensor.dtype], "shape": list(tensor.shape), "data": flat}


def _spelt(value: float) -> str:
    return "NaN" if value != value else "Infinity" if value > 0 else "-Infinity"


# -- what errors say --


def _object(value: Any, where: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise InputError(f"{where[0].upper()}{where[1:]} is {_kind(value)}, expected an object", hint=_EXAMPLE)
    return value


def _refuse_unknown(entry: dict[str, Any], allowed: Sequence[str], where: str) -> None:
    for field in entry:
        if field not in allowed:
            hint = did_you_mean(field[:128], list(allowed)) or f"the fields are {listed(list(allowed))}"
            raise InputError(f"{where[0].upper()}{where[1:]} has an unknown field `{field[:128]}`", hint=hint)


def _expected(spec: TensorSpec) -> str:
    shape = json.dumps([dim if isinstance(dim, int) else 1 for dim in spec.shape])
    return (
        f'{{"name": {json.dumps(spec.name)}, "shape": {shape}, "datatype": "{DATATYPES[spec.dtype]}", "data": [...]}}'
    )


def _element(dtype: DType) -> str:
    if dtype is DType.BOOL:
        return "`true` and `false`"
    return "texts" if dtype is DType.STRING else "numbers" if dtype in _FLOATS else "whole numbers"


def _kind(value: Any) -> str:
    return _KINDS.get(type(value), "nothing")


def _shown(value: Any) -> str:
    text = json.dumps(value, default=str)
    return text if len(text) <= 80 else f"{text[:77]}..."
