"""Write an ONNX graph of attention layers, operator by operator, with the weights of a folder."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from edge_infer.errors import ConversionError, UnsupportedModel

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from edge_infer_converters.sources.decoder.shards import StoredTensor

#: LayerNormalization came with 17; every engine of this project knows it.
_OPSET, _IR = 17, 9
# Added to the scores of positions that are not seen: exp gives 0 for it.
_UNSEEN = np.float32(-1e30)


class Weights:
    """The weights of a folder, each read once and checked; the names that were read are remembered.

    Args:
        stored: The tensors by their name.
    """

    def __init__(self, stored: Mapping[str, StoredTensor]) -> None:
        self._stored = stored
        self.used: set[str] = set()

    def __contains__(self, name: str) -> bool:
        return name in self._stored

    def read(self, name: str, shape: tuple[int, ...]) -> np.ndarray:
        """Return a tensor as float32.

        Raises:
            ConversionError: It is missing, has another shape, or holds NaN or infinite values.
            UnsupportedModel: It holds no floats.
        """
        if name not in self._stored:
            raise ConversionError(
                f"The weights have no `{name}`", hint="download the folder again, with all its files", tensor=name
            )
        self.used.add(name)
        found = self._stored[name]
        if not found.is_float:
            raise UnsupportedModel(
                f"`{name}` is of {found.dtype}, expected float32, float16 or bfloat16",
                hint="convert the model that it was made from: edge-infer quantizes it",
                tensor=name,
            )
        if found.shape != shape:
            raise ConversionError(
                f"`{name}`: {list(found.shape)}, expected {list(shape)}",
                hint="config.json and the weights are of different models, or one of them is damaged",
                tensor=name,
            )
        values = found.rows(0, shape[0])
        if not np.isfinite(values).all():
            raise ConversionError(
                f"The tensor `{name}` holds NaN or infinite values", hint="train it again, or download it again"
            )
        return values

    def refuse_others(self, kind: str, ignored: tuple[str, ...]) -> None:
        """Refuse weights that nothing read.

        Raises:
            UnsupportedModel: There are some.
        """
        left = [one for one in self._stored if one not in self.used and not one.endswith(ignored)]
        if left:
            raise UnsupportedModel(
                f"The weights have `{left[0]}` and {len(left) - 1} more tensors that a `{kind}` does not have",
                hint="the model computes something that is not supported: take another one of the family",
                tensors=left[:20],
            )


class Graph:
    """A graph that grows.

    Args:
        name: Its name.
        weights: The weights that it takes.
    """

    def __init__(self, name: str, weights: Weights) -> None:
        self.weights = weights
        self._name = name
        self._nodes: list[onnx.NodeProto] = []
        self._stored: dict[str, onnx.TensorProto] = {}
        self._inputs: list[onnx.ValueInfoProto] = []
        self._outputs: list[onnx.ValueInfoProto] = []

    def input(self, name: str, dtype: int, dims: Sequence[int | str]) -> str:
        """Add an input and return its name."""
        self._inputs.append(helper.make_tensor_value_info(name, dtype, dims))
        return name

    def output(self, name: str, value: str, dims: Sequence[int | str]) -> None:
        """Name a float32 value as an output."""
        self._nodes.append(helper.make_node("Identity", [value], [name]))
        self._outputs.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, dims))

    def add(self, operator: str, *inputs: str, **attributes: Any) -> str:
        """Add an operator with one output and return its name."""
        name = f"{operator.lower()}_{len(self._nodes)}"
        self._nodes.append(helper.make_node(operator, list(inputs), [name], name, **attributes))
        return name

    def constant(self, values: Any, dtype: Any = np.int64) -> str:
        """Store a small constant and return its name."""
        array = np.asarray(values, dtype)
        name = f"constant_{array.dtype}_{'x'.join(map(str, array.shape))}_{'_'.join(map(str, array.reshape(-1)))}"
        return self.store(name, array)

    def store(self, name: str, values: np.ndarray) -> str:
        """Store values and return their name; the same name is stored once."""
        if name not in self._stored:
            self._stored[name] = numpy_helper.from_array(np.asarray(values, order="C"), name)
        return name

    def linear(self, x: str, name: str, rows: int, columns: int, *, has_bias: bool = True) -> str:
        """Multiply by a matrix that the folder stores with a row for each output, and add its bias."""
        key = f"{name}.weight"
        y = self.add("MatMul", x, self.store(f"{key}.turned", self.weights.read(key, (rows, columns)).T))
        if not has_bias:
            return y
        return self.add("Add", y, self.store(f"{name}.bias", self.weights.read(f"{name}.bias", (rows,))))

    def vector(self, name: str, size: int) -> str:
        """Store a vector of the folder and return its name."""
        return self.store(name, self.weights.read(name, (size,)))

    def layer_norm(self, x: str, name: str, size: int) -> str:
        """Norm by mean and variance; epsilon is torch's."""
        return self.add(
            "LayerNormalization",
            x,
            self.vector(f"{name}.weight", size),
            self.vector(f"{name}.bias", size),
            axis=-1,
            epsilon=1e-5,
        )

    def rms_norm(self, x: str, name: str, size: int, epsilon: float) -> str:
        """Norm by the root of the mean of squares."""
        squares = self.add("ReduceMean", self.add("Mul", x, x), axes=[-1], keepdims=1)
        root = self.add("Sqrt", self.add("Add", squares, self.constant(epsilon, np.float32)))
        return self.add("Mul", self.add("Div", x, root), self.vector(f"{name}.weight", size))

    def activated(self, x: str, kind: str) -> str:
        """Apply `gelu`, `gelu_new` or `relu`."""
        if kind == "relu":
            return self.add("Relu", x)
        half = self.constant(0.5, np.float32)
        if kind == "gelu":
            inner = self.add("Erf", self.add("Mul", x, self.constant(np.sqrt(0.5), np.float32)))
        else:
            cube = self.add("Mul", self.add("Mul", x, x), x)
            bent = self.add("Add", x, self.add("Mul", cube, self.constant(0.044715, np.float32)))
            inner = self.add("Tanh", self.add("Mul", bent, self.constant(np.sqrt(2 / np.pi), np.float32)))
        return self.add("Mul", self.add("Mul", x, half), self.add("Add", inner, self.constant(1.0, np.float32)))

    def split_heads(self, x: str, heads: int, size: int) -> str:
        """Turn [1, rows, heads * size] into [1, heads, rows, size]."""
        return self.add("Transpose", self.add("Reshape", x, self.constant([1, -1, heads, size])), perm=[0, 2, 1, 3])

    def attention(self, queries: str, keys: str, values: str, width: int, bias: str = "") -> str:
        """Attend: [1, heads, rows, size] with keys and values of [1, heads, positions, size] to [1, rows, width]."""
        scores = self.add("MatMul", queries, self.add("Transpose", keys, perm=[0, 1, 3, 2]))
        if bias:
            scores = self.add("Add", scores, bias)
        mixed = self.add("MatMul", self.add("Softmax", scores, axis=-1), values)
        return self.add("Reshape", self.add("Transpose", mixed, perm=[0, 2, 1, 3]), self.constant([1, -1, width]))

    def size_of(self, value: str, axis: int) -> str:
        """Return the size of one axis, int64 without dimensions."""
        return self.add("Gather", self.add("Shape", value), self.constant(axis), axis=0)

    def numbers(self, first: str, last: str) -> str:
        """Return whole numbers from one to before another."""
        return self.add("Range", first, last, self.constant(1))

    def seen(self, rows: str, positions: str) -> str:
        """Return what is added to scores so that no row sees positions behind its own: [rows, positions]."""
        is_seen = self.add("LessOrEqual", positions, self.add("Unsqueeze", rows, self.constant([1])))
        return self.add("Where", is_seen, self.constant(0.0, np.float32), self.constant(_UNSEEN, np.float32))

    def model(self) -> onnx.ModelProto:
        """Return the model, checked."""
        graph = helper.make_graph(
            self._nodes, self._name, self._inputs, self._outputs, initializer=list(self._stored.values())
        )
        made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", _OPSET)], ir_version=_IR)
        onnx.checker.check_model(made)
        return made


class Cache:
    """The keys and values of a decoder's own positions: inputs `past_*`, and outputs `present_*` with the new ones.

    Args:
        graph: The graph of the decoder.
        layers: Its layers.
        heads: Its heads.
        size: Values of a head.
    """

    def __init__(self, graph: Graph, layers: int, heads: int, size: int) -> None:
        self._graph = graph
        self._heads, self._size = heads, size
        self.pairs: list[tuple[str, str]] = []
        for layer in range(layers):
            for part in ("key", "value"):
                graph.input(f"past_{part}_{layer}", TensorProto.FLOAT, [1, heads, "past", size])

    def extended(self, layer: int, part: str, new: str) -> str:
        """Return the old and the new keys or values of a layer."""
        whole = self._graph.add("Concat", f"past_{part}_{layer}", new, axis=2)
        self._graph.output(f"present_{part}_{layer}", whole, [1, self._heads, "total", self._size])
        self.pairs.append((f"present_{part}_{layer}", f"past_{part}_{layer}"))
        return whole
