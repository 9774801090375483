"""BATCH_MATMUL of floats: matrices that are computed are laid out as filters, and convolve the rows of others."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from edge_infer.errors import UnsupportedModel
from edge_infer_converters.writers.compiled.calls import Part
from edge_infer_converters.writers.compiled.moves import move
from edge_infer_converters.writers.compiled.numbers import activation_floats
from edge_infer_converters.writers.compiled.windows import rows_of_eight, rows_window

if TYPE_CHECKING:
    from edge_infer_converters.writers.compiled.calls import Calls, Value
    from edge_infer_converters.writers.tflite.graph import Operator, Tensor

#: Each product of two matrices is a call.
_MAX_PRODUCTS = 1024


def batch_matmul(operator: Operator, calls: Calls) -> None:
    """BATCH_MATMUL: the product of the last two axes, for each of the others, which may be repeated."""
    left, right = operator.inputs[:2]
    output = operator.outputs[0]
    if left is None or right is None or not left.dtype == right.dtype == output.dtype == np.float32:
        raise UnsupportedModel("BATCH_MATMUL of other values than floats is not supported")
    options: Any = operator.options
    rows, columns = output.shape[-2:]
    depth = left.shape[-2 if options.adjX else -1]
    batch = output.shape[:-2]
    pairs = list(zip(_numbers(left, batch), _numbers(right, batch), strict=True))
    if len(pairs) > _MAX_PRODUCTS:
        raise UnsupportedModel(f"BATCH_MATMUL of {len(pairs)} matrices is not supported")
    read = _rows(calls, left, rows, depth) if options.adjX else calls.of(left)
    filters, size = _filters(calls, right, depth, columns, is_transposed=bool(options.adjY))
    bias = calls.constant(rows_of_eight(np.zeros(columns, np.float32)))
    window = rows_window(rows, depth, columns)
    for place, (one, other) in enumerate(pairs):
        ends = {
            "input": Part(read, one * 4 * rows * depth),
            "output": Part(calls.of(output), place * 4 * rows * columns),
        }
        tables = {"weights": Part(filters, other * size), "bias": Part(bias)}
        calls.add("convolution_float", ends | tables, window, activation_floats(0))


def _numbers(tensor: Tensor, batch: tuple[int, ...]) -> list[int]:
    """Return the number of the matrix that each product takes."""
    own = tensor.shape[:-2]
    return [int(one) for one in np.broadcast_to(np.arange(np.prod(own, dtype=np.int64)).reshape(own), batch).ravel()]


def _rows(calls: Calls, tensor: Tensor, rows: int, depth: int) -> Value:
    """Return matrices [depth, rows] as [rows, depth]."""
    source = calls.of(tensor)
    target = calls.temporary(source.nbytes)
    shape = (source.nbytes // max(4 * rows * depth, 1), rows, depth)
    steps = (rows * depth, 1, rows), (rows * depth, depth, 1)
    move(calls, Part(source), Part(target), shape, *steps, 4)
    return target


def _filters(calls: Calls, tensor: Tensor, depth: int, columns: int, *, is_transposed: bool) -> tuple[Value, int]:
    """Lay out matrices [depth, columns], or transposed ones, as filters; return them, and the bytes of each."""
    source, lanes = calls.of(tensor), calls.filter_lanes
    count, each = source.nbytes // max(4 * depth * columns, 1), -(-columns // 8) * 8 * depth
    target = calls.temporary(4 * count * each)
    down, right = (1, depth) if is_transposed else (columns, 1)
    whole, rest = divmod(columns, lanes)
    read, written = (depth * columns, lanes * right, down, right), (each, lanes * depth, lanes, 1)
    if rest:
        calls.add("fill", {"output": target}, {"count": target.nbytes, "value": 0, "bytes": 1})
        starts = Part(source, 4 * whole * lanes * right), Part(target, 4 * whole * lanes * depth)
        move(calls, *starts, (count, 1, depth, rest), read, written, 4)
    move(calls, Part(source), Part(target), (count, whole, depth, lanes), read, written, 4)
    return target, 4 * each
