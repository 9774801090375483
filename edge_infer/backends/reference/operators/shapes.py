"""Operators that move elements and change shapes, and constants."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from edge_infer.backends.reference.elements import decode, encode, numpy_dtype, small_of

if TYPE_CHECKING:
    from edge_infer.backends.reference.call import Array, Call, Operator


def ints(values: Any) -> list[int]:
    """Return an array or list of integers as Python's."""
    return [int(one) for one in np.asarray(values).reshape(-1)]


def constant(call: Call) -> Array:
    """Give a Constant's value, whichever attribute holds it."""
    for name, dtype in (("value_float", "f4"), ("value_floats", "f4"), ("value_int", "i8"), ("value_ints", "i8")):
        if name in call.attributes:
            return np.array(call.attributes[name], dtype)
    for name in ("value_string", "value_strings"):
        if name in call.attributes:
            return np.array(call.attributes[name], object)
    value = call.get("value", call.get("sparse_value", None))
    if value is None:
        raise ValueError("it has no value")
    return np.asarray(value)


def constant_of_shape(call: Call, shape: Array) -> Array:
    """Compute ConstantOfShape."""
    value = call.get("value", np.zeros(1, np.float32))
    return np.full(ints(shape), value.reshape(-1)[0], value.dtype)


def reshape(call: Call, x: Array, shape: Array | None = None) -> Array:
    """Compute Reshape: 0 keeps a size, unless `allowzero`."""
    sizes = ints(call.get("shape", []) if shape is None else shape)
    if not call.get("allowzero", 0):
        sizes = [x.shape[i] if size == 0 else size for i, size in enumerate(sizes)]
    return x.reshape(sizes)


def shape_of(call: Call, x: Array) -> Array:
    """Compute Shape."""
    return np.array(x.shape[slice(call.get("start", 0), call.get("end", None))], np.int64)


def flatten(call: Call, x: Array) -> Array:
    """Compute Flatten."""
    axis = call.get("axis", 1)
    axis = axis + x.ndim if axis < 0 else axis
    return (
        x.reshape(int(np.prod(x.shape[:axis], dtype=np.int64)), -1)
        if x.size
        else x.reshape(int(np.prod(x.shape[:axis], dtype=np.int64)), int(np.prod(x.shape[axis:], dtype=np.int64)))
    )


def squeeze(call: Call, x: Array, axes: Array | None = None) -> Array:
    """Compute Squeeze."""
    given = call.get("axes", None) if axes is None else axes
    return np.squeeze(x) if given is None else np.squeeze(x, tuple(ints(given)))


def unsqueeze(call: Call, x: Array, axes: Array | None = None) -> Array:
    """Compute Unsqueeze."""
    return np.expand_dims(x, tuple(ints(call.get("axes", []) if axes is None else axes)))


def transpose(call: Call, x: Array) -> Array:
    """Compute Transpose."""
    return x.transpose(call.get("perm", None))


def concat(call: Call, *inputs: Array) -> Array:
    """Compute Concat."""
    return np.concatenate(inputs, call.get("axis", 1))


def split(call: Call, x: Array, sizes: Array | None = None) -> tuple[Array, ...]:
    """Compute Split: by sizes, or into equal parts of which the last may be smaller."""
    axis = call.get("axis", 0)
    given = call.get("split", None) if sizes is None else sizes
    if given is None:
        parts = call.get("num_outputs", call.outputs)
        if "num_outputs" not in call.attributes and x.shape[axis] % parts:
            raise ValueError(f"{x.shape[axis]} elements in {parts} equal parts")
        each = -(-x.shape[axis] // parts)
        edges = [min(each * i, x.shape[axis]) for i in range(1, parts)]
    else:
        edges = edges_of(ints(given), x.shape[axis])
    return tuple(np.split(x, edges, axis))


def edges_of(sizes: list[int], whole: int) -> list[int]:
    """Return where parts of these sizes end, but the last; together they have to be the whole."""
    if sum(sizes) != whole or min(sizes, default=0) < 0:
        raise ValueError(f"parts of {sizes}, expected {whole} elements together")
    return [int(one) for one in np.cumsum(sizes)[:-1]]


def expand(call: Call, x: Array, shape: Array) -> Array:
    """Compute Expand: sizes of 1 grow on both sides."""
    return np.broadcast_to(x, np.broadcast_shapes(x.shape, tuple(ints(shape))))


def tile(call: Call, x: Array, repeats: Array, axis: Array | None = None) -> Array:
    """Compute Tile; before version 6 along one axis."""
    if axis is not None:
        counts = [1] * x.ndim
        counts[int(axis)] = int(repeats)
        return np.tile(x, counts)
    counts = ints(repeats)
    if len(counts) != x.ndim:
        raise ValueError(f"{len(counts)} repeats, expected one for each of {x.ndim} axes")
    return np.tile(x, counts)


def slice_(
    call: Call,
    x: Array,
    starts: Array | None = None,
    ends: Array | None = None,
    axes: Array | None = None,
    steps: Array | None = None,
) -> Array:
    """Compute Slice; before version 10 the bounds were attributes."""
    first = ints(call.get("starts", []) if starts is None else starts)
    last = ints(call.get("ends", []) if ends is None else ends)
    along = call.get("axes", None) if axes is None else axes
    where = list(range(len(first))) if along is None else ints(along)
    jumps = [1] * len(first) if steps is None else ints(steps)
    cut = [slice(None)] * x.ndim
    for begin, end, axis, step in zip(first, last, where, jumps, strict=True):
        size = x.shape[axis]
        begin = begin + size if begin < 0 else begin
        end = end + size if end < 0 else end
        if step > 0:
            cut[axis] = slice(min(max(begin, 0), size), min(max(end, 0), size), step)
        else:
            begin, end = min(max(begin, 0), size - 1), min(max(end, -1), size - 1)
            cut[axis] = slice(begin, None if end < 0 else end, step)
    return x[tuple(cut)]


def pad(
    call: Call, x: Array, pads: Array | None = None, value: Array | None = None, axes: Array | None = None
) -> Array:
    """Compute Pad; negative counts cut off."""
    counts = ints(call.get("pads", call.get("paddings", [])) if pads is None else pads)
    where = list(range(x.ndim)) if axes is None else [axis % x.ndim for axis in ints(axes)]
    widths = [(0, 0)] * x.ndim
    for i, axis in enumerate(where):
        widths[axis] = counts[i], counts[i + len(where)]
        if max(0, -counts[i]) + max(0, -counts[i + len(where)]) > x.shape[axis]:
            raise ValueError(f"{counts} cut off more than the {x.shape[axis]} elements of axis {axis}")
    mode = call.get("mode", "constant")
    cut = tuple(slice(max(0, -low), size - max(0, -high)) for (low, high), size in zip(widths, x.shape, strict=True))
    x = x[cut]
    grown = [(max(0, low), max(0, high)) for low, high in widths]
    if mode != "constant":
        return np.pad(x, grown, mode=mode)
    fill: Any = call.get("value", 0) if value is None else value.reshape(-1)[0]
    if x.dtype.kind == "O" and value is None:
        fill = ""
    sizes = [size + low + high for size, (low, high) in zip(x.shape, grown, strict=True)]
    padded = np.zeros(sizes, x.dtype) if x.dtype.names and value is None else np.full(sizes, fill, x.dtype)
    padded[tuple(slice(low, low + size) for size, (low, _) in zip(x.shape, grown, strict=True))] = x
    return padded


def depth_to_space(call: Call, x: Array) -> Array:
    """Compute DepthToSpace."""
    size = call.get("blocksize", 1)
    batch, channels, height, width = x.shape
    rest = channels // size**2
    if call.get("mode", "DCR") == "DCR":
        parts = x.reshape(batch, size, size, rest, height, width).transpose(0, 3, 4, 1, 5, 2)
    else:
        parts = x.reshape(batch, rest, size, size, height, width).transpose(0, 1, 4, 2, 5, 3)
    return parts.reshape(batch, rest, height * size, width * size)


def space_to_depth(call: Call, x: Array) -> Array:
    """Compute SpaceToDepth."""
    size = call.get("blocksize", 1)
    batch, channels, height, width = x.shape
    parts = x.reshape(batch, channels, height // size, size, width // size, size)
    order = (0, 3, 5, 1, 2, 4) if call.get("mode", "DCR") == "DCR" else (0, 1, 3, 5, 2, 4)
    return parts.transpose(order).reshape(batch, channels * size**2, height // size, width // size)


def center_crop_pad(call: Call, x: Array, shape: Array) -> Array:
    """Compute CenterCropPad."""
    axes = [axis % x.ndim for axis in call.get("axes", list(range(x.ndim)))]
    sizes = list(x.shape)
    source, target = [slice(None)] * x.ndim, [slice(None)] * x.ndim
    for axis, size in zip(axes, ints(shape), strict=True):
        sizes[axis] = size
        have = x.shape[axis]
        if size <= have:
            start = (have - size) // 2
            source[axis] = slice(start, start + size)
        else:
            start = (size - have) // 2
            target[axis] = slice(start, start + have)
    result = np.zeros(sizes, x.dtype)
    result[tuple(target)] = x[tuple(source)]
    return result


def trilu(call: Call, x: Array, k: Array | None = None) -> Array:
    """Compute Trilu: the upper or the lower triangle."""
    by = 0 if k is None else int(k)
    return np.triu(x, by) if call.get("upper", 1) else np.tril(x, by)


def eye_like(call: Call, x: Array) -> Array:
    """Compute EyeLike."""
    dtype = numpy_dtype(call.get("dtype", 0)) if call.get("dtype", 0) else x.dtype
    ones = np.eye(x.shape[0], x.shape[1], k=call.get("k", 0))
    small = small_of(dtype)
    return encode(ones, small) if small else ones.astype(dtype)


def range_(call: Call, start: Array, limit: Array, delta: Array) -> Array:
    """Compute Range."""
    small = small_of(start.dtype)
    first, last, step = (decode(one).reshape(()) for one in (start, limit, delta))
    count = (
        max(0, int(np.ceil((float(last) - float(first)) / float(step))))
        if first.dtype.kind == "f"
        else len(range(int(first), int(last), int(step)))
    )
    values = np.asarray(first + np.arange(count, dtype=first.dtype) * step).astype(first.dtype)
    return encode(values, small) if small else values


def one_hot(call: Call, places: Array, depth: Array, values: Array) -> Array:
    """Compute OneHot; places outside give a row of the value for off."""
    count, axis = int(np.asarray(depth).reshape(())), call.get("axis", -1)
    whole = places.astype(np.int64)
    whole = np.where(whole < 0, whole + count, whole)
    axis = axis + places.ndim + 1 if axis < 0 else axis
    numbers = np.arange(count).reshape(-1, *(1,) * (places.ndim - axis))
    return np.where(np.expand_dims(whole, axis) == numbers, values[1], values[0])


def reverse_sequence(call: Call, x: Array, lengths: Array) -> Array:
    """Compute ReverseSequence."""
    batch, time = call.get("batch_axis", 1), call.get("time_axis", 0)
    result = np.moveaxis(x, (batch, time), (0, 1)).copy()
    for row, length in zip(result, ints(lengths), strict=True):
        row[:length] = row[:length][::-1].copy()
    return np.moveaxis(result, (0, 1), (batch, time))


def dropout(call: Call, x: Array, ratio: Array | None = None, training: Array | None = None) -> tuple[Array, ...]:
    """Compute Dropout: nothing is dropped unless it trains."""
    share = call.get("ratio", 0.5) if ratio is None else float(ratio)
    mask = np.ones(x.shape, bool)
    if training is not None and bool(training) and share:
        mask = np.random.default_rng(call.get("seed", None)).random(x.shape) >= share
        x = np.asarray(x * mask / (1 - share)).astype(x.dtype)
    return x, mask


OPERATORS: dict[str, Operator] = {
    "CenterCropPad": center_crop_pad,
    "Concat": concat,
    "Constant": constant,
    "ConstantOfShape": constant_of_shape,
    "DepthToSpace": depth_to_space,
    "Dropout": dropout,
    "Expand": expand,
    "EyeLike": eye_like,
    "Flatten": flatten,
    "Identity": lambda call, x: x,
    "OneHot": one_hot,
    "Pad": pad,
    "Range": range_,
    "Reshape": reshape,
    "ReverseSequence": reverse_sequence,
    "Shape": shape_of,
    "Size": lambda call, x: np.array(x.size, np.int64),
    "Slice": slice_,
    "SpaceToDepth": space_to_depth,
    "Split": split,
    "Squeeze": squeeze,
    "Tile": tile,
    "Transpose": transpose,
    "Trilu": trilu,
    "Unsqueeze": unsqueeze,
}
