"""Pooling: MaxPool and AveragePool over windows, and the global ones as reductions."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from ai_edge_litert import schema_py_generated as schema

from edge_infer_converters.writers.tflite.graph import Layout
from edge_infer_converters.writers.tflite.node import Unsupported
from edge_infer_converters.writers.tflite.windows import (
    Window,
    explicitly_padded,
    finish_image,
    give_image,
    image_of,
    padded,
    window_of,
)

if TYPE_CHECKING:
    from edge_infer_converters.writers.tflite.graph import Tensor
    from edge_infer_converters.writers.tflite.node import Node, Rule


def max_pool(node: Node) -> None:
    """Cells outside the image never win: SAME leaves them out, explicit padding holds the lowest float."""
    if node.gives(1):
        raise Unsupported("a second output, the indices")
    window = _pooling_window(node)
    kind = node.dtype()
    lowest = float(np.finfo(kind).min) if kind.kind == "f" else np.iinfo(kind).min
    image, padding = padded(node, image_of(node), window, lowest)
    _pool(node, "MAX_POOL_2D", image, window, padding)


def average_pool(node: Node) -> None:
    """TFLite divides by the cells inside the image, ONNX by all cells where `count_include_pad` is set."""
    window = _pooling_window(node)
    image = image_of(node)
    if not window.is_padded:
        _pool(node, "AVERAGE_POOL_2D", image, window, schema.Padding.VALID)
    elif node.integer("count_include_pad", 0):
        if node.integer("ceil_mode", 0):
            raise Unsupported("count_include_pad with ceil_mode")
        _pool(node, "AVERAGE_POOL_2D", explicitly_padded(node, image, window), window, schema.Padding.VALID)
    elif window.is_same:
        _pool(node, "AVERAGE_POOL_2D", image, window, schema.Padding.SAME)
    else:
        # The average over all cells, zeros outside, times (all cells / cells inside) at each place.
        padded_image = explicitly_padded(node, image, window)
        factor = node.stored("all/inside", _cells_ratio(window))
        _pool(node, "AVERAGE_POOL_2D", padded_image, window, schema.Padding.VALID, factor)


def global_average_pool(node: Node) -> None:
    """The mean over all places."""
    _global(node, "MEAN")


def global_max_pool(node: Node) -> None:
    """The maximum over all places."""
    _global(node, "REDUCE_MAX")


def _pooling_window(node: Node) -> Window:
    window = window_of(node, node.integers("kernel_shape", []))
    if window.dilations != (1, 1):
        raise Unsupported("dilations")
    return window


def _pool(node: Node, code: str, image: Tensor, window: Window, padding: int, factor: Tensor | None = None) -> None:
    options = schema.Pool2DOptionsT()
    options.padding = padding
    options.strideH, options.strideW = window.strides
    options.filterHeight, options.filterWidth = window.size
    result, output = give_image(node, node.rank())
    if factor is None:
        node.graph.add(code, [image], [result], options)
    else:
        average = node.scratch("average", result.signature)
        node.graph.add(code, [image], [average], options)
        node.graph.add("MUL", [average, factor], [result], schema.MulOptionsT())
    finish_image(node, result, output)


def _cells_ratio(window: Window) -> np.ndarray:
    """Return all cells / cells inside, for each place of the window: [1, height, width, 1]."""
    ratios = []
    for axis in (0, 1):
        before, after = window.pads[axis]
        size, stride = window.size[axis], window.strides[axis]
        inside = np.zeros(before + window.spatial[axis] + after)
        inside[before : before + window.spatial[axis]] = 1
        places = range(0, len(inside) - size + 1, stride)
        ratios.append(np.array([size / inside[place : place + size].sum() for place in places]))
    both: np.ndarray = np.outer(*ratios)[None, :, :, None].astype(np.float32)
    return both


def _global(node: Node, code: str) -> None:
    value = node.input(0, Layout.CHANNELS_LAST)
    axes = node.stored("axes", np.arange(1, value.rank - 1, dtype=np.int32))
    options = schema.ReducerOptionsT()
    options.keepDims = True
    node.graph.add(code, [value, axes], [node.output(0, Layout.CHANNELS_LAST)], options)


RULES: dict[str, Rule] = {
    "AveragePool": average_pool,
    "GlobalAveragePool": global_average_pool,
    "GlobalMaxPool": global_max_pool,
    "MaxPool": max_pool,
}
