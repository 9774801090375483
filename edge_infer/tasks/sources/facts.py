"""The facts in a model file: inputs, outputs, quantization, metadata. No engine is started."""

from __future__ import annotations

from struct import error as struct_error
from typing import TYPE_CHECKING, NamedTuple

from edge_infer.errors import InputError, UnsupportedModel
from edge_infer.formats.onnx import fields, read_metadata, text_of
from edge_infer.formats.tflite_tables import Table, end_names, read_tables
from edge_infer.tensors.dtypes import DType
from edge_infer.tensors.tensor import TensorSpec

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from edge_infer.formats.tflite_tables import TfliteTensor

#: TensorProto.DataType of onnx.proto, by number, as numpy spells them; those without a name are not passed.
_ONNX_TYPES = {
    1: "float32",
    2: "uint8",
    3: "int8",
    4: "uint16",
    5: "int16",
    6: "int32",
    7: "int64",
    8: "string",
    9: "bool",
    10: "float16",
    11: "float64",
    12: "uint32",
    13: "uint64",
    16: "bfloat16",
}
# BuiltinOperator of the TFLite schema: what only moves or converts numbers, so that the operator before it says what
# they are; and what is asked for by name.
_MOVES = (6, 22, 43, 114)  # DEQUANTIZE, RESHAPE, SQUEEZE, QUANTIZE
_NAMES = {14: "LOGISTIC", 25: "SOFTMAX"}
_CUSTOM = 32
_ONNX_MOVES = ("Cast", "DequantizeLinear", "Flatten", "Identity", "QuantizeLinear", "Reshape", "Squeeze")
_MAX_MOVES = 16


class Quantization(NamedTuple):
    """The meaning of a tensor's whole numbers: `(number - zero_point) * scale`."""

    scale: float
    zero_point: int


class Facts(NamedTuple):
    """The facts in a model file.

    Attributes:
        format: `onnx` or `tflite`.
        inputs: The specs of its inputs.
        outputs: The specs of its outputs.
        quantization: By name of an input or output, what its whole numbers stand for.
        operators: By name of an output, the operator that made its numbers, such as `Softmax`.
        metadata: What the author wrote into an ONNX file, by key.
        detections: The outputs of the operator TFLite_Detection_PostProcess, in its order; empty where it is absent.
    """

    format: str
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    quantization: dict[str, Quantization]
    operators: dict[str, str]
    metadata: dict[str, str]
    detections: tuple[str, ...] = ()

    def output(self, *names: str) -> TensorSpec | None:
        """Return the first output of one of these names, else the only output; None where there are several."""
        by_name = {spec.name: spec for spec in self.outputs}
        for name in names:
            if name in by_name:
                return by_name[name]
        return self.outputs[0] if len(self.outputs) == 1 else None

    def has_probabilities(self, output: str) -> bool:
        """Tell whether an output holds probabilities and not logits."""
        if self.operators.get(output, "").upper() in ("SOFTMAX", "LOGISTIC", "SIGMOID"):
            return True
        # The result of a quantized SOFTMAX is always in steps of 1/256 from its lowest number on.
        found = self.quantization.get(output)
        return found is not None and found.scale == 1 / 256 and found.zero_point in (0, -128)


def read_facts(data: bytes, format: str, name: str) -> Facts:  # noqa: A002  the manifest's word
    """Read a model file.

    Args:
        data: Its bytes.
        format: `onnx` or `tflite`.
        name: The file's name, for errors.

    Raises:
        UnsupportedModel: It is not such a file, or its tensors are of types that nothing here passes.
    """
    try:
        return _of_tflite(data) if format == "tflite" else _of_onnx(data)
    except (ValueError, IndexError, InputError, struct_error) as error:
        said = error.message if isinstance(error, InputError) else error
        raise UnsupportedModel(f"`{name}` cannot be read: {said}", hint="download or convert it again") from error


# -- ONNX --


def _of_onnx(data: bytes) -> Facts:
    graph = next((value for number, value in fields(memoryview(data)) if number == 7), None)
    if not isinstance(graph, memoryview):
        raise ValueError("it holds no graph")
    inputs: list[TensorSpec] = []
    outputs: list[TensorSpec] = []
    weights: set[str] = set()
    makers: dict[str, tuple[str, str]] = {}  # by tensor: the operator that makes it, and its first input
    for number, value in fields(graph):
        if not isinstance(value, memoryview):
            continue
        if number == 1:
            _add_node(value, makers)
        elif number == 5:
            weights.add(_text(value, 8))
        elif number == 11:
            inputs.append(_onnx_spec(value))
        elif number == 12:
            outputs.append(_onnx_spec(value))
    operators = last_operators([spec.name for spec in outputs], makers)
    kept = tuple(spec for spec in inputs if spec.name not in weights)
    return Facts("onnx", kept, tuple(outputs), {}, operators, read_metadata(data).custom_metadata_map)


def last_operators(outputs: Iterable[str], makers: Mapping[str, tuple[str, str]]) -> dict[str, str]:
    """Return by output the ONNX operator that made its numbers; what only moves or converts them is looked through.

    Args:
        outputs: The names of outputs.
        makers: By tensor the operator that makes it, and its first input.
    """
    found = {}
    for name in outputs:
        operator, before = makers.get(name, ("", ""))
        for _ in range(_MAX_MOVES):
            if operator not in _ONNX_MOVES:
                break
            operator, before = makers.get(before, ("", ""))
        found[name] = operator
    return found


def _add_node(node: memoryview, makers: dict[str, tuple[str, str]]) -> None:
    first, results, operator = "", [], ""
    for number, value in fields(node):
        if number == 1:
            first = first or text_of(value)
        elif number == 2:
            results.append(text_of(value))
        elif number == 4:
            operator = text_of(value)
    for name in results:
        makers[name] = (operator, first)


def _text(message: memoryview, wanted: int) -> str:
    return next((text_of(value) for number, value in fields(message) if number == wanted), "")


def _onnx_spec(info: memoryview) -> TensorSpec:
    parts = dict(fields(info))
    kind = parts.get(2)
    tensor = dict(fields(kind)).get(1) if isinstance(kind, memoryview) else None
    if not isinstance(tensor, memoryview):
        raise ValueError(f"`{text_of(parts.get(1, 0))}` is not a tensor")
    facts = dict(fields(tensor))
    number, shape, name = facts.get(1), facts.get(2), text_of(parts.get(1, 0))
    if number not in _ONNX_TYPES:
        raise ValueError(f"`{name}` has the type {number}, which nothing here passes")
    dims = list(_onnx_dims(shape, name)) if isinstance(shape, memoryview) else []
    return TensorSpec(name, DType.parse(_ONNX_TYPES[int(number)]), dims)


def _onnx_dims(shape: memoryview, name: str) -> Iterator[int | str]:
    axis = 0
    for number, value in fields(shape):
        if number != 1 or not isinstance(value, memoryview):
            continue
        dim = dict(fields(value))
        size = dim.get(1)
        fixed = isinstance(size, int) and size < 2**31
        yield int(size) if fixed and isinstance(size, int) else text_of(dim.get(2, 0)) or f"{name}_{axis}"
        axis += 1


# -- TFLite --


def _of_tflite(data: bytes) -> Facts:
    tables = read_tables(data)
    signature = tables.signatures[0] if tables.signatures else None
    sides: list[dict[str, int]] = []
    for numbers, kind in ((tables.inputs, "input"), (tables.outputs, "output")):
        if signature is not None:
            sides.append(signature.inputs if kind == "input" else signature.outputs)
        else:
            sides.append(dict(zip(end_names([tables.tensors[i].name for i in numbers], kind), numbers, strict=True)))
    specs = [tuple(_tflite_spec(name, tables.tensors[i]) for name, i in side.items()) for side in sides]
    quantization = {}
    for side in sides:
        for name, i in side.items():
            tensor = tables.tensors[i]
            if len(tensor.scales) == 1 and len(tensor.zero_points) == 1 and tensor.dtype in _QUANTIZED:
                quantization[name] = Quantization(tensor.scales[0], tensor.zero_points[0])
    makers, detections = _tflite_makers(data)
    by_number = {i: name for name, i in sides[1].items()}
    named = tuple(by_number[i] for i in detections if i in by_number)
    return Facts(
        "tflite",
        specs[0],
        specs[1],
        quantization,
        {name: _tflite_operator(i, makers) for name, i in sides[1].items()},
        {},
        named if len(named) == 4 else (),
    )


_QUANTIZED = ("int8", "uint8", "int16")


def _tflite_spec(name: str, tensor: TfliteTensor) -> TensorSpec:
    names = ["batch", *(f"{name}_{axis}" for axis in range(1, len(tensor.signature)))]
    dims = [dim if dim >= 0 else names[axis] for axis, dim in enumerate(tensor.signature)]
    return TensorSpec(name, DType.parse(tensor.dtype), dims)


def _tflite_makers(data: bytes) -> tuple[dict[int, tuple[int, int]], list[int]]:
    """Return the operator and the first input of what makes each tensor, and what the detection operator makes."""
    model = Table.root(data)
    codes = [(max(code.number(0, "b"), code.number(3, "i")), code.text(1)) for code in model.tables(1)]
    makers: dict[int, tuple[int, int]] = {}
    detections: list[int] = []
    for subgraph in model.tables(2, 1):
        for operator in subgraph.tables(3):
            code, custom = codes[operator.number(0, "I")]
            inputs, outputs = operator.numbers(1, "i"), operator.numbers(2, "i")
            if code == _CUSTOM and custom == "TFLite_Detection_PostProcess" and len(outputs) == 4:
                detections = list(outputs)
            for i in outputs:
                makers[i] = (code, inputs[0] if inputs else -1)
    return makers, detections


def _tflite_operator(tensor: int, makers: dict[int, tuple[int, int]]) -> str:
    for _ in range(_MAX_MOVES):
        code, before = makers.get(tensor, (-1, -1))
        if code not in _MOVES:
            return _NAMES.get(code, "")
        tensor = before
    return ""
