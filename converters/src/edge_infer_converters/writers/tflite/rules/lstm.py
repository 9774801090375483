"""LSTM as TFLite's own operator, UNIDIRECTIONAL_SEQUENCE_LSTM, for sequences that are too long to be written out.

The operator keeps its state from one call of the interpreter to the next (the kernel wants a variable tensor), where
ONNX starts each call from zeros, and few callers know that they would have to reset it. So the sequence gets one step
in front that closes all gates, which leaves a state of exact zeros: an additional feature is 1 there and 0 elsewhere,
and its weight shuts the sigmoids of the input, the output and the forget gate.
Kernel: tensorflow/lite/kernels/unidirectional_sequence_lstm.cc.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from ai_edge_litert import schema_py_generated as schema

from edge_infer_converters.writers.tflite.formulas import Formula
from edge_infer_converters.writers.tflite.graph import Tensor

if TYPE_CHECKING:
    from edge_infer_converters.writers.tflite.node import Node

# The sigmoid of less than -104 is zero in float32.
_SHUT = -200.0
_GATES = ("i", "o", "f", "c")
_STANDARD = ["Sigmoid", "Tanh", "Tanh"]


def is_sayable(node: Node) -> bool:
    """Tell whether the operator can say what a node does: a forward or reverse pass from zeros, its states wanted only.

    It takes no state that is computed, gives no cell, and its state is stored for a fixed batch.
    """
    if -1 in node.signature():
        return False
    names = node.texts("activations", ())
    if node.op_type != "LSTM" or node.gives(2) or any(names[i : i + 3] != _STANDARD for i in range(0, len(names), 3)):
        return False
    for index in (5, 6):
        value = node.constant(index) if node.has_input(index) else np.zeros(1)
        if value is None or value.any():
            return False
    return node.dtype() == np.float32


def builtin(node: Node) -> None:
    """Each direction by one operator; a reverse one between two reversals of time."""
    f, count = Formula(node), len(node.needed_constant(1))
    is_batch_first = bool(node.integer("layout", 0))
    time, value = (1 if is_batch_first else 0), node.input()
    closed = _with_a_closing_step(f, value, time)
    found = []
    for direction in range(count):
        is_reverse = direction == 1 or node.text("direction", "forward") == "reverse"
        given = _with_a_closing_step(f, _reversed(f, value, time), time) if is_reverse else closed
        states = _pass(node, f, given, direction, time)
        states = f.slice(states, time, 1, states.signature[time])
        found.append((states, is_reverse))
    batch, hidden = found[0][0].signature[1 - time], found[0][0].signature[2]
    steps = value.signature[time]
    if node.gives(1):
        ends = [f.reshape(f.slice(states, time, steps - 1, steps), (1, batch, hidden)) for states, _ in found]
        last = f.concatenate(ends, 0)
        node.give(f.transpose(last, [1, 0, 2]) if is_batch_first else last, index=1)
    if node.gives(0):
        shape = (batch, steps, 1, hidden) if is_batch_first else (steps, 1, batch, hidden)
        rows = [f.reshape(_reversed(f, states, time) if turned else states, shape) for states, turned in found]
        node.give(f.concatenate(rows, 2 if is_batch_first else 1))


def _with_a_closing_step(f: Formula, value: Tensor, time: int) -> Tensor:
    """Add a feature of zeros behind, then a step of ones in front."""
    wide = [*value.signature[:2], value.signature[2] + 1]
    pads = f.constant(np.array([(0, 0), (0, 0), (0, 1)], np.int32))
    value = f.operator("PAD", [value, pads], wide, options=schema.PadOptionsT())
    pairs = [(0, 0), (0, 0), (0, 0)]
    pairs[time] = (1, 0)
    wide[time] += 1
    one = f.constant(np.array(1, np.float32))
    return f.operator(
        "PADV2", [value, f.constant(np.array(pairs, np.int32)), one], wide, options=schema.PadV2OptionsT()
    )


def _reversed(f: Formula, value: Tensor, time: int) -> Tensor:
    return f.operator("REVERSE_V2", [value, f.integers([time])], value.signature, options=schema.ReverseV2OptionsT())


def _pass(node: Node, f: Formula, value: Tensor, direction: int, time: int) -> Tensor:
    """Run over the steps; ONNX has the gates i, o, f, c beside each other, TFLite one tensor for each: i, f, c, o."""
    weights, recurrence = node.needed_constant(1)[direction], node.needed_constant(2)[direction]
    size = recurrence.shape[1]
    bias = node.needed_constant(3)[direction] if node.has_input(3) else np.zeros(8 * size, np.float32)
    summed = bias[: 4 * size] + bias[4 * size :]
    shut = np.full((4 * size, 1), _SHUT - _most(node, direction, value.signature[time]), np.float32)
    shut[3 * size :] = 0
    wide = np.concatenate([weights, shut], axis=1)

    def part(values: np.ndarray, gate: str) -> Tensor:
        place = _GATES.index(gate)
        return f.constant(np.ascontiguousarray(values[place * size : (place + 1) * size]))

    peephole: list[Tensor | None] = [None, None, None]
    if node.has_input(7):
        looks = node.needed_constant(7)[direction]  # i, o, f
        peephole = [part(looks, gate) for gate in ("i", "f", "o")]
    batch = value.signature[1 - time]
    states = [
        Tensor(f"{node.name}/{name}{direction}", (batch, size), (batch, size), value.dtype, is_variable=True)
        for name in ("state", "cell")
    ]
    inputs = [
        value,
        *(part(wide, gate) for gate in ("i", "f", "c", "o")),
        *(part(recurrence, gate) for gate in ("i", "f", "c", "o")),
        *peephole,
        *(part(summed, gate) for gate in ("i", "f", "c", "o")),
        *(None, None),  # no projection
        *states,
        *(None, None, None, None),  # no layer normalization
    ]
    options = schema.UnidirectionalSequenceLSTMOptionsT()
    options.fusedActivationFunction = schema.ActivationFunctionType.TANH
    options.timeMajor = time == 0
    signature = [*value.signature[:2], size]
    return f.operator("UNIDIRECTIONAL_SEQUENCE_LSTM", inputs, signature, options=options)


def _most(node: Node, direction: int, steps: int) -> float:
    """Bound what all else adds to a gate in the closing step: inputs and states of 1, a cell that grew by 1 a step."""
    weights, recurrence = node.needed_constant(1)[direction], node.needed_constant(2)[direction]
    total = np.abs(weights).sum(1).max() + np.abs(recurrence).sum(1).max()
    for index, factor in ((3, 2), (7, steps)):
        if node.has_input(index):
            total += factor * np.abs(node.needed_constant(index)[direction]).max()
    return float(total)
