"""Turn inputs of a model into constants: `--bind rate=16000`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from edge_infer.errors import InputError
from edge_infer_converters.sources.options import unknown_input

if TYPE_CHECKING:
    from collections.abc import Mapping


def bind_inputs(model: onnx.ModelProto, bindings: Mapping[str, Any]) -> onnx.ModelProto:
    """Return a copy that has these values stored instead of the inputs.

    Args:
        model: The model, initializers not among its inputs.
        bindings: For each input named, a number for all its elements, or an array of them.

    Raises:
        InputError: An input is unknown, all inputs are bound, a value does not fit the input's type, or the count of
            values does not fit its shape.
    """
    if not bindings:
        return model
    bound = onnx.ModelProto()
    bound.CopyFrom(model)
    inputs = {value.name: value for value in bound.graph.input}
    for name, given in bindings.items():
        if name not in inputs:
            raise unknown_input(name, list(inputs))
        bound.graph.initializer.append(constant_of(inputs[name], given))
        bound.graph.input.remove(inputs[name])
    if not bound.graph.input:
        raise InputError("--bind leaves the model without an input", hint="leave one of them free")
    return bound


def constant_of(value: onnx.ValueInfoProto, values: object) -> onnx.TensorProto:
    """Return values as the constant that stands for an input; `bind_inputs` documents the errors."""
    tensor = value.type.tensor_type
    if tensor.elem_type == onnx.TensorProto.STRING:
        raise InputError(f"Input `{value.name}` is a text, which --bind does not take", tensor=value.name)
    given = _numbers(values, value.name)
    dims = [dim.dim_value if dim.HasField("dim_value") else None for dim in tensor.shape.dim]
    if given.size == 1 and None not in dims:
        given = np.broadcast_to(given.reshape(()), [dim or 0 for dim in dims])
    elif dims.count(None) == 1 and len(dims) == 1:
        given = given.reshape(-1)
    else:
        shape = [-1 if dim is None and dims.count(None) == 1 else dim for dim in dims]
        try:
            given = given.reshape([1 if dim is None else dim for dim in shape])
        except ValueError:
            raise InputError(
                f"Input `{value.name}` is given {given.size} values, which do not fit its shape "
                f"{'x'.join('?' if dim is None else str(dim) for dim in dims) or '(a scalar)'}",
                hint="one number for the whole input, or one for each element; fix free dimensions by --shape",
                tensor=value.name,
            ) from None
    dtype = helper.tensor_dtype_to_np_dtype(tensor.elem_type)
    stored = np.array(given).astype(dtype)
    if not np.array_equal(stored.astype(np.float64), np.asarray(given, np.float64)) and dtype.kind in "iub":
        raise InputError(f"Input `{value.name}` is {dtype}, which does not hold every value given", tensor=value.name)
    return numpy_helper.from_array(stored, value.name)


def _numbers(values: object, name: str) -> np.ndarray:
    try:
        array = np.asarray(values)
        if array.dtype.kind in "UV":  # numbers as text, and those of other libraries, such as bfloat16
            array = array.astype(np.float64)
    except (TypeError, ValueError, RuntimeError):  # lists of several lengths, words, tensors of a device
        array = np.asarray(None)
    if array.dtype.kind not in "biuf":
        raise InputError(
            f"Input `{name}` is bound to a `{type(values).__name__}`, expected a number or an array of numbers",
            hint=f'bind={{"{name}": 16000}}',
            tensor=name,
        )
    return array
