"""From the operators of a TFLite graph to calls of kernels."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from edge_infer.errors import UnsupportedModel, UnsupportedOperator, listed
from edge_infer_converters.writers.compiled import (
    casts,
    elements,
    gelu,
    grouped,
    moves,
    products,
    recurrent,
    rows,
    variables,
    windows,
)
from edge_infer_converters.writers.compiled.calls import Calls, nbytes

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from edge_infer_converters.writers.compiled.calls import Value
    from edge_infer_converters.writers.tflite.graph import Graph, Operator, Tensor

_RULES: dict[str, Callable[[Operator, Calls], None]] = {
    "CONV_2D": grouped.convolution,
    "DEPTHWISE_CONV_2D": windows.depthwise,
    "FULLY_CONNECTED": windows.fully_connected,
    "BATCH_MATMUL": products.batch_matmul,
    "TRANSPOSE_CONV": windows.transposed,
    "AVERAGE_POOL_2D": windows.average_pool,
    "MAX_POOL_2D": windows.max_pool,
    "MEAN": windows.mean,
    "SUM": windows.total,
    "REDUCE_MAX": windows.highest,
    **dict.fromkeys(("ADD", "SUB", "MUL", "DIV", "MAXIMUM", "MINIMUM", "PRELU", "SQUARED_DIFFERENCE"), elements.binary),
    **dict.fromkeys(("LOGISTIC", "TANH", "EXP", "HARD_SWISH", "LEAKY_RELU", "ABS", "NEG", "SQRT"), elements.unary),
    **dict.fromkeys(("RSQRT", "SQUARE", "ELU", "LOG", "RELU", "RELU6", "RELU_N1_TO_1"), elements.unary),
    **dict.fromkeys(("SOFTMAX", "LOG_SOFTMAX"), elements.softmax),
    "GELU": gelu.gelu,
    "POW": elements.power,
    "QUANTIZE": elements.quantize,
    "DEQUANTIZE": elements.dequantize,
    **dict.fromkeys(("RESHAPE", "SQUEEZE", "EXPAND_DIMS"), moves.reshape),
    "CAST": casts.cast,
    "TRANSPOSE": moves.transpose,
    "STRIDED_SLICE": moves.strided_slice,
    "SLICE": moves.cut,
    **dict.fromkeys(("SPLIT", "SPLIT_V"), moves.split),
    "CONCATENATION": moves.concatenation,
    "PACK": moves.pack,
    **dict.fromkeys(("PAD", "PADV2"), moves.pad),
    "MIRROR_PAD": moves.mirror_pad,
    **dict.fromkeys(("DEPTH_TO_SPACE", "SPACE_TO_DEPTH"), moves.blocks),
    "RESIZE_NEAREST_NEIGHBOR": moves.resize_nearest,
    "RESIZE_BILINEAR": moves.resize_bilinear,
    "UNIDIRECTIONAL_SEQUENCE_LSTM": recurrent.sequence_lstm,
    "SVDF": recurrent.svdf,
    "GATHER": moves.gather,
    "EMBEDDING_LOOKUP": moves.embedding,
    "UNPACK": moves.unpack,
    "TILE": moves.tile,
    **rows.RULES,
    "CALL_ONCE": variables.once,
    "VAR_HANDLE": variables.handle,
    "READ_VARIABLE": variables.read,
    "ASSIGN_VARIABLE": variables.assign,
}
#: The types of inputs and outputs. Integers of 16 and more bits are moved, and read as places.
_END_TYPES = ("float32", "int8", "uint8", "int16", "int32", "int64")
#: The operators that can be compiled.
SUPPORTED = tuple(sorted(_RULES))


def lower(
    graph: Graph, rounding: str, initial: Mapping[str, np.ndarray] | None = None, *, filter_lanes: int = 8
) -> tuple[Calls, list[Value], list[Value]]:
    """Write the calls of a graph.

    Args:
        graph: The model; free batches are 1.
        rounding: `litert`, `reference` or `tflm`.
        initial: The first values of its variables, by name.
        filter_lanes: How many filters of a convolution of floats lie beside each other, where they are computed.

    Returns:
        The calls, the memory of the inputs, and that of the outputs.

    Raises:
        UnsupportedOperator: Operators or their forms are not supported; all of them are named.
        UnsupportedModel: An input has a free dimension besides the batch, or a tensor a type that no kernel computes.
    """
    _check_ends(graph)
    calls = Calls(rounding, initial=initial or {}, filter_lanes=filter_lanes)
    inputs = [_raw(one, calls) for one in graph.inputs]
    faults: dict[str, None] = {}
    for layer, operator in enumerate(graph.operators):
        calls.operator, calls.layer = operator.code, layer
        if operator.code == "DEQUANTIZE" and _folded(operator):
            continue
        rule = _RULES.get(operator.code)
        if rule is None:
            faults[operator.code] = None
            continue
        try:
            rule(operator, calls)
        except UnsupportedModel as error:
            faults[f"{operator.code} ({error.message})"] = None
        except (ValueError, TypeError, AttributeError, IndexError, ArithmeticError) as error:
            # Options or shapes that no converter writes: numpy and Python name what does not fit.
            faults[f"{operator.code} (its sizes contradict each other: {error})"] = None
    if faults:
        raise UnsupportedOperator(
            f"No kernel computes {listed([*faults])}",
            hint="`edge-infer convert` writes a bundle that an engine runs",
            operators=[*faults],
        )
    calls.layer = -1
    outputs = [_raw_output(one, calls) for one in graph.outputs]
    return calls, *calls.settle(inputs, outputs)


def _check_ends(graph: Graph) -> None:
    for tensor in (*graph.inputs, *graph.outputs):
        if any(dim < 0 for dim in tensor.signature[1:]):
            raise UnsupportedModel(
                f"`{tensor.name}` has the shape {list(tensor.signature)}; a compiled model has fixed sizes",
                hint="convert with --shape NAME=1,49,10,1, then compile",
                tensor=tensor.name,
            )
        if tensor.dtype.name not in _END_TYPES:
            raise UnsupportedModel(
                f"`{tensor.name}` is of {tensor.dtype}; a compiled model takes {listed(list(_END_TYPES))}",
                hint="`edge-infer convert` writes a bundle that an engine runs",
                tensor=tensor.name,
            )


def _folded(operator: Operator) -> bool:
    """Make a constant of a dequantized one; tell whether it was."""
    given, output = operator.inputs[0], operator.outputs[0]
    if given is None or given.data is None:
        return False
    value = given.data.astype(np.float32)
    found = given.quantization
    if found is not None and len(found.scales):
        shape = [1] * given.rank
        if len(found.scales) > 1:
            shape[found.axis] = -1
        value = (value - np.float32(found.zero_point)) * np.asarray(found.scales, np.float32).reshape(shape)
    output.data = value.astype(np.float32)
    return True


def _raw(tensor: Tensor, calls: Calls) -> Value:
    """Return the memory that an input arrives in: of uint8 the sign is flipped first."""
    value = calls.of(tensor)
    if tensor.dtype != np.uint8:
        return value
    calls.operator = "the input"
    raw = calls.temporary(nbytes(tensor))
    calls.add("flip_sign", {"input": raw, "output": value}, {"count": value.nbytes})
    return raw


def _raw_output(tensor: Tensor, calls: Calls) -> Value:
    value = calls.of(tensor)
    calls.operator = "the output"
    if tensor.dtype == np.uint8:
        raw = calls.temporary(nbytes(tensor))
        calls.add("flip_sign", {"input": value, "output": raw}, {"count": value.nbytes})
        return raw
    if value.data is None:
        return value
    copied = calls.temporary(value.nbytes)
    loops = {f"{kind}_{i}": int(kind == "size") for kind in ("size", "input", "output") for i in range(5)}
    calls.add("copy", {"input": value, "output": copied}, {**loops, "block": value.nbytes})
    return copied
