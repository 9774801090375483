"""Static int8: weights and activations in 8 bits, ranges taken from calibration data.

Weights are signed, symmetric, one scale for each output channel; activations unsigned, one scale for each tensor
(U8S8); `QuantizeLinear` and `DequantizeLinear` pairs say so in the graph (QDQ), so that every engine can run it.
Weights use the full range of 8 bits: exact on arm, in the page, on x86 with VNNI, and on older x86 in ONNX Runtime's
precise mode (`session.x64quantprecision=1`). Without that mode AVX2 and AVX-512 sum pairs of products in 16 bits,
which overflow: 20 dB instead of 38 dB on the digits net.
"""

from __future__ import annotations

import os
import tempfile
import warnings
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import onnx
from onnx import numpy_helper, version_converter

from edge_infer.errors import ConversionError
from edge_infer_converters.passes.clean_up import clean_up
from edge_infer_converters.passes.correct_biases import Biases
from edge_infer_converters.passes.fold_batch_norm import fold_batch_norm_in
from edge_infer_converters.passes.fold_constants import fold_constants
from edge_infer_converters.passes.graphs import (
    FreshNames,
    drop_stored_shapes,
    drop_unread_tensors,
    graphs_of,
    names_in,
    opset_of,
    subgraphs_of,
)
from edge_infer_converters.passes.ranges import Range, activation_ranges
from edge_infer_converters.passes.shorten_names import shorten_names
from edge_infer_converters.passes.small_constants import after_halving, halve, share_scalars

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from edge_infer_converters.passes.weights_in_files import WeightsInFiles

# The first operator set whose QuantizeLinear has a scale for each channel.
_PER_CHANNEL_OPSET = 13
# What turns weights into arithmetic. A model with none of them has nothing to quantize.
_WEIGHTED = ("Conv", "ConvTranspose", "Gemm", "MatMul")
# Which input of those is the bias.
_BIAS = 2
# Scores below are masked: 8 bits that reach so far have no step for the others.
_MASKED = -5e3
# What stays in float: these divide by small numbers, and their few weights are not worth a byte.
_FLOAT = ("BatchNormalization", "InstanceNormalization", "LayerNormalization")


def to_int8(
    model: onnx.ModelProto,
    calibration: Sequence[Mapping[str, np.ndarray]],
    *,
    reduce_range: bool = False,
    method: str = "minmax",
    corrects: bool = True,
) -> onnx.ModelProto:
    """Return a copy that computes in int8; inputs and outputs stay what they are.

    Args:
        model: A float32 model.
        calibration: Inputs for single calls, typical of what the model will see: 100 to 500 are enough.
        reduce_range: Whether to keep weights within 7 bits, so that no sum of two products overflows 16 bits: right
            for x86 CPUs without VNNI, 1 to 5 dB worse everywhere else.
        method: How ranges are found, one of `ranges.METHODS`.
        corrects: Whether biases learn from these inputs by how much rounded weights shift their layers.

    Raises:
        ConversionError: The quantizer failed, or the model cannot be brought to operator set 13.
    """
    from onnxruntime.quantization import CalibrationMethod, QuantType
    from onnxruntime.quantization.calibrate import TensorsData
    from onnxruntime.quantization.qdq_quantizer import QDQQuantizer
    from onnxruntime.quantization.quant_utils import save_and_reload_model_with_shape_infer

    prepared = prepare(model)
    biases = Biases(prepared, reduce_range=reduce_range)
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # numpy's, of ranges that are not finite: the result is measured
        path = Path(folder, "int8.onnx")
        try:
            # Its own search for ranges inserts two nodes for each value, one by one: .2 of the time for 4,000 nodes.
            found = activation_ranges(prepared, calibration, method, biases.see if corrects else None)
            prepared = biases.corrected()
            quantizer = QDQQuantizer(
                save_and_reload_model_with_shape_infer(prepared),
                per_channel=True,
                reduce_range=reduce_range,
                weight_qType=QuantType.QInt8,
                activation_qType=QuantType.QUInt8,
                tensors_range=TensorsData(
                    CalibrationMethod.MinMax,
                    {name: (np.float32(one.low), np.float32(one.high)) for name, one in found.items() if one.is_finite},
                ),
                nodes_to_quantize=[],
                nodes_to_exclude=_endless(prepared.graph, found),
                # Each is named: the default comes from a set, whose order differs from run to run.
                op_types_to_quantize=sorted(_quantizable()),
                extra_options={},
            )
            # Its own search for what reads a value asks for each input of each node: .3 of the time for 4,000 nodes.
            quantizer.model.replace_input_of_all_nodes = partial(_replace_in_all, quantizer.model.model.graph)
            quantizer.quantize_model()
            quantizer.model.save_model_to_file(os.fspath(path))
        except Exception as error:  # the quantizer raises whatever its parts raise
            raise ConversionError(f"The model cannot be quantized to int8: {error}") from error
        quantized = onnx.load(path)
    quantized = clean_up(quantized)
    drop_stored_shapes(quantized.graph)
    _float_biases(quantized.graph)
    _codes_for_halves(quantized.graph, prepared.graph)
    _fewer_bytes(quantized.graph)
    shorten_names(quantized)
    quantized.producer_name, quantized.producer_version = model.producer_name, model.producer_version
    return quantized


def _replace_in_all(graph: onnx.GraphProto, old: str, new: str) -> None:
    """Let each node that reads one value read another."""
    for node in graph.node:
        names = node.input
        if old in names:
            names[:] = [new if name == old else name for name in names]


def is_quantizable(model: onnx.ModelProto) -> bool:
    """Tell whether a float32 model has an operator whose constant weights can be stored in int8."""
    graph = fold_constants(model).graph
    constants = {tensor.name for tensor in graph.initializer if tensor.data_type == onnx.TensorProto.FLOAT}
    return any(node.op_type in _WEIGHTED and constants & set(node.input) for node in graph.node)


def why_not_quantizable(model: onnx.ModelProto) -> ConversionError:
    """Say of a model that is not quantizable that it has no such operator, or that they are in branches."""
    conditions = {
        node.input[0]
        for node in model.graph.node
        if node.op_type == "If"
        and any(
            inner.op_type in _WEIGHTED for part in subgraphs_of(node) for one in graphs_of(part) for inner in one.node
        )
    }
    if not conditions:
        return ConversionError(
            "The model has no operator with weights that int8 can hold (Conv, Gemm, MatMul)", hint="--precision fp16"
        )
    read = set(conditions)
    for node in reversed(model.graph.node):  # they are sorted: what makes a value stands before what reads it
        if read & set(node.output):
            read.update(node.input)
    asked = [value.name for value in model.graph.input if value.name in read]
    hint = f"--bind {asked[0]}=VALUE, where you always give the same one" if asked else "--precision fp16"
    return ConversionError(
        "The operators with weights are in the branches of an `If`, for which no int8 is written", hint=hint
    )


def prepare(model: onnx.ModelProto, apart: Sequence[onnx.TensorProto] | WeightsInFiles = ()) -> onnx.ModelProto:
    """Bring a model into the form that the quantizer handles well.

    Args:
        model: The model.
        apart: The values of its initializers that have none; see `graphs.without_weights`.
    """
    opset = opset_of(model)
    if opset < _PER_CHANNEL_OPSET:
        try:
            model = version_converter.convert_version(model, _PER_CHANNEL_OPSET)
        except Exception as error:  # the C++ converter raises RuntimeError and its own classes
            raise ConversionError(
                f"The model uses operator set {opset} and cannot be brought to {_PER_CHANNEL_OPSET}: {error}",
                hint="export it with opset 13 or later",
            ) from error
    prepared = fold_constants(model, apart)
    fold_batch_norm_in(prepared.graph)
    # The quantizer transposes a Gemm's weights but not their stored shape, and dies of the difference.
    drop_stored_shapes(prepared.graph)
    _plain_gemm_weights(prepared.graph)
    _plain_gemm_biases(prepared.graph)
    _own_weights(prepared.graph)
    _name_nodes(prepared.graph)
    return prepared


def _endless(graph: onnx.GraphProto, found: Mapping[str, Range]) -> list[str]:
    """Name the nodes of values without an end, such as scores that a mask makes -inf, which stay float."""
    endless = {name for name, one in found.items() if not one.is_finite}
    scores = [node.input[0] for node in graph.node if node.op_type == "Softmax"]
    endless.update(name for name in scores if name in found and found[name].low <= _MASKED)
    endless.update(
        tensor.name
        for tensor in graph.initializer
        if tensor.data_type == onnx.TensorProto.FLOAT and not np.isfinite(numpy_helper.to_array(tensor)).all()
    )
    return [node.name for node in graph.node if endless & {*node.input, *node.output}]


def _plain_gemm_weights(graph: onnx.GraphProto) -> None:
    """Write each Gemm with constant weights as `transB=0`: the quantizer then scales it by the right axis."""
    constants = {tensor.name: tensor for tensor in graph.initializer}
    for node in graph.node:
        transposed = next((attribute for attribute in node.attribute if attribute.name == "transB"), None)
        if node.op_type != "Gemm" or transposed is None or not transposed.i or node.input[1] not in constants:
            continue
        name = f"{node.input[1]}/transposed"
        if name not in constants:
            weight = numpy_helper.to_array(constants[node.input[1]]).T.copy()
            constants[name] = numpy_helper.from_array(weight, name)
            graph.initializer.append(constants[name])
        node.input[1] = name
        node.attribute.remove(transposed)
    drop_unread_tensors(graph)


def _plain_gemm_biases(graph: onnx.GraphProto) -> None:
    """Write each constant bias of a Gemm as a row: the quantizer scales it by channel and dies of `[1, n]`."""
    constants = {tensor.name: tensor for tensor in graph.initializer}
    fresh = FreshNames(names_in(graph))
    for node in graph.node:
        if node.op_type != "Gemm" or len(node.input) < 3 or not {*node.input[1:3]} <= constants.keys():
            continue
        bias, width = numpy_helper.to_array(constants[node.input[2]]), constants[node.input[1]].dims[-1]
        if bias.shape == (width,) or bias.ndim > 2 or (bias.ndim == 2 and bias.shape[0] != 1):
            continue  # one value for each sample is not the bias of a channel
        row = numpy_helper.from_array(np.broadcast_to(bias.reshape(-1), (width,)).copy(), fresh(f"{node.input[2]}/row"))
        graph.initializer.append(row)
        node.input[2] = row.name
    drop_unread_tensors(graph)


def _float_biases(graph: onnx.GraphProto) -> None:
    """Store biases as float32: 4 bytes for each channel, and not 12 for int32, its scale and its zero point.

    ONNX Runtime turns them into the same int32 when it loads the model (its WeightBiasQuantization, from 1.21), and
    fuses the same int8 kernels. Where it does not know that, the bias is added in float.
    """
    stored = {tensor.name: tensor for tensor in graph.initializer}
    for node in list(graph.node):
        tensor = stored.get(node.input[0]) if node.op_type == "DequantizeLinear" else None
        if tensor is None or tensor.data_type != onnx.TensorProto.INT32 or node.input[1] not in stored:
            continue
        bias = numpy_helper.to_array(tensor).astype("float64") * numpy_helper.to_array(stored[node.input[1]])
        graph.initializer.append(numpy_helper.from_array(bias.astype("float32"), node.output[0]))
        graph.node.remove(node)
    drop_unread_tensors(graph)


def _codes_for_halves(graph: onnx.GraphProto, floats: onnx.GraphProto) -> None:
    """Choose the codes of weights for the scales that half precision leaves of theirs.

    A scale that is rounded behind its codes moves each weight of its channel the same way:
    .6 dB on a MobileNetV1, over 200 photographs.
    """
    stored = {tensor.name: tensor for tensor in graph.initializer}
    whole = {f"{tensor.name}_quantized": tensor for tensor in floats.initializer}  # as the quantizer names them
    for node in graph.node:
        tensor = stored.get(node.input[0]) if node.op_type == "DequantizeLinear" else None
        if tensor is None or tensor.data_type != onnx.TensorProto.INT8 or tensor.name not in whole:
            continue
        if node.input[1] not in stored:
            continue
        codes, values = numpy_helper.to_array(tensor), numpy_helper.to_array(whole[tensor.name])
        exact = numpy_helper.to_array(stored[node.input[1]])
        scales = after_halving(exact)
        if values.shape != codes.shape or exact.ndim > 1 or not scales.all() or not np.isfinite(values).all():
            continue
        if exact.ndim and codes.ndim:
            axis = next((attribute.i for attribute in node.attribute if attribute.name == "axis"), 1)
            scales = scales.reshape([-1 if place == axis % codes.ndim else 1 for place in range(codes.ndim)])
        most = int(np.abs(codes.astype(np.int16)).max(initial=0))
        chosen = np.clip(np.rint(values / scales), -most, most).astype(np.int8)
        tensor.CopyFrom(numpy_helper.from_array(chosen, tensor.name))


def _fewer_bytes(graph: onnx.GraphProto) -> None:
    """Store the scales of weights, and biases, in half precision, and equal scalars once."""
    stored = {tensor.name for tensor in graph.initializer}
    scales = [node.input[1] for node in graph.node if node.op_type == "DequantizeLinear" and node.input[0] in stored]
    biases = [node.input[2] for node in graph.node if node.op_type in _WEIGHTED and len(node.input) > 2]
    halve(graph, [*scales, *biases])
    share_scalars(graph)


def _own_weights(graph: onnx.GraphProto) -> None:
    """Give each node a copy of the weights and the bias that it shares with another.

    ONNX Runtime 1.31 refuses a model with shared int8 weights in precise mode: its conversion to unsigned weights
    adds them once for each reader ("Attempt to replace the existing tensor"). Its quantizer copies shared biases
    itself, under a name with a number behind, which another value of the model may have.
    """
    constants = {tensor.name: tensor for tensor in graph.initializer}
    fresh = FreshNames(names_in(graph))
    seen: set[str] = set()
    for node in graph.node:
        for place, name in enumerate(node.input):
            if node.op_type not in _WEIGHTED or name not in constants:
                continue
            if len(constants[name].dims) < 2 and place != _BIAS:
                continue
            if name in seen:
                copy = onnx.TensorProto()
                copy.CopyFrom(constants[name])
                copy.name = fresh(f"{name}/of/{node.output[0]}")
                graph.initializer.append(copy)
                node.input[place] = copy.name
            seen.add(name)


def _name_nodes(graph: onnx.GraphProto) -> None:
    """Name the nodes that have no name: the quantizer tells nodes apart by it."""
    fresh = FreshNames(node.name for node in graph.node)
    for i, node in enumerate(graph.node):
        node.name = node.name or fresh(f"{node.op_type}_{i}")


def _quantizable() -> set[str]:
    from onnxruntime.quantization.registry import QDQRegistry, QLinearOpsRegistry

    return {*QLinearOpsRegistry, *QDQRegistry} - set(_FLOAT)
