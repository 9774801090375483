"""Convolutions."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from edge_infer.backends.reference.operators.elementwise import sigmoid
from edge_infer.backends.reference.operators.shapes import ints
from edge_infer.backends.reference.operators.windows import Windows, padded, taps, windows

if TYPE_CHECKING:
    from edge_infer.backends.reference.call import Array, Call, Operator

#: Elements of a block of channels: it, its padding and its sums stay in a processor's cache.
_BLOCK = 1 << 16


def convolve(x: Array, weights: Array, at: Windows, group: int) -> Array:
    """Convolve `[batch, channels, ...]` with `[outputs, channels / group, ...]`, without a bias."""
    batch, channels = x.shape[:2]
    outputs = weights.shape[0]
    if group < 1 or channels != group * weights.shape[1] or outputs % group:
        raise ValueError(f"{channels} channels and weights {list(weights.shape)} do not fit {group} groups")
    result: Array = np.empty((batch, outputs, *at.output), np.result_type(x, weights))
    if not result.size:
        return result
    if weights.shape[1] == 1 and group == channels and group > 1:
        _depthwise(x, weights, at, result)
        return result
    count = int(np.prod(at.output))
    is_point = all(size == 1 for size in at.kernel) and all(size == 1 for size in at.strides)
    x = padded(x, at)
    each, makes = channels // group, outputs // group
    rows = each * int(np.prod(at.kernel))
    for sample in range(batch):
        for part in range(group):
            columns: Array
            source = x[sample, part * each : (part + 1) * each]
            if is_point:
                columns = source.reshape(each, count)
            else:
                columns = np.empty((each, *at.kernel, *at.output), x.dtype)
                for tap, seen in taps(source, at):
                    columns[(slice(None), *tap)] = seen
                columns = columns.reshape(rows, count)
            matrix = weights[part * makes : (part + 1) * makes].reshape(makes, rows)
            np.matmul(matrix, columns, out=result[sample, part * makes : (part + 1) * makes].reshape(makes, count))
    return result


def _depthwise(x: Array, weights: Array, at: Windows, result: Array) -> None:
    """Convolve each channel alone, a few channels at a time: tap by tap over what a cache holds."""
    times = weights.shape[0] // x.shape[1]
    area = int(np.prod(x.shape[2:]))
    step = max(1, _BLOCK // max(1, area))
    ones = (1,) * len(at.kernel)
    for sample in range(x.shape[0]):
        for start in range(0, x.shape[1], step):
            stop = min(start + step, x.shape[1])
            source = padded(x[sample, start:stop], at)
            for part in range(times):
                of = slice(start * times + part, stop * times, times)
                total = np.zeros((stop - start, *at.output), result.dtype)
                product = np.empty_like(total)
                for tap, seen in taps(source, at):
                    np.multiply(seen, weights[(of, 0, *tap)].reshape(-1, *ones), out=product)
                    total += product
                result[sample, of] = total


def conv(call: Call, x: Array, weights: Array, bias: Array | None = None) -> Array:
    """Compute Conv."""
    at = windows(call, x.shape[2:], weights.shape[2:])
    dtype = x.dtype
    if dtype == np.float16:
        x, weights = x.astype(np.float32), weights.astype(np.float32)
    result = convolve(x, weights, at, call.get("group", 1))
    if bias is not None:
        result += bias.reshape(-1, *(1,) * len(at.kernel))
    return result.astype(dtype, copy=False)


def conv_integer(
    call: Call, x: Array, weights: Array, x_zero: Array | None = None, w_zero: Array | None = None
) -> Array:
    """Compute ConvInteger: padding has the value of the zero point."""
    at = windows(call, x.shape[2:], weights.shape[2:])
    left, right = x.astype(np.float64), weights.astype(np.float64)
    if x_zero is not None:
        left -= float(x_zero.reshape(()))
    if w_zero is not None:
        right -= w_zero.astype(np.float64).reshape(-1, *(1,) * (right.ndim - 1))
    return convolve(left, right, at, call.get("group", 1)).astype(np.int64).astype(np.int32)


def conv_transpose(call: Call, x: Array, weights: Array, bias: Array | None = None) -> Array:
    """Compute ConvTranspose: each element spreads over a window of the output."""
    rank = x.ndim - 2
    group = call.get("group", 1)
    if group < 1 or x.shape[1] % group or x.shape[1] != weights.shape[0]:
        raise ValueError(f"{x.shape[1]} channels and weights {list(weights.shape)} do not fit {group} groups")
    kernel = weights.shape[2:]
    strides = call.get("strides", None) or [1] * rank
    dilations = call.get("dilations", None) or [1] * rank
    extra = call.get("output_padding", None) or [0] * rank
    pads = list(call.get("pads", None) or [0] * (2 * rank))
    auto = call.get("auto_pad", "NOTSET")
    spans = [(size - 1) * dilation + 1 for size, dilation in zip(kernel, dilations, strict=True)]
    full = [(x.shape[2 + i] - 1) * strides[i] + spans[i] for i in range(rank)]
    wanted = call.get("output_shape", None)
    if wanted is None and auto in ("SAME_UPPER", "SAME_LOWER"):
        wanted = [x.shape[2 + i] * strides[i] for i in range(rank)]
    if wanted is not None:
        for i, size in enumerate(wanted[-rank:]):
            total = full[i] + extra[i] - size
            pads[i] = total // 2 if auto == "SAME_UPPER" else total - total // 2
            pads[rank + i] = total - pads[i]
    sizes = [full[i] + extra[i] for i in range(rank)]
    each, makes = x.shape[1] // group, weights.shape[1]
    low = [max(0, -pads[i]) for i in range(rank)]
    high = [max(0, -pads[rank + i]) for i in range(rank)]
    dtype = np.float32 if x.dtype == np.float16 else x.dtype
    total_sizes = [size + a + b for size, a, b in zip(sizes, low, high, strict=True)]
    result: Array = np.zeros((x.shape[0], makes * group, *total_sizes), dtype)
    flat = x.reshape(x.shape[0], group, each, -1).astype(dtype, copy=False)
    matrix = weights.reshape(group, each, -1).transpose(0, 2, 1).astype(dtype, copy=False)
    spread: Array = np.matmul(matrix, flat).reshape(x.shape[0], group * makes, *kernel, *x.shape[2:])
    for tap in np.ndindex(*kernel):
        cut = tuple(
            slice(
                low[i] + tap[i] * dilations[i],
                low[i] + tap[i] * dilations[i] + (x.shape[2 + i] - 1) * strides[i] + 1,
                strides[i],
            )
            for i in range(rank)
        )
        result[(..., *cut)] += spread[(slice(None), slice(None), *tap)]
    cut = tuple(slice(max(0, pads[i]), total_sizes[i] - max(0, pads[rank + i])) for i in range(rank))
    result = result[(..., *cut)]
    if bias is not None:
        result = result + bias.reshape(-1, *(1,) * rank)
    return result.astype(x.dtype, copy=False)


def col_to_im(call: Call, x: Array, image: Array, block: Array) -> Array:
    """Compute Col2Im: sums of the columns where their windows overlap."""
    sizes, kernel = ints(image), ints(block)
    at = windows(call, sizes, kernel)
    channels = x.shape[1] // int(np.prod(kernel))
    columns = x.reshape(x.shape[0], channels, *kernel, *at.output)
    result: Array = padded(np.zeros((x.shape[0], channels, *sizes), x.dtype), at)
    result = np.array(result)
    for tap, seen in taps(result, at):
        seen += columns[(slice(None), slice(None), *tap)]
    inner = tuple(slice(low, low + size) for low, size in zip(at.before, sizes, strict=True))
    return result[(..., *inner)]


def causal_conv(
    call: Call, x: Array, weights: Array, bias: Array | None = None, past: Array | None = None
) -> tuple[Array, Array]:
    """Compute CausalConvWithState: each channel alone over its past."""
    width = weights.shape[2]
    before = np.zeros((*x.shape[:2], width - 1), x.dtype) if past is None else past
    whole = np.concatenate([before, x], 2)
    at = Windows((width,), (1,), (1,), (0,), (0,), (0,), (x.shape[2],))
    wide = np.float32 if x.dtype == np.float16 else x.dtype
    result = convolve(whole.astype(wide), weights.astype(wide), at, x.shape[1])
    if bias is not None:
        result = result + bias.reshape(-1, 1)
    if call.get("activation", "none") in ("silu", "swish"):
        result = result * sigmoid(result)
    return result.astype(x.dtype), whole[:, :, whole.shape[2] - (width - 1) :]


def deform_conv(
    call: Call, x: Array, weights: Array, offsets: Array, bias: Array | None = None, mask: Array | None = None
) -> Array:
    """Compute DeformConv: each tap reads where its offset moves it, between four pixels."""
    at = windows(call, x.shape[2:], weights.shape[2:])
    batch, channels = x.shape[:2]
    group, parts = call.get("group", 1), call.get("offset_group", 1)
    count = int(np.prod(at.kernel))
    moved = offsets.reshape(batch, parts, count, 2, *at.output)
    shares = (
        np.ones((batch, parts, count, *at.output), x.dtype)
        if mask is None
        else mask.reshape(batch, parts, count, *at.output)
    )
    rows = np.arange(at.output[0]).reshape(-1, 1) * at.strides[0] - at.before[0]
    columns = np.arange(at.output[1]) * at.strides[1] - at.before[1]
    seen = np.empty((batch, channels, count, *at.output), x.dtype)
    each = channels // parts
    for n, part, tap in np.ndindex(batch, parts, count):
        y = rows + tap // at.kernel[1] * at.dilations[0] + moved[n, part, tap, 0]
        z = columns + tap % at.kernel[1] * at.dilations[1] + moved[n, part, tap, 1]
        of = slice(part * each, (part + 1) * each)
        seen[n, of, tap] = _between(x[n, of], y, z) * shares[n, part, tap]
    matrix = weights.reshape(group, weights.shape[0] // group, -1)
    flat = seen.reshape(batch, group, -1, int(np.prod(at.output)))
    result = np.matmul(matrix, flat).reshape(batch, weights.shape[0], *at.output)
    if bias is not None:
        result = result + bias.reshape(-1, 1, 1)
    return result.astype(x.dtype)


def _between(x: Array, y: Array, z: Array) -> Array:
    """Interpolate `[channels, height, width]` at places; outside is zero."""
    top, left = np.floor(y).astype(int), np.floor(z).astype(int)
    total = np.zeros((x.shape[0], *y.shape), x.dtype)
    for row, column in ((0, 0), (0, 1), (1, 0), (1, 1)):
        a, b = top + row, left + column
        share = (1 - np.abs(y - a)) * (1 - np.abs(z - b))
        inside = (a >= 0) & (a < x.shape[1]) & (b >= 0) & (b < x.shape[2])
        values = x[:, np.clip(a, 0, x.shape[1] - 1), np.clip(b, 0, x.shape[2] - 1)]
        total += np.where(inside, values * share, 0).astype(x.dtype)
    return total


OPERATORS: dict[str, Operator] = {
    "CausalConvWithState": causal_conv,
    "Col2Im": col_to_im,
    "Conv": conv,
    "ConvInteger": conv_integer,
    "ConvTranspose": conv_transpose,
    "DeformConv": deform_conv,
}
