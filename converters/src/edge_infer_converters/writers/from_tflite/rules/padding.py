"""PAD, PADV2 and MIRROR_PAD; integers are padded by their zero point."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from edge_infer_converters.writers.from_tflite.builder import FIRST, Unsupported

if TYPE_CHECKING:
    from edge_infer_converters.writers.from_tflite.builder import Node
    from edge_infer_converters.writers.from_tflite.rules import Rule

_TO_FIRST = [0, 3, 1, 2]


def pad(node: Node) -> None:
    """Pad by zeros."""
    source = node.tensor(0)
    zero = 0 if source.quantization is None else source.quantization.zero_point
    value = node.builder.constant(np.asarray(zero, source.dtype.newbyteorder("=")), "zero")
    _pad(node, [value])


def pad_v2(node: Node) -> None:
    """Pad by a value."""
    _pad(node, [node.add("Reshape", [node.stored(2), node.builder.constant(np.zeros(0, np.int64), "scalar")])])


def mirror_pad(node: Node) -> None:
    """Pad by reflection; SYMMETRIC is not in ONNX."""
    if node.option("mode"):
        raise Unsupported("mode SYMMETRIC")
    _pad(node, [], mode="reflect")


def _pad(node: Node, value: list[str], **attributes: str) -> None:
    if not node.is_same_meaning(0):
        raise Unsupported("an output of another scale")
    layout = node.layout(0)
    pads = node.value(1).reshape(-1, 2).astype(np.int64)
    if layout == FIRST:
        pads = pads[_TO_FIRST]
    places = node.builder.constant(pads.T.reshape(-1), "pads")
    node.give(node.add("Pad", [node.stored(0, layout), places, *value], **attributes), layout)


RULES: dict[str, Rule] = {"MIRROR_PAD": mirror_pad, "PAD": pad, "PADV2": pad_v2}
