"""Take out of biases by how much rounded weights shift the mean of what a layer gives.

Rounding errors of weights do not cancel where inputs have a mean: an output channel is shifted by the same amount in
every call, which its bias can take back. How much follows from the sums of what each layer reads in the float model,
which are added up while its ranges are found (Nagel et al. 2019, "Data-Free Quantization through Weight Equalization
and Bias Correction", the correction from data of their appendix). It helps most where weights have few values for each
channel, as in depthwise convolutions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import onnx
from onnx import numpy_helper

from edge_infer_converters.passes.graphs import FreshNames, names_in
from edge_infer_converters.passes.input_sums import InputSums, Layer, Window

if TYPE_CHECKING:
    from collections.abc import Sequence

#: The axis of a layer's weights that counts its output channels.
_CHANNELS = {"Conv": 0, "Gemm": 1}
_LEVELS, _REDUCED_LEVELS = 127, 63
_PADS = {"SAME_UPPER": "upper", "SAME_LOWER": "lower"}


class _Place(NamedTuple):
    node: int  # which of the graph
    layer: Layer


class Biases:
    """The biases of a model, which learn from the values that its layers read.

    Args:
        model: What `int8_static.prepare` returned.
        reduce_range: Whether weights will be kept within 7 bits.
    """

    def __init__(self, model: onnx.ModelProto, *, reduce_range: bool = False) -> None:
        self._model = model
        self._places = _places(model.graph, _REDUCED_LEVELS if reduce_range else _LEVELS)
        self._sums = InputSums(place.layer for place in self._places)

    def see(self, name: str, value: np.ndarray) -> None:
        """Learn from a value of one call."""
        self._sums.add(name, value)

    def corrected(self) -> onnx.ModelProto:
        """Return a copy of the model whose biases expect that its weights will be rounded to 8 bits."""
        made = onnx.ModelProto()
        made.CopyFrom(self._model)
        stored = {tensor.name: tensor for tensor in made.graph.initializer}
        fresh = FreshNames(names_in(made.graph))
        for place, shift in zip(self._places, self._sums.shifts([one.layer for one in self._places]), strict=True):
            node = made.graph.node[place.node]
            if shift is None or not shift.any():
                continue
            if len(node.input) > 2 and node.input[2]:
                bias = stored[node.input[2]]
                data = (numpy_helper.to_array(bias) - shift).astype(np.float32)
                bias.CopyFrom(numpy_helper.from_array(data, bias.name))
            else:
                name = fresh("bias")
                del node.input[2:]
                node.input.append(name)
                made.graph.initializer.append(numpy_helper.from_array((-shift).astype(np.float32), name))
        return made


def _places(graph: onnx.GraphProto, levels: int) -> list[_Place]:
    """List the layers whose weights are theirs alone and whose bias, if any, is one value for each channel."""
    stored = {tensor.name: tensor for tensor in graph.initializer}
    uses = [name for node in graph.node for name in node.input]
    found: list[_Place] = []
    for number, node in enumerate(graph.node):
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
        errors = _rounding_errors(numpy_helper.to_array(weight), axis, levels)
        if node.op_type == "Gemm":
            layer = Layer(node.input[0], errors.T)
        else:
            layer = Layer(node.input[0], np.moveaxis(errors, 1, -1), _window(settings, errors.shape[2:]), 1)
        found.append(_Place(number, layer))
    return found


def _window(settings: dict[str, onnx.AttributeProto], kernel: Sequence[int]) -> Window:
    """Return how a Conv's kernel moves."""
    strides, dilations = (
        tuple(settings[name].ints) if name in settings else (1,) * len(kernel) for name in ("strides", "dilations")
    )
    automatic = settings["auto_pad"].s.decode() if "auto_pad" in settings else ""
    if automatic in _PADS:
        return Window(tuple(kernel), strides, dilations, _PADS[automatic])
    given = tuple(settings["pads"].ints) if "pads" in settings and automatic != "VALID" else (0,) * 2 * len(kernel)
    pads = tuple(zip(given[: len(kernel)], given[len(kernel) :], strict=True))
    return Window(tuple(kernel), strides, dilations, pads)


def _rounding_errors(weight: np.ndarray, axis: int, levels: int) -> np.ndarray:
    """Return what rounding to one scale for each channel adds to weights."""
    others = tuple(i for i in range(weight.ndim) if i != axis)
    largest = np.abs(weight).max(axis=others, keepdims=True)
    scales = np.where(largest > 0, largest / levels, 1).astype(np.float32)
    errors: np.ndarray = (np.rint(weight / scales) * scales - weight).astype(np.float32)
    return errors
