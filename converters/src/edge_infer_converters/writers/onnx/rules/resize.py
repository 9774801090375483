"""RESIZE_BILINEAR and RESIZE_NEAREST_NEIGHBOR."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from edge_infer_converters.writers.onnx.rules.reading import constant, option, tensor

if TYPE_CHECKING:
    from edge_infer_converters.writers.onnx.graph import Graph
    from edge_infer_converters.writers.tflite.graph import Operator


def resize(operator: Operator, graph: Graph) -> None:
    """To a constant size, with TFLite's three ways of placing pixels."""
    given, output = tensor(operator, 0), operator.outputs[0]
    height, width = (int(size) for size in constant(operator, 1).reshape(-1))
    is_nearest = operator.code == "RESIZE_NEAREST_NEIGHBOR"
    mode, rounding = "asymmetric", "floor"
    if option(operator, "alignCorners", default=False):
        mode, rounding = "align_corners", "round_prefer_ceil"
    elif option(operator, "halfPixelCenters", default=False):
        mode, rounding = "half_pixel", "round_prefer_ceil"  # floor((x + .5) scale) is that: halves go up
    value = graph.real(given, first=True)
    factors = graph.constant(np.array([1, 1, height / given.shape[1], width / given.shape[2]], np.float32))
    if -1 in given.signature[1:3]:
        batch = graph.node("Slice", [graph.node("Shape", [value]), graph.integers(0), graph.integers(2)])
        sizes = graph.node("Concat", [batch, graph.integers(height, width)], axis=0)
        inputs = [value, "", "", sizes]
    else:
        inputs = [value, "", factors]
    modes: dict[str, Any] = {"mode": "linear", "coordinate_transformation_mode": mode}
    if is_nearest:
        modes |= {"mode": "nearest", "nearest_mode": rounding}
    result = graph.node("Resize", inputs, **modes)
    graph.give(output, result, first=True)


RULES = {"RESIZE_BILINEAR": resize, "RESIZE_NEAREST_NEIGHBOR": resize}
