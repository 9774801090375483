"""A TFLite file whose constant is stored without its zeros: y = x + w."""

from __future__ import annotations

from typing import Any

import flatbuffers
import numpy as np
import onnx
from ai_edge_litert import schema_py_generated as schema
from onnx import TensorProto, helper, numpy_helper

from edge_infer_converters.writers import tflite

#: Blocks of 2 rows and 3 columns; two block rows are empty.
BLOCK = (2, 3)
W = np.zeros((8, 6), np.float32)
W[0:2, 3:6] = np.arange(1, 7).reshape(BLOCK)
W[6:8, 0:3], W[6:8, 3:6] = 0.5, -np.arange(6).reshape(BLOCK)


def add_sparse(change: Any = None, kind: int | None = None) -> bytes:
    """Build the file.

    Args:
        change: Is called with the constant's `SparsityParametersT`, to damage it.
        kind: Another `TensorType` of the constant, which its bytes are not.
    """
    model: Any = schema.ModelT.InitFromPackedBuf(_dense(), 0)
    (graph,) = model.subgraphs
    (number,) = (i for i, one in enumerate(graph.tensors) if model.buffers[one.buffer].data is not None)
    dense = schema.TensorT()
    dense.name, dense.shape, dense.type = "w dense", list(W.shape), schema.TensorType.FLOAT32
    graph.tensors.append(dense)
    densify = schema.OperatorT()
    densify.opcodeIndex, densify.inputs, densify.outputs = len(model.operatorCodes), [number], [len(graph.tensors) - 1]
    for operator in graph.operators:
        operator.inputs = np.where(operator.inputs == number, len(graph.tensors) - 1, operator.inputs)
    graph.operators.insert(0, densify)
    code = schema.OperatorCodeT()
    code.builtinCode, code.deprecatedBuiltinCode, code.version = schema.BuiltinOperator.DENSIFY, 124, 1
    model.operatorCodes.append(code)
    stored = [(row, column) for row in range(4) for column in range(2) if _block(row, column).any()]
    model.buffers[graph.tensors[number].buffer].data = np.frombuffer(
        b"".join(_block(*place).tobytes() for place in stored), np.uint8
    )
    sparsity = schema.SparsityParametersT()
    sparsity.traversalOrder, sparsity.blockMap = [0, 1, 2, 3], [0, 1]
    sparsity.dimMetadata = [_level(4), _level(0, stored), _level(BLOCK[0]), _level(BLOCK[1])]
    if change is not None:
        change(sparsity)
    graph.tensors[number].sparsity = sparsity
    if kind is not None:
        graph.tensors[number].type = kind
    builder = flatbuffers.Builder(1024)
    builder.Finish(model.Pack(builder), file_identifier=b"TFL3")
    return bytes(builder.Output())


def _dense() -> bytes:
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, W.shape) for name in "xy"]
    graph = helper.make_graph(
        [helper.make_node("Add", ["x", "w"], ["y"])], "g", ends[:1], ends[1:], [numpy_helper.from_array(W, "w")]
    )
    return tflite.write(onnx.shape_inference.infer_shapes(helper.make_model(graph))).data


def _block(row: int, column: int) -> np.ndarray[Any, Any]:
    (high, wide) = BLOCK
    return np.ascontiguousarray(W[row * high : (row + 1) * high, column * wide : (column + 1) * wide])


def _level(size: int, stored: list[tuple[int, int]] | None = None) -> Any:
    level = schema.DimensionMetadataT()
    level.format, level.denseSize = schema.DimensionType.DENSE, size
    if stored is not None:
        level.format = schema.DimensionType.SPARSE_CSR
        level.arraySegmentsType = level.arrayIndicesType = schema.SparseIndexVector.Uint8Vector
        level.arraySegments, level.arrayIndices = schema.Uint8VectorT(), schema.Uint8VectorT()
        level.arraySegments.values = [sum(row < n for row, _ in stored) for n in range(5)]
        level.arrayIndices.values = [column for _, column in stored]
    return level
