"""Take out of biases by how much rounded weights shift the mean of what a layer gives.

Rounding errors of weights do not cancel where inputs have a mean: an output channel is shifted by the same amount in
every call, which its bias can take back. How much is measured: each layer is run on its float inputs by the weights'
rounding errors alone (Nagel et al. 2019, "Data-Free Quantization through Weight Equalization and Bias Correction", the
correction from data of their appendix). It helps where weights have few values for each channel, as in depthwise
convolutions, and may harm elsewhere: the caller compares.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import onnx
from onnx import numpy_helper

from edge_infer_converters.passes.graphs import FreshNames, drop_stored_shapes, names_in
from edge_infer_converters.passes.sessions import session_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

#: The axis of a layer's weights that counts its output channels.
_CHANNELS = {"Conv": 0, "Gemm": 1}
_LEVELS, _REDUCED_LEVELS = 127, 63


class _Layer(NamedTuple):
    node: onnx.NodeProto
    error: np.ndarray  # of the rounded weights
    shift: str  # the name of the value that they alone give


def correct_biases(
    model: onnx.ModelProto, calls: Sequence[Mapping[str, np.ndarray]], *, reduce_range: bool = False
) -> onnx.ModelProto:
    """Return a copy of a float model whose biases expect that its weights will be rounded to 8 bits.

    Args:
        model: What `int8_static.prepare` returned.
        calls: Typical inputs.
        reduce_range: Whether weights will be kept within 7 bits.
    """
    corrected = onnx.ModelProto()
    corrected.CopyFrom(model)
    layers = _layers(corrected, _REDUCED_LEVELS if reduce_range else _LEVELS)
    if not layers:
        return corrected
    shifts = _shifts(corrected, layers, calls)
    stored = {tensor.name: tensor for tensor in corrected.graph.initializer}
    for layer in layers:
        node, shift = layer.node, shifts[layer.shift]
        if not np.isfinite(shift).all():
            continue
        if len(node.input) > 2 and node.input[2]:
            bias = stored[node.input[2]]
            bias.CopyFrom(numpy_helper.from_array((numpy_helper.to_array(bias) - shift).astype(np.float32), bias.name))
        else:
            name = f"{layer.shift}/bias"
            del node.input[2:]
            node.input.append(name)
            corrected.graph.initializer.append(numpy_helper.from_array((-shift).astype(np.float32), name))
    return corrected


def _layers(model: onnx.ModelProto, levels: int) -> list[_Layer]:
    """List the layers whose weights are theirs alone and whose bias, if any, is one value for each channel."""
    graph = model.graph
    stored = {tensor.name: tensor for tensor in graph.initializer}
    uses = [name for node in graph.node for name in node.input]
    fresh = FreshNames(names_in(graph))
    found: list[_Layer] = []
    for node in graph.node:
        axis = _CHANNELS.get(node.op_type)
        if axis is None or node.input[1] not in stored or uses.count(node.input[1]) != 1:
            continue
        settings = {one.name: one for one in node.attribute}
        is_plain = all(settings[name].f == 1 for name in ("alpha", "beta") if name in settings)
        is_turned = any(name in settings and settings[name].i for name in ("transA", "transB"))
        weight = stored[node.input[1]]
        if weight.data_type != onnx.TensorProto.FLOAT or is_turned or not is_plain:
            continue
        channels = weight.dims[axis]
        bias = node.input[2] if len(node.input) > 2 else ""
        if bias and (bias not in stored or list(stored[bias].dims) != [channels] or uses.count(bias) != 1):
            continue
        found.append(_Layer(node, _rounding_error(numpy_helper.to_array(weight), axis, levels), fresh("shift")))
    return found


def _rounding_error(weight: np.ndarray, axis: int, levels: int) -> np.ndarray:
    """Return what rounding to one scale for each channel adds to weights."""
    others = tuple(i for i in range(weight.ndim) if i != axis)
    largest = np.abs(weight).max(axis=others, keepdims=True)
    scales = np.where(largest > 0, largest / levels, 1).astype(np.float32)
    error: np.ndarray = (np.rint(weight / scales) * scales - weight).astype(np.float32)
    return error


def _shifts(
    model: onnx.ModelProto, layers: Sequence[_Layer], calls: Sequence[Mapping[str, np.ndarray]]
) -> dict[str, np.ndarray]:
    """Return the mean of what the rounding errors of each layer give, by channel."""
    opened = onnx.ModelProto()
    opened.CopyFrom(model)
    drop_stored_shapes(opened.graph)
    for layer in layers:
        twin = onnx.NodeProto()
        twin.CopyFrom(layer.node)
        errors = f"{layer.shift}/errors"
        opened.graph.initializer.append(numpy_helper.from_array(layer.error, errors))
        del twin.input[1:]
        twin.input.append(errors)
        twin.output[0], twin.name = layer.shift, layer.shift
        place = next(i for i, node in enumerate(opened.graph.node) if node.output[:1] == layer.node.output[:1])
        opened.graph.node.insert(place, twin)
        opened.graph.output.append(onnx.ValueInfoProto(name=layer.shift))
    names = [layer.shift for layer in layers]
    session = session_of(opened, "the model with the rounding errors of its weights as outputs")
    sums: dict[str, np.ndarray] = {}
    counts: dict[str, int] = {}
    for call in calls:
        for name, value in zip(names, session.run(names, dict(call)), strict=True):
            by_channel = np.moveaxis(value, 1, 0).reshape(value.shape[1], -1).astype(np.float64)
            sums[name] = sums.get(name, 0) + by_channel.sum(axis=1)
            counts[name] = counts.get(name, 0) + by_channel.shape[1]
    return {name: sums[name] / max(counts[name], 1) for name in names}
