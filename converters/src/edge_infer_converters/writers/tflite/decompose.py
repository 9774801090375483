"""Prepare an ONNX graph for the rules: operators without one are written out, known groups of nodes become one."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import onnx
import onnx.inliner
from onnx import helper

from edge_infer_converters.passes.graphs import opset_of

if TYPE_CHECKING:
    from collections.abc import Collection

    from edge_infer_converters.writers.tflite.specialise import Specialised

_ROOT_OF_TWO = 2**0.5
_TOLERANCE = 1e-5
# Their bodies hold control flow; where Range matters it is constant and computed away.
_NOT_WRITTEN_OUT = frozenset({"AffineGrid", "Bernoulli", "Range", "SequenceMap"})


def write_out_functions(model: onnx.ModelProto, known: Collection[str]) -> onnx.ModelProto:
    """Replace operators by the body that the ONNX standard defines for them: Attention by its MatMuls.

    Args:
        model: A model without functions of its own.
        known: The operators that stay.
    """
    known = _NOT_WRITTEN_OUT | set(known)
    others = {node.op_type for node in model.graph.node if node.domain in ("", "ai.onnx")} - known
    if not any(is_written_out(name, opset_of(model)) for name in others):
        return model
    model = _with_types(_with_default_attributes(model, known))
    bodiless = [("", name) for name in sorted(known)]
    try:
        return onnx.inliner.inline_selected_functions(model, bodiless, exclude=True, inline_schema_functions=True)
    except RuntimeError:  # a type that it cannot infer: the operator stays, and is named as one without a rule
        return model


def is_written_out(name: str, opset: int | None = None) -> bool:
    """Tell whether the ONNX standard has a body for an operator that can be written in its place.

    Args:
        name: The operator.
        opset: The version of the operator set; the newest one unless given.
    """
    if name in _NOT_WRITTEN_OUT:
        return False
    try:
        schema = onnx.defs.get_schema(name, *(() if opset is None else (opset,)))
    except onnx.defs.SchemaError:
        return False
    bodies: Any = schema  # the type stub lacks both
    return bool(bodies.has_function or bodies.has_context_dependent_function)


def _with_default_attributes(model: onnx.ModelProto, known: Collection[str]) -> onnx.ModelProto:
    """Spell out the attributes that nodes leave out: the inliner takes those for unset, not for their default."""
    changed = onnx.ModelProto()
    changed.CopyFrom(model)
    version = opset_of(model)
    for node in changed.graph.node:
        if node.op_type in known or node.domain not in ("", "ai.onnx") or not is_written_out(node.op_type, version):
            continue
        given = {attribute.name for attribute in node.attribute}
        for name, attribute in onnx.defs.get_schema(node.op_type, version).attributes.items():
            if name not in given and attribute.default_value.name:
                node.attribute.append(attribute.default_value)
    return changed


def _with_types(model: onnx.ModelProto) -> onnx.ModelProto:
    """Say the type of every value, of weights too: some bodies depend on them, and the inliner asks for no weight."""
    typed = onnx.shape_inference.infer_shapes(model)
    known = {value.name for value in (*typed.graph.input, *typed.graph.value_info)}
    typed.graph.value_info.extend(
        helper.make_tensor_value_info(tensor.name, tensor.data_type, tensor.dims)
        for tensor in typed.graph.initializer
        if tensor.name not in known
    )
    return typed


def join_gelu(model: Specialised) -> Specialised:
    """Find x (1 + erf(x / sqrt 2)) / 2, as exporters before operator set 20 write it, and make it a Gelu.

    TFLite has GELU, and no Erf; quantizers and fast kernels know it.
    """
    makers = {name: node for node in model.nodes for name in node.output}
    readers: dict[str, list[onnx.NodeProto]] = {}
    for node in model.nodes:
        for name in node.input:
            readers.setdefault(name, []).append(node)
    numbers = {
        name: float(value.reshape(()))
        for name, value in model.constants.items()
        if value.size == 1 and value.dtype.kind == "f"
    }
    erfs = [node for node in model.nodes if node.op_type == "Erf"]
    found = [_gelu_around(erf, makers, readers, numbers) for erf in erfs]
    sources = {pair[1]: pair[0] for pair in found if pair}
    nodes = [
        helper.make_node("Gelu", [sources[node.output[0]]], node.output, name=node.name)
        if node.output[0] in sources
        else node
        for node in model.nodes
    ]
    return replace(model, nodes=tuple(nodes))


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
    first = _only_reader(plus.output[0], readers, "Mul")
    half = makers.get(next((name for name in first.input if name != plus.output[0]), "")) if first else None
    if first and half and _is_scaled_by(half, 0.5, numbers) and x in half.input:
        return x, first.output[0]  # x / 2 is computed first and multiplied with the sum
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
