"""CAST of integers: bytes are moved, as the low ones come first everywhere that a compiled model runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from edge_infer.errors import UnsupportedModel
from edge_infer_converters.writers.compiled.calls import Part
from edge_infer_converters.writers.compiled.floats import Floats
from edge_infer_converters.writers.compiled.moves import move
from edge_infer_converters.writers.compiled.numbers import fixed_point

if TYPE_CHECKING:
    from edge_infer_converters.writers.compiled.calls import Calls, Value
    from edge_infer_converters.writers.tflite.graph import Operator, Tensor

_NARROW = (np.dtype(np.int8), np.dtype(np.int16))


def cast(operator: Operator, calls: Calls) -> None:
    """CAST to the same type, of uint8 to wider integers, of int8, int16 and int64 to int32, of int32 to floats."""
    given, output = operator.inputs[0], operator.outputs[0]
    if given is None:
        raise UnsupportedModel("CAST lacks an input")
    count = int(np.prod(given.shape, dtype=np.int64))
    if given.dtype == output.dtype:
        calls.share(output, given)
    elif given.dtype == np.uint8 and output.dtype in (np.int32, np.int64):
        _widen(calls, given, output, count)
    elif given.dtype in _NARROW and output.dtype == np.int32:
        multiplier, shift = fixed_point(1.0)
        integers = {"count": count, "input_bytes": given.dtype.itemsize, "output_bytes": 4, "input_zero": 0}
        integers |= {"output_zero": 0, "multiplier": multiplier, "shift": shift, "low": -(2**31), "high": 2**31 - 1}
        calls.add("requantize", {"input": calls.of(given), "output": calls.of(output)}, integers)
    elif given.dtype == np.int64 and output.dtype == np.int32:
        move(calls, Part(calls.of(given)), Part(calls.of(output)), [count], [2], [1], 4)
    elif given.dtype == np.int32 and output.dtype == np.float32:
        _to_floats(calls, calls.of(given), calls.of(output), count)
    else:
        raise UnsupportedModel(f"CAST of {given.dtype} to {output.dtype} is not supported")


def _widen(calls: Calls, given: Tensor, output: Tensor, count: int) -> None:
    """Put each byte, whose sign is flipped in memory, before zeros."""
    plain, target = calls.temporary(count), calls.of(output)
    calls.add("flip_sign", {"input": calls.of(given), "output": plain}, {"count": count})
    calls.add("fill", {"output": target}, {"count": target.nbytes, "value": 0, "bytes": 1})
    move(calls, Part(plain), Part(target), [count], [1], [output.dtype.itemsize], 1)


def _to_floats(calls: Calls, given: Value, output: Value, count: int) -> None:
    """Add the four bytes of each integer as floats.

    The three low ones, whose sign is flipped in memory, make an exact sum; the last sum is rounded, as a conversion is.
    """
    planes = calls.temporary(4 * count)
    move(calls, Part(given), Part(planes), [4, count], [1, 4], [count, 1], 1)
    calls.add("flip_sign", {"input": planes, "output": planes}, {"count": 3 * count})
    floats, parts = Floats(calls, count), [calls.temporary(4 * count) for _ in range(4)]
    for byte, part in enumerate(parts):
        ends = {"input": Part(planes, byte * count), "output": Part(part)}
        integers = {"count": count, "zero": -128 if byte < 3 else 0}
        calls.add("dequantize_int8", ends, integers, {"scale": 256.0**byte})
    low = floats.binary("add", floats.binary("add", parts[0], parts[1]), parts[2])
    floats.binary("add", low, parts[3], output)
