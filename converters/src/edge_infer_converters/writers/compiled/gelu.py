"""GELU of floats, made of kernels that are there: a kernel of its own would not fit the 40 kB of the page's kernels."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from edge_infer.errors import UnsupportedModel
from edge_infer_converters.writers.compiled.floats import Floats

if TYPE_CHECKING:
    from edge_infer_converters.writers.compiled.calls import Calls, Value
    from edge_infer_converters.writers.tflite.graph import Operator

#: 1 - erf(z) = (c1 t + ... + c5 t^5) exp(-z^2) with t = 1 / (1 + p z), within 1.5e-7 (Abramowitz and Stegun, 7.1.26).
_STEP = 0.3275911
_POWERS = (1.061405429, -1.453152027, 1.421413741, -0.284496736, 0.254829592)
#: The form with tanh: x / 2 (1 + tanh(sqrt(2 / pi) (x + .044715 x^3))) (Hendrycks and Gimpel, arXiv:1606.08415).
_CUBE = 0.044715


def gelu(operator: Operator, calls: Calls) -> None:
    """GELU, in the form with erf or in that with tanh."""
    given, output = operator.inputs[0], operator.outputs[0]
    if given is None or given.dtype != np.float32:
        raise UnsupportedModel(f"GELU of {'nothing' if given is None else given.dtype} is not supported")
    options: Any = operator.options
    floats = Floats(calls, int(np.prod(output.shape, dtype=np.int64)))
    (_by_tanh if options.approximate else _by_erf)(floats, calls.of(given), calls.of(output))


def _by_tanh(floats: Floats, x: Value, output: Value) -> None:
    """Write x times the logistic function of twice the argument of tanh: the same number."""
    root = 2 * float(np.sqrt(2 / np.pi))
    scaled = floats.binary("multiply", floats.unary("square", x), root * _CUBE)
    argument = floats.binary("multiply", floats.binary("add", scaled, root), x)
    floats.binary("multiply", floats.unary("logistic", argument), x, output)


def _by_erf(floats: Floats, x: Value, output: Value) -> None:
    """Write max(x, 0) - |x| / 2 (1 - erf(|x| / sqrt 2)), which loses no digits on either side."""
    size = floats.unary("abs", x)
    below = floats.binary("add", floats.binary("multiply", size, _STEP / float(np.sqrt(2))), 1.0)
    t = floats.binary("divide", 1.0, below)
    total = floats.binary("multiply", t, _POWERS[0] / 2)
    for power in _POWERS[1:]:
        total = floats.binary("multiply", floats.binary("add", total, power / 2), t)
    bell = floats.unary("exp", floats.binary("multiply", floats.unary("square", x), -0.5))
    tail = floats.binary("multiply", floats.binary("multiply", total, bell), size)
    floats.binary("subtract", floats.unary("clamp", x, low=0.0), tail, output)
