"""Dynamic int8: matrices in 8 bits, the ranges of what they are multiplied with taken from each call.

The nodes are those that ONNX Runtime's `quantize_dynamic` writes, which its optimizer knows. Its quantizer has a model
in memory four times, and takes the columns of a matrix one by one.

No calibration is needed, and transformers lose little; the arithmetic is int8, so it is the fast one on CPUs. All
other weights are stored in 8 bits too and computed with in float; tables have one scale for each row, which keeps more
than ONNX Runtime's one scale for the whole table.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from edge_infer.errors import ConversionError
from edge_infer_converters.passes import packing
from edge_infer_converters.passes.graphs import (
    FreshNames,
    drop_unread_tensors,
    names_in,
    opset_of,
    reads_of,
    without_weights,
)
from edge_infer_converters.passes.int8_blocks import store_in_blocks
from edge_infer_converters.passes.int8_static import prepare
from edge_infer_converters.passes.shorten_names import shorten_names
from edge_infer_converters.passes.weight_only import rewrite, weights_of
from edge_infer_converters.passes.weights_in_files import Stored, with_values

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from edge_infer_converters.passes.weights_in_files import WeightsInFiles

_MULTIPLYING = ("MatMul", "Gemm")
#: A model of an earlier operator set is rewritten by `prepare`, which needs all of it.
_PREPARED_OPSET = 13
_LARGE_BYTES = 2**16


def to_dynamic_int8(
    model: onnx.ModelProto, blocked: Collection[str] = (), in_files: WeightsInFiles | None = None
) -> onnx.ModelProto:
    """Return a copy whose constant matrices are int8 and whose other weights are stored in 8 bits.

    Convolutions stay in float: computing their ranges in each call makes them slower than that.

    Args:
        model: A float32 model.
        blocked: Names of MatMul nodes, after `int8_static.prepare`, that multiply by blocks (`int8_blocks`): slower,
            and nearer to float.

        in_files: The values of its initializers that have none.

    Raises:
        ConversionError: The model multiplies by no constant matrix.
    """
    # What is taken out of a message stays in memory until it goes: large matrices never come into the copy.
    own = set() if blocked else _own_matrices(model)
    apart: Mapping[str, onnx.TensorProto]
    if in_files is not None:
        if opset_of(model) < _PREPARED_OPSET:
            raise ConversionError(
                f"A model of more than 2 GB with operator set {opset_of(model)} is not written in int8-dynamic",
                hint=f"export it with operator set {_PREPARED_OPSET} or newer",
            )
        apart = in_files
        quantized = prepare(with_values(model, in_files, own), in_files)
    else:
        light, large = without_weights(model, _LARGE_BYTES, own)
        apart = {tensor.name: tensor for tensor in large}
        quantized = prepare(light, large)
    if not _multiply_in_int8(quantized.graph, blocked, apart) and not blocked:
        raise ConversionError("The model has no MatMul or Gemm with constant weights", hint="--precision int8 or fp16")
    matrices = {node.input[1] for node in quantized.graph.node if node.name in blocked}
    others = [weight for weight in weights_of(quantized, apart) if weight.name not in matrices]
    small = rewrite(
        store_in_blocks(quantized, blocked) if blocked else quantized,
        others,
        {weight.name: "int8" for weight in others if "int8" in weight.encodings},
        apart,
    )
    shorten_names(small)
    small.producer_name, small.producer_version = model.producer_name, model.producer_version
    return small


def _own_matrices(model: onnx.ModelProto) -> set[str]:
    """Name the stored matrices and tables that one MatMul or Gather alone reads: `prepare` leaves them as they are."""
    if opset_of(model) < _PREPARED_OPSET:
        return set()
    reads = Counter(name for node in model.graph.node for name in reads_of(node))
    reads.update(value.name for value in (*model.graph.input, *model.graph.output))
    places = {"MatMul": 1, "Gather": 0}
    read = {node.input[places[node.op_type]] for node in model.graph.node if node.op_type in places}
    return {name for name in read if reads[name] == 1}


def _multiply_in_int8(graph: onnx.GraphProto, blocked: Collection[str], apart: Mapping[str, onnx.TensorProto]) -> int:
    """Multiply, in place, by int8 matrices with a scale for each column; return how many products there are.

    Args:
        graph: The graph.
        blocked: Names of nodes to leave alone.
        apart: The values of initializers that have none.
    """
    stored = Stored(graph, apart)
    fresh = FreshNames(names_in(graph))
    packed: dict[str, tuple[str, str]] = {}  # by matrix its codes and scales
    rounded: dict[str, list[str]] = {}  # by value its codes, scale and zero point
    nodes: list[onnx.NodeProto] = []
    count = 0
    for node in graph.node:
        if node.name in blocked or not _is_product(node, stored):
            nodes.append(node)
            continue
        count += 1
        value, matrix, *bias = node.input
        if matrix not in packed:
            codes, scales = packing.pack_slices(numpy_helper.to_array(stored[matrix]), 1)
            names = packed[matrix] = fresh(f"{matrix}/codes"), fresh(f"{matrix}/scales")
            graph.initializer.extend(map(numpy_helper.from_array, (codes, scales.reshape(-1)), names))
        if value not in rounded:
            rounded[value] = [fresh(f"{value}/{part}") for part in ("codes", "scale", "zero")]
            nodes.append(helper.make_node("DynamicQuantizeLinear", [value], rounded[value]))
        (codes_name, scales_name), (whole, scale, zero) = packed[matrix], rounded[value]
        out = node.output[0]
        has_bias = bool(bias and bias[0])
        product = fresh(f"{out}/product") if has_bias else out
        sums, floats, factors = (fresh(f"{out}/{part}") for part in ("sums", "floats", "factors"))
        nodes += [
            helper.make_node("MatMulInteger", [whole, codes_name, zero], [sums], node.name),
            helper.make_node("Cast", [sums], [floats], to=TensorProto.FLOAT),
            helper.make_node("Mul", [scale, scales_name], [factors]),
            helper.make_node("Mul", [floats, factors], [product]),
        ]
        if has_bias:
            nodes.append(helper.make_node("Add", [product, bias[0]], [out]))
    copies = [onnx.NodeProto.FromString(node.SerializeToString()) for node in nodes]
    del graph.node[:]
    graph.node.extend(copies)
    drop_unread_tensors(graph)
    return count


def _is_product(node: onnx.NodeProto, stored: Mapping[str, onnx.TensorProto]) -> bool:
    """Tell whether a node multiplies by a stored matrix [inputs, outputs]; a bias may be added, unscaled."""
    weight = stored.get(node.input[1]) if node.op_type in _MULTIPLYING and len(node.input) > 1 else None
    if weight is None or weight.data_type != TensorProto.FLOAT or len(weight.dims) != 2 or 0 in weight.dims:
        return False
    plain = {"transA": 0, "transB": 0, "alpha": 1.0, "beta": 1.0}
    if any(helper.get_attribute_value(one) != plain.get(one.name) for one in node.attribute):
        return False
    return bool(np.isfinite(numpy_helper.to_array(weight)).all())
