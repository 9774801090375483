"""Operators that move elements: reshapes, slices, pads, transposes, concatenations, resizes."""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from edge_infer.errors import UnsupportedModel
from edge_infer_converters.writers.compiled.calls import Part
from edge_infer_converters.writers.compiled.elements import joined
from edge_infer_converters.writers.compiled.numbers import scale_of, signed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from edge_infer_converters.writers.compiled.calls import Calls
    from edge_infer_converters.writers.tflite.graph import Operator, Tensor

_LOOPS = 5


class _Strides(NamedTuple):
    """Where a tensor's elements lie: the first, and the step along each axis, in elements."""

    start: int
    steps: tuple[int, ...]


def reshape(operator: Operator, calls: Calls) -> None:
    """RESHAPE, SQUEEZE, EXPAND_DIMS: the same memory."""
    calls.share(operator.outputs[0], _given(operator, 0))


def transpose(operator: Operator, calls: Calls) -> None:
    """TRANSPOSE."""
    given, order = _given(operator, 0), _numbers(operator, 1)
    dense = _dense(given.shape).steps
    _copy(calls, given, operator.outputs[0], _Strides(0, tuple(dense[axis] for axis in order)))


def strided_slice(operator: Operator, calls: Calls) -> None:
    """STRIDED_SLICE."""
    given, output = _given(operator, 0), operator.outputs[0]
    begins, ends, strides = (_numbers(operator, place) for place in (1, 2, 3))
    options: Any = operator.options
    if options.ellipsisMask or options.newAxisMask:
        raise UnsupportedModel("STRIDED_SLICE with an ellipsis or a new axis is not supported")
    start, steps = 0, []
    dense = _dense(given.shape).steps
    for axis, size in enumerate(given.shape):
        if axis >= len(begins):
            steps.append(dense[axis])
            continue
        bit, stride = 1 << axis, strides[axis]
        begin = None if options.beginMask & bit else begins[axis]
        end = None if options.endMask & bit else ends[axis]
        if options.shrinkAxisMask & bit:
            start += ((begin or 0) % size) * dense[axis]
            continue
        first = slice(begin, end, stride).indices(size)[0]
        start += first * dense[axis]
        steps.append(stride * dense[axis])
    _copy(calls, given, output, _Strides(start, tuple(steps)))


def cut(operator: Operator, calls: Calls) -> None:
    """SLICE."""
    given = _given(operator, 0)
    dense = _dense(given.shape).steps
    start = sum(begin * step for begin, step in zip(_numbers(operator, 1), dense, strict=True))
    _copy(calls, given, operator.outputs[0], _Strides(start, dense))


def split(operator: Operator, calls: Calls) -> None:
    """SPLIT and SPLIT_V."""
    place = 1 if operator.code == "SPLIT" else 0
    given = _given(operator, place)
    axis = _numbers(operator, 0 if operator.code == "SPLIT" else 2)[0] % given.rank
    dense, start = _dense(given.shape).steps, 0
    for output in operator.outputs:
        _copy(calls, given, output, _Strides(start * dense[axis], dense))
        start += output.shape[axis]


def concatenation(operator: Operator, calls: Calls) -> None:
    """CONCATENATION: inputs in another scale are rescaled first."""
    output, options = operator.outputs[0], operator.options
    asked: Any = options
    if asked.fusedActivationFunction:
        raise UnsupportedModel("CONCATENATION with a fused activation is not supported")
    axis, start = asked.axis % output.rank, 0
    dense = _dense(output.shape).steps
    for place in range(len(operator.inputs)):
        given = _given(operator, place)
        value = calls.of(given) if given.quantization is None else joined(calls, given, output)
        move(
            calls,
            Part(value),
            Part(calls.of(output), start * dense[axis] * output.dtype.itemsize),
            given.shape,
            _dense(given.shape).steps,
            dense,
            output.dtype.itemsize,
        )
        start += given.shape[axis]


def pack(operator: Operator, calls: Calls) -> None:
    """PACK: inputs along a new axis."""
    output, options = operator.outputs[0], operator.options
    packed: Any = options
    axis = packed.axis % output.rank
    dense = _dense(output.shape).steps
    for place in range(len(operator.inputs)):
        given = _given(operator, place)
        target = Part(calls.of(output), place * dense[axis] * output.dtype.itemsize)
        steps = (*dense[:axis], *dense[axis + 1 :])
        own = _dense(given.shape).steps
        move(calls, Part(calls.of(given)), target, given.shape, own, steps, output.dtype.itemsize)


def unpack(operator: Operator, calls: Calls) -> None:
    """UNPACK: the parts along an axis, without it."""
    given = _given(operator, 0)
    asked: Any = operator.options
    axis = asked.axis % given.rank
    dense = _dense(given.shape).steps
    for place, output in enumerate(operator.outputs):
        _copy(calls, given, output, _Strides(place * dense[axis], (*dense[:axis], *dense[axis + 1 :])))


def tile(operator: Operator, calls: Calls) -> None:
    """TILE: the input, so often along each axis."""
    given, output, counts = _given(operator, 0), operator.outputs[0], _numbers(operator, 1)
    if output.shape != tuple(size * count for size, count in zip(given.shape, counts, strict=True)):
        raise UnsupportedModel(f"TILE of {given.shape} by {counts} gives {output.shape}")
    # Two axes for each: which copy, and where in it.
    shape = [one for pair in zip(counts, given.shape, strict=True) for one in pair]
    own = [one for step in _dense(given.shape).steps for one in (0, step)]
    dense = [
        one for size, step in zip(given.shape, _dense(output.shape).steps, strict=True) for one in (size * step, step)
    ]
    size = output.dtype.itemsize
    move(calls, Part(calls.of(given)), Part(calls.of(output)), shape, own, dense, size)


def gather(operator: Operator, calls: Calls) -> None:
    """GATHER: rows along an axis, by their numbers. A number of no row takes the nearest one."""
    asked: Any = operator.options
    if asked.batchDims:
        raise UnsupportedModel("GATHER with axes of a batch is not supported")
    _gather(operator, calls, _given(operator, 0), _given(operator, 1), asked.axis)


def embedding(operator: Operator, calls: Calls) -> None:
    """EMBEDDING_LOOKUP: rows of a table."""
    _gather(operator, calls, _given(operator, 1), _given(operator, 0), 0)


def _gather(operator: Operator, calls: Calls, given: Tensor, places: Tensor, axis: int) -> None:
    output = operator.outputs[0]
    if places.dtype != np.int32 or given.dtype != output.dtype:
        raise UnsupportedModel(f"{operator.code} of {given.dtype} by {places.dtype} is not supported")
    axis %= given.rank
    size = output.dtype.itemsize
    integers = {
        "outer": int(np.prod(given.shape[:axis], dtype=np.int64)),
        "rows": given.shape[axis],
        "count": int(np.prod(places.shape, dtype=np.int64)),
        "block": int(np.prod(given.shape[axis + 1 :], dtype=np.int64)) * size,
    }
    tensors = {"input": calls.of(given), "positions": calls.of(places), "output": calls.of(output)}
    calls.add("gather", tensors, integers)


def pad(operator: Operator, calls: Calls) -> None:
    """PAD and PADV2."""
    given, output = _given(operator, 0), operator.outputs[0]
    pads = np.array(_numbers(operator, 1)).reshape(-1, 2)
    fill = -128 if output.dtype == np.uint8 else 0  # of uint8 the sign is flipped
    if output.dtype.itemsize == 1 and output.quantization is not None:
        fill = scale_of(output).zero
    if operator.code == "PADV2":
        value = _given(operator, 2)
        if value.data is None:
            raise UnsupportedModel("PADV2 has a computed value, expected a constant")
        kind = {1: np.int8, 4: np.int32}.get(output.dtype.itemsize, output.dtype)
        fill = int(np.frombuffer(signed(value).tobytes(), kind)[0])
    target = calls.of(output)
    dense, size = _dense(output.shape).steps, output.dtype.itemsize
    unit = 4 if size == 4 else 1  # the kernel writes one or four bytes: of others zeros alone
    if size not in (1, 4) and fill:
        raise UnsupportedModel(f"PADV2 of {output.dtype} with {fill} is not supported")
    calls.add("fill", {"output": target}, {"count": target.nbytes // unit, "value": fill, "bytes": unit})
    start = sum(int(before) * step for (before, _), step in zip(pads, dense, strict=True))
    own = _dense(given.shape).steps
    move(calls, Part(calls.of(given)), Part(target, start * size), given.shape, own, dense, size)


def mirror_pad(operator: Operator, calls: Calls) -> None:
    """MIRROR_PAD: the elements beside each edge in turn, the edge itself too where its mode is symmetric."""
    given, output = _given(operator, 0), operator.outputs[0]
    asked: Any = operator.options
    skipped = 0 if asked.mode else 1
    pads = np.array(_numbers(operator, 1)).reshape(-1, 2).tolist()
    if any(max(pair) > size - skipped for pair, size in zip(pads, given.shape, strict=True)):
        raise UnsupportedModel(f"MIRROR_PAD of {given.shape} by {pads} is not supported")
    # Along each axis up to three parts: how many, from where in the input, which way, and where to.
    axes = [
        [
            part
            for part in (
                (before, before - 1 + skipped, -1, 0),
                (size, 0, 1, before),
                (after, size - 1 - skipped, -1, before + size),
            )
            if part[0]
        ]
        for (before, after), size in zip(pads, given.shape, strict=True)
    ]
    own, dense, size = _dense(given.shape).steps, _dense(output.shape).steps, output.dtype.itemsize
    for parts in product(*axes):
        start = sum(part[1] * step for part, step in zip(parts, own, strict=True))
        target = sum(part[3] * step for part, step in zip(parts, dense, strict=True))
        steps = [part[2] * step for part, step in zip(parts, own, strict=True)]
        ends = Part(calls.of(given), start * size), Part(calls.of(output), target * size)
        move(calls, *ends, [part[0] for part in parts], steps, dense, size)


def blocks(operator: Operator, calls: Calls) -> None:
    """DEPTH_TO_SPACE and SPACE_TO_DEPTH: channels become blocks of places, or blocks of places channels."""
    given, output = _given(operator, 0), operator.outputs[0]
    asked: Any = operator.options
    side = asked.blockSize
    is_deep = operator.code == "DEPTH_TO_SPACE"
    (batch, height, width, _), (_, tall, wide, channels) = (
        (given.shape, output.shape) if is_deep else (output.shape, given.shape)
    )
    if side < 1 or (tall, wide) != (height * side, width * side):
        raise UnsupportedModel(f"{operator.code} of {given.shape} by blocks of {side} gives {output.shape}")
    shape = (batch, height, width, side, side, channels)
    deep = _dense(shape).steps
    row = wide * channels
    flat = (tall * row, side * row, side * channels, row, channels, 1)
    read, written = (deep, flat) if is_deep else (flat, deep)
    move(calls, Part(calls.of(given)), Part(calls.of(output)), shape, read, written, output.dtype.itemsize)


def move(
    calls: Calls,
    source: Part,
    target: Part,
    shape: Sequence[int],
    source_steps: Sequence[int],
    target_steps: Sequence[int],
    size: int,
) -> None:
    """Move elements, the runs that lie beside each other on both sides at once.

    Args:
        calls: What is added to.
        source: The first element to read.
        target: Where it is written.
        shape: How many elements there are along each axis.
        source_steps: The step along each axis of what is read, in elements.
        target_steps: The same of what is written.
        size: The bytes of an element.

    Raises:
        UnsupportedModel: More loops are needed than the kernel has.
    """
    if not np.prod(shape, dtype=np.int64):
        return
    loops = [
        (count, a * size, b * size) for count, a, b in zip(shape, source_steps, target_steps, strict=True) if count > 1
    ]
    block = size
    while loops and loops[-1][1] == block and loops[-1][2] == block:
        block *= loops.pop()[0]
    merged: list[tuple[int, int, int]] = []
    for count, a, b in loops:
        if merged and merged[-1][1] == count * a and merged[-1][2] == count * b:
            merged[-1] = (merged[-1][0] * count, a, b)
        else:
            merged.append((count, a, b))
    if len(merged) > _LOOPS:
        raise UnsupportedModel(f"{calls.operator} of {len(shape)} axes is not supported")
    merged = [(1, 0, 0)] * (_LOOPS - len(merged)) + merged
    integers = {"block": block}
    for i, (count, a, b) in enumerate(merged):
        integers |= {f"size_{i}": count, f"input_{i}": a, f"output_{i}": b}
    calls.add("copy", {"input": source, "output": target}, integers)


def move_channels(calls: Calls, given: Tensor, output: Tensor, read: int, written: int) -> None:
    """Copy the channels of the narrower one of two tensors.

    Args:
        calls: What is added to.
        given: What is read, from the channel `read` on.
        output: What is written, from the channel `written` on.
        read: A channel.
        written: A channel.
    """
    shape, size = min(given.shape, output.shape), output.dtype.itemsize
    source, target = Part(calls.of(given), read * size), Part(calls.of(output), written * size)
    move(calls, source, target, shape, _dense(given.shape).steps, _dense(output.shape).steps, size)


def resize_nearest(operator: Operator, calls: Calls) -> None:
    """RESIZE_NEAREST_NEIGHBOR."""
    given, output = _given(operator, 0), operator.outputs[0]
    values = {"input": calls.of(given), "output": calls.of(output)}
    calls.add("resize_nearest", values, {**_resize(operator), "element_bytes": output.dtype.itemsize})


def resize_bilinear(operator: Operator, calls: Calls) -> None:
    """RESIZE_BILINEAR."""
    given, output = _given(operator, 0), operator.outputs[0]
    if output.dtype not in (np.dtype(np.float32), np.dtype(np.int8)):
        raise UnsupportedModel(f"RESIZE_BILINEAR of {output.dtype} is not supported")
    kind = "float" if output.dtype == np.float32 else "int8" if calls.rounding == "litert" else "int8_fixed"
    ends = {"input": calls.of(given), "output": calls.of(output)}
    calls.add(f"resize_bilinear_{kind}", ends, _resize(operator))


def _resize(operator: Operator) -> dict[str, int]:
    given, output, options = _given(operator, 0), operator.outputs[0], operator.options
    asked: Any = options
    return {
        "batch": given.shape[0],
        "input_height": given.shape[1],
        "input_width": given.shape[2],
        "channels": given.shape[3],
        "output_height": output.shape[1],
        "output_width": output.shape[2],
        "align_corners": int(asked.alignCorners),
        "half_pixel_centers": int(asked.halfPixelCenters),
    }


def _given(operator: Operator, place: int) -> Tensor:
    found = operator.inputs[place] if place < len(operator.inputs) else None
    if found is None:
        raise UnsupportedModel(f"{operator.code} lacks an input")
    return found


def _numbers(operator: Operator, place: int) -> list[int]:
    found = _given(operator, place)
    if found.data is None:
        raise UnsupportedModel(f"{operator.code} has computed bounds, expected constants")
    return [int(one) for one in found.data.reshape(-1)]


def _dense(shape: Sequence[int]) -> _Strides:
    steps, step = [], 1
    for size in reversed(shape):
        steps.append(step)
        step *= size
    return _Strides(0, tuple(reversed(steps)))


def _copy(calls: Calls, given: Tensor, output: Tensor, source: _Strides) -> None:
    """Fill an output with elements of an input."""
    size = output.dtype.itemsize
    shape = output.shape
    if len(source.steps) != len(shape):
        raise UnsupportedModel(f"an output of {len(shape)} axes is made of {len(source.steps)}")
    start = Part(calls.of(given), source.start * size)
    move(calls, start, Part(calls.of(output)), shape, source.steps, _dense(shape).steps, size)
