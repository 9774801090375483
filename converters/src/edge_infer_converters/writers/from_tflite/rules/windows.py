"""Windows over images: strides, dilations and padding of TFLite as attributes of ONNX."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ai_edge_litert import schema_py_generated as schema

if TYPE_CHECKING:
    from collections.abc import Sequence

    from edge_infer_converters.writers.from_tflite.builder import Node


def window(node: Node, size: Sequence[int], image: int = 0) -> dict[str, Any]:
    """Return the attributes of a window; SAME pads one more cell behind than before, as ONNX's SAME_UPPER does."""
    strides = [node.option("strideH"), node.option("strideW")]
    dilations = [node.option("dilationHFactor", 1) or 1, node.option("dilationWFactor", 1) or 1]
    found: dict[str, Any] = {"kernel_shape": list(size), "strides": strides}
    if dilations != [1, 1]:
        found["dilations"] = dilations
    if node.option("padding") != schema.Padding.SAME:
        return found
    spatial = node.tensor(image).signature[1:3]
    if -1 in spatial:
        return {**found, "auto_pad": "SAME_UPPER"}
    before, behind = [], []
    for inside, width, stride, dilation in zip(spatial, size, strides, dilations, strict=True):
        total = max((-(-inside // stride) - 1) * stride + (width - 1) * dilation + 1 - inside, 0)
        before.append(total // 2)
        behind.append(total - total // 2)
    return {**found, "pads": [*before, *behind]}
