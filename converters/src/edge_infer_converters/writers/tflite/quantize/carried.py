"""Integer arithmetic with the scales that a model carries: of quantization-aware training, or of another quantizer.

The graph computes in float between QUANTIZE and DEQUANTIZE. An operator whose operands all come from integers and whose
result becomes integers, and nothing else, computes with integers. So each value is rounded where the model rounds it,
and nowhere else; an operator between floats stays one, and reads its weights through a DEQUANTIZE.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from ai_edge_litert import schema_py_generated as schema

from edge_infer_converters.writers.tflite.graph import Graph, Operator, Quantization, Tensor
from edge_infer_converters.writers.tflite.quantize.constants import Constants, coded, codes_of, is_exact
from edge_infer_converters.writers.tflite.quantize.regions import is_activation
from edge_infer_converters.writers.tflite.quantize.schemes import INT8
from edge_infer_converters.writers.tflite.quantize.weights import WEIGHTS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from edge_infer_converters.passes.carried_scales import Scales

_UNSIGNED_SHIFT = 128
_REQUANTIZE_VERSION = 2
#: That of a DEQUANTIZE whose operand has a scale for each slice.
_SLICED_VERSION = 5
#: What of `INT8.moving` gives numbers that it was given, or keeps their order: exact for integers of any scale.
_EXACT = frozenset(INT8.moving) - {"AVERAGE_POOL_2D", "RESIZE_BILINEAR"}
#: Those of several values, each of which may have a scale of its own before they come together.
_JOINING = frozenset({"CONCATENATION", "PACK"})
_COMPARING = frozenset({"MAXIMUM", "MINIMUM"})
#: What averages numbers of one scale, and gives that scale.
_AVERAGING = frozenset({"AVERAGE_POOL_2D", "RESIZE_BILINEAR"})
#: A result that is rounded to steps of less than this, and then to its own, is at most one step beside the right one.
_ROUNDED_TWICE = 2
#: A sum of products beyond this might overflow 32 bits.
_LARGEST_BIAS = INT8.largest_bias
#: Weights of fewer elements are not worth a DEQUANTIZE.
_MIN_ELEMENTS = 64


def to_carried_integers(graph: Graph, scales: Mapping[str, Scales]) -> Graph:
    """Return a copy of a graph that computes with the integers that it carries.

    Args:
        graph: A graph of floats between QUANTIZE and DEQUANTIZE; it is not changed.
        scales: The scales of its constants, by `key_of`.
    """
    job = _Joining(graph, scales)
    job.sign()
    job.push_down()
    job.pull_up()
    job.push_down()
    job.join()
    job.store_weights()
    job.drop_unread()
    return job.made


class _Joining:
    def __init__(self, graph: Graph, scales: Mapping[str, Scales]) -> None:
        self.made = Graph(list(graph.inputs), list(graph.outputs))
        self.made.operators = [
            replace(one, inputs=list(one.inputs), outputs=list(one.outputs)) for one in graph.operators
        ]
        self._constants = Constants(scales)
        self._integers: dict[int, Tensor] = {}  # of each float that a DEQUANTIZE makes, what it is made of

    # -- signs --

    def sign(self) -> None:
        """Make unsigned values between operators signed, which is what kernels compute with."""
        readers, makers = self._readers(), self._makers()
        ends = {id(tensor) for tensor in (*self.made.inputs, *self.made.outputs)}
        signed: dict[int, Tensor] = {}
        for operator in self.made.operators:
            for tensor in operator.outputs:
                meant = tensor.quantization
                if tensor.dtype != np.uint8 or meant is None or id(tensor) in ends:
                    continue
                if makers[id(tensor)].code == "QUANTIZE" and all(
                    one.code == "DEQUANTIZE" for one in readers.get(id(tensor), ())
                ):
                    meaning = Quantization(meant.scales, meant.zero_point - _UNSIGNED_SHIFT)
                    signed[id(tensor)] = replace(tensor, dtype=np.dtype(np.int8), quantization=meaning)
        self._rename(signed)
        operators = []
        for operator in self.made.operators:
            source = operator.inputs[0] if operator.inputs else None
            if operator.code == "DEQUANTIZE" and source is not None and source.dtype == np.uint8:
                meant = source.quantization
                if meant is not None:
                    target = _like(source, "signed", Quantization(meant.scales, meant.zero_point - _UNSIGNED_SHIFT))
                    operators.append(_quantize(source, target))
                    operator.inputs[0] = target
            operators.append(operator)
        self.made.operators = operators

    # -- moving --

    def push_down(self) -> None:
        """Let what moves floats out of integers move the integers."""
        made: list[Operator] = []
        same: dict[int, Tensor] = {}
        self._integers = {}
        for operator in self.made.operators:
            operator.inputs = [one if one is None else same.get(id(one), one) for one in operator.inputs]
            source = operator.inputs[0] if operator.inputs else None
            if operator.code == "DEQUANTIZE" and source is not None and source.quantization is not None:
                self._integers[id(operator.outputs[0])] = source
            elif operator.code == "QUANTIZE" and source is not None and id(source) in self._integers:
                integer, target = self._integers[id(source)], operator.outputs[0]
                meaning = integer.quantization
                is_same = meaning is not None and meaning.is_same(target.quantization)
                if is_same and integer.dtype == target.dtype and not self._is_end(target):
                    same[id(target)] = integer
                    continue
                operator = _quantize(integer, target)
            elif operator.code in _EXACT and self._is_of_one_scale(operator):
                made += self._moved(operator)
                continue
            made.append(operator)
        self.made.operators = made

    def _is_of_one_scale(self, operator: Operator) -> bool:
        """Tell whether all values that an operator moves come from integers of the same meaning."""
        values = [one for one in operator.inputs if one is not None and is_activation(one)]
        if not values or not all(id(one) in self._integers for one in values):
            return False
        if not all(one.dtype == np.float32 for one in operator.outputs):
            return False
        first = self._integers[id(values[0])].quantization
        is_same = all(first is not None and first.is_same(self._integers[id(one)].quantization) for one in values)
        constants = [one.data for one in operator.inputs if one is not None and one.data is not None]
        if first is None or not is_same or (operator.code in _JOINING and constants):
            return False
        return operator.code not in _COMPARING or all(
            is_exact(one, codes_of(one, first), first.scales, first.zero_point) for one in constants
        )

    def _moved(self, operator: Operator) -> list[Operator]:
        first = next(one for one in operator.inputs if one is not None and is_activation(one))
        meaning = self._integers[id(first)].quantization
        if meaning is None:
            raise AssertionError("a value without a scale")
        inputs = [self._moved_operand(one, meaning) for one in operator.inputs]
        outputs = [_like(one, "int8", meaning) for one in operator.outputs]
        found = [replace(operator, inputs=inputs, outputs=outputs, version=_version(operator))]
        for integer, target in zip(outputs, operator.outputs, strict=True):
            self._integers[id(target)] = integer
            found.append(_dequantize(integer, target))
        return found

    def _moved_operand(self, tensor: Tensor | None, meaning: Quantization) -> Tensor | None:
        """Return an operand in integers: a value, or a constant beside it that fills up, such as a padding."""
        if tensor is None or tensor.dtype != np.float32:
            return tensor
        if tensor.data is None:
            return self._integers[id(tensor)]
        return coded(tensor, codes_of(tensor.data, meaning), meaning)

    def pull_up(self) -> None:
        """Let what moves floats on their way to integers move the integers."""
        for quantizer in [one for one in reversed(self.made.operators) if one.code == "QUANTIZE"]:
            self._pull(quantizer)

    def _pull(self, quantizer: Operator) -> None:
        waiting = [quantizer]
        while waiting:
            one = waiting.pop()
            source, target = one.inputs[0], one.outputs[0]
            maker = None if source is None else self._makers().get(id(source))
            meaning = target.quantization
            if maker is None or source is None or meaning is None or target.dtype != np.int8:
                continue
            if maker.code not in _EXACT or len(maker.outputs) > 1 or source.dtype != np.float32:
                continue
            if self._is_end(source) or len(self._readers().get(id(source), ())) > 1:
                continue
            place = self.made.operators.index(maker)
            inputs: list[Tensor | None] = []
            added = []
            for tensor in maker.inputs:
                if tensor is None or tensor.dtype != np.float32:
                    inputs.append(tensor)
                elif tensor.data is not None:
                    inputs.append(coded(tensor, codes_of(tensor.data, meaning), meaning))
                else:
                    integer = _like(tensor, "int8", meaning)
                    added.append(_quantize(tensor, integer))
                    inputs.append(integer)
            moved = replace(maker, inputs=inputs, outputs=[target], version=_version(maker))
            self.made.operators[place : place + 1] = [*added, moved]
            self.made.operators.remove(one)
            waiting += added

    # -- computing --

    def join(self) -> None:
        """Let what computes floats out of integers, for integers, compute integers."""
        readers = self._readers()
        made: list[Operator] = []
        gone: set[int] = set()
        for operator in self.made.operators:
            if id(operator) in gone:
                continue
            quantizer = self._only_quantizer(operator, readers)
            found = None if quantizer is None else self._computed(operator, quantizer.outputs[0])
            if found is None or quantizer is None:
                made.append(operator)
                continue
            gone.add(id(quantizer))
            made += found
        self.made.operators = made

    def _only_quantizer(self, operator: Operator, readers: Mapping[int, list[Operator]]) -> Operator | None:
        """Return what alone reads an operator's result, and makes int8 of it."""
        if len(operator.outputs) != 1 or not is_activation(operator.outputs[0]) or self._is_end(operator.outputs[0]):
            return None
        found = readers.get(id(operator.outputs[0]), [])
        is_one = len(found) == 1 and found[0].code == "QUANTIZE" and found[0].outputs[0].dtype == np.int8
        return found[0] if is_one else None

    def _computed(self, operator: Operator, target: Tensor) -> list[Operator] | None:
        """Write an operator on integers; None where it cannot be."""
        meaning = target.quantization
        values = [one for one in operator.inputs if one is not None and is_activation(one)]
        if meaning is None or not values or not all(id(one) in self._integers for one in values):
            return None
        version = _version(operator)
        if operator.code in WEIGHTS:
            inputs = self._weighted(operator) if operator.code in INT8.weighted else None
        elif operator.code in INT8.computing:
            inputs = self._operands(operator)
        elif operator.code in INT8.prescribed or operator.code in _AVERAGING:
            return self._with_own_scale(operator, target, meaning)
        else:
            inputs = None
        if inputs is None:
            return None
        return [replace(operator, inputs=inputs, outputs=[target], version=version)]

    def _with_own_scale(self, operator: Operator, target: Tensor, meaning: Quantization) -> list[Operator] | None:
        """Write an operator whose result has a scale that the kernel, or its operand, prescribes."""
        source = self._integers.get(id(operator.inputs[0]))
        if source is None or source.quantization is None:
            return None
        given = source.quantization
        if operator.code in INT8.prescribed:
            _, scale, zero_point = INT8.prescribed[operator.code]
            given = Quantization(np.array([scale], np.float32), zero_point)
        if given.scales[0] >= _ROUNDED_TWICE * meaning.scales[0]:
            return None
        inputs = [source, *operator.inputs[1:]]
        if given.is_same(meaning):
            return [replace(operator, inputs=inputs, outputs=[target], version=_version(operator))]
        between = _like(target, "given", given)
        first = replace(operator, inputs=inputs, outputs=[between], version=_version(operator))
        return [first, _quantize(between, target)]

    def _operands(self, operator: Operator) -> list[Tensor | None] | None:
        inputs: list[Tensor | None] = []
        for tensor in operator.inputs:
            if tensor is None or tensor.dtype != np.float32:
                inputs.append(tensor)
            elif tensor.data is None:
                inputs.append(self._integers[id(tensor)])
            else:
                stored = self._constants.operand(tensor)
                if stored is None:
                    return None
                inputs.append(stored)
        return inputs

    def _weighted(self, operator: Operator) -> list[Tensor | None] | None:
        place, axis = WEIGHTS[operator.code]
        is_transposed = operator.code == "TRANSPOSE_CONV"
        value_place, bias_place = (2, 3) if is_transposed else (0, 2)
        value, weights = operator.inputs[value_place], operator.inputs[place]
        bias = operator.inputs[bias_place] if len(operator.inputs) > bias_place else None
        if value is None or id(value) not in self._integers or weights is None or weights.data is None:
            return None
        stored = self._constants.weights(operator.code, weights, axis)
        integer = self._integers[id(value)]
        if stored is None or stored.quantization is None or integer.quantization is None:
            return None
        inputs = list(operator.inputs)
        inputs[value_place], inputs[place] = integer, stored
        if bias is not None:
            if bias.data is None:
                return None
            of_sum = stored.quantization.scales.astype(np.float64) * float(integer.quantization.scales[0])
            codes = np.rint(bias.data.astype(np.float64) / of_sum)
            if not np.isfinite(codes).all() or np.abs(codes).max(initial=0) > _LARGEST_BIAS:
                return None
            data = codes.astype(np.int32)
            meaning = Quantization(of_sum.astype(np.float32))
            inputs[bias_place] = Tensor(f"{bias.name}/int32", bias.shape, bias.shape, data.dtype, data, meaning)
        return inputs

    # -- what stays float --

    def store_weights(self) -> None:
        """Store the weights of operators that stay float as their integers, each behind a DEQUANTIZE."""
        read: dict[int, Tensor] = {}
        added: list[Operator] = []
        for operator in self.made.operators:
            for place, tensor in enumerate(operator.inputs):
                if tensor is None or tensor.data is None or tensor.dtype != np.float32:
                    continue
                if id(tensor) not in read:
                    read[id(tensor)] = tensor
                    stored = self._constants.stored(tensor) if tensor.data.size >= _MIN_ELEMENTS else None
                    if stored is not None:
                        target = Tensor(f"{tensor.name}/float", tensor.shape, tensor.shape, tensor.dtype)
                        added.append(_dequantize(stored, target))
                        read[id(tensor)] = target
                operator.inputs[place] = read[id(tensor)]
        self.made.operators = [*added, *self.made.operators]

    def drop_unread(self) -> None:
        """Drop what leads to no output."""
        needed = {id(tensor) for tensor in self.made.outputs}
        kept: list[Operator] = []
        for operator in reversed(self.made.operators):
            if any(id(tensor) in needed for tensor in operator.outputs):
                kept.append(operator)
                needed |= {id(tensor) for tensor in operator.inputs if tensor is not None}
        self.made.operators = kept[::-1]

    # -- the graph --

    def _readers(self) -> dict[int, list[Operator]]:
        found: dict[int, list[Operator]] = {}
        for operator in self.made.operators:
            for tensor in operator.inputs:
                if tensor is not None:
                    found.setdefault(id(tensor), []).append(operator)
        return found

    def _makers(self) -> dict[int, Operator]:
        return {id(tensor): operator for operator in self.made.operators for tensor in operator.outputs}

    def _is_end(self, tensor: Tensor) -> bool:
        return any(tensor is one for one in self.made.outputs)

    def _rename(self, others: Mapping[int, Tensor]) -> None:
        for operator in self.made.operators:
            operator.inputs = [one if one is None else others.get(id(one), one) for one in operator.inputs]
            operator.outputs = [others.get(id(one), one) for one in operator.outputs]


def _like(tensor: Tensor, suffix: str, meaning: Quantization) -> Tensor:
    return replace(tensor, name=f"{tensor.name}/{suffix}", dtype=np.dtype(np.int8), quantization=meaning)


def _quantize(source: Tensor, target: Tensor) -> Operator:
    version = 1 if source.dtype == np.float32 else _REQUANTIZE_VERSION
    return Operator("QUANTIZE", [source], [target], schema.QuantizeOptionsT(), version)


def _dequantize(source: Tensor, target: Tensor) -> Operator:
    is_sliced = source.quantization is not None and len(source.quantization.scales) > 1
    version = _SLICED_VERSION if is_sliced else INT8.dequantize_version
    return Operator("DEQUANTIZE", [source], [target], schema.DequantizeOptionsT(), version)


def _version(operator: Operator) -> int:
    """Return the version of an operator that reads int8."""
    known = {**INT8.moving, **INT8.computing, **INT8.weighted}
    version = INT8.prescribed[operator.code][0] if operator.code in INT8.prescribed else known.get(operator.code, 1)
    if getattr(operator.options, "keepNumDims", False):
        version = max(version, 5)
    return max(version, operator.version)
