"""Estimate the cost of one call from a model file: the multiplications and the values that each operator moves.

What a bundle holds must not depend on how busy the converting machine was, so no timing decides it. This model does: a
table of costs, in units of one float multiply-add on a small in-order core with 128-bit vectors. It tells whether
integers pay at all (a net of small operators between float ones seldom does), not how many milliseconds a call takes.
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, NamedTuple

import onnx

from edge_infer.formats import tflite

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    Shapes = Mapping[str, Sequence[int]]

#: A multiply-add: in float; of 8-bit integers; with ranges from each call; of 4-bit weights, which are unpacked first.
_MULTIPLY = {"float": 1.0, "int8": 0.4, "dynamic": 0.6, "packed": 1.3}
#: A value read or written: in float; by an integer kernel; by one without vectors; to and from integers.
_MOVE = {"float": 1.0, "int8": 0.4, "dynamic": 1.0, "packed": 1.0, "plain": 60.0, "convert": 1.5}
#: An operator, however small.
_OPERATOR = 1000.0
_MAX_CONSTANT = 1024

#: Operators between DequantizeLinear and QuantizeLinear that ONNX Runtime computes in integers.
_ONNX_INT8_NAMES = """
Conv ConvTranspose MatMul Gemm Add Mul AveragePool GlobalAveragePool MaxPool Concat Sigmoid LeakyRelu Softmax Resize
Reshape Transpose Squeeze Unsqueeze Split Gather Where Relu Clip Flatten Slice
"""
_ONNX_INT8 = frozenset(_ONNX_INT8_NAMES.split())
_ONNX_INTEGER = {
    "MatMulNBits": "packed",
    "MatMulInteger": "dynamic",
    "ConvInteger": "dynamic",
    "DynamicQuantizeMatMul": "dynamic",
}
#: Operators whose cost depends on the data.
_BRANCHES = frozenset(["If", "Loop", "Scan", "IF", "WHILE", "CALL_ONCE"])
#: Operators that only rename values.
_VIEWS = ("RESHAPE", "SQUEEZE", "EXPAND_DIMS", "Reshape", "Squeeze", "Unsqueeze", "Flatten", "Identity")
#: Integer operators of TFLite that no accelerator takes: plain loops, each value scaled by itself.
_TFLITE_PLAIN_NAMES = """
RELU RELU6 RELU_N1_TO_1 PRELU HARD_SWISH SUM REDUCE_MAX REDUCE_MIN DIV RSQRT EXP LOG GELU SQUARED_DIFFERENCE
L2_NORMALIZATION SOFTMAX LOG_SOFTMAX BATCH_MATMUL PACK TILE GATHER
"""
_TFLITE_PLAIN = frozenset(_TFLITE_PLAIN_NAMES.split())


class Operation(NamedTuple):
    """One operator: how it computes, its multiply-adds, and the values that it reads and writes, weights left out."""

    name: str
    kind: str
    multiplies: int
    moves: int


def cost_of(data: bytes, format_: str, shapes: Shapes) -> float | None:
    """Return the cost of one call in units of a float multiply-add.

    Args:
        data: The bytes of the model file.
        format_: `onnx`, `tflite` or `compiled`.
        shapes: The shapes of the inputs; a TFLite file has its own.

    Returns:
        The cost; None of a model with branches or loops, which cost what the data say, and of a compiled one, whose
        kernels are not those of the engines that the model knows.
    """
    if format_ == "compiled":
        return None
    operations = _operations(data, format_, shapes)
    if any(one.name in _BRANCHES for one in operations):
        return None
    return sum(_cost(one) for one in operations) + _OPERATOR


def multiplies_of(data: bytes, format_: str, shapes: Shapes) -> int:
    """Return the multiply-adds of one call; of branches and loops, which cost what the data say, none is counted."""
    return sum(one.multiplies for one in _operations(data, format_, shapes))


def _operations(data: bytes, format_: str, shapes: Shapes) -> list[Operation]:
    return list(_tflite_operations(data) if format_ == "tflite" else _onnx_operations(data, shapes))


def _cost(one: Operation) -> float:
    return _MULTIPLY.get(one.kind, 1.0) * one.multiplies + _MOVE[one.kind] * one.moves + _OPERATOR


def _tflite_operations(data: bytes) -> Iterator[Operation]:
    file = tflite.read(data, "the model")
    stored = {i: tensor for i, tensor in enumerate(file.tensors) if tensor.data is not None}
    for operator in file.operators:
        given = [i for i in operator.inputs if i >= 0]
        if operator.code in _VIEWS or not operator.outputs or not given:
            continue
        if operator.code == "DEQUANTIZE" and given[0] in stored:  # done once, when the model is loaded
            stored[operator.outputs[0]] = stored[given[0]]
            continue
        inputs = [file.tensors[i] for i in given]
        made = file.tensors[operator.outputs[0]]
        size = prod(made.shape)
        weights = [stored[i] for i in given[1:] if i in stored]
        values = sum(prod(file.tensors[i].shape) for i in (*given, *operator.outputs) if i not in stored)
        multiplies = 0
        if operator.code in ("CONV_2D", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED", "CONV_3D") and weights:
            channels = weights[0].shape[-1] if operator.code == "DEPTHWISE_CONV_2D" else weights[0].shape[0]
            multiplies = size * prod(weights[0].shape) // max(channels, 1)
        elif operator.code == "TRANSPOSE_CONV" and weights:
            multiplies = prod(inputs[-1].shape) * prod(weights[0].shape) // max(weights[0].shape[-1], 1)
        elif operator.code == "BATCH_MATMUL":
            multiplies = size * inputs[0].shape[-1]
        elif "LSTM" in operator.code or "RNN" in operator.code:
            steps = prod(inputs[0].shape[:-1])
            multiplies = steps * sum(prod(one.shape) for one in weights if len(one.shape) == 2)
        kind = _tflite_kind(operator.code, inputs[0].dtype, made.dtype, weights[0].dtype if weights else "")
        yield Operation(operator.code, kind, multiplies, values)


def _tflite_kind(code: str, read: str, made: str, weights: str) -> str:
    if code in ("QUANTIZE", "DEQUANTIZE", "CAST"):
        return "convert"
    if made in ("int8", "uint8", "int16"):
        return "plain" if code in _TFLITE_PLAIN or made == "int16" else "int8"
    return "dynamic" if read == "float32" and weights in ("int8", "int4") else "float"


def _onnx_operations(data: bytes, shapes: Shapes) -> Iterator[Operation]:
    graph = _with_shapes(data, shapes).graph
    sizes = {
        value.name: tuple(dim.dim_value or 1 for dim in value.type.tensor_type.shape.dim)
        for value in (*graph.input, *graph.value_info, *graph.output)
    }
    stored = {one.name: tuple(one.dims) for one in graph.initializer}
    stored |= {value.name: sizes[value.name] for value in graph.input if value.name not in shapes}
    makers = {name: node for node in graph.node for name in node.output}
    readers: dict[str, list[onnx.NodeProto]] = {}
    for node in graph.node:
        for name in node.input:
            readers.setdefault(name, []).append(node)

    def is_integer(node: onnx.NodeProto) -> bool:
        """Tell whether a node stands between integers, so that the engine computes it in them."""
        given = [name for name in node.input if name and name not in stored]
        taken = [reader for name in node.output for reader in readers.get(name, ())]
        return (
            node.op_type in _ONNX_INT8
            and any(name in makers for name in given)
            and all(makers[name].op_type == "DequantizeLinear" for name in given if name in makers)
            and bool(taken)
            and all(reader.op_type == "QuantizeLinear" or _only_clips(reader, readers) for reader in taken)
        )

    integers = {id(node) for node in graph.node if is_integer(node)}
    for node in graph.node:
        if node.op_type in ("Constant", *_VIEWS):
            continue
        given = [name for name in node.input if name and name not in stored]
        made = prod(sizes.get(node.output[0], ()))
        moves = sum(prod(sizes.get(name, ())) for name in (*given, *node.output))
        kind = "int8" if id(node) in integers else _ONNX_INTEGER.get(node.op_type, "float")
        if node.op_type in ("QuantizeLinear", "DequantizeLinear", "DynamicQuantizeLinear"):
            makes = node.op_type == "DequantizeLinear"
            beside = readers.get(node.output[0], []) if makes else [makers[name] for name in given if name in makers]
            if not given or (beside and all(id(other) in integers for other in beside)):
                continue  # a weight, or part of the integer operator
            kind = "convert"
        elif node.op_type.startswith("QLinear"):
            kind = "int8"
        yield Operation(node.op_type, kind, _multiplies(node, made, stored | sizes), moves)


def _only_clips(node: onnx.NodeProto, readers: Mapping[str, Sequence[onnx.NodeProto]]) -> bool:
    """Tell whether a node is an activation that the engine joins with the integer operator before it."""
    after = readers.get(node.output[0], ())
    return node.op_type in ("Relu", "Clip") and bool(after) and all(one.op_type == "QuantizeLinear" for one in after)


def _multiplies(node: onnx.NodeProto, made: int, sizes: Shapes) -> int:
    """Return the multiply-adds of a node that gives so many values."""
    settings = {one.name: one for one in node.attribute}
    first, second = ((*map(tuple, (sizes.get(name, ()) for name in node.input[:2])), (), ()))[:2]
    if node.op_type == "MatMulNBits":
        return made * int(settings["K"].i)
    if node.op_type in ("Conv", "ConvInteger"):
        return made * prod(second[1:])
    if node.op_type == "ConvTranspose":
        return prod(first) * prod(second[1:])
    if node.op_type in ("MatMul", "MatMulInteger", "DynamicQuantizeMatMul", "Gemm"):
        is_turned = "transA" in settings and settings["transA"].i
        return made * (first[0 if is_turned else -1] if first else 1)
    if node.op_type in ("LSTM", "GRU", "RNN"):
        weights = [sizes.get(name, ()) for name in node.input[1:3]]
        return prod(first[:-1]) * sum(prod(one) for one in weights)
    return 0


def _with_shapes(data: bytes, shapes: Shapes) -> onnx.ModelProto:
    """Return the model without large constants, the shape of each value written down."""
    model = onnx.load_model_from_string(data)
    graph = model.graph
    for value in graph.input:
        if value.name in shapes:
            del value.type.tensor_type.shape.dim[:]
            for size in shapes[value.name]:
                value.type.tensor_type.shape.dim.add().dim_value = size
    named = {value.name for value in graph.input}
    for tensor in [one for one in graph.initializer if prod(one.dims) > _MAX_CONSTANT]:
        if tensor.name not in named:
            graph.input.append(onnx.helper.make_tensor_value_info(tensor.name, tensor.data_type, list(tensor.dims)))
        graph.initializer.remove(tensor)
    for value in graph.output:
        value.type.tensor_type.ClearField("shape")
    del graph.value_info[:]
    return onnx.shape_inference.infer_shapes(model, data_prop=True)
