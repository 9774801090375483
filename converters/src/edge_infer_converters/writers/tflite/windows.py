"""Sliding windows: what ONNX says of their padding, and how TFLite is told.

TFLite knows two paddings, computed from the sizes: VALID (none) and SAME, which gives ceil(size / stride) windows and
puts the odd cell at the end. Any other padding becomes a PAD in front of a VALID window.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from ai_edge_litert import schema_py_generated as schema

from edge_infer_converters.writers.tflite.graph import Layout, Tensor
from edge_infer_converters.writers.tflite.node import Unsupported, reshape

if TYPE_CHECKING:
    from collections.abc import Sequence

    from edge_infer_converters.writers.tflite.node import Node


class Window(NamedTuple):
    """A two-dimensional window; one-dimensional ones have a height of 1.

    Attributes:
        size: Height and width.
        strides: Its steps down and right.
        dilations: The distance of its cells.
        pads: Cells added (before, after) along height and width.
        spatial: The height and width that it slides over.
    """

    size: tuple[int, int]
    strides: tuple[int, int]
    dilations: tuple[int, int]
    pads: tuple[tuple[int, int], tuple[int, int]]
    spatial: tuple[int, int]

    @property
    def is_padded(self) -> bool:
        """Whether any cell is added."""
        return any(count for pair in self.pads for count in pair)

    @property
    def is_same(self) -> bool:
        """Whether TFLite's SAME adds the same cells."""
        return all(
            pair == _same(size, kernel, stride, dilation)
            for pair, size, kernel, stride, dilation in zip(
                self.pads, self.spatial, self.size, self.strides, self.dilations, strict=True
            )
        )


def window_of(node: Node, size: Sequence[int]) -> Window:
    """Read a node's window.

    Args:
        node: A convolution or pooling of 1 or 2 spatial dimensions.
        size: The size of the window along each.

    Raises:
        Unsupported: It has three dimensions.
        BatchDependent: Its size follows the batch.
    """
    spatial = node.sizes(slice(2, None))
    if len(spatial) not in (1, 2):
        raise Unsupported(f"{len(spatial)} spatial dimensions")
    rank = len(spatial)
    strides = node.integers("strides", [1] * rank)
    dilations = node.integers("dilations", [1] * rank)
    pads = node.integers("pads", [0] * 2 * rank)
    pairs = [(pads[axis], pads[axis + rank]) for axis in range(rank)]
    auto = node.text("auto_pad", "NOTSET")
    if auto == "VALID":
        pairs = [(0, 0)] * rank
    elif auto in ("SAME_UPPER", "SAME_LOWER"):
        pairs = [_same(*of_axis) for of_axis in zip(spatial, size, strides, dilations, strict=True)]
        if auto == "SAME_LOWER":
            pairs = [(after, before) for before, after in pairs]
    if node.integer("ceil_mode", 0):
        pairs = [_ceiled(*of_axis) for of_axis in zip(pairs, spatial, size, strides, dilations, strict=True)]

    def two(values: Sequence[int]) -> tuple[int, int]:
        return (1, values[0]) if rank == 1 else (values[0], values[1])

    both = ((0, 0), pairs[0]) if rank == 1 else (pairs[0], pairs[1])
    return Window(two(size), two(strides), two(dilations), both, two(spatial))


def image_of(node: Node) -> Tensor:
    """Return the first input as [batch, height, width, channels]; a one-dimensional one gets a height of 1."""
    value = node.input(0, Layout.CHANNELS_LAST)
    if value.rank == 4:
        return value
    batch, width, channels = value.signature
    image = node.scratch("image", (batch, 1, width, channels))
    reshape(node.graph, value, image)
    return image


def give_image(node: Node, rank: int) -> tuple[Tensor, Tensor | None]:
    """Make the tensor that a window writes to.

    Returns:
        The tensor, and the node's output that `finish_image` fills from it where that has no height.
    """
    output = node.output(0, Layout.CHANNELS_LAST)
    if rank == 4:
        return output, None
    batch, width, channels = output.signature
    return node.scratch("result", (batch, 1, width, channels)), output


def finish_image(node: Node, image: Tensor, output: Tensor | None) -> None:
    """Take the height of 1 away again."""
    if output is not None:
        reshape(node.graph, image, output)


def padded(node: Node, image: Tensor, window: Window, fill: float = 0.0) -> tuple[Tensor, int]:
    """Pad an image where TFLite cannot say it in one word.

    Returns:
        The image to slide over, and the `schema.Padding` to slide with.
    """
    if not window.is_padded:
        return image, schema.Padding.VALID
    if window.is_same:
        return image, schema.Padding.SAME
    return explicitly_padded(node, image, window, fill), schema.Padding.VALID


def explicitly_padded(node: Node, image: Tensor, window: Window, fill: float = 0.0) -> Tensor:
    """Add the window's cells to an image."""
    if any(count < 0 for pair in window.pads for count in pair):
        raise Unsupported("negative padding")
    batch, height, width, channels = image.signature
    signature = (batch, height + sum(window.pads[0]), width + sum(window.pads[1]), channels)
    target = node.scratch("padded", signature)
    pads = node.stored("pads", np.array([(0, 0), *window.pads, (0, 0)], np.int32))
    if fill:
        value = node.stored("fill", np.array(fill, image.dtype))
        node.graph.add("PADV2", [image, pads, value], [target], schema.PadV2OptionsT())
    else:
        node.graph.add("PAD", [image, pads], [target], schema.PadOptionsT())
    return target


def _same(size: int, kernel: int, stride: int, dilation: int) -> tuple[int, int]:
    """Return the cells that SAME adds before and after."""
    reach = (kernel - 1) * dilation + 1
    total = max((-(-size // stride) - 1) * stride + reach - size, 0)
    return total // 2, total - total // 2


def _ceiled(pair: tuple[int, int], size: int, kernel: int, stride: int, dilation: int) -> tuple[int, int]:
    """Return the cells of `ceil_mode`: as many more at the end as the last window needs."""
    reach = (kernel - 1) * dilation + 1
    full = size + sum(pair)
    count = -(-(full - reach) // stride) + 1
    if (count - 1) * stride >= size + pair[0]:
        count -= 1  # a window may not start in the padding behind the image
    return pair[0], pair[1] + max((count - 1) * stride + reach - full, 0)
