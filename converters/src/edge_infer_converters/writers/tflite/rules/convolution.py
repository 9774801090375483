"""Conv, as CONV_2D or DEPTHWISE_CONV_2D."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from ai_edge_litert import schema_py_generated as schema

from edge_infer_converters.writers.tflite.node import Unsupported
from edge_infer_converters.writers.tflite.windows import finish_image, give_image, image_of, padded, window_of

if TYPE_CHECKING:
    from edge_infer_converters.writers.tflite.node import Node, Rule


def convolution(node: Node) -> None:
    """Weights [out, in / groups, height, width] become [out, height, width, in / groups]."""
    weights = node.needed_constant(1)
    if weights.dtype != np.float32:
        raise Unsupported(f"weights of type {weights.dtype}")
    window = window_of(node, weights.shape[2:])
    if weights.ndim == 3:
        weights = weights[:, :, None, :]
    count = len(weights)
    bias = node.needed_constant(2) if node.has_input(2) else np.zeros(count, np.float32)
    channels, groups = node.size(1), node.integer("group", 1)

    image, padding = padded(node, image_of(node), window)
    result, output = give_image(node, node.rank())
    if groups == channels and groups > 1:
        # [channels * multiplier, 1, h, w] -> [1, h, w, channels * multiplier], the order of outputs being the same
        kernel = node.graph.constant(node.inputs[1], weights.transpose(1, 2, 3, 0))
        depthwise = schema.DepthwiseConv2DOptionsT()
        depthwise.depthMultiplier = count // channels
        options, code, version = depthwise, "DEPTHWISE_CONV_2D", 1 if window.dilations == (1, 1) else 2
    else:
        kernel = node.graph.constant(node.inputs[1], weights.transpose(0, 2, 3, 1))
        options, code, version = schema.Conv2DOptionsT(), "CONV_2D", 1
    options.padding = padding
    options.strideH, options.strideW = window.strides
    options.dilationHFactor, options.dilationWFactor = window.dilations
    options.fusedActivationFunction = schema.ActivationFunctionType.NONE
    name = node.inputs[2] if node.has_input(2) else f"{node.name}/bias"
    node.graph.add(code, [image, kernel, node.graph.constant(name, bias)], [result], options, version)
    finish_image(node, result, output)


RULES: dict[str, Rule] = {"Conv": convolution}
