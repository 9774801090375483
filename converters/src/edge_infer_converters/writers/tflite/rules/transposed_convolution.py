"""ConvTranspose, as TRANSPOSE_CONV without padding, of which the padding is cut off."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from ai_edge_litert import schema_py_generated as schema

from edge_infer_converters.writers.tflite.formulas import Formula
from edge_infer_converters.writers.tflite.graph import Layout, Tensor
from edge_infer_converters.writers.tflite.node import BatchDependent, Unsupported

if TYPE_CHECKING:
    from edge_infer_converters.writers.tflite.node import Node, Rule


def transposed_convolution(node: Node) -> None:
    """Weights [in, out / groups, height, width] become [out, height, width, in]."""
    weights = node.needed_constant(1)
    rank = weights.ndim - 2
    if rank not in (1, 2) or weights.dtype != np.float32:
        raise Unsupported(f"{rank} spatial dimensions of {weights.dtype}")
    if node.signature()[0] == -1:
        raise BatchDependent(node.inputs[0])  # TRANSPOSE_CONV stores its output's shape
    weights = _spread(weights, node.integers("dilations", [1] * rank))
    strides = node.integers("strides", [1] * rank)
    output = [node.output_signature()[axis] for axis in range(2, 2 + rank)]
    full = [
        (size - 1) * stride + reach
        for size, stride, reach in zip(node.sizes(slice(2, None)), strides, weights.shape[2:], strict=True)
    ]
    starts = _cut_before(node, full, output)

    f, image = Formula(node), node.input(0, Layout.CHANNELS_LAST)
    if rank == 1:
        batch, width, channels = image.signature
        image = f.reshape(image, (batch, 1, width, channels))
        weights, strides, full, starts, output = (
            weights[:, :, None],
            [1, *strides],
            [1, *full],
            [0, *starts],
            [1, *output],
        )
    groups = node.integer("group", 1)
    parts = [
        _one_group(f, f.slice(image, 3, start, start + len(kernel)), kernel, strides, full)
        for start, kernel in zip(
            range(0, len(weights), len(weights) // groups), np.split(weights, groups), strict=False
        )
    ]
    result = f.concatenate(parts, 3)
    for axis, (start, size, wanted) in enumerate(zip(starts, full, output, strict=True), start=1):
        result = f.slice(result, axis, start, min(start + wanted, size))
    missing = [max(start + wanted - size, 0) for start, size, wanted in zip(starts, full, output, strict=True)]
    if any(missing):
        pads = f.constant(np.array([(0, 0), (0, missing[0]), (0, missing[1]), (0, 0)], np.int32))
        signature = (image.signature[0], *output, result.signature[3])
        result = f.operator("PAD", [result, pads], signature, options=schema.PadOptionsT())
    if node.has_input(2):
        result = f.add(result, node.input(2))
    if rank == 1:
        result = f.reshape(result, (result.signature[0], *result.signature[2:]))
    node.give(result, Layout.CHANNELS_LAST)


def _one_group(f: Formula, image: Tensor, kernel: np.ndarray, strides: list[int], full: list[int]) -> Tensor:
    options = schema.TransposeConvOptionsT()
    options.padding = schema.Padding.VALID
    options.strideH, options.strideW = strides
    options.fusedActivationFunction = schema.ActivationFunctionType.NONE
    signature = (image.signature[0], *full, kernel.shape[1])
    inputs = [f.integers(signature), f.constant(kernel.transpose(1, 2, 3, 0)), image]
    return f.operator("TRANSPOSE_CONV", inputs, signature, np.dtype(np.float32), options)


def _spread(weights: np.ndarray, dilations: list[int]) -> np.ndarray:
    """Put zeros between the cells of a dilated kernel."""
    spatial = [(size - 1) * step + 1 for size, step in zip(weights.shape[2:], dilations, strict=True)]
    spread = np.zeros((*weights.shape[:2], *spatial), weights.dtype)
    spread[(slice(None), slice(None), *(slice(None, None, step) for step in dilations))] = weights
    return spread


def _cut_before(node: Node, full: list[int], output: list[int]) -> list[int]:
    """Return how many cells are cut off in front along each axis; ONNX's table of ConvTranspose."""
    rank = len(full)
    auto = node.text("auto_pad", "NOTSET")
    if auto == "NOTSET" and not node.has_attribute("output_shape"):
        return node.integers("pads", [0] * 2 * rank)[:rank]
    extra = node.integers("output_padding", [0] * rank)
    totals = [max(size + more - wanted, 0) for size, more, wanted in zip(full, extra, output, strict=True)]
    return [total // 2 if auto == "SAME_UPPER" else total - total // 2 for total in totals]


RULES: dict[str, Rule] = {"ConvTranspose": transposed_convolution}
