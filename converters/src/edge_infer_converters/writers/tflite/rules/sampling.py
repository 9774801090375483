"""Spatial transformers: GridSample picks pixels between pixels, AffineGrid says where; TFLite has neither."""

from __future__ import annotations

from functools import reduce
from math import prod
from typing import TYPE_CHECKING

import numpy as np
from ai_edge_litert import schema_py_generated as schema

from edge_infer_converters.writers.tflite.formulas import Formula
from edge_infer_converters.writers.tflite.node import Unsupported

if TYPE_CHECKING:
    from edge_infer_converters.writers.tflite.graph import Tensor
    from edge_infer_converters.writers.tflite.node import Node, Rule

#: The first version of GATHER that knows batches.
_BATCHED_GATHER = 5


def grid_sample(node: Node) -> None:
    """GridSample of images: the four pixels around each place, by GATHER, weighted by how near they are."""
    mode, padding = node.text("mode", "linear"), node.text("padding_mode", "zeros")
    if node.rank() != 4:
        raise Unsupported("volumes; images only")
    if mode not in ("linear", "bilinear") or padding not in ("zeros", "border"):
        raise Unsupported(f"mode {mode} with padding {padding}; it takes linear with zeros or border")
    f = Formula(node)
    batch, channels = node.signature()[0], node.size(1)
    height, width = node.size(2), node.size(3)
    rows, columns = node.sizes(slice(1, 3), index=1)
    count = rows * columns
    pixels = f.reshape(f.transpose(node.input(), (0, 2, 3, 1)), (batch, height * width, channels))
    grid = f.reshape(node.input(1), (node.signature(1)[0], count, 2))
    across = _places(node, f, f.slice(grid, 2, 0, 1), width)
    down = _places(node, f, f.slice(grid, 2, 1, 2), height)
    parts = []
    for y, y_share in _neighbours(f, down, height, padding):
        for x, x_share in _neighbours(f, across, width, padding):
            number = f.reshape(f.cast(f.add(f.multiply(y, width), x), np.int32), (batch, count))
            parts.append(f.multiply(_picked(f, pixels, number), f.multiply(y_share, x_share)))
    node.give(f.transpose(f.reshape(reduce(f.add, parts), (batch, rows, columns, channels)), (0, 3, 1, 2)))


def _places(node: Node, f: Formula, coordinates: Tensor, size: int) -> Tensor:
    """Turn coordinates from -1 to 1 into places along an axis, where the first pixel is 0."""
    if node.integer("align_corners", 0):
        return f.multiply(f.add(coordinates, 1), (size - 1) / 2)
    return f.subtract(f.multiply(f.add(coordinates, 1), size / 2), 0.5)


def _neighbours(f: Formula, places: Tensor, size: int, padding: str) -> list[tuple[Tensor, Tensor]]:
    """Return the two pixels around each place along an axis, inside the image, and the share of each."""
    if padding == "border":
        places = f.binary("MINIMUM", f.binary("MAXIMUM", places, 0), size - 1)
    else:  # beyond this all is zero; and a place must fit an integer
        places = f.binary("MINIMUM", f.binary("MAXIMUM", places, -2), size + 1)
    first = f.unary("FLOOR", places)
    share = f.subtract(places, first)
    found = []
    for pixel, part in ((first, f.subtract(1, share)), (f.add(first, 1), share)):
        inside = f.binary("MINIMUM", f.binary("MAXIMUM", pixel, 0), size - 1)
        seen = part if padding == "border" else f.select(f.binary("EQUAL", pixel, inside), part, 0)
        found.append((inside, seen))
    return found


def _picked(f: Formula, pixels: Tensor, numbers: Tensor) -> Tensor:
    """Return the pixels of these numbers, each from its own image."""
    options = schema.GatherOptionsT()
    options.axis = options.batchDims = 1
    signature = (*numbers.signature, pixels.signature[2])
    return f.operator("GATHER", [pixels, numbers], signature, options=options, version=_BATCHED_GATHER)


def affine_grid(node: Node) -> None:
    """AffineGrid: each place of the output, and 1, times the matrix."""
    sizes = [int(size) for size in node.needed_constant(1)[2:]]
    lines = [_line(size, bool(node.integer("align_corners", 0))) for size in sizes]
    mesh = np.meshgrid(*lines, indexing="ij")
    points = np.stack([*mesh[::-1], np.ones(sizes)], -1).reshape(prod(sizes), -1)
    f, batch = Formula(node), node.signature()[0]
    moved = f.dense(node.input(), f.constant(points.astype(np.float32)))
    node.give(f.reshape(f.transpose(moved, (0, 2, 1)), (batch, *sizes, len(sizes))))


def _line(size: int, has_corners: bool) -> np.ndarray:
    if has_corners:
        return np.linspace(-1, 1, size) if size > 1 else np.array([-1.0])
    return (2 * np.arange(size) + 1) / size - 1


RULES: dict[str, Rule] = {"AffineGrid": affine_grid, "GridSample": grid_sample}
