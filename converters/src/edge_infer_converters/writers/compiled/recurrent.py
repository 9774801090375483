"""Operators that keep a state from run to run: LSTM over a sequence, SVDF."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from edge_infer.errors import UnsupportedModel
from edge_infer_converters.writers.compiled.numbers import fixed_point, scale_of

if TYPE_CHECKING:
    from edge_infer_converters.writers.compiled.calls import Calls
    from edge_infer_converters.writers.tflite.graph import Operator, Tensor

# The inputs of UNIDIRECTIONAL_SEQUENCE_LSTM (tensorflow/lite/kernels/lstm_shared.h), gates in the order of the kernels.
_WEIGHTS, _RECURRENT, _BIASES = range(1, 5), range(5, 9), range(12, 16)
_PEEPHOLES, _PROJECTION, _NORMS = range(9, 12), range(16, 18), range(20, 24)
_HIDDEN, _CELL = 18, 19
_GATES = ("input", "forget", "cell", "output")
_TANH = 4
#: The gates have 12 bits behind the point.
_GATE_STEP = 2.0**-12


def sequence_lstm(operator: Operator, calls: Calls) -> None:
    """UNIDIRECTIONAL_SEQUENCE_LSTM, of floats or of int8 with cells of int16."""
    given, output = _present(operator, 0), operator.outputs[0]
    options: Any = operator.options
    if options.fusedActivationFunction != _TANH or options.projClip:
        raise UnsupportedModel("an LSTM with another activation than tanh, or a clipped projection, is not supported")
    for places, what in ((_PEEPHOLES, "peepholes"), (_PROJECTION, "a projection"), (_NORMS, "normalised gates")):
        if any(_input(operator, place) is not None for place in places):
            raise UnsupportedModel(f"an LSTM with {what} is not supported")
    if given.rank != 3:
        raise UnsupportedModel(f"an LSTM over {given.rank} axes is not supported")
    batch, steps, inputs = given.shape
    if options.timeMajor:
        batch, steps = steps, batch
        if batch != 1:
            raise UnsupportedModel(f"an LSTM over a batch of {batch} with the time first is not supported")
    hidden, cell = _present(operator, _HIDDEN), _present(operator, _CELL)
    if not (hidden.is_variable and cell.is_variable):
        raise UnsupportedModel("an LSTM whose state is not a variable is not supported")
    weights, recurrent = (_matrix(operator, places) for places in (_WEIGHTS, _RECURRENT))
    sizes = {"batch": batch, "steps": steps, "inputs": inputs, "cells": output.shape[-1]}
    tensors = {"input": calls.of(given), "output": calls.of(output)}
    tensors |= {"weights": calls.constant(weights), "recurrent": calls.constant(recurrent)}
    if given.dtype == np.float32 and weights.dtype == np.float32:
        tensors |= {"hidden": calls.variable(id(hidden), hidden), "cell": calls.variable(id(cell), cell)}
        tensors["bias"] = calls.constant(_biases(operator, np.float32))
        calls.add("lstm_float", tensors, sizes, {"clip": options.cellClip})
        return
    if given.dtype != np.int8 or weights.dtype != np.int8 or cell.dtype != np.int16:
        raise UnsupportedModel(f"an LSTM of {given.dtype} with weights of {weights.dtype} is not supported")
    if calls.rounding == "tflm":
        raise UnsupportedModel(
            "an LSTM of int8 in the rounding of TFLite Micro is not supported", hint="--rounding litert"
        )
    source, state = scale_of(given), scale_of(hidden)
    cell_bits = -math.log2(float(scale_of(cell).step))
    if cell_bits != round(cell_bits) or not 11 <= cell_bits <= 15:
        raise UnsupportedModel(f"an LSTM whose cells have the scale {scale_of(cell).step} is not supported")
    # The zero points of the values are folded into the biases.
    sums = weights.astype(np.int32).sum(1), recurrent.astype(np.int32).sum(1)
    bias = _biases(operator, np.int32) - source.zero * sums[0]
    first = np.full(hidden.shape, state.zero, np.int8)
    tensors |= {
        "hidden": calls.variable(id(hidden), hidden, first),
        "cell": calls.variable(id(cell), cell),
        "bias": calls.constant(bias.astype(np.int32)),
        "recurrent_bias": calls.constant((-state.zero * sums[1]).astype(np.int32)),
    }
    integers = dict(sizes)
    for name, ours, theirs in zip(_GATES, _WEIGHTS, _RECURRENT, strict=True):
        for kind, place, value in (("", ours, source), ("_recurrent", theirs, state)):
            ratio = float(scale_of(_present(operator, place)).step) * float(value.step) / _GATE_STEP
            integers[f"{name}{kind}_multiplier"], integers[f"{name}{kind}_shift"] = fixed_point(ratio)
    integers["hidden_multiplier"], integers["hidden_shift"] = fixed_point(2.0**-30 / float(state.step))
    clip = options.cellClip / float(scale_of(cell).step)
    integers |= {"hidden_zero": state.zero, "cell_bits": round(cell_bits), "clip": int(min(clip, 32767))}
    calls.add("lstm_int8", tensors, integers)


def _input(operator: Operator, place: int) -> Tensor | None:
    return operator.inputs[place] if place < len(operator.inputs) else None


def _present(operator: Operator, place: int) -> Tensor:
    found = _input(operator, place)
    if found is None:
        raise UnsupportedModel(f"{operator.code} lacks an input, as one with coupled gates does")
    return found


def _matrix(operator: Operator, places: range) -> np.ndarray:
    """Return the weights of the four gates, one below the other."""
    parts = []
    for place in places:
        data = _present(operator, place).data
        if data is None:
            raise UnsupportedModel("the weights of an LSTM are computed, expected constants")
        parts.append(data)
    return np.concatenate(parts)


def _biases(operator: Operator, dtype: type[np.float32 | np.int32]) -> np.ndarray:
    cells = operator.outputs[0].shape[-1]
    found = [_input(operator, place) for place in _BIASES]
    return np.concatenate([np.zeros(cells, dtype) if one is None or one.data is None else one.data for one in found])


def svdf(operator: Operator, calls: Calls) -> None:
    """SVDF of int8, with a state of int16 or, by TFLite Micro alone, of int8."""
    given, features, times = (_present(operator, place) for place in range(3))
    bias, state = operator.inputs[3], _present(operator, 4)
    options: Any = operator.options
    output = operator.outputs[0]
    if given.dtype != np.int8 or features.dtype != np.int8 or times.dtype != state.dtype:
        raise UnsupportedModel(f"SVDF of {given.dtype} with weights of {features.dtype} is not supported")
    if state.dtype == np.int8 and calls.rounding != "tflm":
        raise UnsupportedModel("SVDF with a state of int8 is TFLite Micro's alone", hint="--rounding tflm")
    if features.data is None or times.data is None or (bias is not None and bias.data is None):
        raise UnsupportedModel("the weights of SVDF are computed, expected constants")
    if not state.is_variable:
        raise UnsupportedModel("SVDF whose state is not a variable is not supported")
    filters, inputs = features.shape
    units = filters // options.rank
    biases = np.zeros(units, np.int32) if bias is None or bias.data is None else bias.data
    source, kept, target = scale_of(given), scale_of(state), scale_of(output)
    first = float(source.step) * float(scale_of(features).step) / float(kept.step)
    second = float(kept.step) * float(scale_of(times).step) / float(target.step)
    integers = {"batch": given.shape[0], "inputs": inputs, "filters": filters, "rank": options.rank}
    integers |= {"memory": times.shape[1], "input_zero": source.zero, "output_zero": target.zero}
    integers |= {"state_zero": kept.zero, "state_bytes": state.dtype.itemsize}
    integers["feature_multiplier"], integers["feature_shift"] = fixed_point(first)
    integers["time_multiplier"], integers["time_shift"] = fixed_point(second)
    start = np.full(state.shape, kept.zero, state.dtype)
    tensors = {
        "input": calls.of(given),
        "output": calls.of(output),
        "state": calls.variable(id(state), state, start),
        "features": calls.constant(features.data),
        "times": calls.constant(times.data),
        "bias": calls.constant(biases.astype(np.int32)),
    }
    calls.add("svdf_int8", tensors, integers)
