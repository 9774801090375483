"""Convolutions and pools, channels first."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ai_edge_litert import schema_py_generated as schema

from edge_infer.errors import UnsupportedModel
from edge_infer_converters.writers.onnx.rules.hybrid import rounded
from edge_infer_converters.writers.onnx.rules.reading import has_same_scale, option, optional, tensor

if TYPE_CHECKING:
    from edge_infer_converters.writers.onnx.graph import Graph
    from edge_infer_converters.writers.tflite.graph import Operator, Tensor


def convolution(operator: Operator, graph: Graph) -> None:
    """Weights [out, height, width, in / groups] become [out, in / groups, height, width]."""
    kernel = tensor(operator, 1)
    groups = tensor(operator, 0).shape[3] // kernel.shape[3]
    _convolve(operator, graph, graph.weights(kernel, (0, 3, 1, 2)), groups)


def volumes(operator: Operator, graph: Graph) -> None:
    """Weights [depth, height, width, in, out] become [out, in, depth, height, width], of an image with depth."""
    image, kernel, output = tensor(operator, 0), tensor(operator, 1), operator.outputs[0]
    if -1 in image.signature[1:4] or image.quantization is not None:
        raise UnsupportedModel("windows over volumes of a free size, or of integers")
    ends = ("D", "H", "W")
    strides = tuple(option(operator, f"stride{one}") for one in ends)
    dilations = tuple(option(operator, f"dilation{one}Factor", 1) for one in ends)
    inputs = [
        graph.node("Transpose", [graph.real(image)], perm=(0, 4, 1, 2, 3)),
        graph.weights(kernel, (4, 3, 0, 1, 2)),
    ]
    if (bias := optional(operator, 2)) is not None:
        inputs.append(graph.real(bias))
    padding = _padding(operator, image, kernel.shape[:3], strides, dilations)
    value = graph.node("Conv", inputs, kernel_shape=kernel.shape[:3], strides=strides, dilations=dilations, **padding)
    value = graph.activated(value, option(operator, "fusedActivationFunction"), output)
    graph.give(output, graph.node("Transpose", [value], perm=(0, 2, 3, 4, 1)))


def depthwise(operator: Operator, graph: Graph) -> None:
    """Weights [1, height, width, channels * multiplier] become [channels * multiplier, 1, height, width]."""
    _convolve(operator, graph, graph.weights(tensor(operator, 1), (3, 0, 1, 2)), tensor(operator, 0).shape[3])


def _convolve(operator: Operator, graph: Graph, kernel: str, groups: int) -> None:
    image, output = tensor(operator, 0), operator.outputs[0]
    size = tensor(operator, 1).shape[1:3]
    strides = (option(operator, "strideH"), option(operator, "strideW"))
    dilations = (option(operator, "dilationHFactor", 1), option(operator, "dilationWFactor", 1))
    value = rounded(operator, graph, graph.real(image, first=True), 1, 2, 3, is_window=True)
    inputs = [value, kernel]
    if (bias := optional(operator, 2)) is not None:
        inputs.append(graph.real(bias))
    padding = _padding(operator, image, size, strides, dilations)
    result = graph.node(
        "Conv", inputs, group=groups, kernel_shape=size, strides=strides, dilations=dilations, **padding
    )
    _finish(operator, graph, result, output)


def _padding(
    operator: Operator,
    image: Tensor,
    size: tuple[int, ...],
    strides: tuple[int, ...],
    dilations: tuple[int, ...] = (1, 1),
) -> dict[str, Any]:
    """Return the attribute: of a known size the numbers, as ONNX Runtime has no `auto_pad` with dilations."""
    if option(operator, "padding") == schema.Padding.VALID or all(one == 1 for one in size):
        return {}
    if -1 in image.signature[1 : 1 + len(size)]:
        if dilations != (1, 1):
            raise UnsupportedModel("padding `SAME` of dilated windows over a free size")
        if any(window < stride for window, stride in zip(size, strides, strict=True)):
            raise UnsupportedModel("padding `SAME` of windows with gaps between them over a free size")
        return {"auto_pad": "SAME_UPPER"}
    before, after = [], []
    for extent, window, stride, dilation in zip(image.shape[1:], size, strides, dilations, strict=False):
        total = max((-(-extent // stride) - 1) * stride + (window - 1) * dilation + 1 - extent, 0)
        before.append(total // 2)
        after.append(total - total // 2)
    return {"pads": [*before, *after]}


def _finish(operator: Operator, graph: Graph, value: str, output: Tensor) -> None:
    graph.give(output, graph.activated(value, option(operator, "fusedActivationFunction"), output), first=True)


def transposed(operator: Operator, graph: Graph) -> None:
    """Weights [out, height, width, in] become [in, out, height, width]; a batch may be computed."""
    kernel, image, output = tensor(operator, 1), tensor(operator, 2), operator.outputs[0]
    named = tensor(operator, 0).data
    wanted = output.signature if named is None else named.tolist()
    strides = (option(operator, "strideH"), option(operator, "strideW"))
    if -1 in (*image.signature[1:3], *wanted[1:3]):
        raise UnsupportedModel("a transposed convolution over a free size")
    before, after, more = [], [], []
    for extent, window, stride, size in zip(image.shape[1:3], kernel.shape[1:3], strides, wanted[1:3], strict=True):
        total = (extent - 1) * stride + window - size
        before.append(max(total, 0) // 2)
        after.append(max(total, 0) - max(total, 0) // 2)
        more.append(max(-total, 0))
    inputs = [graph.real(image, first=True), graph.weights(kernel, (3, 0, 1, 2))]
    if (bias := optional(operator, 3)) is not None:
        inputs.append(graph.real(bias))
    given: dict[str, Any] = {
        "pads": [*before, *after],
        "output_padding": more,
        "strides": strides,
        "kernel_shape": kernel.shape[1:3],
    }
    _finish(operator, graph, graph.node("ConvTranspose", inputs, **given), output)


def pool(operator: Operator, graph: Graph) -> None:
    """The average leaves padding out; the largest of integers is taken as it is stored."""
    image, output = tensor(operator, 0), operator.outputs[0]
    size = (option(operator, "filterHeight"), option(operator, "filterWidth"))
    strides = (option(operator, "strideH"), option(operator, "strideW"))
    given: dict[str, Any] = {"kernel_shape": size, "strides": strides, **_padding(operator, image, size, strides)}
    if operator.code == "AVERAGE_POOL_2D":
        _finish(operator, graph, graph.node("AveragePool", [graph.real(image, first=True)], **given), output)
        return
    is_stored = image.dtype.name in ("int8", "uint8") and has_same_scale(image, output)
    if is_stored and option(operator, "fusedActivationFunction") == schema.ActivationFunctionType.NONE:
        graph.give_raw(output, graph.node("MaxPool", [graph.raw(image, first=True)], **given), first=True)
        return
    _finish(operator, graph, graph.node("MaxPool", [graph.real(image, first=True)], **given), output)


RULES = {
    "CONV_2D": convolution,
    "DEPTHWISE_CONV_2D": depthwise,
    "CONV_3D": volumes,
    "TRANSPOSE_CONV": transposed,
    "AVERAGE_POOL_2D": pool,
    "MAX_POOL_2D": pool,
}
