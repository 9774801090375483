"""The ONNX graph of a TFLite model while it is built: nodes, constants, and the forms that each value has.

A value of four dimensions exists channels last, as TFLite has it, or channels first, as ONNX's windows want it; an
integer with a scale exists as such, or as the float that it stands for. Each form is made when it is first read, so
that two windows in a row have no transposition between them.
"""

from __future__ import annotations

from copy import copy
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from ai_edge_litert import schema_py_generated as schema
from onnx import helper, numpy_helper

from edge_infer.errors import UnsupportedModel

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import onnx

    from edge_infer_converters.writers.tflite.graph import Quantization, Tensor

#: From channels last to channels first: the axis of the former that each axis of the latter is.
FIRST = (0, 3, 1, 2)
#: And back.
LAST = (0, 2, 3, 1)
_QUANTIZED = ("int8", "uint8", "int16", "int32", "int64")
_LIMITS = {
    schema.ActivationFunctionType.RELU: (0.0, np.inf),
    schema.ActivationFunctionType.RELU6: (0.0, 6.0),
    schema.ActivationFunctionType.RELU_N1_TO_1: (-1.0, 1.0),
}


class Form(NamedTuple):
    """How a value is stored: the order of its axes, and whether as the float that an integer stands for."""

    is_first: bool = False
    is_real: bool = False


class Graph:
    """Nodes and constants, and the names of the forms of each tensor.

    Rules read a tensor by `real`, `raw` or `weights`, add nodes by `node`, and end with `give` or `give_raw`.

    Args:
        body: Adds the operators of another subgraph: of its number, the graph and the values that it gets; returns the
            values that it gives.
    """

    def __init__(self, body: Callable[[int, Graph, Sequence[str]], list[str]]) -> None:
        self._lower = body
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []
        self._opsets = {18}
        self._forms: dict[int, dict[Form, str]] = {}
        self._known: dict[tuple[str, tuple[int, ...], bytes], str] = {}
        self._scales: dict[int, tuple[str, str]] = {}
        self._weights: dict[tuple[int, tuple[int, ...]], str] = {}
        self._names: set[str] = set()
        self._counts: dict[str, int] = {}
        self.label = ""

    @property
    def opset(self) -> int:
        """The lowest operator set that has all nodes."""
        return max(self._opsets)

    def inside(self) -> Graph:
        """Return the graph of a body inside a node: with nodes of its own, and the names and constants of this one."""
        made = copy(self)
        made.nodes = []
        made._forms, made._scales, made._weights = {}, {}, {}
        return made

    def lower(self, number: int, values: Sequence[str]) -> list[str]:
        """Add the operators of a subgraph, which gets some values; return those that it gives."""
        return self._lower(number, self, values)

    def reserve(self, name: str) -> str:
        """Take a name, of several layers in one the last, or the same with a number where it is taken."""
        name = name.rpartition(";")[2] or name
        candidate, count = name, self._counts.get(name, 1)
        while candidate in self._names or not candidate:
            count += 1
            candidate = f"{name}_{count}"
        self._names.add(candidate)
        self._counts[name] = count
        return candidate

    def node(self, kind: str, inputs: Sequence[str], name: str = "", count: int = 1, **attributes: Any) -> Any:
        """Add a node; return the name of its output, or a list of them where there are several."""
        outputs = [self.reserve(name or f"{self.label}/{kind}") for _ in range(count)]
        self.nodes.append(helper.make_node(kind, list(inputs), outputs, name=outputs[0], **attributes))
        return outputs[0] if count == 1 else outputs

    def constant(self, value: np.ndarray, name: str = "") -> str:
        """Add a constant, or return the one that holds the same."""
        value = np.ascontiguousarray(value).reshape(value.shape)
        key = (value.dtype.str, value.shape, value.tobytes())
        if key not in self._known:
            self._known[key] = self.reserve(name or f"{self.label}/constant")
            self.constants.append(numpy_helper.from_array(value, self._known[key]))
        return self._known[key]

    def _own(self, value: np.ndarray, tensor: Tensor) -> str:
        name = self.reserve(f"{tensor.name}/scale")
        self.constants.append(numpy_helper.from_array(value, name))
        return name

    def integers(self, *values: int) -> str:
        """Add a vector of int64."""
        return self.constant(np.array(values, np.int64))

    def accept(self, tensor: Tensor) -> None:
        """Make a tensor an input of the graph, under its own name."""
        self._names.add(tensor.name)
        self._forms[id(tensor)] = {_form(tensor): tensor.name}

    def prefers_first(self, *tensors: Tensor | None) -> bool:
        """Tell whether an operator that works in either order should compute channels first."""
        values = [one for one in tensors if one is not None and one.data is None]
        if not values or any(
            one is not None and one.rank not in ((4,) if one.data is None else (0, 1, 4)) for one in tensors
        ):
            return False
        return any(not self._has_last(one) for one in values)

    def _has_last(self, tensor: Tensor) -> bool:
        return any(not form.is_first for form in self._forms.get(id(tensor), ()))

    def raw(self, tensor: Tensor, *, first: bool = False) -> str:
        """Name a tensor as it is stored: integers as integers."""
        return self._get(tensor, _form(tensor, first))

    def real(self, tensor: Tensor, *, first: bool = False) -> str:
        """Name a tensor as the numbers that it stands for."""
        return self._get(tensor, _form(tensor, first, is_real=True))

    def unpacked(self, tensor: Tensor) -> str:
        """Name constant integers as the floats that they stand for, which every engine computes when it loads the file.

        Of `DequantizeLinear` and `MatMul` ONNX Runtime makes `MatMulNBits`, which rounds the other side to 8 bits too.
        """
        scale = _scales(tensor)
        axis = tensor.quantization.axis if tensor.quantization else 0
        shape = [-1 if i == axis else 1 for i in range(tensor.rank)] if len(scale) > 1 else []
        value = self.node("Cast", [self.raw(tensor)], to=1)
        if zero := tensor.quantization.zero_point if tensor.quantization else 0:
            value = self.node("Sub", [value, self.constant(np.array(zero, np.float32))])
        return str(self.node("Mul", [value, self.constant(scale.reshape(shape))]))

    def weights(self, tensor: Tensor, order: tuple[int, ...]) -> str:
        """Name weights with their axes in another order, as floats; constant integers stay integers in the file."""
        if tensor.data is None:
            value = self.real(tensor)
            return value if order == tuple(range(len(order))) else str(self.node("Transpose", [value], perm=order))
        if (id(tensor), order) not in self._weights:
            value = self.constant(tensor.data.transpose(order), tensor.name)
            if tensor.quantization is not None:
                value = self._dequantized(value, tensor, order.index(tensor.quantization.axis))
            elif tensor.dtype == np.float16:
                value = self.node("Cast", [value], to=1)
            self._weights[id(tensor), order] = value
        return self._weights[id(tensor), order]

    def give(self, tensor: Tensor, value: str, *, first: bool = False) -> None:
        """Say which value a tensor is, in the numbers that it stands for."""
        if tensor.quantization is None or tensor.dtype.name not in _QUANTIZED:
            self.give_raw(tensor, value, first=first)
            return
        scale, zero = self._scale(tensor)
        stored = self.node("QuantizeLinear", [value, scale, zero], tensor.name, **self._axis(tensor, first))
        self.give_raw(tensor, stored, first=first)

    def give_raw(self, tensor: Tensor, value: str, *, first: bool = False) -> None:
        """Say which value a tensor is, as it is stored."""
        self._forms.setdefault(id(tensor), {})[_form(tensor, first)] = value

    def activated(self, value: str, function: int, tensor: Tensor) -> str:
        """Apply a fused activation, unless the integers of the tensor end where it does."""
        if function == schema.ActivationFunctionType.NONE:
            return value
        if function not in _LIMITS:
            raise UnsupportedModel(f"the activation {function}")
        low, high = _LIMITS[function]
        if tensor.quantization is not None and _within(tensor, low, high):
            return value
        if low == 0 and high == np.inf:
            return str(self.node("Relu", [value]))
        dtype = np.float32 if tensor.quantization is not None else tensor.dtype  # integers without a scale stay such
        limits = [self.constant(np.array(limit, dtype)) for limit in (low, high)]
        return str(self.node("Clip", [value, *limits]))

    def reshaped(self, value: str, signature: Sequence[int]) -> str:
        """Cut a value into a shape with at most one free dimension."""
        if list(signature).count(-1) > 1:
            raise UnsupportedModel(f"a shape with {list(signature).count(-1)} free dimensions")
        return str(self.node("Reshape", [value, self.integers(*signature)]))

    def _get(self, tensor: Tensor, form: Form) -> str:
        forms = self._forms.setdefault(id(tensor), {})
        if form not in forms:
            forms[form] = self._made(tensor, form, forms)
        return forms[form]

    def _made(self, tensor: Tensor, form: Form, forms: dict[Form, str]) -> str:
        if form.is_real and tensor.dtype == np.int64:  # a bias, for which ONNX has no scales
            scales = _scales(tensor).astype(np.float64)
            return self.constant((_constant(tensor) * scales).astype(np.float32), tensor.name)
        if form.is_real:
            return self._dequantized(self._get(tensor, Form(form.is_first)), tensor, self._place(tensor, form.is_first))
        if tensor.data is not None:
            data = tensor.data
            if form.is_first:
                data = data.reshape((1,) * (4 - data.ndim) + data.shape).transpose(FIRST)
            return self.constant(data, tensor.name)
        other = Form(not form.is_first)
        if other not in forms:
            raise UnsupportedModel(f"`{tensor.name}` is read before it is computed")
        return str(self.node("Transpose", [forms[other]], tensor.name, perm=FIRST if form.is_first else LAST))

    def _place(self, tensor: Tensor, is_first: bool) -> int:
        axis = tensor.quantization.axis if tensor.quantization else 0
        return FIRST.index(axis) if is_first and tensor.rank == 4 else axis

    def _axis(self, tensor: Tensor, is_first: bool) -> dict[str, int]:
        found = tensor.quantization
        return {} if found is None or len(found.scales) == 1 else {"axis": self._place(tensor, is_first)}

    def _dequantized(self, value: str, tensor: Tensor, axis: int) -> str:
        scale, zero = self._scale(tensor)
        is_whole = len(_scales(tensor)) == 1
        return str(
            self.node(
                "DequantizeLinear", [value, scale, zero], f"{tensor.name}/real", **({} if is_whole else {"axis": axis})
            )
        )

    def _scale(self, tensor: Tensor) -> tuple[str, str]:
        """Name a tensor's scale and zero point. No two tensors share one: ONNX Runtime refuses to change it twice."""
        if id(tensor) not in self._scales:
            scales, found = _scales(tensor), tensor.quantization
            if tensor.dtype == np.int16:
                self._opsets.add(21)  # the first with 16 bits
            zeros = np.full(len(scales), found.zero_point if found else 0).astype(tensor.dtype)
            pair = [one if len(one) > 1 else one[0] for one in (scales, zeros)]
            if tensor.dtype == np.int32:  # a bias
                self._scales[id(tensor)] = (self.constant(pair[0]), self.constant(pair[1]))
            else:
                self._scales[id(tensor)] = (self._own(pair[0], tensor), self._own(pair[1], tensor))
        return self._scales[id(tensor)]


def _constant(tensor: Tensor) -> np.ndarray:
    if tensor.data is None:
        raise UnsupportedModel(f"`{tensor.name}` has scales, is computed and of {tensor.dtype}")
    return tensor.data


def _scales(tensor: Tensor) -> np.ndarray:
    found: Quantization | None = tensor.quantization
    if found is None or found.block_size:
        raise UnsupportedModel(f"`{tensor.name}` has scales of blocks")
    return np.asarray(found.scales, np.float32)


def _form(tensor: Tensor, first: bool = False, *, is_real: bool = False) -> Form:
    """Return a form; of a value without a scale, and of one without four dimensions, there is one less."""
    has_scale = tensor.quantization is not None and tensor.dtype.name in _QUANTIZED
    return Form(first and (tensor.rank == 4 or tensor.data is not None), is_real and has_scale)


def _within(tensor: Tensor, low: float, high: float) -> bool:
    """Tell whether all integers of a tensor stand for numbers between two limits, to half a step."""
    found = tensor.quantization
    if found is None or len(found.scales) != 1:
        return False
    ends, scale = np.iinfo(tensor.dtype), float(found.scales[0])
    least, most = ((end - found.zero_point) * scale for end in (ends.min, ends.max))
    return bool(least >= low - scale / 2 and most <= high + scale / 2)
