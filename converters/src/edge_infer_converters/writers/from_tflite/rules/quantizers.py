"""QUANTIZE, DEQUANTIZE and CAST."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from onnx import helper

from edge_infer_converters.writers.from_tflite.builder import Unsupported

if TYPE_CHECKING:
    from edge_infer_converters.writers.from_tflite.builder import Node
    from edge_infer_converters.writers.from_tflite.rules import Rule

_WIDE = 4


def quantize(node: Node) -> None:
    """QuantizeLinear; from one scale to another by way of real numbers."""
    if node.output.dtype.itemsize >= _WIDE:
        found = node.output.quantization
        if found is None or len(found.scales) != 1:
            raise Unsupported(f"an output of {node.output.dtype} without one scale")
        # TFLite's int32: no QuantizeLinear has it.
        scale = node.builder.constant(np.asarray(found.scales[0], np.float32), "scale")
        rounded = node.add("Round", [node.add("Div", [node.real(0), scale])])
        node.give(node.add("Cast", [rounded], to=helper.np_dtype_to_tensor_dtype(node.output.dtype)))
        return
    layout = node.layout(0)
    node.give_real(node.real(0, layout), layout)


def dequantize(node: Node) -> None:
    """DequantizeLinear; weights in float16 become Cast."""
    source = node.tensor(0)
    if source.data is not None:
        node.builder.set_alias(node.output, source)
        return
    layout = node.layout(0)
    if source.dtype == np.float16:
        node.give(node.add("Cast", [node.stored(0, layout)], to=1), layout)
    else:
        node.give(node.real(0, layout), layout)


def cast(node: Node) -> None:
    """Cast."""
    layout = node.layout(0)
    kind = helper.np_dtype_to_tensor_dtype(node.output.dtype)
    node.give(node.add("Cast", [node.stored(0, layout)], to=kind), layout)


RULES: dict[str, Rule] = {"CAST": cast, "DEQUANTIZE": dequantize, "QUANTIZE": quantize}
