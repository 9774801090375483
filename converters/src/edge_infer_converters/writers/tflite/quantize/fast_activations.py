"""Write activations that stand by themselves with operators that LiteRT computes fast in int8.

RELU and PRELU whose scales differ at both ends have no kernel in XNNPACK, and LiteRT's own takes about 10 ns for each
value. MUL and SUB have one, which takes an activation along.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from ai_edge_litert import schema_py_generated as schema

from edge_infer_converters.writers.tflite.graph import Graph, Operator, Tensor
from edge_infer_converters.writers.tflite.peephole import ACTIVATIONS
from edge_infer_converters.writers.tflite.quantize.regions import in_integers

if TYPE_CHECKING:
    from edge_infer_converters.writers.tflite.quantize.schemes import Scheme


def with_fast_activations(graph: Graph, scheme: Scheme, *, to_the_end: bool = False) -> Graph:
    """Return a graph that computes the same, its activations in integers written as products.

    `relu(x)` becomes `x * 1` with a fused RELU. `prelu(x, a)` becomes `relu(x) - relu(-a * x)` where no slope is
    negative, else `relu(x) - a * relu(-x)`.

    Args:
        graph: A float graph; it is not changed.
        scheme: Which integers.
        to_the_end: As for `to_integers`.
    """
    chosen = in_integers(graph, scheme, to_the_end=to_the_end)
    made = replace(graph, operators=[])
    for operator in graph.operators:
        value, slopes = operator.inputs[0] if operator.inputs else None, operator.inputs[-1]
        is_plain = value is not None and value.data is None and value.dtype == np.float32
        if id(operator) not in chosen or value is None or not is_plain:
            made.operators.append(operator)
        elif operator.code in ACTIVATIONS:
            made.operators.append(_times(value, np.float32(1), operator.outputs[0], ACTIVATIONS[operator.code]))
        elif operator.code == "PRELU" and slopes is not None and slopes.data is not None:
            made.operators += _prelu(value, slopes.data, operator.outputs[0])
        else:
            made.operators.append(operator)
    return made


def _prelu(value: Tensor, slopes: np.ndarray, output: Tensor) -> list[Operator]:
    relu = ACTIVATIONS["RELU"]
    above = replace(output, name=f"{output.name}/above")
    below = replace(output, name=f"{output.name}/below")
    operators = [_times(value, np.float32(1), above, relu)]
    if (slopes >= 0).all():
        operators.append(_times(value, -slopes, below, relu))
    else:
        turned = replace(output, name=f"{output.name}/turned")
        operators += [_times(value, np.float32(-1), turned, relu), _times(turned, slopes, below)]
    options = schema.SubOptionsT()
    return [*operators, Operator("SUB", [above, below], [output], options)]


def _times(
    value: Tensor, factor: np.ndarray | np.float32, output: Tensor, activation: int = schema.ActivationFunctionType.NONE
) -> Operator:
    data = np.asarray(factor, np.float32).reshape(np.shape(factor) or (1,))
    constant = Tensor(f"{output.name}/factor", data.shape, data.shape, data.dtype, data)
    options = schema.MulOptionsT()
    options.fusedActivationFunction = activation
    return Operator("MUL", [value, constant], [output], options)
