"""TFLite files that keep a running sum of their input, in a variable tensor or in a resource variable."""

from __future__ import annotations

from typing import Any

import flatbuffers
import numpy as np
from ai_edge_litert import schema_py_generated as schema

_CODES = schema.BuiltinOperator


def in_variable_tensor() -> bytes:
    """y = x + h, and h becomes y: a recurrent operator whose hidden state is a variable tensor."""
    options = schema.SequenceRNNOptionsT()
    options.fusedActivationFunction = schema.ActivationFunctionType.NONE
    tensors = [
        _tensor("x", (1, 1, 1)),
        _tensor("w", (1, 1), 1),
        _tensor("r", (1, 1), 1),
        _tensor("b", (1,), 2),
        _tensor("h", (1, 1)),
        _tensor("y", (1, 1, 1)),
    ]
    tensors[4].isVariable = True
    operator = _operator(0, (0, 1, 2, 3, 4), (5,), schema.BuiltinOptions.SequenceRNNOptions, options)
    return _model(
        [_CODES.UNIDIRECTIONAL_SEQUENCE_RNN],
        [_graph("main", tensors, [operator], (0,), (5,))],
        [np.ones(1, np.float32), np.zeros(1, np.float32)],
    )


def in_resource(*, is_computed: bool = False) -> bytes:
    """y = x + v, and v becomes y: v is a resource variable, which CALL_ONCE sets to 10 at first.

    Args:
        is_computed: Whether the first value is computed: it is -10 then.
    """
    once, handle = schema.CallOnceOptionsT(), schema.VarHandleOptionsT()
    once.initSubgraphIndex, handle.sharedName, handle.container = 1, "v", ""
    add = schema.AddOptionsT()
    make = _operator(1, (), (1,), schema.BuiltinOptions.VarHandleOptions, handle)
    tensors = [_tensor("x", (1,)), _resource(), _tensor("old", (1,)), _tensor("y", (1,))]
    main = [
        _operator(0, (), (), schema.BuiltinOptions.CallOnceOptions, once),
        make,
        _operator(2, (1,), (2,)),
        _operator(4, (0, 2), (3,), schema.BuiltinOptions.AddOptions, add),
        _operator(3, (1, 3), ()),
    ]
    first = [_tensor("ten", (1,), 1), _resource()]
    assigned = [_operator(3, (1, 0), ())]
    if is_computed:
        first.append(_tensor("minus", (1,)))
        assigned = [_operator(5, (0,), (2,)), _operator(3, (1, 2), ())]
    codes = [_CODES.CALL_ONCE, _CODES.VAR_HANDLE, _CODES.READ_VARIABLE, _CODES.ASSIGN_VARIABLE, _CODES.ADD, _CODES.NEG]
    return _model(
        codes if is_computed else codes[:-1],
        [
            _graph("main", tensors, main, (0,), (3,)),
            _graph("first", first, [make, *assigned], (), ()),
        ],
        [np.full(1, 10, np.float32)],
    )


def _tensor(name: str, shape: tuple[int, ...], buffer: int = 0) -> Any:
    tensor = schema.TensorT()
    tensor.name, tensor.shape, tensor.buffer, tensor.type = name, list(shape), buffer, schema.TensorType.FLOAT32
    return tensor


def _resource() -> Any:
    tensor = _tensor("v", ())
    tensor.type = schema.TensorType.RESOURCE
    return tensor


def _operator(code: int, inputs: tuple[int, ...], outputs: tuple[int, ...], kind: int = 0, options: Any = None) -> Any:
    operator = schema.OperatorT()
    operator.opcodeIndex, operator.inputs, operator.outputs = code, list(inputs), list(outputs)
    operator.builtinOptionsType, operator.builtinOptions = kind, options
    return operator


def _graph(
    name: str, tensors: list[Any], operators: list[Any], inputs: tuple[int, ...], outputs: tuple[int, ...]
) -> Any:
    graph = schema.SubGraphT()
    graph.name, graph.tensors, graph.operators = name, tensors, operators
    graph.inputs, graph.outputs = list(inputs), list(outputs)
    return graph


def _model(codes: list[int], graphs: list[Any], constants: list[np.ndarray[Any, Any]]) -> bytes:
    model = schema.ModelT()
    model.version, model.subgraphs, model.operatorCodes, model.buffers = 3, graphs, [], [schema.BufferT()]
    for number in codes:
        code = schema.OperatorCodeT()
        code.builtinCode, code.deprecatedBuiltinCode, code.version = number, min(number, 127), 1
        model.operatorCodes.append(code)
    for constant in constants:
        buffer = schema.BufferT()
        buffer.data = np.frombuffer(constant.tobytes(), np.uint8)
        model.buffers.append(buffer)
    builder = flatbuffers.Builder(1024)
    builder.Finish(model.Pack(builder), b"TFL3")
    return bytes(builder.Output())
