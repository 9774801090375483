"""The bytes that a call of a kernel reads and writes, computed from its integers before it runs.

A kernel checks nothing. So whoever makes or takes a call compares these extents with the memory of its tensors.
"""

from __future__ import annotations

from math import prod

from edge_infer.kernels.declarations import KERNELS, scratch_bytes

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

#: Kernels, strides, dilations and pads: no product of one with a place leaves 32 bits.
_MAX_STEP = 2**12
#: Heights, widths, and counts along an axis of a window.
_MAX_SIDE = 2**18
_MAX_BYTES = 2**31
_TABLE = 256
#: Tensors of 32-bit elements, in every kernel and in one.
_WORDS = frozenset(
    (
        *("bias", "multipliers", "shifts", "scratch", "positions", "recurrent_bias", "parameters"),
        *("nodes", "votes", "roots", "base", "points", "sigmoids"),
    )
)
_FLOATS = frozenset(
    (
        *(("convolution_hybrid", "output"), ("quantize_rows", "input")),
        *(("requantize", "input"), ("requantize", "output"), ("quantize_rows", "output")),
        *(("softmax_int8_fixed", "table"), ("svdf_int8", "state"), ("svdf_int8", "times")),
        *(("quantize_float", "input"), ("quantize_float_fixed", "input")),
        *(("dequantize_int8", "output"), ("softmax_int8", "table")),
    )
)
_OF_WORDS = ("trees", "arg_max", "normalize_rows", "distances", "pair_votes")
#: Of each side of a window the steps, what is read and made, and the margin.
_SIDES = (
    (("kernel_height", "stride_height", "dilation_height"), "input_height", "output_height", "pad_top"),
    (("kernel_width", "stride_width", "dilation_width"), "input_width", "output_width", "pad_left"),
)
_MIN_CELL_BITS, _MAX_CELL_BITS = 11, 15


def extents(kernel: str, integers: Mapping[str, int]) -> dict[str, tuple[int, int]]:
    """Return the bytes of each tensor that a call touches.

    Args:
        kernel: The kernel's name.
        integers: Its integers by name.

    Returns:
        By tensor the first byte, and the byte behind the last, from the tensor's place on. The first is negative where
        a move goes backwards.

    Raises:
        ValueError: No tensors of any size fit: a size is negative, or a window lies outside of its image.
    """
    if kernel.startswith(("convolution", "depthwise", "average_pool", "max_pool")):
        return _window(kernel, integers)
    if "size_4" in integers:
        return _copy(integers)
    if "size_3" in integers:
        return _broadcast(kernel, integers)
    if kernel.startswith("mean"):
        outer, reduced, inner = (_size(integers[name]) for name in ("outer", "reduced", "inner"))
        if not reduced:
            raise ValueError("a mean of no elements")
        size = _element(kernel)
        return {"input": (0, outer * reduced * inner * size), "output": (0, outer * inner * size)}
    if kernel.startswith("resize"):
        return _resize(kernel, integers)
    if kernel.startswith("softmax"):
        if integers["columns"] < 1:
            raise ValueError("a softmax of no columns")
        count = _size(integers["rows"]) * integers["columns"] * _element(kernel)
        made = count * _width(integers, "output_bytes", (1, 2)) if "output_bytes" in integers else count
        return {"input": (0, count), "output": (0, made), "table": (0, 4 * _TABLE)}
    if kernel.startswith("lstm"):
        return _lstm(kernel, integers)
    if kernel in _OWN:
        return _OWN[kernel](integers)
    count = _size(integers["count"])
    if kernel == "fill":
        return {"output": (0, count * (4 if integers["bytes"] == 4 else 1))}
    source = 4 if kernel in ("unary_float", "quantize_float", "quantize_float_fixed") else 1
    target = 4 if kernel in ("unary_float", "dequantize_int8") else 1
    return {"input": (0, count * source), "output": (0, count * target), "table": (0, _TABLE)}


def alignment(kernel: str, tensor: str) -> int:
    """Return what the place of a tensor of a kernel is a multiple of, in bytes: some CPUs stop at other addresses."""
    if tensor in _WORDS or (kernel, tensor) in _FLOATS or kernel in _OF_WORDS:
        return 4
    if kernel == "lstm_int8" and tensor == "cell":
        return 2
    return 4 if kernel.endswith("_float") and kernel != "quantize_float" else 1


def are_apart(kernel: str, places: Mapping[str, tuple[int, int]]) -> bool:
    """Tell whether the tensors of a call lie apart where a kernel reads back what it wrote as a place.

    The scratch of a depthwise convolution holds the places of its taps. An int8 softmax looks its inputs up from the
    highest one downwards, which holds as long as its outputs take the places of its inputs, or others.

    Args:
        kernel: The kernel's name.
        places: By tensor that is not empty its first byte in the image, and the byte behind its last.
    """
    if kernel.startswith("softmax_int8") and "input" in places and places["input"] != places["output"]:
        return not _do_overlap(places["input"], places["output"])
    if "scratch" not in places:
        return True
    low, high = places["scratch"]
    return not any(first < high and low < end and name != "scratch" for name, (first, end) in places.items())


def _do_overlap(first: tuple[int, int], second: tuple[int, int]) -> bool:
    return max(first[0], second[0]) < min(first[1], second[1])


def _element(kernel: str) -> int:
    return 4 if kernel.endswith("_float") else 1


def _size(value: int, most: int = _MAX_BYTES) -> int:
    if not 0 <= value < most:
        raise ValueError(f"a size of {value}")
    return value


def _count(value: int, most: int = _MAX_BYTES) -> int:
    """Return a size that is not 0: a window of none would write before its scratch, or divide by 0."""
    if not 1 <= value < most:
        raise ValueError(f"a size of {value}")
    return value


def _check_loops(*sizes: int) -> None:
    """Refuse loops around nothing that would run for hours: a size of 0 inside of them makes no tensor."""
    if prod(max(size, 1) for size in sizes) >= _MAX_BYTES:
        raise ValueError(f"a size of {prod(max(size, 1) for size in sizes)}")


def _window(kernel: str, integers: Mapping[str, int]) -> dict[str, tuple[int, int]]:
    outputs, inputs, batch = (_count(integers[name]) for name in ("output_channels", "input_channels", "batch"))
    is_dense = kernel.startswith("convolution")
    if not is_dense and inputs != outputs:
        raise ValueError(f"{inputs} channels become {outputs}")
    for steps, given, made, pad in _SIDES:
        for name in steps:
            if not 1 <= integers[name] <= _MAX_STEP:
                raise ValueError(f"a {name} of {integers[name]}")
        span, stride, _ = (integers[name] for name in steps)
        before, last = integers[pad], _count(integers[made], _MAX_SIDE) - 1
        is_inside = before < span and last * stride - before < _count(integers[given], _MAX_SIDE)
        if not 0 <= before <= _MAX_STEP * _MAX_STEP or ("pool" in kernel and not is_inside):
            raise ValueError("a window lies outside of its image")
    size = _element(kernel)
    places = integers["output_height"] * integers["output_width"]
    found = {
        "input": (0, batch * integers["input_height"] * integers["input_width"] * inputs * size),
        "output": (0, batch * places * outputs * size),
    }
    if "pool" in kernel:
        return found
    padded, taps = -(-outputs // 8) * 8, integers["kernel_height"] * integers["kernel_width"]
    if is_dense:
        taps *= inputs
    weights = padded * (taps if size == 4 else 2 * -(-taps // 2)) * size
    if kernel == "depthwise_float":
        padded, weights = outputs, outputs * taps * size
    if kernel == "convolution_hybrid":
        found["output"] = (0, found["output"][1] * 4)
        found["parameters"] = (0, batch * 8)
    scratch = scratch_bytes(kernel, integers)
    return {
        **found,
        "weights": (0, weights),
        **dict.fromkeys(("bias", "multipliers", "shifts"), (0, 4 * padded)),
        "scratch": (0, scratch),
    }


def _copy(integers: Mapping[str, int]) -> dict[str, tuple[int, int]]:
    sizes = [_size(integers[f"size_{i}"]) for i in range(5)]
    block = _size(integers["block"])
    _check_loops(*sizes, block)
    if not prod(sizes) or not block:
        return {"input": (0, 0), "output": (0, 0)}
    found = {}
    for side in ("input", "output"):
        ends = [(size - 1) * integers[f"{side}_{i}"] for i, size in enumerate(sizes)]
        found[side] = (sum(min(end, 0) for end in ends), sum(max(end, 0) for end in ends) + block)
    return found


def _broadcast(kernel: str, integers: Mapping[str, int]) -> dict[str, tuple[int, int]]:
    sizes = [_size(integers[f"size_{i}"]) for i in range(4)]
    size = _element(kernel)
    _check_loops(*sizes)
    if not prod(sizes):
        return dict.fromkeys(KERNELS[kernel].tensors, (0, 0))
    found = {"output": (0, prod(sizes) * size)}
    for side in ("first", "second"):
        steps = [_size(integers[f"{side}_{i}"]) for i in range(4)]
        last = sum((count - 1) * step for count, step in zip(sizes, steps, strict=True))
        found[side] = (0, (last + 1) * size)
    return found


def _resize(kernel: str, integers: Mapping[str, int]) -> dict[str, tuple[int, int]]:
    size = _size(integers["element_bytes"]) if "element_bytes" in integers else _element(kernel)
    sides = [_size(integers[f"{end}_{side}"], _MAX_SIDE) for end in ("input", "output") for side in ("height", "width")]
    if not all(sides):
        raise ValueError("a resize of no pixels")
    _check_loops(*sides[2:], _size(integers["batch"]), _size(integers["channels"]), size)
    each = integers["batch"] * integers["channels"] * size
    return {"input": (0, sides[0] * sides[1] * each), "output": (0, sides[2] * sides[3] * each)}


def _lstm(kernel: str, integers: Mapping[str, int]) -> dict[str, tuple[int, int]]:
    batch, steps, inputs, cells = (_size(integers[name], _MAX_SIDE) for name in ("batch", "steps", "inputs", "cells"))
    _check_loops(batch, steps, cells)
    size = 4 if kernel == "lstm_float" else 1
    if kernel == "lstm_int8":
        # The rules of shifts: cells have 11 to 15 bits behind the point, and no shift leaves 64 bits.
        shifts = [number for name, number in integers.items() if name.endswith("_shift")]
        if not _MIN_CELL_BITS <= integers["cell_bits"] <= _MAX_CELL_BITS or not all(-31 <= one <= 30 for one in shifts):
            raise ValueError("a shift of an LSTM is out of its range")
    return {
        "input": (0, batch * steps * inputs * size),
        "output": (0, batch * steps * cells * size),
        "hidden": (0, batch * cells * size),
        "cell": (0, batch * cells * (4 if size == 4 else 2)),
        "weights": (0, 4 * cells * inputs * size),
        "recurrent": (0, 4 * cells * cells * size),
        **dict.fromkeys(("bias", "recurrent_bias"), (0, 4 * cells * 4)),
        "scratch": (0, scratch_bytes(kernel, integers)),
    }


def _gather(integers: Mapping[str, int]) -> dict[str, tuple[int, int]]:
    outer, rows, count, block = (_size(integers[name]) for name in ("outer", "rows", "count", "block"))
    _check_loops(outer, count, block)
    if not rows and outer * count * block:
        raise ValueError("a gather from no rows")
    return {"input": (0, outer * rows * block), "positions": (0, 4 * count), "output": (0, outer * count * block)}


def _requantize(integers: Mapping[str, int]) -> dict[str, tuple[int, int]]:
    count = _size(integers["count"])
    _check_shifts(integers, "shift")
    ends = ("input", "output")
    return {end: (0, count * _width(integers, f"{end}_bytes", (1, 2, 4))) for end in ends}


def _quantize_rows(integers: Mapping[str, int]) -> dict[str, tuple[int, int]]:
    rows, columns = _size(integers["rows"]), _size(integers["columns"])
    _check_loops(rows, columns)
    if not 0 <= integers["kind"] < _KINDS:
        raise ValueError(f"a quantization of kind {integers['kind']}")
    made = rows * columns * _width(integers, "output_bytes", (1, 4))
    return {"input": (0, rows * columns * 4), "output": (0, made), "parameters": (0, rows * 8)}


def _svdf(integers: Mapping[str, int]) -> dict[str, tuple[int, int]]:
    batch, inputs, filters, rank, memory = (
        _count(integers[name], _MAX_SIDE) for name in ("batch", "inputs", "filters", "rank", "memory")
    )
    _check_loops(batch, filters, inputs + memory)
    _check_shifts(integers, "feature_shift", "time_shift")
    if filters % rank:
        raise ValueError(f"{filters} filters of a rank of {rank}")
    size, units = _width(integers, "state_bytes", (1, 2)), filters // rank
    return {
        "input": (0, batch * inputs),
        "output": (0, batch * units),
        "state": (0, batch * filters * memory * size),
        "features": (0, filters * inputs),
        "times": (0, filters * memory * size),
        "bias": (0, 4 * units),
    }


def _trees(integers: Mapping[str, int]) -> dict[str, tuple[int, int]]:
    """The kernel itself leaves a tree whose nodes lead out of it: each step goes forward."""
    names = ("rows", "columns", "targets", "node_count", "vote_count", "trees")
    rows, columns, targets, nodes, votes, trees = (_size(integers[name]) for name in names)
    _check_loops(rows, targets)
    # A tree may pass each node, and a leaf all votes.
    _check_loops(rows, trees, max(nodes + votes, 1))
    return {
        "input": (0, rows * columns * 4),
        "output": (0, rows * targets * 4),
        "nodes": (0, nodes * 12),
        "votes": (0, votes * 8),
        "roots": (0, trees * 4),
        "base": (0, targets * 4),
        "scratch": (0, scratch_bytes("trees", integers)),
    }


def _rows(integers: Mapping[str, int], least: int = 0) -> tuple[int, int]:
    rows, columns = _size(integers["rows"]), _count(integers["columns"]) if least else _size(integers["columns"])
    _check_loops(rows, columns)
    return rows, columns


def _arg_max(integers: Mapping[str, int]) -> dict[str, tuple[int, int]]:
    rows, columns = _rows(integers, 1)
    return {"input": (0, rows * columns * 4), "output": (0, rows * 4)}


def _normalize_rows(integers: Mapping[str, int]) -> dict[str, tuple[int, int]]:
    rows, columns = _rows(integers)
    if not 0 <= integers["kind"] < _NORMS:
        raise ValueError(f"a norm of kind {integers['kind']}")
    return dict.fromkeys(("input", "output"), (0, rows * columns * 4))


def _distances(integers: Mapping[str, int]) -> dict[str, tuple[int, int]]:
    rows, columns = _rows(integers)
    count = _size(integers["count"])
    _check_loops(rows, columns, count)
    return {"input": (0, rows * columns * 4), "points": (0, count * columns * 4), "output": (0, rows * count * 4)}


def _pair_votes(integers: Mapping[str, int]) -> dict[str, tuple[int, int]]:
    rows, classes = _size(integers["rows"]), _count(integers["classes"], _MAX_CLASSES)
    pairs = classes * (classes - 1) // 2
    # Probabilities are improved so many times at most.
    _check_loops(rows, classes, classes, max(classes, 100) if integers["has_probabilities"] else 1)
    return {
        "input": (0, rows * pairs * 4),
        "sigmoids": (0, 2 * pairs * 4 if integers["has_probabilities"] else 0),
        "output": (0, rows * classes * 4),
        "scratch": (0, scratch_bytes("pair_votes", integers)),
    }


def _width(integers: Mapping[str, int], name: str, allowed: tuple[int, ...]) -> int:
    if integers[name] not in allowed:
        raise ValueError(f"{name} of {integers[name]}, expected one of {list(allowed)}")
    return integers[name]


def _check_shifts(integers: Mapping[str, int], *names: str) -> None:
    if not all(-31 <= integers[name] <= 30 for name in names):
        raise ValueError("a shift is out of its range")


#: How rows can be quantized.
_KINDS = 3
#: The norms of rows.
_NORMS = 3
_MAX_CLASSES = 2**12
_OWN: dict[str, Callable[[Mapping[str, int]], dict[str, tuple[int, int]]]] = {
    "gather": _gather,
    "requantize": _requantize,
    "quantize_rows": _quantize_rows,
    "svdf_int8": _svdf,
    "trees": _trees,
    "arg_max": _arg_max,
    "normalize_rows": _normalize_rows,
    "distances": _distances,
    "pair_votes": _pair_votes,
}
