"""CONV_2D, DEPTHWISE_CONV_2D and TRANSPOSE_CONV, channels first."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from ai_edge_litert import schema_py_generated as schema

from edge_infer_converters.writers.from_tflite.builder import FIRST, Unsupported
from edge_infer_converters.writers.from_tflite.rules.hybrid import is_hybrid, rounded
from edge_infer_converters.writers.from_tflite.rules.windows import window

if TYPE_CHECKING:
    from edge_infer_converters.writers.from_tflite.builder import Node
    from edge_infer_converters.writers.from_tflite.rules import Rule


def convolution(node: Node) -> None:
    """Conv: weights [out, height, width, in] become [out, in, height, width]."""
    shape = node.tensor(1).shape
    if node.tensor(0).rank != 4 or node.tensor(0).shape[3] % shape[3]:
        raise Unsupported(f"an input of shape {node.tensor(0).shape}")
    _convolve(node, (0, 3, 1, 2), shape[1:3], node.tensor(0).shape[3] // shape[3])


def depthwise(node: Node) -> None:
    """Conv with a group for each channel: weights [1, height, width, out] become [out, 1, height, width]."""
    _convolve(node, (3, 0, 1, 2), node.tensor(1).shape[1:3], node.tensor(0).shape[3])


def _convolve(node: Node, order: tuple[int, ...], size: tuple[int, ...], groups: int) -> None:
    value = node.real(0, FIRST)
    if is_hybrid(node):
        value = rounded(node, value, 1, 2, 3)
    inputs = [value, node.builder.weight(node.tensor(1), order), *bias(node, 2)]
    more = {} if groups == 1 else {"group": groups}
    node.give_real(node.add("Conv", inputs, **window(node, size), **more), FIRST)


def transposed(node: Node) -> None:
    """ConvTranspose to the size in the file: weights [out, height, width, in] become [in, out, height, width]."""
    wanted, (height, width) = node.value(0).reshape(-1), node.tensor(1).shape[1:3]
    strides = (node.option("strideH"), node.option("strideW"))
    before, behind, more = [], [], []
    for inside, size, stride, out in zip(
        node.tensor(2).signature[1:3], (height, width), strides, wanted[1:3], strict=True
    ):
        if inside < 0:
            raise Unsupported("a free size")
        full = (inside - 1) * stride + size
        cut = max(full - int(out), 0) if node.option("padding") == schema.Padding.SAME else 0
        before.append(cut // 2)
        behind.append(cut - cut // 2)
        more.append(int(out) - (full - cut))
    pads = [*before, *(back - extra for back, extra in zip(behind, more, strict=True))]
    if node.is_quantized(1) and not node.is_quantized(2):
        raise Unsupported("dynamic-range weights")
    inputs = [node.real(2, FIRST), node.builder.weight(node.tensor(1), (3, 0, 1, 2)), *bias(node, 3, 2)]
    if min(pads) < 0:
        at_end = [-min(pads[2], 0), -min(pads[3], 0)]
        sizes = {"pads": [max(pad, 0) for pad in pads], "output_padding": at_end}
    else:
        sizes = {"pads": pads}
    node.give_real(
        node.add("ConvTranspose", inputs, strides=list(strides), kernel_shape=[height, width], **sizes), FIRST
    )


def bias(node: Node, index: int, value: int = 0, weights: int = 1) -> list[str]:
    """Return the bias as real numbers, an empty list where there is none: its scale is that of values times weights."""
    if not node.has(index):
        return []
    found = node.builder.source_of(node.tensor(index))
    if found.data is None or found.dtype.kind == "f":
        return [node.real(index)]
    values, filters = node.tensor(value).quantization, node.tensor(weights).quantization
    if values is None or filters is None:
        return [node.real(index)]
    scales = (values.scales.astype(np.float64) * filters.scales.astype(np.float64)).astype(np.float32)
    if found.dtype == np.int64:  # DequantizeLinear has none: of 16-bit values, and larger than float32 tells apart
        wide = found.data.astype(np.float64) * scales.astype(np.float64)
        return [node.builder.constant(wide.astype(np.float32), found.name)]
    return [node.builder.dequantize(node.stored(index), scales, 0, found.dtype, 0, found.name)]


RULES: dict[str, Rule] = {"CONV_2D": convolution, "DEPTHWISE_CONV_2D": depthwise, "TRANSPOSE_CONV": transposed}
