"""Make fixed dimensions of an ONNX model's inputs free; stored shapes that fix the batch are rewritten."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import numpy as np
import onnx
from onnx import helper, numpy_helper

from edge_infer.errors import ConversionError, UnsupportedModel
from edge_infer_converters.engine import first_line
from edge_infer_converters.passes.graphs import FreshNames, drop_stored_shapes, names_in, without_weights
from edge_infer_converters.passes.sessions import session_of
from edge_infer_converters.sources.dynamic import follow
from edge_infer_converters.sources.options import BATCH

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from edge_infer.tensors.tensor import TensorSpec
    from edge_infer_converters.sources.dynamic import Axes

#: The first operator set whose Reshape takes its shape as an input.
_SHAPE_IS_INPUT = 5
_BLAMES = re.compile(r"running (\w+) node\. Name:'([^']*)' Status Message: (.*)", re.DOTALL)


def free_axes(model: onnx.ModelProto, axes: Axes, inputs: Sequence[TensorSpec], name: str) -> onnx.ModelProto:
    """Return a copy whose inputs have these axes free, and whose outputs follow.

    Args:
        model: A valid model.
        axes: The axes with their symbols, by input; those that are free already are left as they are.
        inputs: The inputs as the model has them.
        name: What to call it in an error.

    Raises:
        ConversionError: It does not run with another size; the message names the node.
    """
    shapes = {spec.name: spec.shape for spec in inputs}
    wanted = {
        tensor: {axis: symbol for axis, symbol in one.items() if isinstance(shapes[tensor][axis], int)}
        for tensor, one in axes.items()
    }
    if not any(wanted.values()):
        return model
    freed = onnx.ModelProto()
    freed.CopyFrom(model)
    drop_stored_shapes(freed.graph)
    for value in freed.graph.input:
        for axis, symbol in wanted.get(value.name, {}).items():
            value.type.tensor_type.shape.dim[axis].dim_param = symbol
    for value in freed.graph.output:  # the engine compares what it finds with what is stored here
        for dim in value.type.tensor_type.shape.dim:
            dim.Clear()
    batch, others = (_those(wanted, is_batch=is_batch) for is_batch in (True, False))
    found: dict[str, dict[int, str]] = {value.name: {} for value in model.graph.output}
    ranks: dict[str, int] = {}
    if any(others.values()):
        # Before stored shapes follow the batch: with another height they might take one sample for several.
        _prove(freed, others, inputs, name, found, ranks)
    if any(batch.values()):
        _free_reshapes(freed, _shapes_of_batches(model, batch, shapes))
        _prove(freed, batch, inputs, name, found, ranks)
    for before, value in zip(model.graph.output, freed.graph.output, strict=True):
        value.CopyFrom(before)
        shape = value.type.tensor_type.shape
        if len(shape.dim) != ranks[value.name]:  # the file says what is not true
            del shape.dim[:]
            shape.dim.extend(onnx.TensorShapeProto.Dimension() for _ in range(ranks[value.name]))
        for axis, symbol in found[value.name].items():
            dim = shape.dim[axis]
            dim.Clear()
            if symbol:
                dim.dim_param = symbol
    return freed


def _those(axes: Axes, *, is_batch: bool) -> dict[str, dict[int, str]]:
    return {
        name: {axis: one for axis, one in found.items() if (one == BATCH) is is_batch} for name, found in axes.items()
    }


def _prove(
    model: onnx.ModelProto,
    axes: Axes,
    inputs: Sequence[TensorSpec],
    name: str,
    found: dict[str, dict[int, str]],
    ranks: dict[str, int],
) -> None:
    """Run the model with other sizes, and note, in place, which axes of the outputs follow."""
    unnamed = [node for node in model.graph.node if not node.name]
    for node in unnamed:  # the engine tells which node fails by its name
        node.name = next(iter(node.output), "")
    try:
        session = session_of(model, name)
    except UnsupportedModel as error:
        symbols = dict.fromkeys(f"`{symbol}`" for one in axes.values() for symbol in one.values())
        raise ConversionError(
            f"{', '.join(symbols)} cannot become free: {error.message}",
            hint="export the model with it free, or leave it out of --dynamic",
        ) from error
    finally:
        for node in unnamed:
            node.ClearField("name")
    names = [value.name for value in model.graph.output]

    def run(feeds: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        try:
            answer = dict(zip(names, session.run(names, dict(feeds)), strict=True))
        except Exception as error:  # onnxruntime's classes have no common base but this
            raise ConversionError(_where(str(error)) or first_line(error)) from error
        ranks.update((name, array.ndim) for name, array in answer.items())
        return answer

    for output, one in follow(run, inputs, axes).items():
        found[output].update(one)


def name_axes(model: onnx.ModelProto, axes: Axes) -> None:
    """Call, in place, free axes as they are asked for: exporters number their symbols."""
    named: dict[str, str] = {}
    for value in model.graph.input:
        for axis, symbol in axes.get(value.name, {}).items():
            said = value.type.tensor_type.shape.dim[axis].dim_param
            if said:
                named.setdefault(said, symbol)
    for value in (*model.graph.input, *model.graph.output, *model.graph.value_info):
        for dim in value.type.tensor_type.shape.dim:
            if dim.dim_param in named:
                dim.dim_param = named[dim.dim_param]


def _where(text: str) -> str:
    """Return the node that a message of ONNX Runtime blames, and what it says behind its own source lines."""
    found = _BLAMES.search(text)
    if found is None:
        return ""
    operator, name, said = found.groups()
    said = " ".join(said.split())
    said = said.rpartition(") ")[2].rpartition(" was false. ")[2] if "/onnxruntime/" in said else said
    return f"{operator} `{name}` fails: {said}"


def _shapes_of_batches(
    model: onnx.ModelProto, axes: Axes, inputs: Mapping[str, Sequence[int | str]]
) -> dict[str, list[int]]:
    """Return by name the shapes of the values whose first axis is a whole number of batches."""
    batch = next(size for name, one in axes.items() for axis in one if isinstance(size := inputs[name][axis], int))
    light, _ = without_weights(model)
    inferred = onnx.shape_inference.infer_shapes(light, data_prop=True).graph
    found: dict[str, list[int]] = {}
    for value in (*inferred.input, *inferred.value_info):
        dims = value.type.tensor_type.shape.dim
        if dims and dims[0].HasField("dim_value") and dims[0].dim_value % batch == 0:
            found[value.name] = [dim.dim_value for dim in dims]
    return found


def _free_reshapes(model: onnx.ModelProto, shapes: Mapping[str, Sequence[int]]) -> None:
    """Let, in place, each stored shape of a Reshape follow the first axis of what is reshaped.

    With the sizes of the file it gives what it gave. With others it is right where samples lie one behind the other,
    which `follow` finds out.
    """
    graph = model.graph
    if next((one.version for one in model.opset_import if not one.domain), 0) < _SHAPE_IS_INPUT:
        return
    stored = {tensor.name: tensor for tensor in graph.initializer}
    for node in graph.node:
        if node.op_type == "Constant" and node.attribute and node.attribute[0].name == "value":
            stored[node.output[0]] = node.attribute[0].t
    fresh = FreshNames(names_in(graph))
    for node in graph.node:
        if node.op_type != "Reshape" or node.domain or node.input[0] not in shapes or node.input[1] not in stored:
            continue
        if any(helper.get_attribute_value(one) for one in node.attribute if one.name == "allowzero"):
            continue
        wanted = numpy_helper.to_array(stored[node.input[1]]).astype(np.int64).reshape(-1)
        if not wanted.size or wanted[0] < 1:
            continue
        if (wanted > 0).all():
            wanted = np.array([-1, *wanted[1:]], np.int64)
        elif wanted[0] == shapes[node.input[0]][0]:
            wanted = np.array([0, *wanted[1:]], np.int64)
        else:
            continue
        tensor = numpy_helper.from_array(wanted, fresh(f"{node.input[1]}/free"))
        graph.initializer.append(tensor)
        node.input[1] = tensor.name
