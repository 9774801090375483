"""Operators that move elements and change none: reshape, transpose, concatenate, slice, pad."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import numpy as np
from ai_edge_litert import schema_py_generated as schema

from edge_infer_converters.writers.tflite.formulas import Formula
from edge_infer_converters.writers.tflite.graph import Layout, from_channels_last, to_channels_last
from edge_infer_converters.writers.tflite.node import BatchDependent, Unsupported, reshape
from edge_infer_converters.writers.tflite.rules.elementwise import layout_of

if TYPE_CHECKING:
    from edge_infer_converters.writers.tflite.node import Node, Rule


def reshaped(node: Node) -> None:
    """Reshape, Flatten, Squeeze and Unsqueeze: the output's shape says all."""
    value = node.input()
    if value.signature == node.output_signature():
        node.alias(value)
    else:
        reshape(node.graph, value, node.output())


def transposed(node: Node) -> None:
    """One permutation, joined with the one that would undo the channels-last order."""
    rank = node.rank()
    order = node.integers("perm", list(reversed(range(rank))))
    layout = layout_of(node)
    if layout is Layout.CHANNELS_LAST:
        at = to_channels_last(rank)
        order = [at.index(axis) for axis in order]
    value = node.input(0, layout)
    if order == list(range(rank)):
        node.alias(value)
        return
    if rank > 2 and order == list(from_channels_last(rank)):
        node.alias(value, Layout.CHANNELS_LAST)  # its channels are last; a rule that wants them first transposes it
        return
    stored = node.stored("order", np.array(order, np.int32))
    node.graph.add("TRANSPOSE", [value, stored], [node.output()], schema.TransposeOptionsT())


def concatenated(node: Node) -> None:
    """Along one axis; with the channels last where most inputs are so."""
    rank = len(node.output_signature())
    axis = node.integer("axis", 1) % rank
    turned = sum(node.is_channels_last(i) for i in range(len(node.inputs)))
    layout = Layout.CHANNELS_LAST if 2 * turned > len(node.inputs) else Layout.PLAIN
    options = schema.ConcatenationOptionsT()
    options.axis = to_channels_last(rank).index(axis) if layout is Layout.CHANNELS_LAST else axis
    values = [node.input(i, layout) for i in range(len(node.inputs))]
    node.graph.add("CONCATENATION", values, [node.output(0, layout)], options)


def padded(node: Node) -> None:
    """With a constant, or mirrored at the edge."""
    mode = node.text("mode", "constant")
    if mode not in ("constant", "reflect", "edge", "wrap"):
        raise Unsupported(f"mode {mode}")
    given = node.needed_constant(1).reshape(-1) if node.has_input(1) else np.array(node.integers("pads", []))
    fill = node.needed_constant(2).reshape(()).item() if node.has_input(2) else node.number("value", 0.0)
    rank = node.rank()
    axes = [int(axis) % rank for axis in node.needed_constant(3)] if node.has_input(3) else list(range(rank))
    pairs = [(0, 0)] * rank
    for i, axis in enumerate(axes):
        pairs[axis] = (int(given[i]), int(given[i + len(axes)]))
    if any(count < 0 for pair in pairs for count in pair):
        raise Unsupported("negative padding")
    layout = layout_of(node)
    if layout is Layout.CHANNELS_LAST:
        pairs = [pairs[axis] for axis in to_channels_last(rank)]
    if mode in ("edge", "wrap"):
        _repeat_edges(node, pairs, "edge" if mode == "edge" else "wrap", layout)
        return
    value, target = node.input(0, layout), node.output(0, layout)
    stored = node.stored("pads", np.array(pairs, np.int32))
    if mode == "reflect":
        options = schema.MirrorPadOptionsT()
        options.mode = schema.MirrorPadMode.REFLECT
        node.graph.add("MIRROR_PAD", [value, stored], [target], options)
    elif fill:
        node.graph.add(
            "PADV2", [value, stored, node.stored("fill", np.array(fill, value.dtype))], [target], schema.PadV2OptionsT()
        )
    else:
        node.graph.add("PAD", [value, stored], [target], schema.PadOptionsT())


def _repeat_edges(node: Node, pairs: list[tuple[int, int]], mode: Literal["edge", "wrap"], layout: Layout) -> None:
    """Take elements by number along each axis, those outside from the edge or from the other end."""
    f, value = Formula(node), node.input(0, layout)
    for axis, pair in enumerate(pairs):
        if any(pair):
            if value.signature[axis] == -1:
                raise BatchDependent(node.inputs[0])
            numbers = np.pad(np.arange(value.shape[axis], dtype=np.int32), pair, mode)
            value = f.gather(value, f.constant(numbers), axis)
    node.give(value, layout)


def sliced(node: Node) -> None:
    """Constant starts and steps; ends beyond the size are the size."""
    rank = node.rank()
    starts, ends = (_bounds(node, index, name) for index, name in ((1, "starts"), (2, "ends")))
    axes = _bounds(node, 3, "axes") if node.has_input(3) or node.has_attribute("axes") else list(range(len(starts)))
    steps = _bounds(node, 4, "steps") if node.has_input(4) else [1] * len(starts)
    begin, end, stride, open_end = [0] * rank, [1 if size == -1 else size for size in node.signature()], [1] * rank, 0
    for axis in range(rank):
        if node.signature()[axis] == -1:
            open_end |= 1 << axis  # the batch, whatever its size
    for start, stop, axis, step in zip(starts, ends, (axis % rank for axis in axes), steps, strict=True):
        size = node.size(axis)
        begin[axis], end[axis], stride[axis] = *slice(start, stop, step).indices(size)[:2], step
        begin[axis] = max(begin[axis], 0)  # backwards from before the first element: from the first one
        if step < 0 and end[axis] == -1:
            end[axis] -= size  # before the first element: -1 would be the last one
    layout = layout_of(node)
    if layout is Layout.CHANNELS_LAST:
        order = to_channels_last(rank)
        begin, end, stride = ([values[axis] for axis in order] for values in (begin, end, stride))
    options = schema.StridedSliceOptionsT()
    # The batch is axis 0 in both layouts, so the mask needs no turning.
    options.endMask = options.beginMask = open_end
    stored = [
        node.stored(name, np.array(values, np.int32))
        for name, values in (("begin", begin), ("end", end), ("stride", stride))
    ]
    node.graph.add("STRIDED_SLICE", [node.input(0, layout), *stored], [node.output(0, layout)], options)


def split(node: Node) -> None:
    """Into parts along one axis."""
    rank = node.rank()
    axis = node.integer("axis", 0) % rank
    layout = layout_of(node)
    sizes = [node.output_signature(i)[axis] for i in range(len(node.outputs))]
    if -1 in sizes:
        raise BatchDependent(node.inputs[0])
    options = schema.SplitVOptionsT()
    options.numSplits = len(sizes)
    place = to_channels_last(rank).index(axis) if layout is Layout.CHANNELS_LAST else axis
    node.graph.add(
        "SPLIT_V",
        [
            node.input(0, layout),
            node.stored("sizes", np.array(sizes, np.int32)),
            node.stored("axis", np.array(place, np.int32)),
        ],
        [node.output(i, layout) for i in range(len(node.outputs))],
        options,
    )


def _bounds(node: Node, index: int, name: str) -> list[int]:
    """Read a list that was an attribute before operator set 10."""
    if node.has_input(index):
        return [int(value) for value in node.needed_constant(index).reshape(-1)]
    return node.integers(name, [])


def expanded(node: Node) -> None:
    """Repeat along axes of one element."""
    value, signature = node.input(), node.output_signature()
    if value.signature == signature:
        node.alias(value)
        return
    f, rank = Formula(node), len(signature)
    full = (1,) * (rank - value.rank) + value.signature
    if any(wanted == -1 != size for size, wanted in zip(full, signature, strict=True)):
        raise BatchDependent(node.inputs[0])  # repeated once for each of the batch
    times = f.integers([1 if size == wanted else wanted for size, wanted in zip(full, signature, strict=True)])
    node.give(f.operator("TILE", [f.reshape(value, full), times], signature, options=schema.TileOptionsT()))


def tiled(node: Node) -> None:
    """Repeat the whole, a number of times along each axis."""
    f = Formula(node)
    times = f.integers([int(count) for count in node.needed_constant(1).reshape(-1)])
    node.give(f.operator("TILE", [node.input(), times], node.output_signature(), options=schema.TileOptionsT()))


def depth_to_space(node: Node) -> None:
    """Channels become blocks; with the channels last TFLite's operator does what ONNX calls DCR."""
    size = node.integer("blocksize", 1)
    layout = Layout.CHANNELS_LAST
    if node.text("mode", "DCR") == "DCR":
        options = schema.DepthToSpaceOptionsT()
        options.blockSize = size
        node.graph.add("DEPTH_TO_SPACE", [node.input(0, layout)], [node.output(0, layout)], options)
        return
    # CRD: the blocks are the fastest axes of the channels, so the channels are put into TFLite's order first.
    f, value = Formula(node), node.input(0, layout)
    count = node.size(1) // size**2
    order = np.arange(count * size**2).reshape(count, size**2).T.reshape(-1).astype(np.int32)
    sorted_ = f.gather(value, f.constant(order), 3)
    options = schema.DepthToSpaceOptionsT()
    options.blockSize = size
    node.graph.add("DEPTH_TO_SPACE", [sorted_], [node.output(0, layout)], options)


def space_to_depth(node: Node) -> None:
    """Blocks become channels; TFLite's order of them is ONNX's DCR, and CRD is that with its channels put in order."""
    size = node.integer("blocksize", 1)
    options = schema.SpaceToDepthOptionsT()
    options.blockSize = size
    layout = Layout.CHANNELS_LAST
    if node.text("mode", "DCR") == "DCR":
        node.graph.add("SPACE_TO_DEPTH", [node.input(0, layout)], [node.output(0, layout)], options)
        return
    f, (batch, channels, height, width) = Formula(node), node.signature()
    blocks = node.scratch("blocks", (batch, height // size, width // size, channels * size**2))
    node.graph.add("SPACE_TO_DEPTH", [node.input(0, layout)], [blocks], options)
    order = np.arange(channels * size**2).reshape(size**2, channels).T.reshape(-1).astype(np.int32)
    node.give(f.gather(blocks, f.constant(order), 3), layout)


RULES: dict[str, Rule] = {
    "Concat": concatenated,
    "DepthToSpace": depth_to_space,
    "Expand": expanded,
    "Flatten": reshaped,
    "Pad": padded,
    "Reshape": reshaped,
    "Slice": sliced,
    "SpaceToDepth": space_to_depth,
    "Split": split,
    "Squeeze": reshaped,
    "Tile": tiled,
    "Transpose": transposed,
    "Unsqueeze": reshaped,
}
