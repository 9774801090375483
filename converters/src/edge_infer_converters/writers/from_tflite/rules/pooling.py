"""Pooling over windows, channels first."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edge_infer_converters.writers.from_tflite.builder import FIRST
from edge_infer_converters.writers.from_tflite.rules.windows import window

if TYPE_CHECKING:
    from edge_infer_converters.writers.from_tflite.builder import Node
    from edge_infer_converters.writers.from_tflite.rules import Rule


def max_pool(node: Node) -> None:
    """MaxPool; integers are compared as they are."""
    size = (node.option("filterHeight"), node.option("filterWidth"))
    is_moved = node.is_quantized() and node.is_same_meaning(0) and not node.option("fusedActivationFunction", 0)
    if is_moved and node.tensor(0).dtype.itemsize == 1:
        node.give(node.add("MaxPool", [node.stored(0, FIRST)], **window(node, size)), FIRST)
    else:
        node.give_real(node.add("MaxPool", [node.real(0, FIRST)], **window(node, size)), FIRST)


def average_pool(node: Node) -> None:
    """AveragePool over the cells inside the image."""
    size = (node.option("filterHeight"), node.option("filterWidth"))
    node.give_real(node.add("AveragePool", [node.real(0, FIRST)], **window(node, size)), FIRST)


RULES: dict[str, Rule] = {"AVERAGE_POOL_2D": average_pool, "MAX_POOL_2D": max_pool}
