"""UNIDIRECTIONAL_SEQUENCE_LSTM, which starts from zeros.

Its cell is that of Hochreiter and Schmidhuber with a forget gate, as ONNX's is. One of integers is computed in floats
between its integer ends: TFLite also rounds what it keeps from step to step. TensorFlow's converter cuts the cells of
Keras off at 10, which Keras does not do, and ONNX cannot say: those are not cut off here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ai_edge_litert import schema_py_generated as schema

from edge_infer.errors import UnsupportedModel
from edge_infer_converters.writers.onnx.rules.reading import option, optional, tensor

if TYPE_CHECKING:
    from edge_infer_converters.writers.onnx.graph import Graph
    from edge_infer_converters.writers.tflite.graph import Operator

# Where the inputs of the gates stand, in ONNX's order: input, output, forget, cell.
_INPUT_WEIGHTS = (1, 4, 2, 3)
_RECURRENT_WEIGHTS = (5, 8, 6, 7)
_BIASES = (12, 15, 13, 14)
_WIDE = 10
_LEFT_OUT = {9: "peepholes", 16: "a projection", 20: "normalised layers"}


def lstm(operator: Operator, graph: Graph) -> None:
    """One direction, all steps."""
    for place, said in _LEFT_OUT.items():
        if optional(operator, place) is not None:
            raise UnsupportedModel(said)
    if option(operator, "fusedActivationFunction") != schema.ActivationFunctionType.TANH:
        raise UnsupportedModel("an activation other than tanh")
    clip = option(operator, "cellClip", 0.0)
    if 0 < clip < _WIDE:
        raise UnsupportedModel(f"cells that are cut off at {clip:g}")
    given, output = tensor(operator, 0), operator.outputs[0]
    units = tensor(operator, 5).shape[0]
    is_time_first = bool(option(operator, "timeMajor", default=False))
    value = graph.real(given)
    if not is_time_first:
        value = graph.node("Transpose", [value], perm=(1, 0, 2))
    weights = [
        _joined(graph, [graph.weights(tensor(operator, place), (0, 1)) for place in places])
        for places in (_INPUT_WEIGHTS, _RECURRENT_WEIGHTS)
    ]
    biases = [graph.real(tensor(operator, place)) for place in _BIASES]
    zeros = graph.node("Sub", [biases[0], biases[0]])
    bias = graph.node("Unsqueeze", [graph.node("Concat", [*biases, *[zeros] * 4], axis=0), graph.integers(0)])
    found = graph.node("LSTM", [value, *weights, bias], hidden_size=units, count=3)[0]
    found = graph.node("Squeeze", [found, graph.integers(1)])
    graph.give(output, found if is_time_first else graph.node("Transpose", [found], perm=(1, 0, 2)))


def _joined(graph: Graph, parts: list[str]) -> str:
    return str(graph.node("Unsqueeze", [graph.node("Concat", parts, axis=0), graph.integers(0)]))


RULES = {"UNIDIRECTIONAL_SEQUENCE_LSTM": lstm}
