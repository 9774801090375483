"""RESIZE_BILINEAR and RESIZE_NEAREST_NEIGHBOR."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from edge_infer.errors import UnsupportedModel
from edge_infer_converters.writers.onnx.rules.reading import constant, option, tensor
from edge_infer_converters.writers.tflite.rules.resize import nearest_places

if TYPE_CHECKING:
    from collections.abc import Sequence

    from edge_infer_converters.writers.onnx.graph import Graph
    from edge_infer_converters.writers.tflite.graph import Operator


def resize(operator: Operator, graph: Graph) -> None:
    """To a constant size, with TFLite's ways of placing pixels.

    The nearest pixel depends on how a number near a half is rounded: where ONNX Runtime takes another than TFLite, rows
    and columns are gathered by their numbers.
    """
    given, output = tensor(operator, 0), operator.outputs[0]
    sizes = [int(size) for size in constant(operator, 1).reshape(-1)]
    is_nearest = operator.code == "RESIZE_NEAREST_NEIGHBOR"
    is_aligned = bool(option(operator, "alignCorners", default=False))
    is_half = bool(option(operator, "halfPixelCenters", default=False))
    is_free = -1 in given.signature[1:3]
    value = graph.real(given, first=True)
    mode, rounding = "asymmetric", "floor"
    if is_aligned:
        mode, rounding = "align_corners", "round_prefer_ceil"
    elif is_half:
        mode, rounding = "half_pixel", "round_prefer_ceil"  # floor((x + .5) scale) is that: halves go up
    if is_nearest and is_free and is_aligned and is_half:
        raise UnsupportedModel("aligned corners and half pixels over a free size")
    if is_nearest and not is_free:
        sides = [*zip(given.shape[1:3], sizes, strict=True)]
        wanted = [nearest_places(extent, size, is_aligned, is_half) for extent, size in sides]
        found = [_runtime_places(extent, size, mode) for extent, size in sides]
        if any((one != other).any() for one, other in zip(wanted, found, strict=True)):
            for axis, places in enumerate(wanted, 2):
                value = graph.node("Gather", [value, graph.constant(places)], axis=axis)
            graph.give(output, value, first=True)
            return
    modes: dict[str, Any] = {"mode": "linear", "coordinate_transformation_mode": mode}
    if is_nearest:
        modes |= {"mode": "nearest", "nearest_mode": rounding}
    result = graph.node("Resize", [value, *_sizes(graph, value, given.signature[1:3], sizes)], **modes)
    graph.give(output, result, first=True)


def _sizes(graph: Graph, value: str, extents: Sequence[int], sizes: list[int]) -> list[str]:
    """Return factors where they give the sizes exactly, else the sizes."""
    factors = np.array([1, 1, *(size / extent for size, extent in zip(sizes, extents, strict=True))], np.float32)
    exact = (
        np.floor(np.array(extents, np.float64) * factors[2:]),
        np.floor(np.array(extents, np.float32) * factors[2:]),
    )
    if all((one == sizes).all() for one in exact):  # engines multiply in either precision
        return ["", graph.constant(factors)]
    kept = graph.node("Slice", [graph.node("Shape", [value]), graph.integers(0), graph.integers(2)])
    return ["", "", graph.node("Concat", [kept, graph.integers(*sizes)], axis=0)]


def _runtime_places(extent: int, size: int, mode: str) -> np.ndarray:
    """Return the pixel that ONNX Runtime takes."""
    x, factor = np.arange(size, dtype=np.float32), np.float32(size) / np.float32(extent)
    if mode == "align_corners":
        at = x * np.float32(extent - 1) / np.float32(max(size - 1, 1))
        whole = np.floor(at.astype(np.float64) + 0.5)
    elif mode == "half_pixel":
        at = (x + np.float32(0.5)) / factor - np.float32(0.5)
        whole = np.floor(at.astype(np.float64) + 0.5)
    else:
        whole = np.floor(x / factor)
    return np.clip(whole, 0, extent - 1).astype(np.int64)


RULES = {"RESIZE_BILINEAR": resize, "RESIZE_NEAREST_NEIGHBOR": resize}
