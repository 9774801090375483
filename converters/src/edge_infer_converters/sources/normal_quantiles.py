"""Export scikit-learn's QuantileTransformer with normal outputs, for skl2onnx, which knows the uniform ones alone.

The share of values below one, and that above it, come from skl2onnx's own graph, each with all its digits near 0; the
smaller of them becomes a normal number by Wichura's rational functions (1988, "Algorithm AS 241: The Percentage Points
of the Normal Distribution", PPND7: seven digits).
"""

from __future__ import annotations

import copy
from importlib import import_module
from typing import Any

import numpy as np

#: What scikit-learn takes for the least share (`sklearn.preprocessing._data.BOUNDS_THRESHOLD`).
_LEAST = 1e-7
#: Up to this far from a half the first fraction holds, beyond it the second.
_MIDDLE = 0.425
_NEAR = ((59.10937472, 159.29113202, 50.434271938, 3.3871327179), (67.1875636, 78.757757664, 17.895169469, 1))
_FAR = ((0.17023821103, 1.3067284816, 2.75681539, 1.4234372777), (0.12021132975, 0.7370016425, 1))


def convert(scope: Any, operator: Any, container: Any) -> None:
    """Write the graph of a fitted QuantileTransformer; the arguments are those of every converter of skl2onnx."""
    made = operator.raw_operator
    if made.output_distribution == "uniform":
        known = import_module("skl2onnx.operator_converters.quantile_transformer")
        known.convert_quantile_transformer(scope, operator, container)
        return
    onnx_ops = import_module("skl2onnx.algebra.onnx_ops")
    sub_estimator = import_module("skl2onnx.algebra.onnx_operator").OnnxSubEstimator
    opset = container.target_opset

    def op(name: str, *inputs: Any, **more: Any) -> Any:
        given = [np.array(one, np.float32) if isinstance(one, (int, float)) else one for one in inputs]
        return getattr(onnx_ops, f"Onnx{name}")(*given, op_version=opset, **more)

    def fraction(parts: tuple[tuple[float, ...], ...], at: Any) -> Any:
        sums = []
        for first, *factors in parts:
            total: Any = first
            for factor in factors:
                total = op("Add", op("Mul", at, total), factor)
            sums.append(total)
        return op("Div", *sums)

    value = operator.inputs[0]
    below = sub_estimator(_uniform(made, made.quantiles_), value, op_version=opset)
    above = sub_estimator(_uniform(made, -made.quantiles_[::-1]), op("Neg", value), op_version=opset)
    is_low = op("Less", below, above)
    least = op("Where", is_low, below, above)
    tail = op("Where", op("Less", least, _LEAST), _LEAST, least)  # Max would give what is missing a value
    inward = op("Sub", 0.5, tail)
    near = op("Mul", inward, fraction(_NEAR, op("Sub", _MIDDLE**2, op("Mul", inward, inward))))
    far = fraction(_FAR, op("Sub", op("Sqrt", op("Neg", op("Log", tail))), 1.6))
    size = op("Where", op("LessOrEqual", inward, _MIDDLE), near, far)
    last = op("Where", is_low, op("Neg", size), size, output_names=[operator.outputs[0].full_name])
    last.add_to(scope, container)


def _uniform(made: Any, quantiles: np.ndarray) -> Any:
    """Return a copy of a transformer with other quantiles and uniform outputs."""
    twin = copy.copy(made)
    twin.output_distribution, twin.quantiles_ = "uniform", quantiles
    return twin
