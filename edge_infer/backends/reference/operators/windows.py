"""Where the windows of convolutions and pools lie: padding, sizes, and views of what each sees."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from edge_infer.backends.reference.call import Array, Call


class Windows(NamedTuple):
    """Sizes along each spatial axis.

    Attributes:
        kernel: Of the window.
        strides: From one window to the next.
        dilations: From one tap to the next.
        before: The padding at the start.
        after: The padding at the end, with what `ceil_mode` adds.
        pads_after: The padding at the end that the model asks for.
        output: How many windows there are.
    """

    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    before: tuple[int, ...]
    after: tuple[int, ...]
    pads_after: tuple[int, ...]
    output: tuple[int, ...]


def windows(call: Call, sizes: Sequence[int], kernel: Sequence[int]) -> Windows:
    """Work out the windows over an input of these sizes from a node's attributes."""
    rank = len(sizes)
    strides = tuple(call.get("strides", None) or [1] * rank)
    dilations = tuple(call.get("dilations", None) or [1] * rank)
    pads = call.get("pads", None) or [0] * (2 * rank)
    if min((*kernel, *strides, *dilations), default=1) < 1:
        raise ValueError(
            f"a window of {[*kernel]}, strides {[*strides]}, dilations {[*dilations]}, expected 1 and more"
        )
    auto = call.get("auto_pad", "NOTSET")
    spans = [(size - 1) * dilation + 1 for size, dilation in zip(kernel, dilations, strict=True)]
    before, after = list(pads[:rank]), list(pads[rank:])
    output = []
    if auto in ("SAME_UPPER", "SAME_LOWER"):
        for i in range(rank):
            output.append(-(-sizes[i] // strides[i]))
            total = max(0, (output[i] - 1) * strides[i] + spans[i] - sizes[i])
            before[i] = total // 2 if auto == "SAME_UPPER" else total - total // 2
            after[i] = total - before[i]
        return Windows(tuple(kernel), strides, dilations, tuple(before), tuple(after), tuple(after), tuple(output))
    if auto == "VALID":
        before, after = [0] * rank, [0] * rank
    asked = tuple(after)
    for i in range(rank):
        room = sizes[i] + before[i] + after[i] - spans[i]
        count = room // strides[i] + 1
        if call.get("ceil_mode", 0):
            count = -(-room // strides[i]) + 1
            if (count - 1) * strides[i] >= sizes[i] + before[i]:
                count -= 1  # a window must begin in the input or before it
            after[i] = max(after[i], (count - 1) * strides[i] + spans[i] - sizes[i] - before[i])
        output.append(max(0, count))
    return Windows(tuple(kernel), strides, dilations, tuple(before), tuple(after), asked, tuple(output))


def padded(x: Array, at: Windows, fill: object = 0) -> Array:
    """Return an input with its padding, of any value."""
    if not any(at.before) and not any(at.after):
        return x
    lead = x.ndim - len(at.before)
    sizes = [
        *x.shape[:lead],
        *(size + low + high for size, low, high in zip(x.shape[lead:], at.before, at.after, strict=True)),
    ]
    result: Array = np.full(sizes, fill, x.dtype) if fill else np.zeros(sizes, x.dtype)
    inner = tuple(slice(low, low + size) for low, size in zip(at.before, x.shape[lead:], strict=True))
    result[(..., *inner)] = x
    return result


def taps(x: Array, at: Windows) -> Iterator[tuple[tuple[int, ...], Array]]:
    """Give each tap of the windows with the elements of a padded input that it meets, `[..., *output]`."""
    for tap in np.ndindex(*at.kernel):
        cut = tuple(
            slice(place * dilation, place * dilation + (count - 1) * stride + 1, stride)
            for place, dilation, stride, count in zip(tap, at.dilations, at.strides, at.output, strict=True)
        )
        yield tap, x[(..., *cut)]
