"""Find the shape of every value and fold what is constant, at two batch sizes.

A dimension that differs between the two is free; everything else is fixed. So the shape arithmetic that exporters
write (`Shape`, `Gather`, `Concat`, `Reshape`) is computed away and needs no rules.
"""

from __future__ import annotations

from collections import ChainMap
from dataclasses import dataclass
from functools import partial
from math import prod
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import onnx
from onnx import helper, numpy_helper

from edge_infer.errors import ConversionError, UnsupportedOperator
from edge_infer_converters.passes.fold_constants import fold_node
from edge_infer_converters.passes.graphs import drop_stored_shapes, opset_of

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

_BATCHES = (1, 3)
# What has more elements than this is not a shape.
_SMALL = 1024


@dataclass(frozen=True, slots=True)
class Specialised:
    """A model whose shapes are known.

    Attributes:
        nodes: What is left to compute.
        inputs: The names of its inputs.
        outputs: The names of its outputs.
        constants: Every constant by name.
        varying: The names of those constants that depend on the batch size.
        repeated: Those among them that are the same for each of the batch; the constant stored is that of one.
        signatures: The shape of every value, -1 where it follows the batch size.
        dtypes: The element type of every value.
        opset: The version of ONNX's operator set.
    """

    nodes: tuple[onnx.NodeProto, ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    constants: Mapping[str, np.ndarray]
    varying: frozenset[str]
    repeated: frozenset[str]
    signatures: Mapping[str, tuple[int, ...]]
    dtypes: Mapping[str, np.dtype]
    opset: int


def specialise(model: onnx.ModelProto, *, fixed_batch: bool = False) -> Specialised:
    """Find all shapes of a model and fold its constants.

    Args:
        model: A model whose only free dimension is the first one of its inputs.
        fixed_batch: Whether to set that dimension to 1.

    Raises:
        ConversionError: Another dimension of an input is free.
        UnsupportedOperator: The shape of a value depends on data.
    """
    weights = {tensor.name: numpy_helper.to_array(tensor) for tensor in model.graph.initializer}
    skeleton = _without_weights(model)
    first = _resolve(skeleton, weights, _BATCHES[0])
    second = first if fixed_batch else _resolve(skeleton, weights, _BATCHES[1])
    signatures: dict[str, tuple[int, ...]] = {}
    for name, shape in first.shapes.items():
        other = second.shapes.get(name, shape)
        signatures[name] = tuple(a if a == b else -1 for a, b in zip(shape, other, strict=True))
    varying = frozenset(
        name for name, value in first.constants.items() if not _is_same(value, second.constants.get(name, value))
    )
    _require_shapes(first, signatures)
    initializers = {tensor.name for tensor in model.graph.initializer}
    return Specialised(
        tuple(first.nodes),
        tuple(value.name for value in model.graph.input if value.name not in initializers),
        tuple(value.name for value in model.graph.output),
        first.constants,
        varying,
        frozenset(name for name in varying if _is_repeated(first.constants[name], second.constants[name])),
        signatures,
        first.dtypes,
        opset_of(model),
    )


def _is_same(one: np.ndarray, other: np.ndarray) -> bool:
    """Compare to the bit: a NaN is the same as itself."""
    return one is other or (one.shape == other.shape and one.tobytes() == other.tobytes())


def _is_repeated(one: np.ndarray, many: np.ndarray) -> bool:
    """Tell whether the larger constant is the smaller one, repeated along the first axis."""
    if one.ndim == 0 or one.shape[0] != 1 or one.shape[1:] != many.shape[1:]:
        return False
    return np.broadcast_to(one, many.shape).tobytes() == many.tobytes()


@dataclass(slots=True)
class _Resolved:
    nodes: Sequence[onnx.NodeProto]
    constants: dict[str, np.ndarray]
    shapes: dict[str, tuple[int, ...]]
    dtypes: dict[str, np.dtype]


def _without_weights(source: onnx.ModelProto) -> onnx.ModelProto:
    """Copy a model with its large constants as inputs of the same type: shapes follow from the small ones.

    Shape inference copies the whole model several times, which is most of the work where there are 90 MB of weights.
    """
    model = onnx.ModelProto()
    for entry in ("ir_version", "opset_import", "functions"):
        if isinstance(value := getattr(source, entry), int):
            setattr(model, entry, value)
        else:
            getattr(model, entry).extend(value)
    graph = model.graph
    graph.name = source.graph.name or "graph"
    for entry in ("node", "input", "output", "sparse_initializer"):
        getattr(graph, entry).extend(getattr(source.graph, entry))
    declared = {value.name for value in graph.input}
    for tensor in source.graph.initializer:
        _store(graph, tensor.name, tensor.data_type, tuple(tensor.dims), partial(_same, tensor), declared)
    return model


def _same(tensor: onnx.TensorProto) -> onnx.TensorProto:
    return tensor


def _store(
    graph: onnx.GraphProto,
    name: str,
    kind: int,
    dims: tuple[int, ...],
    tensor: Callable[[], onnx.TensorProto],
    declared: set[str],
) -> None:
    """Add a constant: with its value where it is small, else as an input."""
    if prod(dims) <= _SMALL:
        graph.initializer.append(tensor())
    elif name not in declared:
        graph.input.append(helper.make_tensor_value_info(name, kind, dims))


class _Waiting(NamedTuple):
    """A node whose value is not known yet, as Python sees it: protobuf takes long to answer, and is asked often.

    Attributes:
        node: The node.
        reads: The names of its inputs; None once it could not be computed of their values.
        measured: What it asks the size of, empty where it is no `Shape` or `Size`.
    """

    node: onnx.NodeProto
    reads: frozenset[str] | None
    measured: str

    @classmethod
    def of(cls, node: onnx.NodeProto) -> _Waiting:
        """Read a node."""
        measured = node.input[0] if node.op_type in ("Shape", "Size") else ""
        return cls(node, frozenset(name for name in node.input if name), measured)


def _resolve(source: onnx.ModelProto, weights: Mapping[str, np.ndarray], batch: int) -> _Resolved:
    model = _with_batch(source, batch)
    constants = dict(weights)
    declared = {value.name for value in model.graph.input}
    waiting = [_Waiting.of(node) for node in model.graph.node]
    while True:
        try:
            inferred = onnx.shape_inference.infer_shapes(model, data_prop=True, strict_mode=False)
        except (onnx.shape_inference.InferenceError, ValueError) as error:
            raise ConversionError(f"Shapes cannot be inferred: {error}") from error
        measured = {one.measured for one in waiting if one.measured}
        shapes, _ = _known_types(inferred.graph, measured)
        shapes.update({name: constants[name].shape for name in measured if name in constants})
        folded = _fold(model, waiting, shapes, constants)
        if not folded:
            shapes, dtypes = _known_types(inferred.graph)
            shapes.update({name: value.shape for name, value in constants.items()})
            dtypes.update({name: value.dtype for name, value in constants.items()})
            return _Resolved(list(model.graph.node), constants, shapes, dtypes)
        constants.update(folded)
        for name, value in folded.items():
            kind = helper.np_dtype_to_tensor_dtype(value.dtype)
            _store(model.graph, name, kind, value.shape, partial(numpy_helper.from_array, value, name), declared)


def _with_batch(source: onnx.ModelProto, batch: int) -> onnx.ModelProto:
    """Copy a model, its free first dimensions set, and all other stored shapes dropped."""
    model = onnx.ModelProto()
    model.CopyFrom(source)
    drop_stored_shapes(model.graph)
    _refuse_free_sizes(model.graph)
    for value in model.graph.input:
        for dim in value.type.tensor_type.shape.dim[:1]:
            if not dim.HasField("dim_value"):
                dim.dim_value = batch
    for value in model.graph.output:
        value.type.tensor_type.ClearField("shape")
    return model


def _refuse_free_sizes(graph: onnx.GraphProto) -> None:
    """Raise an error for the first free dimension behind the batch; its hint has the sizes to fix of all inputs."""
    places, hints = [], []
    for value in graph.input:
        dims = value.type.tensor_type.shape.dim
        free = [axis for axis, dim in enumerate(dims) if axis and not dim.HasField("dim_value")]
        if free:
            places.append((value.name, free[0]))
            sizes = [str(dim.dim_value) if dim.HasField("dim_value") else "SIZE" for dim in dims]
            if not dims[0].HasField("dim_value"):
                sizes[0] = "?"
            hints.append(f"--shape {value.name}={'x'.join(sizes)}")
    if places:
        name, axis = places[0]
        raise ConversionError(
            f"Dimension {axis} of input `{name}` is free; TFLite is written with fixed sizes, only the first dimension "
            "may be free",
            hint=f"{' '.join(hints)}, with sizes of your own",
            tensor=name,
        )


def _known_types(
    graph: onnx.GraphProto, names: Collection[str] | None = None
) -> tuple[dict[str, tuple[int, ...]], dict[str, np.dtype]]:
    """Return the shapes and element types that a graph tells: of all its values, or of some."""
    shapes: dict[str, tuple[int, ...]] = {}
    dtypes: dict[str, np.dtype] = {}
    for value in (*graph.input, *graph.value_info, *graph.output):
        if names is not None and value.name not in names:
            continue
        tensor = value.type.tensor_type
        if tensor.elem_type:
            dtypes[value.name] = np.dtype(helper.tensor_dtype_to_np_dtype(tensor.elem_type))
        if tensor.HasField("shape") and all(dim.HasField("dim_value") for dim in tensor.shape.dim):
            shapes[value.name] = tuple(dim.dim_value for dim in tensor.shape.dim)
    return shapes, dtypes


def _fold(
    model: onnx.ModelProto,
    waiting: list[_Waiting],
    shapes: Mapping[str, tuple[int, ...]],
    constants: dict[str, np.ndarray],
) -> dict[str, np.ndarray]:
    """Take the nodes whose value is known out of the graph, and return their outputs.

    Args:
        model: The model.
        waiting: Its nodes, each in its place.
        shapes: The known shapes of what `Shape` and `Size` read.
        constants: The values that are known.
    """
    found: dict[str, np.ndarray] = {}
    known, known_names = ChainMap(found, constants), set(constants)
    done: list[int] = []
    for place, (node, reads, measured) in enumerate(waiting):
        values: dict[str, np.ndarray] | None
        if measured in shapes:
            dims = shapes[measured]
            if node.op_type == "Shape":
                attributes = {attribute.name: attribute.i for attribute in node.attribute}
                values = {node.output[0]: np.array(dims[attributes.get("start", 0) : attributes.get("end")], np.int64)}
            else:
                values = {node.output[0]: np.array(prod(dims), np.int64)}
        elif reads is not None and reads <= known_names:
            values = fold_node(model, node, known)
        else:
            continue
        if values is None:
            waiting[place] = waiting[place]._replace(reads=None)
            continue
        done.append(place)
        found.update(values)
        known_names.update(values)
    # One by one: protobuf frees a message's parts only with the whole message, so that each round of copying those
    # that stay would keep all of them once more (.5 GB for 4,000 nodes).
    for place in reversed(done):
        del model.graph.node[place], waiting[place]
    return found


def _require_shapes(resolved: _Resolved, signatures: Mapping[str, tuple[int, ...]]) -> None:
    """Name every node at which shapes get lost: those behind it follow from it.

    Raises:
        ConversionError: A node reads what nothing gives before it.
        UnsupportedOperator: It is control flow, an operator that is not ONNX's, or its shapes depend on data.
    """
    known = {*resolved.constants, *signatures}
    made: set[str] = {name for node in resolved.nodes for name in node.output}
    found: dict[str, list[str]] = {}
    lost: set[str] = set()
    for node in resolved.nodes:
        for name in node.input:
            if name and name not in known and name not in lost:
                why = "the graph is not sorted, or goes in a circle" if name in made else "nothing gives it"
                raise ConversionError(
                    f"Node `{node.name or node.output[0]}` ({node.op_type}) reads `{name}` before it is there: {why}",
                    hint="export the model again",
                    tensor=name,
                )
        unknown = [name for name in node.output if name and (name not in signatures or name not in resolved.dtypes)]
        if unknown and not lost.intersection(node.input):
            found.setdefault(_said_of(node, unknown[0]), []).append(node.name or node.output[0])
        lost.update(unknown)
    if found:
        said = "; ".join(f"{what}: {', '.join(f'`{name}`' for name in names)}" for what, names in found.items())
        raise UnsupportedOperator(
            f"TFLite is not written for {said}",
            hint="leave TFLite out by --format onnx, or write the model without them",
            operators=sorted(found),
            nodes=found,
        )


def _said_of(node: onnx.NodeProto, name: str) -> str:
    """Say why the shape of a node's output is not known."""
    if node.domain not in ("", "ai.onnx"):
        return f"{node.domain}.{node.op_type} (an operator that is not ONNX's own)"
    if node.op_type in ("If", "Loop", "Scan"):
        return f"{node.op_type} (control flow)"
    return f"{node.op_type} (the shape of `{name}` is not known before the model runs)"
