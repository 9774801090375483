"""An ONNX node as a rule sees it, and the TFLite tensors of the values that it reads and gives."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from ai_edge_litert import schema_py_generated as schema
from onnx import defs

from edge_infer_converters.passes.graphs import attributes_of
from edge_infer_converters.writers.tflite.graph import Graph, Layout, Tensor, from_channels_last, to_channels_last

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import onnx

    from edge_infer_converters.writers.tflite.specialise import Specialised

    #: Writes one ONNX node as TFLite operators.
    Rule = Callable[["Node"], None]


# The operator set that the rules were written for: an attribute that a later one adds has to be read.
_KNOWN_OPSET = 26


class BatchDependent(Exception):
    """A constant that follows the batch size must be stored: the batch has to be fixed."""


class Unsupported(Exception):
    """A rule cannot write this node; the text says which of its settings."""


class Node:
    """An ONNX node as a rule sees it.

    Attributes:
        name: What to call tensors that the rule makes up.
        op_type: The ONNX operator.
        opset: The version of ONNX's operator set.
        graph: Where operators are added.
        for_page: Whether LiteRT.js must read the file.
    """

    def __init__(
        self, node: onnx.NodeProto, model: Specialised, values: Values, read: frozenset[str], *, for_page: bool
    ) -> None:
        self.name = node.name or node.output[0]
        self.op_type = node.op_type
        self.opset = model.opset
        self.graph = values.graph
        self.inputs = tuple(node.input)
        self.outputs = tuple(node.output)
        self._attributes = attributes_of(node)
        self._asked: set[str] = set()
        self._model = model
        self._values = values
        self.for_page = for_page
        self._read = read

    # -- what it says --

    def number(self, name: str, default: float) -> float:
        """Return a number among its attributes."""
        return float(self._attribute(name, default))

    def integer(self, name: str, default: int) -> int:
        """Return an integer among its attributes."""
        return int(self._attribute(name, default))

    def integers(self, name: str, default: Sequence[int]) -> list[int]:
        """Return a list of integers among its attributes."""
        return [int(value) for value in self._attribute(name, default)]

    def floats(self, name: str) -> list[float]:
        """Return a list of numbers among its attributes; empty where it is not set."""
        return [float(value) for value in self._attribute(name, ())]

    def texts(self, name: str, default: Sequence[str]) -> list[str]:
        """Return a list of texts among its attributes."""
        given = self._attribute(name, default)
        return [value.decode() if isinstance(value, bytes) else str(value) for value in given]

    def text(self, name: str, default: str) -> str:
        """Return a text among its attributes."""
        value = self._attribute(name, default)
        return value.decode() if isinstance(value, bytes) else str(value)

    def has_attribute(self, name: str) -> bool:
        """Tell whether an attribute is set."""
        return name in self._attributes

    def unread(self) -> str:
        """Name an attribute that is newer than the rules, and that this node's rule did not read."""
        if self.opset <= _KNOWN_OPSET or not defs.has(self.op_type, _KNOWN_OPSET, ""):
            return ""
        known = defs.get_schema(self.op_type, _KNOWN_OPSET, "").attributes
        new = sorted(self._attributes.keys() - self._asked - known.keys())
        return f"its attribute `{new[0]}`, which is newer than operator set {_KNOWN_OPSET}" if new else ""

    def _attribute(self, name: str, default: Any) -> Any:
        self._asked.add(name)
        return self._attributes.get(name, default)

    # -- what it reads --

    def has_input(self, index: int) -> bool:
        """Tell whether an optional input is given."""
        return index < len(self.inputs) and bool(self.inputs[index])

    def signature(self, index: int = 0) -> tuple[int, ...]:
        """Return the shape of an input, -1 for a free batch."""
        return self._model.signatures[self.inputs[index]]

    def rank(self, index: int = 0) -> int:
        """Return how many axes an input has."""
        return len(self.signature(index))

    def sizes(self, axes: slice = slice(None), index: int = 0) -> tuple[int, ...]:
        """Return the sizes of an input's axes.

        Raises:
            BatchDependent: One of them is free.
        """
        sizes = self.signature(index)[axes]
        if -1 in sizes:
            raise BatchDependent(self.inputs[index])
        return sizes

    def size(self, axis: int, index: int = 0) -> int:
        """Return the size of one of an input's axes, counted from 0.

        Raises:
            BatchDependent: It is free.
        """
        return self.sizes(slice(axis, axis + 1), index)[0]

    def constant(self, index: int) -> np.ndarray | None:
        """Return the value of an input, or None where it is computed.

        Raises:
            BatchDependent: It depends on the batch size.
        """
        name = self.inputs[index]
        if name in self._model.varying:
            raise BatchDependent(name)
        return self._model.constants.get(name)

    def broadcast_constant(self, index: int) -> np.ndarray | None:
        """Return the value of an operand that will be broadcast, or None where it is computed.

        One that is the same for each of the batch is given once, if another operand brings the batch.

        Raises:
            BatchDependent: It depends on the batch size.
        """
        name, rank = self.inputs[index], len(self.signature(index))
        if name in self._model.repeated and any(
            self.signature(i)[0] == -1 and len(self.signature(i)) == rank and one not in self._model.constants
            for i, one in enumerate(self.inputs)
            if self.signature(i)
        ):
            return self._model.constants[name]
        return self.constant(index)

    def needed_constant(self, index: int) -> np.ndarray:
        """Return the value of an input that must be constant.

        Raises:
            Unsupported: It is computed.
        """
        value = self.constant(index)
        if value is None:
            raise Unsupported(f"input `{self.inputs[index]}` is not constant")
        return value

    def is_channels_last(self, index: int = 0) -> bool:
        """Tell whether an input is at hand with its channels last, and not in plain order."""
        return self._values.is_channels_last(self.inputs[index])

    def input(self, index: int = 0, layout: Layout = Layout.PLAIN) -> Tensor:
        """Return an input in this layout; it is transposed where it is not at hand."""
        if self.inputs[index] in self._model.varying:
            raise BatchDependent(self.inputs[index])
        return self._values.get(self.inputs[index], layout)

    # -- what it gives --

    def output_signature(self, index: int = 0) -> tuple[int, ...]:
        """Return the shape of an output in plain order, -1 for a free batch."""
        return self._model.signatures[self.outputs[index]]

    def output(self, index: int = 0, layout: Layout = Layout.PLAIN) -> Tensor:
        """Make the tensor of an output."""
        return self._values.define(self.outputs[index], layout)

    def alias(self, tensor: Tensor, layout: Layout = Layout.PLAIN) -> None:
        """Make the first output another name for a tensor."""
        self._values.put(self.outputs[0], layout, tensor)

    def scratch(self, suffix: str, signature: Sequence[int], dtype: np.dtype | None = None) -> Tensor:
        """Make a tensor between two operators of this node; of the first input's type unless said otherwise."""
        return self.graph.tensor(
            f"{self.name}/{suffix}", signature, self._model.dtypes[self.inputs[0]] if dtype is None else dtype
        )

    def give(self, tensor: Tensor, layout: Layout = Layout.PLAIN, index: int = 0) -> None:
        """Make a tensor that the newest operator has made, or another value, an output of this node."""
        if self._values.holds(tensor):
            self._values.put(self.outputs[index], layout, tensor)
            return
        output = self.output(index, layout)
        newest = self.graph.operators[-1] if self.graph.operators else None
        if newest is not None and any(made is tensor for made in newest.outputs):
            newest.outputs = [output if made is tensor else made for made in newest.outputs]
        else:
            reshape(self.graph, tensor, output)

    def dtype(self, index: int = 0) -> np.dtype:
        """Return the element type of an input."""
        return self._model.dtypes[self.inputs[index]]

    def output_dtype(self, index: int = 0) -> np.dtype:
        """Return the element type of an output."""
        return self._model.dtypes[self.outputs[index]]

    def gives(self, index: int) -> bool:
        """Tell whether an output is there and something reads it."""
        return index < len(self.outputs) and self.outputs[index] in self._read

    def stored(self, suffix: str, value: np.ndarray) -> Tensor:
        """Make a constant that only the file holds."""
        return self.graph.constant(f"{self.name}/{suffix}", value)


class Values:
    """The TFLite tensors of each ONNX value, in one layout or both."""

    def __init__(self, model: Specialised) -> None:
        self.graph = Graph()
        self._model = model
        self._tensors: dict[str, dict[Layout, Tensor]] = {}
        self._held: set[int] = set()
        self.graph.reserve([*model.inputs, *model.outputs])
        for name in model.inputs:
            tensor = self.graph.interface(name, model.signatures[name], model.dtypes[name])
            self.graph.inputs.append(tensor)
            self.put(name, Layout.PLAIN, tensor)

    def is_channels_last(self, name: str) -> bool:
        """Tell whether a value is there with its channels last, and in no other order."""
        return set(self._tensors.get(name, ())) == {Layout.CHANNELS_LAST}

    def holds(self, tensor: Tensor) -> bool:
        """Tell whether a tensor is a value of the model, and not made between two operators."""
        return id(tensor) in self._held

    def put(self, name: str, layout: Layout, tensor: Tensor) -> None:
        """Take a tensor as a value in one layout."""
        self._tensors.setdefault(name, {})[layout] = tensor
        self._held.add(id(tensor))

    def define(self, name: str, layout: Layout) -> Tensor:
        """Add a tensor for a value in one layout."""
        signature = self._model.signatures[name]
        if layout is Layout.CHANNELS_LAST:
            signature = tuple(signature[axis] for axis in to_channels_last(len(signature)))
        label = name if layout is Layout.PLAIN else f"{name}/channels_last"
        is_output = layout is Layout.PLAIN and name in self._model.outputs
        make = self.graph.interface if is_output else self.graph.tensor
        tensor = make(label, signature, self._model.dtypes[name])
        self.put(name, layout, tensor)
        return tensor

    def stand_in(self, names: Sequence[str]) -> None:
        """Add tensors for what a refused node would give."""
        for name in names:
            if name and name not in self._tensors:
                self.define(name, Layout.PLAIN)

    def get(self, name: str, layout: Layout) -> Tensor:
        """Return the tensor of a value in a layout; what is there in the other one is transposed."""
        known = self._tensors.setdefault(name, {})
        if layout in known:
            return known[layout]
        if name in self._model.constants:
            value = self._model.constants[name]
            if layout is Layout.CHANNELS_LAST:
                value = value.transpose(to_channels_last(value.ndim))
            self.put(name, layout, self.graph.constant(name, value))
            return known[layout]
        other = known[Layout.PLAIN if layout is Layout.CHANNELS_LAST else Layout.CHANNELS_LAST]
        order = to_channels_last(other.rank) if layout is Layout.CHANNELS_LAST else from_channels_last(other.rank)
        tensor = self.define(name, layout)
        transpose(self.graph, other, tensor, order)
        return tensor

    def output(self, name: str) -> Tensor:
        """Return the tensor of a graph output: in plain order, under its own name, and no other output's."""
        tensor = self.get(name, Layout.PLAIN)
        if tensor.name == name and tensor.data is None and tensor not in self.graph.inputs:
            return tensor
        output = self.graph.interface(name, tensor.signature, tensor.dtype)
        reshape(self.graph, tensor, output)
        return output


def transpose(graph: Graph, source: Tensor, target: Tensor, order: Sequence[int]) -> None:
    """Permute the axes of a tensor; where only axes of size 1 move, a reshape does it without moving data."""
    moving = [axis for axis in order if source.signature[axis] != 1]
    if moving == sorted(moving):
        reshape(graph, source, target)
        return
    permutation = graph.constant(f"{target.name}/order", np.array(order, np.int32))
    graph.add("TRANSPOSE", [source, permutation], [target], schema.TransposeOptionsT())


def reshape(graph: Graph, source: Tensor, target: Tensor) -> None:
    """Give a tensor another shape.

    Raises:
        BatchDependent: More than one dimension of the shape is free.
    """
    if target.signature.count(-1) > 1:
        raise BatchDependent(target.name)
    dims = np.array(target.signature, np.int32)
    options = schema.ReshapeOptionsT()
    options.newShape = dims
    graph.add("RESHAPE", [source, graph.constant(f"{target.name}/shape", dims)], [target], options)
