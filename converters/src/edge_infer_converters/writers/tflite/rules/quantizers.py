"""QuantizeLinear and DequantizeLinear with one scale for a tensor of 8-bit integers, which TFLite has signed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from ai_edge_litert import schema_py_generated as schema

from edge_infer_converters.writers.tflite.graph import Quantization
from edge_infer_converters.writers.tflite.node import Unsupported
from edge_infer_converters.writers.tflite.rules.elementwise import layout_of

if TYPE_CHECKING:
    from edge_infer_converters.writers.tflite.node import Node, Rule

_DEQUANTIZE_VERSION = 2


def quantize(node: Node) -> None:
    """Floats as integers, in one step."""
    if node.dtype() != np.float32:
        raise Unsupported(f"elements of {node.dtype()}")
    kind = node.output_dtype()
    if kind not in (np.int8, np.uint8):
        raise Unsupported(f"integers of {kind}")
    layout = layout_of(node)
    output = node.output(0, layout)
    output.quantization = meaning_of(node, kind)
    node.graph.add("QUANTIZE", [node.input(0, layout)], [output], schema.QuantizeOptionsT())


def dequantize(node: Node) -> None:
    """Give an input of the model its meaning too."""
    kind = node.dtype()
    if kind not in (np.int8, np.uint8):
        raise Unsupported(f"integers of {kind}")
    if node.output_dtype() != np.float32:
        raise Unsupported(f"elements of {node.output_dtype()}")
    layout = layout_of(node)
    source = node.input(0, layout)
    meaning = meaning_of(node, kind)
    if source.quantization is None:
        source.quantization = meaning
    elif not source.quantization.is_same(meaning):
        raise Unsupported("another scale than that of the quantizer before it")
    node.graph.add("DEQUANTIZE", [source], [node.output(0, layout)], schema.DequantizeOptionsT(), _DEQUANTIZE_VERSION)


def meaning_of(node: Node, kind: np.dtype) -> Quantization:
    """Read the scale and the zero point of a quantizer.

    Raises:
        Unsupported: They are computed, or there is one for each slice.
    """
    scale = node.needed_constant(1)
    zero_point = node.needed_constant(2) if node.has_input(2) else np.zeros((), kind)
    if scale.size != 1 or node.integer("block_size", 0):
        raise Unsupported("a scale for each slice of computed values")
    if scale.dtype != np.float32 or not np.isfinite(scale).all() or not (scale > 0).all():
        raise Unsupported(f"the scale {scale.reshape(-1)[0]} of {scale.dtype}")
    return Quantization(scale.reshape(1), int(zero_point.reshape(-1)[0]))


RULES: dict[str, Rule] = {"DequantizeLinear": dequantize, "QuantizeLinear": quantize}
