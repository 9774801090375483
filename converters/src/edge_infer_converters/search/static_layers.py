"""Measure what each layer of static int8 brings into the outputs: it alone in 8 bits, weights and input.

One session does it for all layers: what a layer reads, and its weights, pass through 8 bits where a flag says so. The
scales are those of the files: one for each tensor of values, from the calibration data, and one for each output channel
of weights. Kernels add in integers what is added in float here, which changes nothing that a table would show.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import onnx
from onnx import helper, numpy_helper

from edge_infer_converters.data.reference_outputs import decibels, noise
from edge_infer_converters.engine import make_session
from edge_infer_converters.passes import packing
from edge_infer_converters.passes.int8_static import prepare
from edge_infer_converters.passes.ranges import activation_ranges
from edge_infer_converters.search.layers import Layer

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from edge_infer_converters.passes.ranges import Range
    from edge_infer_converters.report.reporter import Reporter

    Calls = Sequence[Mapping[str, np.ndarray]]

#: How many inputs each layer runs on.
CALLS = 8
#: The axis of the output channels in a layer's weights; the last for products.
_CHANNELS = {"Conv": 0, "ConvTranspose": 1}


class _Flagged(NamedTuple):
    label: str
    flag: str


def static_layers(
    model: onnx.ModelProto, calls: Calls, reporter: Reporter, method: str = "minmax"
) -> tuple[Layer, ...]:
    """Return the layers of static int8, those that bring most error first.

    Args:
        model: The source after `clean_up`.
        calls: Inputs that give values their ranges; the first of them measure each layer.
        reporter: The receiver of progress.
        method: How ranges are found, one of `ranges.METHODS`.
    """
    prepared = prepare(model)
    ranges = {name: one for name, one in activation_ranges(prepared, calls, method).items() if one.is_finite}
    names = [value.name for value in prepared.graph.output]
    layers = _flagged(prepared, ranges)
    if not layers:
        return ()
    session = make_session(prepared.SerializeToString(), "the model with layers in 8 bits to choose")
    off = {layer.flag: np.array(False) for layer in layers}

    def run(flags: Mapping[str, np.ndarray]) -> list[dict[str, np.ndarray]]:
        results = [session.run(names, {**call, **off, **flags}) for call in calls[:CALLS]]
        return [dict(zip(names, result, strict=True)) for result in results]

    references = run({})
    found: list[tuple[float, str]] = []
    with reporter.progress(f"Measuring {len(layers)} layers in int8", len(layers)) as advance:
        for layer in layers:
            found.append((noise(references, run({layer.flag: np.array(True)})), layer.label))
            advance(1)
    total = sum(error for error, _ in found)
    return tuple(
        Layer(label, "int8", decibels(error), error / total if total else 0.0, "int8 was asked for, whatever it costs")
        for error, label in sorted(found, key=lambda one: -one[0])
    )


def _flagged(model: onnx.ModelProto, ranges: Mapping[str, Range]) -> list[_Flagged]:
    """Let each layer of a model pass through 8 bits where its flag is set; the model is changed."""
    graph = model.graph
    stored = {tensor.name: tensor for tensor in graph.initializer}
    nodes: list[onnx.NodeProto] = []
    layers: list[_Flagged] = []
    for node in graph.node:
        if node.op_type in ("Conv", "ConvTranspose", "Gemm", "MatMul") and len(node.input) > 1:
            weight = stored.get(node.input[1])
            if weight is not None and weight.data_type == onnx.TensorProto.FLOAT and node.input[0] in ranges:
                flag = f"{node.name}/in 8 bits"
                layers.append(_Flagged(node.name, flag))
                nodes += _rounded_value(graph, node, flag, ranges[node.input[0]])
                nodes.append(_rounded_weight(graph, node, flag, numpy_helper.to_array(weight)))
        nodes.append(node)
    copies = [onnx.NodeProto.FromString(node.SerializeToString()) for node in nodes]
    del graph.node[:]
    graph.node.extend(copies)
    graph.input.extend(helper.make_tensor_value_info(one.flag, onnx.TensorProto.BOOL, []) for one in layers)
    return layers


def _rounded_value(graph: onnx.GraphProto, node: onnx.NodeProto, flag: str, span: Range) -> list[onnx.NodeProto]:
    """Return nodes that round what a layer reads to its range in 256 steps, and make it read their result."""
    value = node.input[0]
    scale = max((span.high - span.low) / 255, float(np.finfo(np.float32).tiny))
    zero = int(np.clip(round(-span.low / scale), 0, 255))
    codes, back, chosen, scales, zeros = (f"{flag}/{part}" for part in ("codes", "back", "value", "scale", "zero"))
    graph.initializer.append(numpy_helper.from_array(np.array(scale, np.float32), scales))
    graph.initializer.append(numpy_helper.from_array(np.array(zero, np.uint8), zeros))
    node.input[0] = chosen
    return [
        helper.make_node("QuantizeLinear", [value, scales, zeros], [codes]),
        helper.make_node("DequantizeLinear", [codes, scales, zeros], [back]),
        helper.make_node("Where", [flag, back, value], [chosen]),
    ]


def _rounded_weight(graph: onnx.GraphProto, node: onnx.NodeProto, flag: str, values: np.ndarray) -> onnx.NodeProto:
    """Return the node that chooses between a layer's weights and the same in 8 bits, and make it read its result."""
    axis = _CHANNELS.get(node.op_type, values.ndim - 1)
    rounded = packing.unpack_slices(packing.pack_slices(values, axis))
    graph.initializer.append(numpy_helper.from_array(rounded, f"{flag}/weights"))
    whole, node.input[1] = node.input[1], f"{flag}/weight"
    return helper.make_node("Where", [flag, f"{flag}/weights", whole], [f"{flag}/weight"])
