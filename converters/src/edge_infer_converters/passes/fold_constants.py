"""Compute nodes that read stored tensors only, and store their results."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from edge_infer_converters.passes.graphs import drop_unread_tensors, subgraphs_of
from edge_infer_converters.passes.weights_in_files import WeightsInFiles

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

#: Operators that give other values each time.
_RANDOM = ("Bernoulli", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike")
#: Operators that move values, or compute shapes.
_MOVING = frozenset(
    {"Add", "Cast", "Concat", "Constant", "Div", "Expand", "Gather", "Identity", "Mul", "Reshape", "Slice", "Squeeze"}
    | {"Sub", "Transpose", "Unsqueeze", "Where"}
)
#: A constant larger than this is left to the engine to compute: the file would grow by it.
_MAX_BYTES = 64 * 2**20
#: By how many bytes one folded node may make a file larger.
_MAX_GROWTH = 1024


def fold_constants(model: onnx.ModelProto, apart: Sequence[onnx.TensorProto] | WeightsInFiles = ()) -> onnx.ModelProto:
    """Return a copy without nodes that read only initializers: `Constant`, `Identity`, `Transpose` of a weight.

    A node that makes much of little, such as `Expand`, stays: the file would grow.

    Args:
        model: The model.
        apart: The values of its initializers that have none; see `graphs.without_weights`.
    """
    folded = onnx.ModelProto()
    folded.CopyFrom(model)
    graph = folded.graph
    given = {value.name for value in graph.input}
    in_files = apart if isinstance(apart, WeightsInFiles) else None
    tensors = [*graph.initializer, *(() if isinstance(apart, WeightsInFiles) else apart)]
    constants = _Constants([tensor for tensor in tensors if tensor.name not in given], in_files)
    outputs = {value.name for value in graph.output}
    kept: list[onnx.NodeProto] = []
    for node in graph.node:
        is_left = outputs & set(node.output) or any(constants.is_large(name) for name in node.input)
        values = None if is_left else fold_node(folded, node, constants)
        if values is None or (node.input and _grows(values, node, constants)):
            kept.append(node)
        else:
            constants.computed.update(values)
            graph.initializer.extend(numpy_helper.from_array(value, name) for name, value in values.items())
    del graph.node[:]
    graph.node.extend(kept)
    drop_unread_tensors(graph)
    return folded


def _grows(values: Mapping[str, np.ndarray], node: onnx.NodeProto, constants: Mapping[str, np.ndarray]) -> bool:
    read = sum(constants[name].nbytes for name in node.input if name in constants)
    return sum(value.nbytes for value in values.values()) > read + _MAX_GROWTH


class _Constants(Mapping[str, np.ndarray]):
    """Stored tensors as arrays, each made when it is asked for: all at once take as much memory as the model."""

    def __init__(self, tensors: Sequence[onnx.TensorProto], in_files: WeightsInFiles | None) -> None:
        self._stored = {tensor.name: tensor for tensor in tensors}
        self._in_files = in_files
        self.computed: dict[str, np.ndarray] = {}

    def __getitem__(self, name: str) -> np.ndarray:
        found = self.computed.get(name)
        if found is None and self._in_files is not None and name in self._in_files:
            return self._in_files.array(name)
        return numpy_helper.to_array(self._stored[name]) if found is None else found

    def __contains__(self, name: object) -> bool:
        return name in self._stored or name in self.computed

    def is_large(self, name: str) -> bool:
        """Whether a tensor in a file is larger than what is folded."""
        return self._in_files is not None and name in self._in_files and self._in_files.nbytes(name) > _MAX_BYTES

    def __iter__(self) -> Iterator[str]:
        return iter({**self._stored, **self.computed})

    def __len__(self) -> int:
        return len({**self._stored, **self.computed})


def fold_node(
    model: onnx.ModelProto, node: onnx.NodeProto, constants: Mapping[str, np.ndarray]
) -> dict[str, np.ndarray] | None:
    """Compute one node.

    Args:
        model: The model, for its operator sets.
        node: One of its nodes.
        constants: The values that are known.

    Returns:
        Its outputs by name, or None where they are not constant, no tensors, too large to store, or the engine fails.
    """
    names = [name for name in node.input if name]
    if node.domain not in ("", "ai.onnx") or node.op_type in _RANDOM or any(True for _ in subgraphs_of(node)):
        return None
    if any(name not in constants for name in names):
        return None
    evaluate = _move if node.op_type in _MOVING else _run
    try:
        results = evaluate(model, node, {name: constants[name] for name in names})
    except Exception:  # what the engine does not compute stays in the model, and it says why
        return None
    if not all(isinstance(value, np.ndarray | np.generic) for value in results.values()):
        return None  # a sequence, or an optional one
    if sum(value.nbytes for value in results.values()) > _MAX_BYTES:
        return None
    return {name: np.asarray(value) for name, value in results.items()}


def _move(model: onnx.ModelProto, node: onnx.NodeProto, feeds: Mapping[str, np.ndarray]) -> dict[str, Any]:
    """Compute with ONNX's reference implementation: without a copy, and of every element type."""
    from onnx.reference import ReferenceEvaluator

    inputs = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(value.dtype), None)
        for name, value in feeds.items()
    ]
    one, names = _alone(model, node, inputs=inputs)
    return dict(zip(names, ReferenceEvaluator(one).run(names, dict(feeds)), strict=True))


def _run(model: onnx.ModelProto, node: onnx.NodeProto, feeds: Mapping[str, np.ndarray]) -> dict[str, Any]:
    """Compute as the engine does: the reference implementation lacks operators, and errs in others."""
    from edge_infer_converters.engine import make_session

    stored = [numpy_helper.from_array(value, name) for name, value in feeds.items()]
    one, names = _alone(model, node, initializer=stored)
    session = make_session(one.SerializeToString(), node.op_type)
    if any("float8" in output.type for output in session.get_outputs()):
        raise TypeError("ONNX Runtime gives these as uint8")
    return dict(zip(names, session.run(names, {}), strict=True))


def _alone(
    model: onnx.ModelProto,
    node: onnx.NodeProto,
    *,
    inputs: Sequence[onnx.ValueInfoProto] = (),
    initializer: Sequence[onnx.TensorProto] = (),
) -> tuple[onnx.ModelProto, list[str]]:
    """Make a model of one node; return it with the names of its outputs."""
    names = [name for name in node.output if name]
    outputs = [helper.make_empty_tensor_value_info(name) for name in names]
    graph = helper.make_graph([node], "fold", inputs, outputs, initializer)
    return helper.make_model(graph, opset_imports=model.opset_import, ir_version=model.ir_version), names
