"""Write a `.tflite` file again with other sizes, free dimensions, or constants in place of inputs.

LiteRT tells the shape of every value for the new sizes, so a file that cannot have them is refused with the operator
that LiteRT names.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from ai_edge_litert import schema_py_generated as schema
from onnx import helper, numpy_helper

from edge_infer.errors import ConversionError, InputError, UnsupportedModel, UnsupportedOperator
from edge_infer.tensors.tensor import TensorSpec
from edge_infer_converters.sources.bindings import constant_of
from edge_infer_converters.sources.dynamic import axes_of
from edge_infer_converters.sources.options import BATCH, unknown_input
from edge_infer_converters.writers.tflite import reading
from edge_infer_converters.writers.tflite.flatbuffer import numbered
from edge_infer_converters.writers.tflite.graph import dimensions

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from edge_infer_converters.sources.dynamic import Axes
    from edge_infer_converters.sources.options import SourceOptions
    from edge_infer_converters.writers.tflite import FloatGraph
    from edge_infer_converters.writers.tflite.graph import Graph, Tensor

#: How long LiteRT may take for all cases: sizes of one's own may be a thousand times those of the file.
_TRIAL_S = 120.0
# Each case is the shape of each input by its number; all tensors' shapes are told, or what LiteRT says.
_SCRIPT = """
import json
import sys
import numpy as np
from ai_edge_litert.interpreter import Interpreter, OpResolverType
plain = OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES
try:
    for case in json.loads(sys.argv[2]):
        interpreter = Interpreter(model_path=sys.argv[1], num_threads=1, experimental_op_resolver_type=plain)
        for index, shape in case:
            interpreter.resize_tensor_input(index, shape)
        interpreter.allocate_tensors()
        for one in interpreter.get_input_details():
            interpreter.set_tensor(one["index"], np.zeros(one["shape"], one["dtype"]))
        interpreter.invoke()
        print(json.dumps({one["index"]: one["shape"].tolist() for one in interpreter.get_tensor_details()}))
except (RuntimeError, ValueError) as error:
    sys.exit(" ".join(str(error).split()))
"""


def with_sizes(data: bytes, name: str, options: SourceOptions) -> tuple[bytes, dict[str, dict[int, str]]]:
    """Return a file with the shapes, free dimensions and constants that are asked for, and the axes that became free.

    Raises:
        InputError: An input is unknown, or a shape or value does not fit it.
        ConversionError: LiteRT does not run it with these sizes; the message names the operator.
        UnsupportedModel: The file has what cannot be written back.
    """
    try:
        whole = reading.read(data, name)
    except (UnsupportedModel, UnsupportedOperator) as error:
        raise UnsupportedModel(
            f"`{name}` cannot be written with other sizes or constants: {error.message}",
            hint="leave --shape, --dynamic and --bind out, or convert the model that it was made from",
        ) from error
    _check_operators(data, name)
    whole.keep_names = True
    graph = whole.graph
    _bind(graph, options)
    inputs = [TensorSpec(one.name, one.dtype.name, dimensions(one.name, one.signature)) for one in graph.inputs]
    axes = axes_of(options.dynamic, inputs, options.shapes)
    wanted = _sizes(graph, options)
    symbols = dict.fromkeys(symbol for one in axes.values() for symbol in one.values())
    others = [symbol for symbol in symbols if symbol != BATCH]
    batches = [shape[:1] for shape in wanted]
    if BATCH in symbols or batches != [list(tensor.shape[:1]) for tensor in graph.inputs]:
        own = [[*tensor.shape[:1], *shape[1:]] for tensor, shape in zip(graph.inputs, wanted, strict=True)]
        # Before stored shapes follow the batch: with another height they might take one sample for several.
        _shapes(whole.write().data, [own, *(_doubled(graph, own, axes, one) for one in others)], others, name)
        _free_reshapes(graph)
    cases = [wanted, *(_doubled(graph, wanted, axes, symbol) for symbol in symbols)]
    _store(whole, cases, list(symbols), name)
    return whole.write().data, axes


def _check_operators(data: bytes, name: str) -> None:
    """Refuse operators with values of their own between inputs and outputs, which are not written back."""
    packed: Any = schema.Model.GetRootAs(data).Subgraphs(0)
    for i in range(packed.OperatorsLength()):
        operator = packed.Operators(i)
        if operator.IntermediatesLength():
            gives = (packed.Tensors(operator.Outputs(0)).Name() or b"").decode(errors="replace")
            raise UnsupportedModel(
                f"`{name}` cannot be written with other sizes or constants: operator {i}, which gives `{gives}`, is an "
                "LSTM of integers, whose inner scales are not written back",
                hint="leave --shape, --dynamic and --bind out, or convert the model that it was made from",
            )


def _bind(graph: Graph, options: SourceOptions) -> None:
    for name, given in options.bind.items():
        tensor = _input(graph, name)
        shape = [dim if dim >= 0 else None for dim in tensor.signature]
        value = helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(tensor.dtype), shape)
        tensor.data = numpy_helper.to_array(constant_of(value, given))
        tensor.shape = tensor.signature = tensor.data.shape
        graph.inputs.remove(tensor)
    if not graph.inputs:
        raise InputError("--bind leaves the model without an input", hint="leave one of them free")


def _input(graph: Graph, name: str) -> Tensor:
    names = [tensor.name for tensor in graph.inputs]
    if name not in names:
        raise unknown_input(name, names)
    return graph.inputs[names.index(name)]


def _sizes(graph: Graph, options: SourceOptions) -> list[list[int]]:
    """Return the shape of each input: what is asked for, else the file's own, and fix in place what gets a size."""
    for name, shape in options.shapes.items():
        tensor = _input(graph, name)
        if len(shape) != tensor.rank:
            raise InputError(
                f"Input `{name}` has {tensor.rank} dimensions, {'x'.join(map(str, tensor.shape)) or 'a scalar'}; the "
                f"shape given has {len(shape)}",
                hint=f"--shape {name}={'x'.join('?' * tensor.rank)}, with sizes for ?",
                tensor=name,
            )
        tensor.signature = tuple(old if new is None else new for old, new in zip(tensor.signature, shape, strict=True))
    return [
        [old if new == -1 else new for old, new in zip(tensor.shape, tensor.signature, strict=True)]
        for tensor in graph.inputs
    ]


def _doubled(graph: Graph, sizes: Sequence[Sequence[int]], axes: Axes, symbol: str) -> list[list[int]]:
    return [
        [2 * size if axes.get(tensor.name, {}).get(axis) == symbol else size for axis, size in enumerate(shape)]
        for tensor, shape in zip(graph.inputs, sizes, strict=True)
    ]


def _free_reshapes(graph: Graph) -> None:
    """Let, in place, each stored shape of a RESHAPE follow the first axis of what is reshaped.

    With the sizes of the file it gives what it gave; what it gives with others is compared with single samples.
    """
    for operator in graph.operators:
        if operator.code != "RESHAPE" or operator.inputs[0] is None or operator.inputs[0].data is not None:
            continue
        given = operator.inputs[1] if len(operator.inputs) > 1 else None
        stored = getattr(operator.options, "newShape", None) if given is None else given.data
        if stored is None or not len(stored) or stored[0] < 1 or operator.outputs[0].rank != len(stored):
            continue
        free = np.array([-1, *operator.outputs[0].shape[1:]], np.int32)
        if given is None:
            operator.inputs.append(graph.constant(f"{operator.outputs[0].name}/shape", free))
        else:
            operator.inputs[1] = graph.constant(given.name, free)
        if operator.options is not None:
            operator.options.newShape = free  # type: ignore[attr-defined]  # of the schema's ReshapeOptionsT


def _store(whole: FloatGraph, cases: Sequence[Sequence[Sequence[int]]], symbols: Sequence[str], name: str) -> None:
    """Give every value, in place, the shape that it has with the first sizes, and free what changes with the others."""
    graph = whole.graph
    found = _shapes(whole.write().data, cases, symbols, name)
    for number, tensor in enumerate(numbered(graph)):
        if tensor.data is not None:
            continue
        shape = tuple(found[0][str(number)])
        others = [one[str(number)] for one in found]
        if any(len(one) != len(shape) for one in others):
            raise ConversionError(f"`{tensor.name}` of `{name}` has another rank with other sizes")
        free = [-1 if len({one[axis] for one in others}) > 1 else dim for axis, dim in enumerate(shape)]
        if len(tensor.signature) == len(shape):  # what was free already stays so, where nothing fixes it
            is_end = tensor in graph.inputs
            free = [-1 if is_end and old == -1 else dim for old, dim in zip(tensor.signature, free, strict=True)]
        tensor.shape, tensor.signature = shape, tuple(free)


def _shapes(
    data: bytes, cases: Sequence[Sequence[Sequence[int]]], symbols: Sequence[str], name: str
) -> list[Mapping[str, list[int]]]:
    """Run the file with the sizes of each case in a process of its own; return the shapes of all tensors by number."""
    text = json.dumps([list(enumerate(case)) for case in cases])
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "model.tflite")
        path.write_bytes(data)
        command = [sys.executable, "-c", _SCRIPT, os.fspath(path), text]
        try:
            done = subprocess.run(command, capture_output=True, check=False, text=True, timeout=_TRIAL_S)
        except subprocess.TimeoutExpired as error:
            tried = "; ".join(", ".join("x".join(map(str, size)) for size in case) for case in cases)
            raise ConversionError(
                f"`{name}` did not run within {_TRIAL_S:.0f} s with inputs of {tried}",
                hint="give smaller sizes, or convert the model that the file was made from",
            ) from error
    found = [json.loads(line) for line in done.stdout.splitlines()]
    if done.returncode == 0:
        return found
    said = done.stderr.strip().splitlines()[-1] if done.returncode > 0 and done.stderr.strip() else "LiteRT crashes"
    said = said.replace(".Node number", ". Node number")
    sizes = ", ".join("x".join(map(str, size)) for size in cases[len(found)])
    if found:
        raise ConversionError(
            f"`{symbols[len(found) - 1]}` of `{name}` cannot become free: with {sizes} LiteRT says: {said}",
            hint="convert the model that the file was made from, with it free, or leave it out of --dynamic",
        )
    raise ConversionError(
        f"`{name}` cannot have inputs of {sizes}: LiteRT says: {said}",
        hint="convert the model that the file was made from, with these sizes",
    )
