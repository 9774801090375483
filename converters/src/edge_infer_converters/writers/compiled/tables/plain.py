"""How plain operators of a model over tables are written: those that compute rows from rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
from ai_edge_litert import schema_py_generated as schema

from edge_infer.errors import UnsupportedModel

if TYPE_CHECKING:
    from collections.abc import Callable

    from edge_infer_converters.writers.compiled.tables.reading import Node
    from edge_infer_converters.writers.tflite.graph import Tensor

_INT32, _INT64, _FLOAT = np.dtype(np.int32), np.dtype(np.int64), np.dtype(np.float32)


def pick(node: Node, table: Tensor, place: Tensor, output: Tensor) -> None:
    """Give out the elements of a table at places."""
    options: Any = schema.GatherOptionsT()
    options.axis = options.batchDims = 0
    node.add("GATHER", [table, place], output, options)


def identity(node: Node) -> None:
    """Identity, and reshapes that leave one row."""
    given = node.given()
    texts = node.table.texts
    if given.name in texts:
        texts.add(node.outputs[0])
    node.share(given)


def reshape(node: Node) -> None:
    """Reshape, Flatten: the same numbers, as a row or one for each row."""
    given = node.given()
    shape = node.constant(1)
    count = int(np.prod(given.shape))
    is_flat = shape is not None and shape.size == 1
    if is_flat and count != 1:
        raise UnsupportedModel("of all rows to one")
    made = node.made(count, given.dtype, output=0, is_flat=is_flat)
    if given.name in node.table.texts:
        node.table.texts.add(made.name)
    node.add("RESHAPE", [given], made)


def cast(node: Node) -> None:
    """Cast of floats to floats, of labels to labels."""
    given = node.given()
    to = node.integer("to")
    wanted = onnx.helper.tensor_dtype_to_np_dtype(to) if to != onnx.TensorProto.STRING else np.dtype(object)
    if wanted != given.dtype and not (given.dtype == _INT32 and wanted == _INT64):
        raise UnsupportedModel(f"of {given.dtype} to {wanted}")
    node.share(given)


def arg(node: Node) -> None:
    """ArgMax, ArgMin along the columns."""
    given = node.given()
    if node.integer("axis") not in (1, -1) or node.integer("select_last_index"):
        raise UnsupportedModel("along the rows")
    code = "ARG_MAX" if node.op_type == "ArgMax" else "ARG_MIN"
    is_flat = not node.integer("keepdims", 1)
    place = node.add(code, [given], node.made(1, _INT32, is_flat=is_flat))
    node.share(place)
    if node.outputs[0] in node.table.ends:  # ONNX gives int64
        counted = np.arange(given.shape[-1], dtype=np.int64)
        pick(node, node.stored(counted), place, node.made(1, _INT64, output=0, is_flat=is_flat))


def matmul(node: Node) -> None:
    """MatMul by a constant."""
    weights = node.constant(1)
    if weights is None or weights.ndim != 2:
        raise UnsupportedModel("of two computed values")
    node.linear(node.given(), weights.T, None, node.made(weights.shape[1], output=0))


def gemm(node: Node) -> None:
    """Gemm by a constant."""
    weights, bias = node.constant(1), node.constant(2)
    if weights is None or node.integer("transA"):
        raise UnsupportedModel("of two computed values")
    alpha, beta = (float(node.attributes.get(name, 1.0)) for name in ("alpha", "beta"))
    rows = (weights if node.integer("transB") else weights.T) * np.float32(alpha)
    node.linear(node.given(), rows, None if bias is None else bias * np.float32(beta), node.made(len(rows), output=0))


_BINARY = {"Add": "ADD", "Sub": "SUB", "Mul": "MUL", "Div": "DIV", "Max": "MAXIMUM", "Min": "MINIMUM"}


def binary(node: Node) -> None:
    """Add, Sub, Mul, Div, Max, Min of rows and constants."""
    if node.count != 2:
        raise UnsupportedModel(f"of {node.count} values")
    values: list[Tensor] = []
    for place in range(2):
        known = node.constant(place)
        if known is not None and known.ndim > 1 and known.size != known.shape[-1]:
            raise UnsupportedModel("of a table")
        values.append(node.given(place) if known is None else node.stored(known.astype(np.float32).reshape(1, -1)))
    columns = max(value.shape[-1] for value in values)
    if any(value.dtype != _FLOAT for value in values):
        raise UnsupportedModel("of integers")
    node.add(_BINARY[node.op_type], values, node.made(columns, output=0), schema.AddOptionsT())


_UNARY = {"Relu": "RELU", "Sigmoid": "LOGISTIC", "Tanh": "TANH", "Exp": "EXP", "Sqrt": "SQRT", "Neg": "NEG"} | {
    "Log": "LOG",
    "Abs": "ABS",
}


def unary(node: Node) -> None:
    """Relu, Sigmoid and their like."""
    given = node.given()
    node.add(_UNARY[node.op_type], [given], node.made(given.shape[-1], output=0))


def reciprocal(node: Node) -> None:
    """Reciprocal."""
    given = node.given()
    node.add("DIV", [node.stored(np.ones((1, 1), np.float32)), given], node.made(given.shape[-1], output=0))


def power(node: Node) -> None:
    """Pow by 2."""
    exponent = node.constant(1)
    if exponent is None or exponent.size != 1 or float(exponent.reshape(())) != 2:
        raise UnsupportedModel("by another number than 2")
    given = node.given()
    node.add("SQUARE", [given], node.made(given.shape[-1], output=0))


def sign(node: Node) -> None:
    """Sign, 0 at 0: all else becomes more than 1 in size, the smallest float32 too, and is cut there."""
    made = node.given()
    for _ in range(2):
        made = node.binary("MUL", made, np.array(np.finfo(np.float32).max))
    made = node.binary("MINIMUM", made, np.array(1.0))
    node.binary("MAXIMUM", made, np.array(-1.0), node.made(made.shape[-1], output=0))


def softmax(node: Node) -> None:
    """Softmax along the columns."""
    given = node.given()
    options: Any = schema.SoftmaxOptionsT()
    options.beta = 1.0
    node.add("SOFTMAX", [given], node.made(given.shape[-1], output=0), options)


def reduced(node: Node) -> None:
    """ReduceSum, ReduceSumSquare along the columns: a product with ones."""
    axes = node.attributes.get("axes")
    known = node.constant(1)
    axes = [int(axis) for axis in (known.reshape(-1) if known is not None else axes or ())]
    if axes not in ([1], [-1]):
        raise UnsupportedModel("along the rows")
    given = node.given()
    if node.op_type == "ReduceSumSquare":
        given = node.add("SQUARE", [given], node.made(given.shape[-1]))
    is_flat = not node.integer("keepdims", 1)
    made = node.made(1, output=0, is_flat=is_flat)
    node.linear(given, np.ones((1, given.shape[-1]), np.float32), None, made)


def concat(node: Node) -> None:
    """Concat of rows."""
    values = [node.given(place) for place in range(node.count)]
    if node.integer("axis") not in (1, -1) or any(len(value.shape) != 2 for value in values):
        raise UnsupportedModel("along the rows")
    options: Any = schema.ConcatenationOptionsT()
    options.axis = 1
    columns = sum(value.shape[1] for value in values)
    node.add("CONCATENATION", values, node.made(columns, values[0].dtype, output=0), options)


#: By the operator the function that writes it.
RULES: dict[str, Callable[[Node], None]] = {
    "Identity": identity,
    **dict.fromkeys(("Reshape", "Flatten"), reshape),
    "Cast": cast,
    **dict.fromkeys(("ArgMax", "ArgMin"), arg),
    "MatMul": matmul,
    "Gemm": gemm,
    **dict.fromkeys(_BINARY, binary),
    **dict.fromkeys(_UNARY, unary),
    "Reciprocal": reciprocal,
    "Pow": power,
    "Softmax": softmax,
    **dict.fromkeys(("ReduceSum", "ReduceSumSquare"), reduced),
    "Concat": concat,
    "Sign": sign,
}
