"""Write operators on quantized numbers as float operators between quantizers (from QOperator to QDQ form).

The operators of `com.microsoft` are those of ONNX Runtime's ContribOperators.md. Numbers stay the same: each of these
operators is defined as what its float operator gives for the dequantized operands, rounded once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import onnx
from onnx import helper, numpy_helper

from edge_infer_converters.passes.graphs import FreshNames, drop_unread_tensors, names_in, opset_of, sort_nodes

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


class _Form(NamedTuple):
    """How an operator on quantized numbers is written in float.

    Attributes:
        operator: The float operator.
        operands: The place of each operand that is behind the first of its scale.
        result: The place of the result's scale, followed by its zero point.
        plain: The places of inputs that are not quantized, by their place in the float operator.
        dropped: Attributes that the float operator has not.
    """

    operator: str
    operands: tuple[int, ...]
    result: int
    plain: Mapping[int, int] = {}
    dropped: tuple[str, ...] = ()


_CONTRIB = "com.microsoft"
_FORMS = {
    ("", "QLinearConv"): _Form("Conv", (0, 3), 6),
    ("", "QLinearMatMul"): _Form("MatMul", (0, 3), 6),
    (_CONTRIB, "QGemm"): _Form("Gemm", (0, 3), 7),
    (_CONTRIB, "QLinearAdd"): _Form("Add", (0, 3), 6),
    (_CONTRIB, "QLinearAveragePool"): _Form("AveragePool", (0,), 3, dropped=("channels_last",)),
    (_CONTRIB, "QLinearGlobalAveragePool"): _Form("GlobalAveragePool", (0,), 3, dropped=("channels_last",)),
    (_CONTRIB, "QLinearLeakyRelu"): _Form("LeakyRelu", (0,), 3),
    (_CONTRIB, "QLinearMul"): _Form("Mul", (0, 3), 6),
    (_CONTRIB, "QLinearReduceMean"): _Form("ReduceMean", (0,), 3),
    (_CONTRIB, "QLinearSigmoid"): _Form("Sigmoid", (0,), 3),
    (_CONTRIB, "QLinearSoftmax"): _Form("Softmax", (0,), 3, dropped=("opset",)),
    (_CONTRIB, "QLinearWhere"): _Form("Where", (1, 4), 7, plain={0: 0}),
}
#: The bias of these is in integers of both operands' scales: its place there, and of the scales.
_BIASES = {"QLinearConv": (8, 1, 4), "QGemm": (6, 1, 4)}
#: Operators that move numbers, so that quantized ones keep their scale; the first input and all outputs are values.
_MOVING = frozenset(
    {"DepthToSpace", "Expand", "Flatten", "Gather", "Identity", "MaxPool", "Reshape", "Slice", "SpaceToDepth"}
    | {"Split", "Squeeze", "Tile", "Transpose", "Unsqueeze"}
)
_QUANTIZERS = ("QuantizeLinear", "DequantizeLinear")


def has_quantizers(model: onnx.ModelProto) -> bool:
    """Tell whether a model computes with quantized numbers."""
    return any(
        node.op_type in _QUANTIZERS or (_domain(node), node.op_type) in _FORMS or node.op_type == "QLinearConcat"
        for node in model.graph.node
    )


def to_quantizers(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return a copy whose only operators on quantized numbers are `QuantizeLinear` and `DequantizeLinear`.

    Operators without a float form here are kept.
    """
    changed = onnx.ModelProto()
    changed.CopyFrom(model)
    _store_constants(changed.graph)
    _Writing(changed).run()
    return changed


def _store_constants(graph: onnx.GraphProto) -> None:
    """Let nodes read stored tensors directly: scales and zero points often come through `Constant` or `Identity`."""
    stored = {tensor.name for tensor in graph.initializer} - {value.name for value in graph.input}
    outputs = {value.name for value in graph.output}
    names: dict[str, str] = {}
    kept: list[onnx.NodeProto] = []
    for node in graph.node:
        for place, name in enumerate(node.input):
            node.input[place] = names.get(name, name)
        value = next((one.t for one in node.attribute if one.name == "value" and one.HasField("t")), None)
        if node.output[0] in outputs:
            kept.append(node)
        elif node.op_type == "Identity" and node.input[0] in stored:
            names[node.output[0]] = node.input[0]
        elif node.op_type == "Constant" and value is not None:
            tensor = graph.initializer.add()
            tensor.CopyFrom(value)
            tensor.name = node.output[0]
            stored.add(node.output[0])
        else:
            kept.append(node)
    del graph.node[:]
    graph.node.extend(kept)


class _Writing:
    def __init__(self, model: onnx.ModelProto) -> None:
        self._graph = model.graph
        self._opset = opset_of(model)
        self._fresh = FreshNames(names_in(model.graph))
        self._stored = {tensor.name: tensor for tensor in model.graph.initializer}
        self._made: list[onnx.NodeProto] = []
        #: The names of scale and zero point of each quantized value that is computed.
        self._meaning: dict[str, tuple[str, str]] = {}
        self._floats: dict[str, str] = {}
        self._same: dict[str, str] = {}
        self._outputs = {value.name for value in model.graph.output}

    def run(self) -> None:
        nodes = list(self._graph.node)
        for node in nodes:  # inputs that are integers mean what their first reader says
            if node.op_type == "DequantizeLinear" and node.input[0] not in self._stored:
                self._meaning.setdefault(node.input[0], _pair(node.input[1:]))
        for node in nodes:
            for place, name in enumerate(node.input):
                node.input[place] = self._same.get(name, name)
            domain, form = _domain(node), _FORMS.get((_domain(node), node.op_type))
            if form is not None and self._fits(node):
                self._write(node, form)
            elif (domain, node.op_type) == (_CONTRIB, "QLinearConcat"):
                self._concat(node)
            elif node.op_type in _QUANTIZERS:
                if domain == _CONTRIB:
                    node.domain = ""
                if node.op_type == "QuantizeLinear":
                    self._meaning[node.output[0]] = _pair(node.input[1:])
                self._made.append(node)
            elif domain == "" and self._is_same_type(node):
                self._meaning[node.output[0]] = self._meaning[node.input[0]]
                self._same[node.output[0]] = node.input[0]
            elif domain == "" and self._is_clip(node):
                self._clip(node)
            elif domain == "" and node.op_type in _MOVING and node.input and node.input[0] in self._meaning:
                self._move(node)
            else:
                self._made.append(node)
        del self._graph.node[:]
        self._graph.node.extend(self._made)
        sort_nodes(self._graph)
        drop_unread_tensors(self._graph)

    def _type(self, meaning: tuple[str, str]) -> int:
        return self._stored[meaning[1]].data_type if meaning[1] in self._stored else onnx.TensorProto.UINT8

    def _is_same_type(self, node: onnx.NodeProto) -> bool:
        """Tell whether a node casts a quantized value to the type that it has."""
        if node.op_type != "Cast" or node.input[0] not in self._meaning or node.output[0] in self._outputs:
            return False
        wanted = self._type(self._meaning[node.input[0]])
        return any(attribute.name == "to" and attribute.i == wanted for attribute in node.attribute)

    def _is_clip(self, node: onnx.NodeProto) -> bool:
        """Tell whether a node limits quantized numbers to fewer integers, as for 7 bits."""
        if node.op_type != "Clip" or node.input[0] not in self._meaning:
            return False
        names = [*self._meaning[node.input[0]], *node.input[1:]]
        return all(name in self._stored for name in names if name)

    def _clip(self, node: onnx.NodeProto) -> None:
        """Limit the floats in place of the integers."""
        meaning = self._meaning[node.input[0]]
        scale = numpy_helper.to_array(self._stored[meaning[0]]).reshape(-1)
        zero = numpy_helper.to_array(self._stored[meaning[1]]).reshape(-1) if meaning[1] else np.zeros(1, np.int64)
        names = [self._float(node.input[0], meaning, 0)]
        for name in node.input[1:]:
            if name:
                limit = numpy_helper.to_array(self._stored[name]).astype(np.int64).reshape(()) - int(zero[0])
                bound = self._fresh(f"{name}/float")
                self._graph.initializer.append(numpy_helper.from_array(np.asarray(limit * scale[0], np.float32), bound))
                names.append(bound)
            else:
                names.append("")
        result = self._fresh(f"{node.output[0]}/float")
        self._made.append(_node("Clip", names, [result], node.name, []))
        self._quantize(result, node.output[0], meaning)

    def _fits(self, node: onnx.NodeProto) -> bool:
        """Tell whether a node is what its float operator is: not in another layout, or of an older meaning."""
        numbers = {attribute.name: attribute.i for attribute in node.attribute}
        if numbers.get("channels_last", 0):
            return False
        if node.op_type == "QLinearSoftmax":
            return bool(numbers.get("opset", 0) >= 13 <= self._opset)
        if node.op_type == "QLinearReduceMean":
            return self._opset < 18  # where axes are an attribute
        bias = _BIASES.get(node.op_type)
        has_bias = bias is not None and len(node.input) > bias[0] and bool(node.input[bias[0]])
        return not has_bias or bias is None or all(node.input[place] in self._stored for place in bias)

    def _write(self, node: onnx.NodeProto, form: _Form) -> None:
        inputs = {place: node.input[own] for place, own in form.plain.items()}
        free = (place for place in range(len(node.input)) if place not in inputs)
        for number, place in enumerate(form.operands):
            axis = self._axis(node, number)
            inputs[next(free)] = self._float(node.input[place], _pair(node.input[place + 1 : place + 3]), axis)
        names = [inputs[place] for place in sorted(inputs)]
        if node.op_type in _BIASES and len(node.input) > _BIASES[node.op_type][0]:
            names.append(self._bias(node))
        kept = [one for one in node.attribute if one.name not in form.dropped]
        if len(node.input) <= form.result or not node.input[form.result]:  # QGemm with a float result
            self._made.append(_node(form.operator, names, list(node.output), node.name, kept))
            return
        meaning = _pair(node.input[form.result : form.result + 2])
        result = self._fresh(f"{node.output[0]}/float")
        self._made.append(_node(form.operator, names, [result], node.name, kept))
        self._quantize(result, node.output[0], meaning)

    def _axis(self, node: onnx.NodeProto, number: int) -> int:
        """Return the axis of an operand's scales, where it has several."""
        if node.op_type == "QGemm" and number:
            turned = {attribute.name: attribute.i for attribute in node.attribute}.get("transB", 0)
            return 0 if turned else 1
        return 1 if node.op_type == "QLinearMatMul" and number else 0

    def _concat(self, node: onnx.NodeProto) -> None:
        values = list(node.input)
        names = [
            self._float(values[place], _pair(values[place + 1 : place + 3]), 0) for place in range(2, len(values), 3)
        ]
        result = self._fresh(f"{node.output[0]}/float")
        self._made.append(_node("Concat", names, [result], node.name, list(node.attribute)))
        self._quantize(result, node.output[0], _pair(values[:2]))

    def _move(self, node: onnx.NodeProto) -> None:
        """Move floats in place of integers: the quantizer behind has the same scale, so that none is rounded."""
        meaning = self._meaning[node.input[0]]
        names = [self._float(node.input[0], meaning, 0), *node.input[1:]]
        results = [self._fresh(f"{name}/float") if name else "" for name in node.output]
        if node.op_type == "MaxPool" and len(results) > 1:
            results[1:] = list(node.output[1:])
        self._made.append(_node(node.op_type, names, results, node.name, list(node.attribute)))
        for result, name in zip(results, node.output, strict=True):
            if name and result != name:
                self._quantize(result, name, meaning)

    def _float(self, name: str, meaning: tuple[str, str], axis: int) -> str:
        if name in self._floats:
            return self._floats[name]
        result = self._fresh(f"{name}/float")
        scale = self._stored.get(meaning[0])
        count = 1 if scale is None else int(np.prod(scale.dims)) if scale.dims else 1
        attributes = [helper.make_attribute("axis", axis)] if count > 1 else []
        self._made.append(_node("DequantizeLinear", [name, *_given(meaning)], [result], result, attributes))
        self._floats[name] = result
        return result

    def _quantize(self, source: str, name: str, meaning: tuple[str, str]) -> None:
        self._made.append(_node("QuantizeLinear", [source, *_given(meaning)], [name], name, []))
        self._meaning[name] = meaning

    def _bias(self, node: onnx.NodeProto) -> str:
        places = _BIASES[node.op_type]
        bias, *scales = (numpy_helper.to_array(self._stored[node.input[place]]) for place in places)
        value = bias.astype(np.float64) * scales[0].astype(np.float64).reshape(-1) * scales[1].reshape(-1)
        # QGemm adds its bias to the integers before `alpha` scales them, Gemm behind it.
        value *= {attribute.name: attribute.f for attribute in node.attribute}.get("alpha", 1.0)
        name = self._fresh(f"{node.input[places[0]]}/float")
        self._graph.initializer.append(numpy_helper.from_array(value.astype(np.float32), name))
        return name


def _pair(names: Sequence[str]) -> tuple[str, str]:
    return names[0], names[1] if len(names) > 1 else ""


def _given(meaning: tuple[str, str]) -> list[str]:
    return [name for name in meaning if name]


def _domain(node: onnx.NodeProto) -> str:
    return "" if node.domain == "ai.onnx" else node.domain


def _node(
    operator: str,
    inputs: Sequence[str],
    outputs: Sequence[str],
    name: str,
    attributes: Sequence[onnx.AttributeProto],
) -> onnx.NodeProto:
    node = helper.make_node(operator, list(inputs), list(outputs), name)
    node.attribute.extend(attributes)
    return node
