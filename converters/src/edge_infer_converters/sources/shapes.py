"""Fix free dimensions of a model's inputs, and of all values that share their symbols."""

from __future__ import annotations

from typing import TYPE_CHECKING

import onnx

from edge_infer.errors import InputError
from edge_infer_converters.passes.graphs import drop_stored_shapes
from edge_infer_converters.sources.options import unknown_input

if TYPE_CHECKING:
    from collections.abc import Mapping

    from edge_infer_converters.sources.options import Shape


def fix_shapes(model: onnx.ModelProto, shapes: Mapping[str, Shape]) -> onnx.ModelProto:
    """Return a copy whose inputs have these shapes; output shapes follow as far as they can be inferred.

    A symbol that gets a size has it everywhere: in the other inputs and in the outputs.

    Args:
        model: The model.
        shapes: For each input named, its dimensions; None keeps one free.

    Raises:
        InputError: There is no such input, it has another rank, a dimension is fixed to another size already, or a
            symbol would get two sizes.
    """
    if not shapes:
        return model
    fixed = onnx.ModelProto()
    fixed.CopyFrom(model)
    stored = {tensor.name for tensor in fixed.graph.initializer}
    inputs = {value.name: value for value in fixed.graph.input if value.name not in stored}
    sizes: dict[str, tuple[int, str]] = {}
    for name, shape in shapes.items():
        if name not in inputs:
            raise unknown_input(name, list(inputs))
        _fix_input(inputs[name], shape, sizes)
    for value in (*inputs.values(), *fixed.graph.output):
        for dim in value.type.tensor_type.shape.dim:
            if dim.dim_param in sizes:
                dim.dim_value = sizes[dim.dim_param][0]
    drop_stored_shapes(fixed.graph)
    _infer_outputs(fixed)
    return fixed


def _fix_input(value: onnx.ValueInfoProto, shape: Shape, sizes: dict[str, tuple[int, str]]) -> None:
    dims = value.type.tensor_type.shape.dim
    known = "x".join(str(dim.dim_value) if dim.HasField("dim_value") else dim.dim_param or "?" for dim in dims)
    if len(dims) != len(shape):
        raise InputError(
            f"Input `{value.name}` has {len(dims)} dimensions, {known or 'a scalar'}; the shape given has {len(shape)}",
            hint=f"--shape {value.name}={'x'.join('?' * len(dims))}, with sizes for ?",
            expected=len(dims),
            got=len(shape),
            tensor=value.name,
        )
    for axis, (dim, size) in enumerate(zip(dims, shape, strict=True)):
        if size is None:
            continue
        if dim.HasField("dim_value") and dim.dim_value != size:
            raise InputError(
                f"Dimension {axis} of input `{value.name}` is {dim.dim_value} and cannot become {size}: the model has "
                f"the shape {known}",
                hint="? keeps the dimension of the model",
                expected=dim.dim_value,
                got=size,
                tensor=value.name,
            )
        if symbol := dim.dim_param:
            other, where = sizes.setdefault(symbol, (size, value.name))
            if other != size:
                raise InputError(
                    f"Symbol `{symbol}` is {other} in input `{where}` and {size} in input `{value.name}`",
                    hint="give both the same size",
                    tensor=value.name,
                )
        else:
            dim.dim_value = size


def _infer_outputs(model: onnx.ModelProto) -> None:
    """Fix, in place, what is free in the outputs and follows from the inputs."""
    bare = onnx.ModelProto()
    bare.CopyFrom(model)
    for value in bare.graph.output:
        value.type.tensor_type.ClearField("shape")
    try:
        inferred = onnx.shape_inference.infer_shapes(bare, data_prop=True)
    except (onnx.shape_inference.InferenceError, ValueError):  # ValueError: a type that ONNX lacks
        return  # then they stay free, which is true too
    found = {value.name: value.type.tensor_type.shape.dim for value in inferred.graph.output}
    for value in model.graph.output:
        dims = value.type.tensor_type.shape.dim
        if len(found[value.name]) != len(dims):
            continue
        for dim, known in zip(dims, found[value.name], strict=True):
            if known.HasField("dim_value") and not dim.HasField("dim_value"):
                dim.dim_value = known.dim_value
