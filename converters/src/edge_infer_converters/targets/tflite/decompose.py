"""Prepare an ONNX graph for the rules: operators without one are written out, known groups of nodes become one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import onnx
import onnx.inliner
from onnx import numpy_helper

if TYPE_CHECKING:
    from collections.abc import Collection

    import numpy as np

_ROOT_OF_TWO = 2**0.5
_TOLERANCE = 1e-5


def write_out_functions(model: onnx.ModelProto, known: Collection[str]) -> onnx.ModelProto:
    """Replace operators by the body that the ONNX standard defines for them: Attention by its MatMuls.

    Args:
        model: A model without functions of its own.
        known: The operators that stay.
    """
    others = {node.op_type for node in model.graph.node if node.domain in ("", "ai.onnx")} - set(known)
    if not any(_has_body(name, model) for name in others):
        return model
    bodiless = [("", name) for name in known]
    return onnx.inliner.inline_selected_functions(model, bodiless, exclude=True, inline_schema_functions=True)


def _has_body(name: str, model: onnx.ModelProto) -> bool:
    version = next((entry.version for entry in model.opset_import if entry.domain in ("", "ai.onnx")), 1)
    try:
        schema = onnx.defs.get_schema(name, version)
    except onnx.defs.SchemaError:
        return False
    return bool(schema.has_function or schema.has_context_dependent_function)


def join_gelu(model: onnx.ModelProto) -> onnx.ModelProto:
    """Find x (1 + erf(x / sqrt 2)) / 2, as exporters before operator set 20 write it, and make it a Gelu.

    TFLite has GELU, and no Erf; quantizers and fast kernels know it.
    """
    graph = model.graph
    makers = {name: node for node in graph.node for name in node.output}
    readers: dict[str, list[onnx.NodeProto]] = {}
    for node in graph.node:
        for name in node.input:
            readers.setdefault(name, []).append(node)
    numbers = _numbers(graph)
    joined: dict[str, str] = {}  # the last product of a group -> its x
    for node in graph.node:
        if node.op_type == "Erf":
            found = _gelu_around(node, makers, readers, numbers)
            if found:
                joined[found[1]] = found[0]
    if not joined:
        return model
    changed = onnx.ModelProto()
    changed.CopyFrom(model)
    for node in changed.graph.node:
        if node.output[0] in joined:
            source = joined[node.output[0]]
            node.op_type = "Gelu"
            del node.input[:]
            node.input.append(source)
            del node.attribute[:]
    return changed


def _gelu_around(
    erf: onnx.NodeProto,
    makers: dict[str, onnx.NodeProto],
    readers: dict[str, list[onnx.NodeProto]],
    numbers: dict[str, float],
) -> tuple[str, str] | None:
    """Return the x and the result of the Gelu that an Erf belongs to."""
    scaled = makers.get(erf.input[0])
    if scaled is None or not _is_scaled_by(scaled, 1 / _ROOT_OF_TWO, numbers):
        return None
    x = next(name for name in scaled.input if name not in numbers)
    plus = _only_reader(erf.output[0], readers, "Add")
    if plus is None or not any(abs(numbers.get(name, 0.0) - 1.0) < _TOLERANCE for name in plus.input):
        return None
    # Three factors: x, the sum, and one half, in any order.
    factors, current = [plus.output[0]], plus
    for _ in range(2):
        product = _only_reader(current.output[0], readers, "Mul")
        if product is None:
            return None
        factors += [name for name in product.input if name != current.output[0]]
        current = product
    halves = [name for name in factors[1:] if abs(numbers.get(name, 0.0) - 0.5) < _TOLERANCE]
    rest = [name for name in factors[1:] if name not in halves]
    if len(halves) == 1 and rest == [x]:
        return x, current.output[0]
    # x / 2 is computed first and multiplied with the sum.
    half = makers.get(factors[1]) if len(factors) > 1 else None
    first = _only_reader(plus.output[0], readers, "Mul")
    if half is not None and first is not None and _is_scaled_by(half, 0.5, numbers) and x in half.input:
        return x, first.output[0]
    return None


def _is_scaled_by(node: onnx.NodeProto, factor: float, numbers: dict[str, float]) -> bool:
    values = [numbers[name] for name in node.input if name in numbers]
    if len(node.input) != 2 or len(values) != 1 or values[0] == 0:
        return False
    if node.op_type == "Mul":
        return abs(values[0] - factor) < _TOLERANCE
    return node.op_type == "Div" and node.input[1] in numbers and abs(1 / values[0] - factor) < _TOLERANCE


def _only_reader(name: str, readers: dict[str, list[onnx.NodeProto]], op_type: str) -> onnx.NodeProto | None:
    found = readers.get(name, [])
    return found[0] if len(found) == 1 and found[0].op_type == op_type else None


def _numbers(graph: onnx.GraphProto) -> dict[str, float]:
    """Return every stored scalar by name."""
    found: dict[str, float] = {}

    def note(name: str, value: np.ndarray) -> None:
        if value.size == 1 and value.dtype.kind == "f":
            found[name] = float(value.reshape(()))

    for tensor in graph.initializer:
        if len(tensor.dims) == 0 or max(tensor.dims) == 1:
            note(tensor.name, numpy_helper.to_array(tensor))
    for node in graph.node:
        if node.op_type == "Constant" and node.attribute[0].name == "value":
            note(node.output[0], numpy_helper.to_array(node.attribute[0].t))
    return found
