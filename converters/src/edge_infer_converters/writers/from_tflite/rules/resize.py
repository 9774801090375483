"""Resizing images, and moving places into channels."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from edge_infer_converters.writers.from_tflite.builder import FIRST

if TYPE_CHECKING:
    from edge_infer_converters.writers.from_tflite.builder import Node
    from edge_infer_converters.writers.from_tflite.rules import Rule


def bilinear(node: Node) -> None:
    """Resize, linear, with TFLite's three ways to place the pixels."""
    _resize(node, {"mode": "linear"})


def nearest(node: Node) -> None:
    """Resize to the pixel that TFLite takes: below, or the nearest."""
    is_rounded = node.option("alignCorners") or node.option("halfPixelCenters")
    _resize(node, {"mode": "nearest", "nearest_mode": "round_prefer_ceil" if is_rounded else "floor"})


def _resize(node: Node, how: dict[str, str]) -> None:
    corners = "align_corners" if node.option("alignCorners") else "asymmetric"
    if node.option("halfPixelCenters"):
        corners = "half_pixel"
    height, width = (int(one) for one in node.value(1).reshape(-1))
    is_moved = how["mode"] == "nearest" and node.is_same_meaning(0) and node.tensor(0).dtype.itemsize != 2
    value = node.stored(0, FIRST) if is_moved else node.real(0, FIRST)
    batch, channels = node.output.signature[0], node.output.shape[3]
    more: dict[str, Any] = {"axes": [2, 3]} if batch < 0 else {}
    sizes = (height, width) if batch < 0 else (batch, channels, height, width)
    inputs = [value, "", "", node.builder.integers(*sizes)]
    made = node.add("Resize", inputs, coordinate_transformation_mode=corners, **how, **more)
    if is_moved:
        node.give(made, FIRST)
    else:
        node.give_real(made, FIRST)


def depth_to_space(node: Node) -> None:
    """DepthToSpace, the order of TFLite being DCR."""
    node.give(node.add("DepthToSpace", [node.stored(0, FIRST)], blocksize=node.option("blockSize"), mode="DCR"), FIRST)


def space_to_depth(node: Node) -> None:
    """SpaceToDepth."""
    node.give(node.add("SpaceToDepth", [node.stored(0, FIRST)], blocksize=node.option("blockSize")), FIRST)


RULES: dict[str, Rule] = {
    "DEPTH_TO_SPACE": depth_to_space,
    "RESIZE_BILINEAR": bilinear,
    "RESIZE_NEAREST_NEIGHBOR": nearest,
    "SPACE_TO_DEPTH": space_to_depth,
}
