"""Write TFLite files of a few operators by the schema, to compare what reads them with LiteRT."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import flatbuffers
import numpy as np
from ai_edge_litert import schema_py_generated as schema
from ai_edge_litert.interpreter import Interpreter, OpResolverType

from edge_infer_converters.writers.onnx import to_onnx
from edge_infer_converters.writers.tflite import reading
from tests.support.converters.engines import run_onnx

if TYPE_CHECKING:
    from collections.abc import Sequence

    Array = np.ndarray[Any, Any]


@dataclass(eq=False)
class Value:
    """A tensor; `free` are the places of its free dimensions, and a scale of 0 is none."""

    name: str
    shape: Sequence[int]
    dtype: str = "float32"
    data: Array | None = None
    free: tuple[int, ...] = ()
    scale: float = 0.0


@dataclass
class File:
    """Operators, inputs and outputs; `bodies` are the subgraphs that control flow runs, from number 1 on."""

    inputs: list[Value]
    outputs: list[Value]
    operators: list[tuple[str, list[Value], list[Value], Any, int]] = field(default_factory=list)
    bodies: list[File] = field(default_factory=list)

    def add(self, code: str, given: list[Value], made: list[Value], options: Any = None, version: int = 1) -> File:
        self.operators.append((code, given, made, options, version))
        return self

    def data(self) -> bytes:
        """Return the bytes of the file."""
        model: Any = schema.ModelT()
        model.version, model.description = 3, b"test"
        model.buffers, model.operatorCodes, model.subgraphs = [schema.BufferT()], [], []
        for part in (self, *self.bodies):
            model.subgraphs.append(part.subgraph(model))
        builder = flatbuffers.Builder(1024)
        builder.Finish(model.Pack(builder), file_identifier=b"TFL3")
        return bytes(builder.Output())

    def subgraph(self, model: Any) -> Any:
        """Return the operators as a subgraph; its codes and constants are added to the model."""
        graph: Any = schema.SubGraphT()
        graph.tensors, graph.operators = [], []
        places: dict[int, int] = {}

        def place(value: Value) -> int:
            if id(value) not in places:
                places[id(value)] = len(graph.tensors)
                graph.tensors.append(_tensor(value, model.buffers))
            return places[id(value)]

        for code, given, made, options, version in self.operators:
            kind: Any = schema.OperatorCodeT()
            kind.builtinCode = getattr(schema.BuiltinOperator, code)
            kind.deprecatedBuiltinCode, kind.version = min(kind.builtinCode, 127), version
            operator: Any = schema.OperatorT()
            operator.opcodeIndex = len(model.operatorCodes)
            operator.inputs, operator.outputs = [place(one) for one in given], [place(one) for one in made]
            if options is not None:
                name = type(options).__name__.removesuffix("T")
                operator.builtinOptionsType, operator.builtinOptions = getattr(schema.BuiltinOptions, name), options
            model.operatorCodes.append(kind)
            graph.operators.append(operator)
        graph.inputs, graph.outputs = [place(one) for one in self.inputs], [place(one) for one in self.outputs]
        return graph


def _tensor(value: Value, buffers: list[Any]) -> Any:
    tensor: Any = schema.TensorT()
    tensor.name, tensor.shape, tensor.buffer = value.name.encode(), list(value.shape), 0
    tensor.type = getattr(schema.TensorType, value.dtype.upper())
    if value.free:
        tensor.shapeSignature = [-1 if i in value.free else size for i, size in enumerate(value.shape)]
    if value.scale:
        tensor.quantization = schema.QuantizationParametersT()
        tensor.quantization.scale, tensor.quantization.zeroPoint = [value.scale], [0]
    if value.data is not None:
        tensor.buffer = len(buffers)
        buffer: Any = schema.BufferT()
        buffer.data = np.frombuffer(value.data.tobytes(), np.uint8)
        buffers.append(buffer)
    return tensor


def constant(value: Any, dtype: str = "int32", name: str = "c") -> Value:
    """Return a constant."""
    data = np.array(value, dtype)
    return Value(name, data.shape, dtype, data)


def options(kind: str, **given: Any) -> Any:
    """Return the options of an operator."""
    made = getattr(schema, f"{kind}OptionsT")()
    for name, value in given.items():
        assert hasattr(made, name), name
        setattr(made, name, value)
    return made


def by_litert(data: bytes, *feeds: Array) -> list[Array]:
    """Run a file on LiteRT without accelerators; inputs get the shapes of what is fed."""
    kind = OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES
    interpreter = Interpreter(model_content=data, num_threads=1, experimental_op_resolver_type=kind)
    for detail, feed in zip(interpreter.get_input_details(), feeds, strict=True):
        interpreter.resize_tensor_input(detail["index"], feed.shape)
    interpreter.allocate_tensors()
    for detail, feed in zip(interpreter.get_input_details(), feeds, strict=True):
        interpreter.set_tensor(detail["index"], feed)
    interpreter.invoke()
    return [interpreter.get_tensor(detail["index"]) for detail in interpreter.get_output_details()]


def by_onnx(data: bytes, *feeds: Array, optimize: bool = False) -> list[Array]:
    """Write a file as ONNX and run that, by default exactly as it is written."""
    bodies = reading.read_subgraphs(data, "m.tflite")
    made = to_onnx(bodies[0], "m", bodies)
    names = [one.name for one in made.graph.input]
    return list(run_onnx(made.SerializeToString(), dict(zip(names, feeds, strict=True)), optimize=optimize).values())
