"""Store weights in half precision: half the bytes, inputs and outputs stay float32."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

import onnx
from onnx import numpy_helper

from edge_infer.errors import ConversionError
from edge_infer_converters.passes.fold_constants import fold_constants
from edge_infer_converters.passes.graphs import (
    FreshNames,
    drop_stored_shapes,
    graphs_of,
    infer_shapes_in,
    names_in,
    sort_nodes,
    tensors_of,
    without_weights,
)
from edge_infer_converters.passes.shorten_names import shorten_names
from edge_infer_converters.passes.small_constants import halve

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy as np

    from edge_infer_converters.passes.weights_in_files import WeightsInFiles

#: Operators whose scales must have the type of other inputs, which differs between operator sets.
_QUANTIZING = ("DequantizeLinear", "QuantizeLinear", "DynamicQuantizeLinear")
#: What ONNX Runtime (1.31) knows in float32 only, and its converter's list lacks: it fails when it runs.
_FLOAT_ONLY = ("AffineGrid",)
#: The reductions that its operators have for float32 only.
_FLOAT_REDUCTIONS = {"ScatterElements": (b"add", b"mul"), "ScatterND": (b"add", b"mul", b"max", b"min")}
#: How many elements are halved at a time: the converter makes eight arrays of it.
_PART = 2**20


def to_fp16(model: onnx.ModelProto, in_files: WeightsInFiles | None = None) -> onnx.ModelProto:
    """Return a copy whose float32 weights and inner values are float16.

    Operators that have no float16 form, or lose too much in it, keep float32 between casts; which ones is ONNX
    Runtime's list (`onnxruntime.transformers.float16.DEFAULT_OP_BLOCK_LIST`), AffineGrid, and scatters that
    reduce. Where its converter writes models that are not valid (subgraphs, quantized layers, outputs that nothing
    computes), only the weights are float16.

    Raises:
        ConversionError: The converter failed; the message is its own.
    """
    from onnxruntime.transformers import float16

    # The converter keeps what it replaces: only nodes and small tensors are copied.
    light, large = without_weights(model) if in_files is None else (model, ())
    source = fold_constants(light, large if in_files is None else in_files)
    drop_stored_shapes(source.graph)
    if _is_weights_only(source):
        if in_files is not None:
            raise ConversionError(
                "A model of more than 2 GB with subgraphs or quantized layers is not written in fp16",
                hint="--precision fp32 or int8-dynamic",
            )
        return _with_half_weights(fold_constants(model))
    apart = {tensor.name: tensor for tensor in large} if in_files is None else in_files
    places = [(i, tensor.name) for i, tensor in enumerate(source.graph.initializer) if tensor.name in apart]
    shorten_names(source)  # the converter makes up names, which a model that it has made has already
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # one for each weight below the smallest half-precision number
        try:
            infer_shapes_in(source)  # the converter's own inference copies the weights four times
            for place, _ in places:  # an empty tensor must say so
                source.graph.initializer[place].dims[:] = [0]
            converted: onnx.ModelProto = float16.convert_float_to_float16(
                source,
                keep_io_types=True,
                disable_shape_infer=True,
                op_block_list=[*float16.DEFAULT_OP_BLOCK_LIST, *_FLOAT_ONLY],
                node_block_list=_float_reductions(source.graph),
            )
            for place, name in places:
                _fill(converted.graph.initializer[place], apart[name], float16.convert_np_to_float16)
            _drop_repeated_casts(converted.graph)
            sort_nodes(converted.graph)  # the converter appends its casts at the end
        except Exception as error:  # asserts and protobuf errors alike
            raise ConversionError(f"The model cannot be converted to fp16: {error}") from error
    drop_stored_shapes(converted.graph)
    shorten_names(converted)
    return converted


def _float_reductions(graph: onnx.GraphProto) -> list[str]:
    """Return the names of the nodes that reduce as no float16 kernel does; those without a name are given one."""
    found = []
    for node in graph.node:
        known = _FLOAT_REDUCTIONS.get(node.op_type, ())
        if any(one.name == "reduction" and one.s in known for one in node.attribute):
            node.name = node.name or f"{node.op_type}/{node.output[0]}"
            found.append(node.name)
    return found


def has_float_weights(model: onnx.ModelProto) -> bool:
    """Tell whether there is a float32 weight of more than one element to make smaller."""
    return any(
        tensor.data_type == onnx.TensorProto.FLOAT and any(dim > 1 for dim in tensor.dims)
        for tensor in tensors_of(model.graph)
    )


def engine_options(model: onnx.ModelProto) -> dict[str, dict[str, str]]:
    """Return the engine settings that a half-precision model needs, by backend.

    ONNX Runtime 1.31 crashes on x86 CPUs when it fuses a Transpose that moves the batch axis into a float16 MatMul,
    as in multi-head attention over [length, batch, features].
    """
    moving = {
        node.output[0]
        for node in model.graph.node
        if node.op_type == "Transpose"
        and next((attribute.ints[0] for attribute in node.attribute if attribute.name == "perm" and attribute.ints), 0)
    }
    if any(node.op_type == "MatMul" and moving & set(node.input) for node in model.graph.node):
        return {"onnxruntime": {"optimization.disable_specified_optimizers": "MatmulTransposeFusion"}}
    return {}


def _fill(target: onnx.TensorProto, tensor: onnx.TensorProto, to_halves: Callable[[np.ndarray], np.ndarray]) -> None:
    """Give a tensor without values those of another, halved where its type says so, and a part at a time."""
    if target.data_type == tensor.data_type:
        name = target.name
        target.CopyFrom(tensor)
        target.name = name
        return
    values = numpy_helper.to_array(tensor).reshape(-1)
    parts = (values[start : start + _PART] for start in range(0, len(values), _PART))
    target.raw_data = b"".join(to_halves(part).tobytes() for part in parts)
    target.dims[:] = tensor.dims


def _is_weights_only(model: onnx.ModelProto) -> bool:
    graph = model.graph
    given = {value.name for value in (*graph.input, *graph.initializer)}
    return (
        len(list(graphs_of(graph))) > 1
        or any(node.op_type in _QUANTIZING for node in graph.node)
        or any(value.name in given for value in graph.output)
    )


def _with_half_weights(model: onnx.ModelProto) -> onnx.ModelProto:
    """Store, in place, the weights in float16, with a `Cast` to float32 in front of their readers."""
    fresh = FreshNames(names_in(model.graph))
    for graph in graphs_of(model.graph):
        _store_constants(graph)
        halve(graph, [tensor.name for tensor in graph.initializer], fresh)
    shorten_names(model)
    return model


def _store_constants(graph: onnx.GraphProto) -> None:
    """Make, in place, initializers of the `Constant` nodes that hold float32 tensors."""
    outputs = {value.name for value in graph.output}
    for node in list(graph.node):
        value = node.attribute[0] if node.op_type == "Constant" and len(node.attribute) == 1 else None
        if value is None or value.t.data_type != onnx.TensorProto.FLOAT or node.output[0] in outputs:
            continue
        value.t.name = node.output[0]
        graph.initializer.append(value.t)
        graph.node.remove(node)


def _drop_repeated_casts(graph: onnx.GraphProto) -> None:
    """Drop, in place, the casts of a value but the first: the converter writes one for each reader, of one name."""
    seen: set[str] = set()
    for node in list(graph.node):
        if node.op_type == "Cast" and node.output[0].endswith("_cast_to_fp32"):
            if node.output[0] in seen:
                graph.node.remove(node)
            seen.add(node.output[0])
