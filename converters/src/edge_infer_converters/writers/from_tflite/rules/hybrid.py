"""Dynamic-range operators: TFLite rounds the values to 8 bits at run time where only the weights are integers.

The arithmetic is that of tensorflow/lite/kernels/internal/tensor_utils: PortableSymmetricQuantizeFloats and
PortableAsymmetricQuantizeFloats.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from edge_infer_converters.writers.from_tflite.builder import Node


def is_hybrid(node: Node, weights: int = 1) -> bool:
    """Tell whether an operator has float values and integer weights."""
    source = node.builder.source_of(node.tensor(weights))
    return (
        source is node.tensor(weights)
        and source.quantization is not None
        and node.tensor(0).quantization is None
        and source.dtype.kind in "iu"
    )


def rounded(node: Node, value: str, *axes: int) -> str:
    """Round values to 255 steps, from minus to plus the largest along the axes, or between both ends."""
    build = node.builder

    def number(value: float) -> str:
        return build.constant(np.asarray(value, np.float32), "number")

    places = build.integers(*axes)
    if not node.option("asymmetricQuantizeInputs", False):
        largest = node.add("ReduceMax", [node.add("Abs", [value]), places], keepdims=1)
        step = node.add("Max", [node.add("Div", [largest, number(127)]), number(1e-30)])
        return node.add("Mul", [node.add("Round", [node.add("Div", [value, step])]), step])
    low = node.add("Min", [node.add("ReduceMin", [value, places], keepdims=1), number(0)])
    high = node.add("Max", [node.add("ReduceMax", [value, places], keepdims=1), number(0)])
    step = node.add("Max", [node.add("Div", [node.add("Sub", [high, low]), number(255)]), number(1e-30)])
    zero = node.add("Round", [node.add("Sub", [number(-128), node.add("Div", [low, step])])])
    steps = node.add("Round", [node.add("Add", [node.add("Div", [value, step]), zero])])
    clipped = node.add("Clip", [steps, number(-128), number(127)])
    return node.add("Mul", [node.add("Sub", [clipped, zero]), step])
