"""Blocks of pixels that become channels or images of the batch, and back."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

import numpy as np

from edge_infer.errors import UnsupportedModel
from edge_infer_converters.writers.onnx.rules.reading import constant, option, tensor
from edge_infer_converters.writers.onnx.rules.shape import move, stored, to_pad, zero

if TYPE_CHECKING:
    from edge_infer_converters.writers.onnx.graph import Graph
    from edge_infer_converters.writers.tflite.graph import Operator, Tensor


def depth_to_space(operator: Operator, graph: Graph) -> None:
    """Channels become blocks of pixels, in ONNX's order DCR."""
    _blocks(operator, graph, "DepthToSpace")


def space_to_depth(operator: Operator, graph: Graph) -> None:
    """Blocks of pixels become channels."""
    _blocks(operator, graph, "SpaceToDepth")


def _blocks(operator: Operator, graph: Graph, kind: str) -> None:
    given, output = tensor(operator, 0), operator.outputs[0]
    size = option(operator, "blockSize")
    if given.quantization is None and given.dtype in (np.int32, np.int64):  # of which ONNX Runtime has no kernel
        fine, is_fine = (output, False) if kind == "DepthToSpace" else (given, True)
        coarse = given if fine is output else output
        batch, *extents = coarse.signature[:3]
        blocks = (batch, extents[0], size, extents[1], size, fine.shape[3])
        cut = blocks if is_fine else (*coarse.signature[:3], size, size, fine.shape[3])
        turned = graph.node("Transpose", [graph.reshaped(graph.raw(given), cut)], perm=(0, 1, 3, 2, 4, 5))
        graph.give(output, graph.reshaped(turned, output.signature))
        return
    value = graph.real(given, first=True)
    graph.give(output, graph.node(kind, [value], blocksize=size), first=True)


def space_to_batch(operator: Operator, graph: Graph) -> None:
    """Each place of a block becomes an image of its own, as TensorFlow writes a dilated convolution."""
    given, output = tensor(operator, 0), operator.outputs[0]
    blocks, widths, batch, rest = _blocks_of(operator, given)
    extents = [size + int(sum(pair)) for size, pair in zip(given.signature[1:], widths, strict=False)]
    if any(extent % block for extent, block in zip(extents, blocks, strict=True)):
        raise UnsupportedModel(f"blocks of {blocks} in an image of {extents}")
    value, is_stored = to_pad(graph, given, output)
    if np.any(widths):
        around = np.zeros((given.rank, 2), np.int64)
        around[1 : 1 + len(blocks)] = widths
        amounts = graph.integers(*around.T.reshape(-1).tolist())
        value = graph.node("Pad", [value, amounts, zero(graph, given, is_stored=is_stored)])
    counts = [extent // block for extent, block in zip(extents, blocks, strict=True)]
    cut = [one for pair in zip(counts, blocks, strict=True) for one in pair]
    inner, outer = range(2, 2 + len(cut), 2), range(1, 1 + len(cut), 2)
    order = [*inner, 0, *outer, *range(1 + len(cut), 1 + len(cut) + len(rest))]
    value = graph.node("Transpose", [graph.reshaped(value, [batch, *cut, *rest])], perm=order)
    images = -1 if batch < 0 else batch * prod(blocks)
    move(graph, output, graph.reshaped(value, [images, *counts, *rest]), is_stored=is_stored)


def batch_to_space(operator: Operator, graph: Graph) -> None:
    """The opposite of SPACE_TO_BATCH_ND; what it padded is cut off."""
    given, output = tensor(operator, 0), operator.outputs[0]
    blocks, widths, images, rest = _blocks_of(operator, given)
    counts = given.signature[1 : 1 + len(blocks)]
    batch = -1 if images < 0 else images // prod(blocks)
    value, is_stored = stored(graph, given, output)
    value = graph.reshaped(value, [*blocks, batch, *counts, *rest])
    start = len(blocks)
    pairs = [one for i in range(start) for one in (start + 1 + i, i)]
    order = [start, *pairs, *range(1 + 2 * start, 1 + 2 * start + len(rest))]
    extents = [count * block for count, block in zip(counts, blocks, strict=True)]
    value = graph.reshaped(graph.node("Transpose", [value], perm=order), [batch, *extents, *rest])
    if np.any(widths):
        ends = [extent - int(pair[1]) for extent, pair in zip(extents, widths, strict=True)]
        limits = (widths[:, 0].tolist(), ends, range(1, 1 + start))
        value = graph.node("Slice", [value, *(graph.integers(*map(int, one)) for one in limits)])
    move(graph, output, value, is_stored=is_stored)


def _blocks_of(operator: Operator, given: Tensor) -> tuple[list[int], np.ndarray, int, tuple[int, ...]]:
    """Return the sizes of a block, what is padded or cut of each axis, the batch, and the axes behind."""
    blocks = [int(one) for one in constant(operator, 1).reshape(-1)]
    widths = constant(operator, 2).reshape(len(blocks), 2).astype(np.int64)
    batch, *sizes = given.signature
    if len(blocks) > len(sizes) or min(blocks, default=0) < 1 or np.any(widths < 0):
        raise UnsupportedModel(f"blocks of {blocks} in a tensor of shape {list(given.signature)}")
    if -1 in sizes:
        raise UnsupportedModel(f"a free size beside the batch, {list(given.signature)}")
    if operator.code == "BATCH_TO_SPACE_ND" and batch % prod(blocks) and batch >= 0:
        raise UnsupportedModel(f"{batch} images in blocks of {blocks}")
    return blocks, widths, batch, tuple(sizes[len(blocks) :])


RULES = {
    "DEPTH_TO_SPACE": depth_to_space,
    "SPACE_TO_DEPTH": space_to_depth,
    "SPACE_TO_BATCH_ND": space_to_batch,
    "BATCH_TO_SPACE_ND": batch_to_space,
}
