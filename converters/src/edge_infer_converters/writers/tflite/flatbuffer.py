"""Write a TFLite graph as a file: flatbuffers' object API over the schema that ai-edge-litert ships.

Format: https://github.com/tensorflow/tensorflow/blob/master/tensorflow/compiler/mlir/lite/schema/schema.fbs
"""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING, Any

import flatbuffers
import numpy as np
from ai_edge_litert import schema_py_generated as schema

from edge_infer.errors import UnsupportedOperator

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Mapping, Sequence

    from edge_infer_converters.writers.tflite.graph import Graph, Operator, Quantization, Tensor

#: The name of the only signature; TensorFlow's exporters use it, and so do all readers.
SIGNATURE = "serving_default"
_IDENTIFIER = b"TFL3"
_VERSION = 3
# `force_align` of Buffer.data in the schema, which the generated Python does not obey; kernels read whole vectors.
_ALIGNMENT = 16
# Codes above this do not fit the byte that older readers look at.
_LAST_OLD_CODE = 127
_PACKED_BITS = 4

_TYPES = {
    "float32": schema.TensorType.FLOAT32,
    "float16": schema.TensorType.FLOAT16,
    "complex64": schema.TensorType.COMPLEX64,
    "float64": schema.TensorType.FLOAT64,
    "int8": schema.TensorType.INT8,
    "uint8": schema.TensorType.UINT8,
    "int16": schema.TensorType.INT16,
    "uint16": schema.TensorType.UINT16,
    "int32": schema.TensorType.INT32,
    "uint32": schema.TensorType.UINT32,
    "int64": schema.TensorType.INT64,
    "uint64": schema.TensorType.UINT64,
    "bool": schema.TensorType.BOOL,
}


def write(graph: Graph, name: str, *, keep_names: bool = False, metadata: Mapping[str, bytes] | None = None) -> bytes:
    """Return the bytes of a `.tflite` file; the same graph always gives the same bytes.

    Args:
        graph: The graph; operators in the order in which they run.
        name: What to call it.
        keep_names: Whether tensors between inputs and outputs keep their names.
        metadata: The bytes of each entry.

    Raises:
        UnsupportedOperator: A tensor has a type that TFLite lacks.
    """
    tensors = numbered(graph)
    names = _names(graph, tensors, keep=keep_names)
    index = {id(tensor): i for i, tensor in enumerate(tensors)}
    codes = sorted({(operator.code, operator.version) for operator in graph.operators})

    # Buffer 0 is empty by convention and stands for "no constant".
    buffers: list[Any] = [schema.BufferT()]
    subgraph = schema.SubGraphT()
    subgraph.name = name.encode()
    subgraph.tensors = [_tensor(tensor, name, buffers, index) for tensor, name in zip(tensors, names, strict=True)]
    subgraph.inputs = np.array([index[id(tensor)] for tensor in graph.inputs], np.int32)
    subgraph.outputs = np.array([index[id(tensor)] for tensor in graph.outputs], np.int32)
    subgraph.operators = [_operator(operator, codes, index) for operator in graph.operators]

    model = schema.ModelT()
    model.version = _VERSION
    model.description = b"edge-infer"
    model.operatorCodes = [_operator_code(code, version) for code, version in codes]
    model.subgraphs = [subgraph]
    model.buffers = buffers
    model.signatureDefs = [_signature(graph, index)]
    model.metadata = [_metadata(entry, data, buffers) for entry, data in (metadata or {}).items()] or None

    builder = _SharingBuilder(sum(0 if tensor.data is None else tensor.data.nbytes for tensor in tensors) + 4096)
    builder.Finish(model.Pack(builder), file_identifier=_IDENTIFIER)
    return bytes(builder.Output())


class _SharingBuilder(flatbuffers.Builder):  # type: ignore[misc]
    """A builder that writes equal vectors once: shapes, the operands of operators, the zero points of channels."""

    def __init__(self, size: int) -> None:
        super().__init__(size)
        self._known: dict[Hashable, int] = {}

    def CreateNumpyVector(self, x: np.ndarray) -> int:  # noqa: N802
        return self.share((x.dtype.str, x.tobytes()), lambda: super(_SharingBuilder, self).CreateNumpyVector(x))

    def share(self, key: Hashable, make: Callable[[], int]) -> int:
        """Return the place of an equal object, which is written where there is none."""
        if key not in self._known:
            self._known[key] = make()
        return self._known[key]


class _SharedOptions:
    """An operator's options, written once for all operators that have the same."""

    def __init__(self, options: Any) -> None:
        self._options = options

    def Pack(self, builder: _SharingBuilder) -> int:  # noqa: N802  called by the generated code
        key = (type(self._options), repr(sorted(vars(self._options).items())))
        return builder.share(key, lambda: int(self._options.Pack(builder)))


class _AlignedBuffer:
    """A constant's bytes, packed at an address that the schema asks for."""

    def __init__(self, data: np.ndarray) -> None:
        self._data = data

    def Pack(self, builder: Any) -> int:  # noqa: N802  called by the generated code
        payload = self._data.tobytes()
        builder.StartVector(1, len(payload), _ALIGNMENT)
        builder.head -= len(payload)
        builder.Bytes[builder.head : builder.head + len(payload)] = payload
        data = builder.EndVector()
        schema.BufferStart(builder)
        schema.BufferAddData(builder, data)
        end: int = schema.BufferEnd(builder)
        return end


def numbered(graph: Graph) -> list[Tensor]:
    """List every tensor once, in the order of the file: inputs, then as operators use them."""
    found: dict[int, Tensor] = {id(tensor): tensor for tensor in graph.inputs}
    for operator in graph.operators:
        for tensor in (*operator.inputs, *operator.outputs):
            if tensor is not None:
                found.setdefault(id(tensor), tensor)
    for tensor in graph.outputs:
        found.setdefault(id(tensor), tensor)
    for tensor in list(found.values()):
        if tensor.quantization is not None and tensor.quantization.blocks is not None:
            found.setdefault(id(tensor.quantization.blocks), tensor.quantization.blocks)
    return list(found.values())


def _names(graph: Graph, tensors: Sequence[Tensor], *, keep: bool) -> list[str]:
    """Return what to call each tensor: those in between get a number, for names weigh."""
    ends = {id(tensor) for tensor in (*graph.inputs, *graph.outputs)}
    taken = {tensor.name for tensor in tensors if id(tensor) in ends}
    numbers = (str(i) for i in count() if str(i) not in taken)
    return [tensor.name if keep or id(tensor) in ends else next(numbers) for tensor in tensors]


def _tensor(tensor: Tensor, name: str, buffers: list[Any], index: dict[int, int]) -> Any:
    is_packed = tensor.quantization is not None and tensor.quantization.bits == _PACKED_BITS
    kind = schema.TensorType.INT4 if is_packed else _TYPES.get(tensor.dtype.name)
    if kind is None:
        raise UnsupportedOperator(f"TFLite has no type {tensor.dtype} (`{tensor.name}`)", tensor=tensor.name)
    packed = schema.TensorT()
    packed.name = name.encode()
    packed.type = kind
    packed.shape = np.array(tensor.shape, np.int32)
    if -1 in tensor.signature:
        packed.shapeSignature = np.array(tensor.signature, np.int32)
    packed.hasRank = True
    packed.isVariable = tensor.is_variable
    if tensor.quantization is not None:
        packed.quantization = _quantization(tensor.quantization, index)
    if tensor.data is not None:
        packed.buffer = len(buffers)
        buffers.append(_AlignedBuffer(in_pairs(tensor.data) if is_packed else tensor.data))
    return packed


def in_pairs(values: np.ndarray) -> np.ndarray:
    """Pack integers of 4 bits as TFLite does: in the order of the array, the first of a pair in the low half."""
    flat = values.reshape(-1)
    if flat.size % 2:
        flat = np.append(flat, flat.dtype.type(0))
    packed: np.ndarray = ((flat[0::2] & 15) | ((flat[1::2] & 15) << 4)).astype(np.uint8)
    return packed


def _quantization(of: Quantization, index: dict[int, int]) -> Any:
    packed = schema.QuantizationParametersT()
    if of.blocks is not None:
        details = schema.BlockwiseQuantizationT()
        details.scales = index[id(of.blocks)]
        details.zeroPoints = -1
        details.blockSize = of.block_size
        packed.details, packed.detailsType = details, schema.QuantizationDetails.BlockwiseQuantization
        return packed
    packed.scale = of.scales.astype(np.float32)
    # Readers refuse one zero point for many scales.
    packed.zeroPoint = np.full(len(of.scales), of.zero_point, np.int64)
    packed.quantizedDimension = of.axis
    return packed


def _operator(operator: Operator, codes: Sequence[tuple[str, int]], index: dict[int, int]) -> Any:
    packed = schema.OperatorT()
    packed.opcodeIndex = codes.index((operator.code, operator.version))
    packed.inputs = np.array([-1 if tensor is None else index[id(tensor)] for tensor in operator.inputs], np.int32)
    packed.outputs = np.array([index[id(tensor)] for tensor in operator.outputs], np.int32)
    if operator.options is not None:
        packed.builtinOptions = _SharedOptions(operator.options)
        packed.builtinOptionsType = getattr(schema.BuiltinOptions, type(operator.options).__name__.removesuffix("T"))
    return packed


def _operator_code(name: str, version: int) -> Any:
    packed = schema.OperatorCodeT()
    packed.builtinCode = getattr(schema.BuiltinOperator, name)
    packed.deprecatedBuiltinCode = min(packed.builtinCode, _LAST_OLD_CODE)
    packed.version = version
    return packed


def _signature(graph: Graph, index: dict[int, int]) -> Any:
    packed = schema.SignatureDefT()
    packed.signatureKey = SIGNATURE.encode()
    packed.inputs = [_mapping(tensor, index) for tensor in graph.inputs]
    packed.outputs = [_mapping(tensor, index) for tensor in graph.outputs]
    return packed


def _metadata(name: str, data: bytes, buffers: list[Any]) -> Any:
    packed = schema.MetadataT()
    packed.name = name.encode()
    packed.buffer = len(buffers)
    buffers.append(_AlignedBuffer(np.frombuffer(data, np.uint8)))
    return packed


def _mapping(tensor: Tensor, index: dict[int, int]) -> Any:
    packed = schema.TensorMapT()
    packed.name = tensor.name.encode()
    packed.tensorIndex = index[id(tensor)]
    return packed
