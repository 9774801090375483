"""Resource variables: memory that a program keeps from run to run, and the values that it starts from."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

import numpy as np
from ai_edge_litert import schema_py_generated as schema

from edge_infer.errors import UnsupportedModel

if TYPE_CHECKING:
    from edge_infer_converters.writers.compiled.calls import Calls, Value
    from edge_infer_converters.writers.tflite.graph import Operator, Tensor

_DTYPES = {
    schema.TensorType.FLOAT32: np.float32,
    schema.TensorType.INT8: np.int8,
    schema.TensorType.UINT8: np.uint8,
    schema.TensorType.INT16: np.int16,
    schema.TensorType.INT32: np.int32,
}


def initial_values(content: bytes, name: str) -> dict[str, np.ndarray]:
    """Return the first value of each variable, by its name in the file.

    They stand in graphs that `CALL_ONCE` runs before the first run. Only constants are read: VAR_HANDLE and
    ASSIGN_VARIABLE.

    Args:
        content: A checked `.tflite` file.
        name: What messages call it.

    Raises:
        UnsupportedModel: Such a graph computes something, or is damaged.
    """
    try:
        model = schema.ModelT.InitFromObj(schema.Model.GetRootAs(content))
        once = [op.builtinOptions for op in model.subgraphs[0].operators or () if _code(model, op) == "CALL_ONCE"]
        found: dict[str, np.ndarray] = {}
        for options in once:
            _read_values(model, model.subgraphs[options.initSubgraphIndex], found)
    except (struct.error, TypeError, ValueError, IndexError, AttributeError, KeyError) as error:
        raise UnsupportedModel(f"`{name}` contradicts itself: its variables cannot be read: {error}") from error
    return found


def _code(model: Any, operator: Any) -> str:
    code = model.operatorCodes[operator.opcodeIndex]
    number = max(code.builtinCode, code.deprecatedBuiltinCode)
    return next((key for key, value in vars(schema.BuiltinOperator).items() if value == number), str(number))


def _read_values(model: Any, graph: Any, found: dict[str, np.ndarray]) -> None:
    handles: dict[int, str] = {}
    for operator in graph.operators or ():
        code = _code(model, operator)
        if code == "VAR_HANDLE":
            handles[operator.outputs[0]] = key_of(operator.builtinOptions)
        elif code == "ASSIGN_VARIABLE":
            handle, place = operator.inputs
            tensor = graph.tensors[place]
            data = model.buffers[tensor.buffer].data
            if data is None or tensor.type not in _DTYPES:
                raise UnsupportedModel(f"The first value of the variable `{handles[handle]}` is computed")
            found[handles[handle]] = np.asarray(data, np.uint8).view(_DTYPES[tensor.type])
        else:
            raise UnsupportedModel(f"The first values of variables are computed by {code}, expected constants")


def key_of(options: Any) -> str:
    """Return the name of a variable: its container and its own."""
    return "/".join(bytes(part or b"").decode("utf-8", "replace") for part in (options.container, options.sharedName))


def handle(operator: Operator, calls: Calls) -> None:
    """VAR_HANDLE: names a variable."""
    calls.handles[id(operator.outputs[0])] = key_of(operator.options)


def read(operator: Operator, calls: Calls) -> None:
    """READ_VARIABLE: a copy, as a later ASSIGN_VARIABLE may change the variable before the copy is used."""
    output = operator.outputs[0]
    variable = _variable(operator, calls, output)
    calls.copy(variable, calls.of(output))


def assign(operator: Operator, calls: Calls) -> None:
    """ASSIGN_VARIABLE."""
    value = operator.inputs[1]
    if value is None:
        raise UnsupportedModel("ASSIGN_VARIABLE lacks a value")
    calls.copy(calls.of(value), _variable(operator, calls, value))


def once(operator: Operator, calls: Calls) -> None:
    """CALL_ONCE: `initial_values` has read what it does."""
    del operator, calls


def _variable(operator: Operator, calls: Calls, tensor: Tensor) -> Value:
    given = operator.inputs[0]
    key = calls.handles.get(id(given))
    if key is None:
        raise UnsupportedModel("the handle of a variable is computed")
    return calls.variable(key, tensor)
