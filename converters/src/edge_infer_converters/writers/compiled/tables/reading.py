"""A model over tables while it is read from ONNX: its values, and a node as a rule sees it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from ai_edge_litert import schema_py_generated as schema
from onnx import helper

from edge_infer.errors import UnsupportedModel
from edge_infer_converters.passes.graphs import attributes_of
from edge_infer_converters.writers.tflite.graph import Tensor

if TYPE_CHECKING:
    from collections.abc import Sequence

    import onnx

    from edge_infer_converters.writers.tflite.graph import Graph

_FLOAT = np.dtype(np.float32)
#: The domain of ONNX-ML.
DOMAIN = "ai.onnx.ml"


def is_table(model: onnx.ModelProto) -> bool:
    """Tell whether a model has operators of ONNX-ML: engines of TFLite have none of them."""
    return any(node.domain == DOMAIN for node in model.graph.node)


@dataclass(slots=True)
class Table:
    """A graph while it is read.

    Attributes:
        graph: What was read so far.
        ends: The names of the outputs.
        values: By ONNX name its tensors.
        constants: By ONNX name what is known.
        texts: The names of values that stand for texts.
        batch: -1 where the number of rows is free, else 1.
        least_columns: How many columns its trees read at least; 0 where it has none.
    """

    graph: Graph
    ends: frozenset[str]
    values: dict[str, Tensor] = field(default_factory=dict)
    constants: dict[str, np.ndarray] = field(default_factory=dict)
    texts: set[str] = field(default_factory=set)
    batch: int = -1
    least_columns: int = 0

    def add_input(self, value: onnx.ValueInfoProto) -> None:
        """Add an input: rows of numbers."""
        kind = value.type.tensor_type
        if kind.elem_type != 1:
            raise UnsupportedModel(
                f"the input `{value.name}` is not of float32", hint="export the model with one float input"
            )
        dims = [dim.dim_value if dim.HasField("dim_value") else 0 for dim in kind.shape.dim]
        if self.graph.inputs:
            raise UnsupportedModel("it has several inputs", hint="export the model with one float input")
        if len(dims) == 2 and dims[0] > 1:
            raise UnsupportedModel(
                f"the input `{value.name}` has {dims[0]} rows, expected a free number, or 1",
                hint="--dynamic batch",
            )
        if len(dims) != 2 or dims[1] < 1:
            raise UnsupportedModel(
                f"the input `{value.name}` has the shape {dims}, expected rows of so many numbers",
                hint=f"--shape {value.name}=?x{self.least_columns or 13}, with the number of your columns",
            )
        self.batch = dims[0] or -1
        made = self.tensor(value.name, dims[1])
        self.values[value.name] = made
        self.graph.inputs.append(made)

    def add_output(self, value: onnx.ValueInfoProto) -> None:
        """Add an output: of the type that the model says."""
        name = value.name
        if name in self.texts:
            raise UnsupportedModel(
                f"the output `{name}` is a text; a compiled model gives numbers",
                hint="fit the model on the numbers of the classes; their names are given by --labels",
            )
        found = self.values.get(name)
        if found is None:
            raise UnsupportedModel(f"the output `{name}` is a constant")
        kind = value.type.tensor_type.elem_type
        if kind and helper.tensor_dtype_to_np_dtype(kind) != found.dtype:
            wanted = helper.tensor_dtype_to_np_dtype(kind)
            raise UnsupportedModel(f"the output `{name}` is of {wanted}, and is computed in {found.dtype}")
        if found.name != name:  # one value may be given out twice, or under another name
            made = Tensor(name, found.shape, found.signature, found.dtype)
            self.graph.add("RESHAPE", [found], [made])
            found = made
        self.graph.outputs.append(found)

    def tensor(self, name: str, columns: int, dtype: np.dtype = _FLOAT, *, is_flat: bool = False) -> Tensor:
        """Make a value of one row, or of one number for each row where it is flat."""
        shape = (1,) if is_flat else (1, columns)
        return Tensor(name, shape, (self.batch, *shape[1:]), dtype)


class Node:
    """A node as a rule sees it."""

    def __init__(self, node: onnx.NodeProto, table: Table) -> None:
        self.op_type = node.op_type
        self.table = table
        self.outputs = [name for name in node.output if name]
        self._inputs = list(node.input)
        self.attributes = attributes_of(node)

    def integer(self, name: str, default: int = 0) -> int:
        """Return an integer among its attributes."""
        return int(self.attributes.get(name, default))

    def text(self, name: str, default: str) -> str:
        """Return a text among its attributes."""
        value = self.attributes.get(name, default)
        return value.decode() if isinstance(value, bytes) else str(value)

    def array(self, name: str) -> np.ndarray:
        """Return numbers among its attributes, as float32; none where it is not set."""
        return np.array(self.attributes.get(name, ()), np.float32)

    def given(self, place: int = 0) -> Tensor:
        """Return an input that is computed."""
        name = self._inputs[place]
        if name not in self.table.values:
            raise UnsupportedModel("of a constant")
        return self.table.values[name]

    def constant(self, place: int) -> np.ndarray | None:
        """Return the value of an input, or None where it is computed."""
        return self.table.constants.get(self._inputs[place]) if place < len(self._inputs) else None

    @property
    def count(self) -> int:
        """The number of inputs."""
        return len(self._inputs)

    def made(
        self, columns: int, dtype: np.dtype = _FLOAT, *, output: int | None = None, is_flat: bool = False
    ) -> Tensor:
        """Make a value: an output of the node, or one in between."""
        number = len(self.table.graph.operators)
        name = self.outputs[0 if output is None else output] if self.outputs else "value"
        made = self.table.tensor(name if output is not None else f"{name}/{number}", columns, dtype, is_flat=is_flat)
        if output is not None:
            self.table.values[name] = made
        return made

    def share(self, value: Tensor, output: int = 0) -> None:
        """Give out a value under the name of an output."""
        self.table.values[self.outputs[output]] = value

    def stored(self, value: np.ndarray) -> Tensor:
        """Make a constant."""
        return self.table.graph.constant("constant", value)

    def add(self, code: str, inputs: Sequence[Tensor], output: Tensor, options: object | None = None) -> Tensor:
        """Append an operator; return its output."""
        self.table.graph.add(code, [*inputs], [output], options)
        return output

    def binary(self, code: str, first: Tensor, second: Tensor | np.ndarray, output: Tensor | None = None) -> Tensor:
        """Append an operation on two rows, or on a row and constants."""
        other = self.stored(second.astype(np.float32).reshape(1, -1)) if isinstance(second, np.ndarray) else second
        columns = max(first.shape[-1], other.shape[-1])
        return self.add(code, [first, other], output or self.made(columns), schema.AddOptionsT())

    def linear(
        self, given: Tensor, weights: np.ndarray, bias: np.ndarray | None, output: Tensor | None = None
    ) -> Tensor:
        """Append a product with weights [outputs, columns] and a sum with the bias."""
        inputs = [given, self.stored(weights.astype(np.float32))]
        if bias is not None:
            inputs.append(self.stored(np.broadcast_to(bias.astype(np.float32).reshape(-1), len(weights)).copy()))
        made = output or self.made(len(weights))
        options: Any = schema.FullyConnectedOptionsT()
        return self.add("FULLY_CONNECTED", inputs, made, options)
