"""Integer arithmetic: weights in int8, values between operators in 8 or 16 bits, with ranges from calibration data.

The scheme is that of TensorFlow Lite's int8 specification (https://ai.google.dev/edge/litert/models/quantization_spec):
activations asymmetric, one scale for each tensor; weights symmetric, one scale for each output channel, -127 to 127;
biases int32 with the scale of activation times weight; inputs and outputs of an operator that only moves values share
one scale. Each value is quantized once where it leaves the float part of the graph.
"""

from __future__ import annotations

from copy import copy
from dataclasses import replace
from math import prod
from typing import TYPE_CHECKING

import numpy as np
from ai_edge_litert import schema_py_generated as schema

from edge_infer_converters.writers.tflite.graph import Graph, Operator, Quantization, Tensor
from edge_infer_converters.writers.tflite.quantize import encodings
from edge_infer_converters.writers.tflite.quantize.regions import in_integers, is_activation
from edge_infer_converters.writers.tflite.quantize.scales import meaning_of, meanings
from edge_infer_converters.writers.tflite.quantize.weights import WEIGHTS

if TYPE_CHECKING:
    from edge_infer_converters.writers.tflite.quantize.ranges import Ranges
    from edge_infer_converters.writers.tflite.quantize.schemes import Scheme

_REQUANTIZE = 2
_KEEP_DIMS_VERSION = 5


def to_integers(graph: Graph, ranges: Ranges, scheme: Scheme, *, integer_interface: bool = False) -> Graph:
    """Return a copy of a graph that computes with integers.

    Args:
        graph: A float graph; it is not changed.
        ranges: What `ranges.measure` gave for it.
        scheme: Which integers.
        integer_interface: Whether float inputs and outputs become integers too, as microcontrollers want them.
    """
    job = _Quantizing(graph, ranges, scheme, to_the_end=integer_interface)
    for operator in graph.operators:
        job.rewrite(operator)
    job.finish(integer_interface=integer_interface)
    return job.made


class _Quantizing:
    def __init__(self, graph: Graph, ranges: Ranges, scheme: Scheme, *, to_the_end: bool) -> None:
        self._scheme = scheme
        self.made = Graph(list(graph.inputs), list(graph.outputs))
        self._chosen = in_integers(graph, scheme, to_the_end=to_the_end)
        self._meanings = meanings(graph, self._chosen, ranges, scheme)
        self._integers: dict[int, Tensor] = {}
        self._again: dict[tuple[int, float, int], Tensor] = {}
        self._floats: dict[int, Tensor] = {}
        self._made_in_integers = {
            id(tensor) for operator in graph.operators if id(operator) in self._chosen for tensor in operator.outputs
        }
        self._weights: dict[tuple[int, int, float], tuple[Tensor, Tensor | None]] = {}

    def rewrite(self, operator: Operator) -> None:
        if id(operator) not in self._chosen:
            inputs = [self._as_float(tensor) for tensor in operator.inputs]
            self.made.operators.append(replace(operator, inputs=inputs))
            return
        scheme = self._scheme
        if operator.code in scheme.weighted:
            inputs = self._weighted(operator)
            version = scheme.weighted[operator.code]
            if getattr(operator.options, "keepNumDims", False):
                version = max(version, _KEEP_DIMS_VERSION)
        else:
            inputs = [self._operand(operator, tensor) for tensor in operator.inputs]
            known = {**scheme.moving, **scheme.computing}
            version = known[operator.code] if operator.code in known else scheme.prescribed[operator.code][0]
        outputs, after = [], []
        for tensor in operator.outputs:
            output = self._integer(tensor)
            if operator.code in scheme.prescribed:
                _, scale, zero_point = scheme.prescribed[operator.code]
                meaning = Quantization(np.array([scale], np.float32), zero_point)
                if not meaning.is_same(output.quantization):
                    given = Tensor(f"{tensor.name}/given", tensor.shape, tensor.signature, scheme.dtype, None, meaning)
                    after.append(Operator("QUANTIZE", [given], [output], schema.QuantizeOptionsT(), _REQUANTIZE))
                    output = given
            outputs.append(output)
        made = replace(
            operator,
            inputs=inputs,
            outputs=outputs,
            version=max(version, operator.version),
            options=_with_any_scale(operator.options),
        )
        if scheme.flattens_rows and getattr(made.options, "keepNumDims", False):
            self.made.operators += self._over_rows(made)
        else:
            self.made.operators.append(made)
        self.made.operators += after

    def finish(self, *, integer_interface: bool) -> None:
        """Give the interface its types."""
        for i, tensor in enumerate(self.made.outputs):
            if id(tensor) not in self._made_in_integers:
                if integer_interface and is_activation(tensor):
                    target = self._integer(tensor)
                    self._quantize(tensor, target)
                    self.made.outputs[i] = self._renamed(target, tensor)
                continue
            if integer_interface:
                self.made.outputs[i] = self._renamed(self._integers[id(tensor)], tensor)
            elif id(tensor) not in self._floats:
                self._dequantize(tensor, tensor)
        if not integer_interface:
            return
        for i, tensor in enumerate(self.made.inputs):
            if not is_activation(tensor):
                continue
            if id(tensor) in self._integers:
                integer = self._integers[id(tensor)]
                first = next(one for one in self.made.operators if any(out is integer for out in one.outputs))
                self.made.operators.remove(first)
            integer = self._integer(tensor)
            readers = [one for one in self.made.operators if any(tensor is read for read in one.inputs)]
            if readers:
                # A tensor of its own: the other one is the source graph's, which is written in more precisions.
                as_float = replace(tensor, name=f"{tensor.name}/float")
                for reader in readers:
                    reader.inputs = [as_float if one is tensor else one for one in reader.inputs]
                dequantize = Operator(
                    "DEQUANTIZE", [integer], [as_float], schema.DequantizeOptionsT(), self._scheme.dequantize_version
                )
                self.made.operators.insert(0, dequantize)
            self.made.inputs[i] = self._renamed(integer, tensor)

    # -- values --

    def _operand(self, operator: Operator, tensor: Tensor | None) -> Tensor | None:
        if tensor is None or tensor.dtype != np.float32:
            return tensor
        scheme = self._scheme
        like = operator.outputs[0] if operator.code in scheme.moving else None
        if tensor.data is None:
            integer = self._integer_of(tensor)
            return integer if like is None else self._again_in(integer, self._meant(like))
        # A constant beside values that are only moved takes their scale; beyond their range it has no effect.
        low, high = float(tensor.data.min()), float(tensor.data.max())
        meaning = meaning_of(low, high, scheme) if like is None else self._meant(like)
        integers = np.clip(np.rint(tensor.data / meaning.scales[0]) + meaning.zero_point, scheme.lowest, scheme.highest)
        data = integers.astype(scheme.dtype)
        return Tensor(f"{tensor.name}/{scheme.name}", tensor.shape, tensor.signature, data.dtype, data, meaning)

    def _integer_of(self, tensor: Tensor) -> Tensor:
        """Return a value in integers; it is quantized where it is made in float."""
        if id(tensor) not in self._integers:
            target = self._integer(tensor)
            if id(tensor) not in self._made_in_integers:
                self._quantize(tensor, target)
        return self._integers[id(tensor)]

    def _again_in(self, integer: Tensor, meaning: Quantization) -> Tensor:
        """Return integers with another meaning; they are quantized again where it is not theirs."""
        if meaning.is_same(integer.quantization):
            return integer
        key = (id(integer), float(meaning.scales[0]), meaning.zero_point)
        if key not in self._again:
            self._again[key] = replace(integer, name=f"{integer.name}/{len(self._again)}", quantization=meaning)
            made = Operator("QUANTIZE", [integer], [self._again[key]], schema.QuantizeOptionsT(), _REQUANTIZE)
            self.made.operators.append(made)
        return self._again[key]

    def _integer(self, tensor: Tensor) -> Tensor:
        if id(tensor) not in self._integers:
            name = f"{tensor.name}/{self._scheme.name}"
            self._integers[id(tensor)] = Tensor(
                name, tensor.shape, tensor.signature, self._scheme.dtype, None, self._meant(tensor)
            )
        return self._integers[id(tensor)]

    def _as_float(self, tensor: Tensor | None) -> Tensor | None:
        """Return a value in float; it is dequantized where it is made in integers."""
        if tensor is None or id(tensor) not in self._made_in_integers:
            return tensor
        if id(tensor) not in self._floats:
            self._dequantize(tensor, tensor)
        return self._floats[id(tensor)]

    def _dequantize(self, tensor: Tensor, target: Tensor) -> None:
        integer = self._integers[id(tensor)]
        options = schema.DequantizeOptionsT()
        self.made.operators.append(
            Operator("DEQUANTIZE", [integer], [target], options, self._scheme.dequantize_version)
        )
        self._floats[id(tensor)] = target

    def _quantize(self, tensor: Tensor, target: Tensor) -> None:
        version = self._scheme.quantize_version
        self.made.operators.append(Operator("QUANTIZE", [tensor], [target], schema.QuantizeOptionsT(), version))

    def _meant(self, tensor: Tensor) -> Quantization:
        """Return what the integers of a value stand for."""
        if id(tensor) not in self._meanings:
            self._meanings[id(tensor)] = meaning_of(0, 0, self._scheme)
        return self._meanings[id(tensor)]

    @staticmethod
    def _renamed(integer: Tensor, like: Tensor) -> Tensor:
        integer.name = like.name
        return integer

    # -- weights --

    def _over_rows(self, operator: Operator) -> list[Operator]:
        """Write a FULLY_CONNECTED over more than two axes as one over the rows of a matrix."""
        value, (target,) = operator.inputs[0], operator.outputs
        if value is None:
            raise ValueError(f"{operator.code} without operands")
        rows = _matrix(value, f"{value.name}/rows"), _matrix(target, f"{target.name}/rows")
        options = copy(operator.options)
        setattr(options, "keepNumDims", False)  # noqa: B010  untyped schema
        dense = replace(operator, inputs=[rows[0], *operator.inputs[1:]], outputs=[rows[1]], options=options)
        return [_reshaped(value, rows[0]), dense, _reshaped(rows[1], target)]

    def _weighted(self, operator: Operator) -> list[Tensor | None]:
        place, axis = WEIGHTS[operator.code]
        is_transposed = operator.code == "TRANSPOSE_CONV"
        value_place = 2 if is_transposed else 0
        value, weights = operator.inputs[value_place], operator.inputs[place]
        bias_place = 3 if is_transposed else 2
        bias = operator.inputs[bias_place] if len(operator.inputs) > bias_place else None
        if value is None or weights is None:
            raise ValueError(f"{operator.code} without operands")
        integer = self._integer_of(value)
        scale = float(self._meant(value).scales[0])
        inputs = list(operator.inputs)
        inputs[value_place] = integer
        inputs[place], stored = self._weights_and_bias(weights, bias, axis, scale)
        if bias is not None:
            inputs[bias_place] = stored
        return inputs

    def _weights_and_bias(
        self, weights: Tensor, bias: Tensor | None, axis: int, scale: float
    ) -> tuple[Tensor, Tensor | None]:
        key = (id(weights), id(bias), scale)
        if key in self._weights:
            return self._weights[key]
        if weights.data is None:
            raise ValueError(f"{weights.name} is not constant")
        found = encodings.int8(weights.data, axis, least=_least(bias, scale, self._scheme))
        meaning = Quantization(found.scales, axis=axis)
        name = f"{weights.name}/int8"
        stored = Tensor(name, weights.shape, weights.shape, found.values.dtype, found.values, meaning)
        added = None
        if bias is not None and bias.data is not None:
            of_sum = (found.scales.astype(np.float64) * scale).astype(np.float32)
            dtype = self._scheme.bias_dtype
            data = np.rint(bias.data.astype(np.float64) / of_sum).astype(dtype)
            added = Tensor(f"{bias.name}/{dtype}", bias.shape, bias.shape, data.dtype, data, Quantization(of_sum))
        self._weights[key] = stored, added
        return stored, added


def _least(bias: Tensor | None, scale: float, scheme: Scheme) -> np.ndarray | None:
    """Return the least scale of each channel's weights with which its bias fits its type."""
    if bias is None or bias.data is None:
        return None
    least: np.ndarray = np.abs(bias.data.astype(np.float64)) / scheme.largest_bias / scale
    return least


def _matrix(tensor: Tensor, name: str) -> Tensor:
    """Make a tensor of the same rows."""
    width = tensor.shape[-1]
    count = -1 if -1 in tensor.signature else prod(tensor.shape[:-1])
    return replace(tensor, name=name, shape=(prod(tensor.shape[:-1]), width), signature=(count, width))


def _reshaped(source: Tensor, target: Tensor) -> Operator:
    dims = np.array(target.signature, np.int32)
    options = schema.ReshapeOptionsT()
    options.newShape = dims
    shape = Tensor(f"{target.name}/shape", dims.shape, dims.shape, dims.dtype, dims)
    return Operator("RESHAPE", [source, shape], [target], options)


def _with_any_scale(options: object | None) -> object | None:
    """Let ADD and SUB of 16 bits take scales that are not powers of two."""
    if not hasattr(options, "potScaleInt16"):
        return options
    changed = copy(options)
    changed.potScaleInt16 = False
    return changed
