"""The ONNX graph while it is built of a TFLite graph: each tensor's forms, by layout and by what its elements are.

A tensor may be there channels last, as TFLite has it, or channels first, as ONNX convolves; and as stored integers or
as the real numbers that these stand for. A form is made when a rule asks for it, so no transpose is written that
another would undo.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from onnx import TensorProto, helper, numpy_helper

from edge_infer.errors import UnsupportedModel

if TYPE_CHECKING:
    from collections.abc import Sequence

    import onnx

    from edge_infer_converters.writers.tflite.graph import Operator, Tensor

#: Channels last, TFLite's own order of axes, and channels first.
PLAIN, FIRST = "plain", "first"
_TO_FIRST = (0, 3, 1, 2)
_TO_PLAIN = (0, 2, 3, 1)
_IMAGE_RANK = 4


class Unsupported(Exception):
    """What of an operator has no rule."""


class Builder:
    """The nodes and constants that were written so far, and the forms of each tensor."""

    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.initializers: dict[str, onnx.TensorProto] = {}
        self.variables: dict[str, Any] = {}
        self._forms: dict[tuple[int, str, bool], str] = {}
        self._aliases: dict[int, Tensor] = {}
        self._constants: dict[tuple[str, tuple[int, ...], bytes], str] = {}
        self._taken: set[str] = set()
        self._counts: dict[str, int] = {}

    def reserve(self, name: str) -> str:
        """Return a name that nothing else has."""
        if name not in self._taken and name:
            self._taken.add(name)
            return name
        name = name or "value"
        count = self._counts.get(name, 1)
        found = name
        while found in self._taken:
            count += 1
            found = f"{name}_{count}"
        self._counts[name] = count
        self._taken.add(found)
        return found

    def add(self, kind: str, inputs: Sequence[str], hint: str = "", **attributes: Any) -> str:
        """Write a node of one output; return the output's name."""
        return self.add_many(kind, inputs, 1, hint, **attributes)[0]

    def add_many(self, kind: str, inputs: Sequence[str], count: int, hint: str = "", **attributes: Any) -> list[str]:
        """Write a node of several outputs; return their names."""
        hint = _short(hint) or kind.lower()
        outputs = [self.reserve(hint) for _ in range(count)]
        name = self.reserve(f"{hint}/{kind}")
        self.nodes.append(helper.make_node(kind, list(inputs), outputs, name=name, **attributes))
        return outputs

    def constant(self, value: np.ndarray, hint: str = "constant") -> str:
        """Store a constant once; return its name."""
        value = np.ascontiguousarray(value).reshape(value.shape)
        key = (value.dtype.str, value.shape, value.tobytes())
        if key not in self._constants:
            name = self.reserve(_short(hint))
            self.initializers[name] = numpy_helper.from_array(value.astype(value.dtype.newbyteorder("=")), name)
            self._constants[key] = name
        return self._constants[key]

    def integers(self, *values: int) -> str:
        """Store a vector of int64."""
        return self.constant(np.array(values, np.int64), "numbers")

    def set_form(self, tensor: Tensor, name: str, layout: str = PLAIN, *, is_real: bool = False) -> None:
        """Say that a form of a tensor is there; of what is not quantized, both kinds of elements are the same."""
        self._forms[id(tensor), layout, is_real] = name
        if tensor.quantization is None:
            self._forms[id(tensor), layout, not is_real] = name

    def set_alias(self, tensor: Tensor, source: Tensor) -> None:
        """Say that a tensor is what a constant of another type stands for."""
        self._aliases[id(tensor)] = source

    def source_of(self, tensor: Tensor) -> Tensor:
        """Return the constant that a tensor stands for, or itself."""
        return self._aliases.get(id(tensor), tensor)

    def is_first(self, tensor: Tensor) -> bool:
        """Tell whether only the form with channels first is there."""
        has = {
            layout for layout in (PLAIN, FIRST) for real in (False, True) if (id(tensor), layout, real) in self._forms
        }
        return has == {FIRST}

    def stored(self, tensor: Tensor, layout: str = PLAIN) -> str:
        """Return a tensor as the integers, or numbers, that TFLite stores."""
        key = (id(tensor), layout, False)
        if key in self._forms:
            return self._forms[key]
        source = self.source_of(tensor)
        other = FIRST if layout == PLAIN else PLAIN
        if source.data is not None and source is tensor:
            found = self.constant(_ordered(source.data, layout), tensor.name or "constant")
        elif (id(tensor), other, False) in self._forms:
            perm = _TO_PLAIN if layout == PLAIN else _TO_FIRST
            found = self.add("Transpose", [self._forms[id(tensor), other, False]], tensor.name, perm=perm)
        elif source is not tensor:
            found = self.real(tensor, layout)
        elif tensor.is_variable:
            raise Unsupported(f"the variable tensor `{tensor.name}`")
        else:
            raise UnsupportedModel(f"Nothing makes `{tensor.name}`", tensor=tensor.name)
        self.set_form(tensor, found, layout)
        return found

    def real(self, tensor: Tensor, layout: str = PLAIN) -> str:
        """Return a tensor as the real numbers that it stands for."""
        key = (id(tensor), layout, True)
        if key in self._forms:
            return self._forms[key]
        source = self.source_of(tensor)
        if source is tensor and tensor.quantization is None and tensor.dtype != np.float16:
            return self.stored(tensor, layout)
        if source.data is not None and layout == FIRST and source.rank < _IMAGE_RANK:
            wide = self.integers(*(1,) * (_IMAGE_RANK - source.rank), *source.shape)
            wider = self.add("Reshape", [self.weight(source), wide], tensor.name)
            found = self.add("Transpose", [wider], tensor.name, perm=_TO_FIRST)
        elif source.data is not None:
            found = self.weight(source, _TO_FIRST if layout == FIRST else None)
        else:
            found = self._dequantized(tensor, self.stored(tensor, layout))
        self._forms[key] = found
        return found

    def weight(self, tensor: Tensor, order: Sequence[int] | None = None) -> str:
        """Return a tensor as real numbers with its axes in another order; a constant is stored in that order."""
        source = self.source_of(tensor)
        if source.data is None:
            found = self.real(source)
            return self.add("Transpose", [found], source.name, perm=list(order)) if order else found
        stored = self.constant(source.data if order is None else source.data.transpose(order), source.name)
        scales = source.quantization
        if source.dtype == np.float16:
            return self.add("Cast", [stored], source.name, to=TensorProto.FLOAT)
        if scales is None or source.dtype == np.float32:
            return stored
        if scales.blocks is not None:
            raise Unsupported(f"weights with scales for blocks, `{source.name}`")
        axis = scales.axis if order is None else list(order).index(scales.axis)
        return self.dequantize(stored, scales.scales, scales.zero_point, source.dtype, axis, source.name)

    def dequantize(
        self, stored: str, scales: np.ndarray, zero_point: int, dtype: np.dtype, axis: int = 0, hint: str = ""
    ) -> str:
        """Write DequantizeLinear, with a scale for the tensor or for each index of an axis."""
        is_one = len(scales) == 1
        scale = np.float32(scales[0]) if is_one else np.asarray(scales, np.float32)
        zero = np.full(np.shape(scale), zero_point, dtype.newbyteorder("="))
        inputs = [stored, self.constant(np.asarray(scale), "scale"), self.constant(zero, "zero_point")]
        return self.add("DequantizeLinear", inputs, hint, **({} if is_one else {"axis": axis}))

    def quantize(self, real: str, tensor: Tensor) -> str:
        """Write QuantizeLinear into the integers of a tensor."""
        found = tensor.quantization
        if found is None or len(found.scales) != 1 or tensor.dtype.kind not in "iu" or tensor.dtype.itemsize > 2:
            raise Unsupported(f"values of {tensor.dtype} with more than one scale, `{tensor.name}`")
        scale = self.constant(np.asarray(found.scales[0], np.float32), "scale")
        zero = self.constant(np.asarray(found.zero_point, tensor.dtype.newbyteorder("=")), "zero_point")
        return self.add("QuantizeLinear", [real, scale, zero], tensor.name)

    def _dequantized(self, tensor: Tensor, stored: str) -> str:
        found = tensor.quantization
        if found is None or found.blocks is not None or len(found.scales) != 1:
            raise Unsupported(f"values with more than one scale, `{tensor.name}`")
        return self.dequantize(stored, found.scales, found.zero_point, tensor.dtype, 0, tensor.name)


class Node:
    """One TFLite operator on its way to ONNX.

    Attributes:
        builder: Where it is written.
        operator: The operator.
    """

    def __init__(self, builder: Builder, operator: Operator) -> None:
        self.builder = builder
        self.operator = operator

    @property
    def output(self) -> Tensor:
        """Its first output."""
        return self.operator.outputs[0]

    @property
    def count(self) -> int:
        """How many inputs it names."""
        return len(self.operator.inputs)

    def has(self, index: int) -> bool:
        """Tell whether an input is there."""
        return index < len(self.operator.inputs) and self.operator.inputs[index] is not None

    def tensor(self, index: int) -> Tensor:
        """Return an input that must be there."""
        found = self.operator.inputs[index] if index < len(self.operator.inputs) else None
        if found is None:
            raise Unsupported(f"a missing input {index}")
        return found

    def value(self, index: int) -> np.ndarray:
        """Return an input that must be constant."""
        found = self.tensor(index).data
        if found is None:
            raise Unsupported(f"an input {index} that is computed")
        return found

    def option(self, name: str, default: Any = None) -> Any:
        """Return an option by its name in the schema."""
        return getattr(self.operator.options, name, default)

    def layout(self, *indices: int) -> str:
        """Choose the layout that costs no transpose: channels first where some input is there only so."""
        tensors = [self.tensor(i) for i in indices]
        computed = [one for one in tensors if one.data is None]
        fits = all(one.rank == _IMAGE_RANK for one in computed) and self.output.rank == _IMAGE_RANK
        return FIRST if fits and any(self.builder.is_first(one) for one in computed) else PLAIN

    def stored(self, index: int, layout: str = PLAIN) -> str:
        """Return an input as TFLite stores it."""
        return self.builder.stored(self.tensor(index), layout)

    def real(self, index: int, layout: str = PLAIN) -> str:
        """Return an input as the real numbers that it stands for."""
        return self.builder.real(self.tensor(index), layout)

    def add(self, kind: str, inputs: Sequence[str], **attributes: Any) -> str:
        """Write a node named after the output."""
        return self.builder.add(kind, inputs, self.output.name, **attributes)

    def give(self, name: str, layout: str = PLAIN, index: int = 0) -> None:
        """Give an output as TFLite stores it."""
        self.builder.set_form(self.operator.outputs[index], name, layout)

    def give_real(self, name: str, layout: str = PLAIN, index: int = 0) -> None:
        """Give an output as real numbers, after the operator's activation, and quantize it where TFLite does."""
        output = self.operator.outputs[index]
        name = self._activated(name, output)
        if output.quantization is not None and output.dtype.kind in "iu":
            name = self.builder.quantize(name, output)
        self.builder.set_form(output, name, layout)

    def is_quantized(self, index: int = 0) -> bool:
        """Tell whether an input holds integers that stand for real numbers."""
        found = self.tensor(index)
        return found.quantization is not None and found.dtype.kind in "iu"

    def is_same_meaning(self, index: int) -> bool:
        """Tell whether an input's elements mean what the output's do, so that they can be moved as they are."""
        ours, theirs = self.tensor(index).quantization, self.output.quantization
        return ours is theirs or ours is None or theirs is None or ours.is_same(theirs)

    def _activated(self, name: str, output: Tensor) -> str:
        number = self.option("fusedActivationFunction", 0)
        if not number:
            return name
        low, high = {1: (0.0, None), 2: (-1.0, 1.0), 3: (0.0, 6.0)}.get(number, (None, None))
        if number == 4:
            return self.add("Tanh", [name])
        if low is None:
            raise Unsupported(f"activation {number}")
        if output.quantization is not None and _is_within(output, low, high):
            return name  # the integers cannot leave the range of the activation
        if high is None:
            return self.add("Relu", [name])
        bounds = [self.builder.constant(np.asarray(one, np.float32), "bound") for one in (low, high)]
        return self.add("Clip", [name, *bounds])


def _short(name: str) -> str:
    """Of the names of layers that were fused into one, keep the last."""
    return name.rpartition(";")[2]


def _ordered(data: np.ndarray, layout: str) -> np.ndarray:
    if layout == PLAIN:
        return data
    return data.reshape((1,) * (_IMAGE_RANK - data.ndim) + data.shape).transpose(_TO_FIRST)


def _is_within(tensor: Tensor, low: float, high: float | None) -> bool:
    found = tensor.quantization
    if found is None or tensor.dtype.kind not in "iu" or len(found.scales) != 1:
        return False
    limits, scale = np.iinfo(tensor.dtype), float(found.scales[0])
    is_above = round(low / scale) + found.zero_point <= limits.min
    return is_above and (high is None or round(high / scale) + found.zero_point >= limits.max)
