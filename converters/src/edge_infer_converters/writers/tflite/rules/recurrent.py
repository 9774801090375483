"""RNN, GRU and LSTM of a fixed length, one step after another.

TFLite has no GRU, and its LSTM takes no state as an input, gives no cell, and is not quantized with the rest: the steps
are written out instead, over one dense layer that handles the input of all steps at once. Where they would weigh more
than the weights, and no page must read the file, an LSTM that TFLite's operator can say becomes that (`rules.lstm`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from edge_infer_converters.writers.tflite.formulas import Formula
from edge_infer_converters.writers.tflite.node import Unsupported
from edge_infer_converters.writers.tflite.rules import lstm

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from edge_infer_converters.writers.tflite.graph import Tensor
    from edge_infer_converters.writers.tflite.node import Node, Rule

    # From the input's share of the gates, and h and c before, to h and c; None stands for zeros.
    Step = Callable[["_Cell", Tensor, Tensor | None, Tensor | None], tuple[Tensor, Tensor | None]]

#: A longer sequence would make a file of megabytes of operators, which takes seconds to load.
MAX_STEPS = 1024
# Measured: what a step of an LSTM adds to a file when it is written out.
_STEP_BYTES = 1400
_CODES = {"Sigmoid": "LOGISTIC", "Tanh": "TANH", "Relu": "RELU"}
_DEFAULTS = {"RNN": ("Tanh",), "GRU": ("Sigmoid", "Tanh"), "LSTM": ("Sigmoid", "Tanh", "Tanh")}


class _Cell(NamedTuple):
    """The values that the steps of one direction share."""

    formula: Formula
    size: int
    recurrence: np.ndarray
    recurrent_bias: np.ndarray
    peephole: np.ndarray | None
    activations: Sequence[str]
    resets_after: bool

    def gate(self, gates: Tensor, index: int) -> Tensor:
        """Return one of the gates, which lie beside each other."""
        return self.formula.slice(gates, 1, index * self.size, (index + 1) * self.size)

    def from_state(self, h: Tensor | None, first: int, last: int) -> Tensor | None:
        """Return the state's share of some gates; None where the state is zero."""
        if h is None:
            return None
        rows = slice(first * self.size, last * self.size)
        return self.formula.dense(h, self.formula.constant(self.recurrence[rows]))

    def activate(self, index: int, value: Tensor) -> Tensor:
        """Apply one of the activations."""
        return self.formula.unary(_CODES[self.activations[index]], value)

    def plus(self, value: Tensor, more: Tensor | None) -> Tensor:
        """Add what may be zero."""
        return value if more is None else self.formula.add(value, more)

    def peep(self, value: Tensor, index: int, c: Tensor | None) -> Tensor:
        """Add a gate's look at the cell."""
        if self.peephole is None or c is None:
            return value
        part = self.peephole[index * self.size : (index + 1) * self.size]
        return self.formula.add(value, self.formula.multiply(c, self.formula.constant(part)))


def recurrent(node: Node) -> None:
    """Each direction by itself, and both beside each other."""
    f, hidden, count = Formula(node), node.needed_constant(2).shape[-1], len(node.needed_constant(1))
    is_batch_first = bool(node.integer("layout", 0))
    steps = node.signature()[1 if is_batch_first else 0]
    if steps <= 0:
        raise Unsupported("a sequence of free length: fix it by --shape")
    _check(node, steps)
    weight_bytes = node.needed_constant(1).nbytes + node.needed_constant(2).nbytes
    is_sayable = lstm.is_sayable(node)
    if is_sayable and not node.for_page and count * steps * _STEP_BYTES > weight_bytes:
        lstm.builtin(node)
        return
    if steps > MAX_STEPS:
        operator = ", or --target pi, which has TFLite's own LSTM" if is_sayable else ""
        raise Unsupported(
            f"a sequence of {steps} steps, each of which is written out, at most {MAX_STEPS}: cut it into parts that "
            f"hand their state on{operator}"
        )
    value = node.input()
    if is_batch_first:
        value = f.transpose(value, [1, 0, 2])
    rows: list[Tensor] = []
    last: list[tuple[Tensor, Tensor | None]] = []
    for direction in range(count):
        is_reverse = direction == 1 or node.text("direction", "forward") == "reverse"
        states, cell = _unrolled(node, f, value, direction, is_reverse)
        last.append((states[0 if is_reverse else -1], cell))
        batch = states[0].signature[0]
        shaped = [f.reshape(state, (1, 1, batch, hidden)) for state in states]
        rows.append(f.concatenate(shaped, 0))
    if node.gives(0):
        result = f.concatenate(rows, 1)
        node.give(f.transpose(result, [2, 0, 1, 3]) if is_batch_first else result)
    for index in (1, 2):
        if node.gives(index):
            ends = [_needed(pair[index - 1]) for pair in last]
            batch = ends[0].signature[0]
            joined = f.concatenate([f.reshape(end, (1, batch, hidden)) for end in ends], 0)
            node.give(f.transpose(joined, [1, 0, 2]) if is_batch_first else joined, index=index)


def _unrolled(
    node: Node, f: Formula, value: Tensor, direction: int, is_reverse: bool
) -> tuple[list[Tensor], Tensor | None]:
    """Return the state after each step, in the order of time, and the last cell."""
    weights, recurrence = node.needed_constant(1)[direction], node.needed_constant(2)[direction]
    size = recurrence.shape[1]
    bias = node.needed_constant(3)[direction] if node.has_input(3) else np.zeros(2 * len(weights), weights.dtype)
    resets_after = bool(node.integer("linear_before_reset", 0))
    input_bias, recurrent_bias = np.split(bias, 2)
    if not (node.op_type == "GRU" and resets_after):
        input_bias = input_bias + recurrent_bias
    names = node.texts("activations", ()) or list(_DEFAULTS[node.op_type])
    each = len(_DEFAULTS[node.op_type])
    peephole = node.needed_constant(7)[direction] if node.has_input(7) else None
    cell = _Cell(
        f,
        size,
        recurrence,
        recurrent_bias,
        peephole,
        (names * 2)[direction * each : (direction + 1) * each],
        resets_after,
    )
    shares = f.dense(value, f.constant(weights), f.constant(input_bias))
    steps, batch, width = shares.signature
    h, c = (_initial(node, f, index, direction) for index in (5, 6))
    states: list[Tensor] = []
    for step in reversed(range(steps)) if is_reverse else range(steps):
        share = f.reshape(f.slice(shares, 0, step, step + 1), (batch, width))
        h, c = _STEPS[node.op_type](cell, share, h, c)
        states.append(h)
    return states[::-1] if is_reverse else states, c


def _rnn(cell: _Cell, share: Tensor, h: Tensor | None, _: Tensor | None) -> tuple[Tensor, None]:
    return cell.activate(0, cell.plus(share, cell.from_state(h, 0, 1))), None


def _gru(cell: _Cell, share: Tensor, h: Tensor | None, _: Tensor | None) -> tuple[Tensor, None]:
    """The gates z, r, h of ONNX's definition; `linear_before_reset` multiplies r after the dense layer."""
    f = cell.formula
    state = cell.from_state(h, 0, 2)
    both = f.slice(share, 1, 0, 2 * cell.size)
    if cell.resets_after:
        both = f.add(both, f.constant(cell.recurrent_bias[: 2 * cell.size]))
    gates = cell.activate(0, cell.plus(both, state))
    update, reset = cell.gate(gates, 0), cell.gate(gates, 1)
    candidate = cell.gate(share, 2)
    if cell.resets_after:
        bias = f.constant(cell.recurrent_bias[2 * cell.size :])
        inner = cell.from_state(h, 2, 3)
        candidate = f.add(candidate, f.multiply(reset, bias if inner is None else f.add(inner, bias)))
    elif h is not None:
        candidate = cell.plus(candidate, cell.from_state(f.multiply(reset, h), 2, 3))
    new = cell.activate(1, candidate)
    # (1 - z) new + z h
    return f.add(new, f.multiply(update, f.subtract(h, new) if h is not None else f.unary("NEG", new))), None


def _lstm(cell: _Cell, share: Tensor, h: Tensor | None, c: Tensor | None) -> tuple[Tensor, Tensor]:
    """The gates i, o, f, c of ONNX's definition."""
    f = cell.formula
    gates = cell.plus(share, cell.from_state(h, 0, 4))
    enter = cell.activate(0, cell.peep(cell.gate(gates, 0), 0, c))
    candidate = cell.activate(1, cell.gate(gates, 3))
    new = f.multiply(enter, candidate)
    if c is not None:
        forget = cell.activate(0, cell.peep(cell.gate(gates, 2), 2, c))
        new = f.add(f.multiply(forget, c), new)
    leave = cell.activate(0, cell.peep(cell.gate(gates, 1), 1, new))
    return f.multiply(leave, cell.activate(2, new)), new


def _initial(node: Node, f: Formula, index: int, direction: int) -> Tensor | None:
    if not node.has_input(index):
        return None
    value = node.input(index)
    if node.integer("layout", 0):
        value = f.transpose(value, [1, 0, 2])
    return f.reshape(f.slice(value, 0, direction, direction + 1), value.signature[1:])


def _check(node: Node, steps: int) -> None:
    if node.has_input(4) and (node.needed_constant(4) != steps).any():
        raise Unsupported("sequences of different lengths")
    if node.has_attribute("clip") or node.integer("input_forget", 0):
        raise Unsupported("clip or input_forget")
    unknown = sorted(set(node.texts("activations", ())) - set(_CODES))
    if unknown:
        raise Unsupported(f"activation {', '.join(unknown)}")


def _needed(tensor: Tensor | None) -> Tensor:
    if tensor is None:
        raise Unsupported("a cell that this operator lacks")
    return tensor


_STEPS: dict[str, Step] = {"GRU": _gru, "LSTM": _lstm, "RNN": _rnn}
RULES: dict[str, Rule] = dict.fromkeys(_STEPS, recurrent)
