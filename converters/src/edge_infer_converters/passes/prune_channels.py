"""Remove channels that are the same for every input.

A channel of a `Conv` or `Gemm` is constant where all of its weights are zero (it is its bias then), or where its ReLU
can never be reached: its largest possible sum, from the range that the activation before allows, is at most zero. It is
taken out of the layer and of the one that reads it, whose bias takes what the constant added. Nothing is estimated from
data, so that no input gives another answer, rounding aside. A constant other than zero cannot be taken out of a
convolution with padding, where the border would see it.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import onnx
from onnx import numpy_helper

from edge_infer_converters.passes.fold_batch_norm import fold_batch_norm_in
from edge_infer_converters.passes.fold_constants import fold_constants
from edge_infer_converters.passes.graphs import drop_stored_shapes, drop_unread_tensors, reads_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_LAYERS = ("Conv", "Gemm")


class Pruned(NamedTuple):
    """A model without its constant channels.

    Attributes:
        model: The model; a copy.
        removed: How many channels were removed of each layer, by the node's name or output.
    """

    model: onnx.ModelProto
    removed: dict[str, int]


class Link(NamedTuple):
    """Two layers with nothing but activations between them."""

    first: onnx.NodeProto
    activations: list[onnx.NodeProto]
    second: onnx.NodeProto


def prune_channels(model: onnx.ModelProto) -> Pruned:
    """Remove constant channels between layers that nothing but `Relu` and `Clip` separates.

    Args:
        model: A float32 model; constants and batch normalization are folded first.
    """
    pruned = folded(model)
    graph = pruned.graph
    editor = ChannelEditor(graph)
    removed: dict[str, int] = {}
    for link in editor.links():
        count = editor.prune(link)
        if count:
            removed[link.first.name or link.first.output[0]] = count
    if removed:
        drop_stored_shapes(graph)
    drop_unread_tensors(graph)
    return Pruned(pruned, removed)


def folded(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return a copy in the form that `ChannelEditor` takes."""
    copy = fold_constants(model)
    fold_batch_norm_in(copy.graph)
    return copy


class ChannelEditor:
    """Takes channels out of layers of a graph, in place.

    Args:
        graph: The graph, its constants and batch normalization folded.
    """

    def __init__(self, graph: onnx.GraphProto) -> None:
        self._graph = graph
        self._stored = {tensor.name: tensor for tensor in graph.initializer}
        self._uses = Counter(name for node in graph.node for name in reads_of(node))
        self._uses.update(value.name for value in graph.output)
        self._readers = {name: node for node in graph.node for name in node.input}
        self._makers = {name: node for node in graph.node for name in node.output}

    def links(self) -> Iterator[Link]:
        """Find all links, each as it is when its turn comes."""
        for first in [node for node in self._graph.node if node.op_type in _LAYERS]:
            link = self._link_of(first)
            if link is not None:
                yield link

    def _link_of(self, first: onnx.NodeProto) -> Link | None:
        """Follow a layer's output through activations to the one layer that reads it."""
        activations: list[onnx.NodeProto] = []
        node = first
        while self._uses[node.output[0]] == 1 and node.output[0] in self._readers:
            node = self._readers[node.output[0]]
            if node.op_type in ("Relu", "Clip") and self._bounds(node) is not None:
                activations.append(node)
                continue
            fits = node.op_type in _LAYERS and node.input[0] == (activations or [first])[-1].output[0]
            if fits and self._is_plain(first) and self._is_plain(node):
                return Link(first, activations, node)
            return None
        return None

    def prune(self, link: Link) -> int:
        """Remove the constant channels of a link; returns how many."""
        weight, bias = self._weight(link.first), self._bias(link.first)
        constant = _constants(weight, bias, self._input_range(link.first.input[0]))
        for node in link.activations:
            low, high = self._bounds(node) or (-np.inf, np.inf)
            constant = {i: (max(bottom, low), min(max(top, low), high)) for i, (bottom, top) in constant.items()}
        fixed = {i: low for i, (low, high) in constant.items() if low == high}
        if _has_padding(link.second):
            fixed = {i: value for i, value in fixed.items() if value == 0}
        kept = [i for i in range(len(weight)) if i not in fixed]
        if not fixed or not kept:
            return 0
        self.remove(link, fixed)
        return len(fixed)

    def remove(self, link: Link, fixed: Mapping[int, float]) -> None:
        """Remove channels of a link, each of which has this value for every input."""
        weight, bias = self._weight(link.first), self._bias(link.first)
        kept = [i for i in range(len(weight)) if i not in fixed]
        reading, added = self._weight(link.second), self._bias(link.second)
        for i, value in fixed.items():
            added = added + reading[:, i].reshape(len(reading), -1).sum(axis=1, dtype=np.float64) * value
        self._replace(link.first, weight[kept], bias[kept])
        self._replace(link.second, reading[:, kept], added)

    def read_sizes(self, link: Link) -> np.ndarray:
        """Return how large the weights are by which each channel of a link is read: root sums of squares."""
        reading = self._weight(link.second)
        energy = np.square(reading, dtype=np.float64).sum(axis=(0, *range(2, reading.ndim)))
        return np.asarray(np.sqrt(energy))

    def _is_plain(self, node: onnx.NodeProto) -> bool:
        """Tell whether a layer's weights are its own and every output channel reads all inputs."""
        settings = {attribute.name: attribute for attribute in node.attribute}
        if any(name not in self._stored or self._uses[name] != 1 for name in node.input[1:]):
            return False
        if self._stored[node.input[1]].data_type != onnx.TensorProto.FLOAT:
            return False
        if node.op_type == "Conv":
            return "group" not in settings or settings["group"].i == 1
        ones = all(settings[name].f == 1 for name in ("alpha", "beta") if name in settings)
        is_vector = len(node.input) < 3 or len(self._stored[node.input[2]].dims) == 1
        return ones and is_vector and not ("transA" in settings and settings["transA"].i)

    def _is_turned(self, node: onnx.NodeProto) -> bool:
        """Tell whether a Gemm's weights lie as [inputs, outputs]."""
        return node.op_type == "Gemm" and not any(one.name == "transB" and one.i for one in node.attribute)

    def _weight(self, node: onnx.NodeProto) -> np.ndarray:
        """Return a layer's weights as [outputs, inputs, ...]."""
        values = numpy_helper.to_array(self._stored[node.input[1]])
        return values.T if self._is_turned(node) else values

    def _bias(self, node: onnx.NodeProto) -> np.ndarray:
        if len(node.input) > 2:
            return numpy_helper.to_array(self._stored[node.input[2]]).astype(np.float64)
        return np.zeros(len(self._weight(node)))

    def _replace(self, node: onnx.NodeProto, weight: np.ndarray, bias: np.ndarray) -> None:
        values = np.ascontiguousarray(weight.T if self._is_turned(node) else weight)
        self._stored[node.input[1]].CopyFrom(numpy_helper.from_array(values, node.input[1]))
        if len(node.input) < 3:
            node.input.append(f"{node.output[0]}/bias")
            self._graph.initializer.append(onnx.TensorProto(name=node.input[2]))
            self._stored[node.input[2]] = self._graph.initializer[-1]
            self._uses[node.input[2]] = 1
        tensor = numpy_helper.from_array(bias.astype(np.float32), node.input[2])
        self._stored[node.input[2]].CopyFrom(tensor)

    def _bounds(self, node: onnx.NodeProto | None) -> tuple[float, float] | None:
        """Return between what an activation keeps its values, or None where that is not known."""
        if node is None or node.op_type not in ("Relu", "Clip"):
            return None
        if node.op_type == "Relu":
            return 0.0, np.inf
        limits = {one.name: one.f for one in node.attribute}
        found = [limits.get("min", -np.inf), limits.get("max", np.inf)]
        for place, name in enumerate(node.input[1:3]):
            if name and name not in self._stored:
                return None
            if name:
                found[place] = float(numpy_helper.to_array(self._stored[name]))
        return (found[0], found[1]) if found[0] <= found[1] else None

    def _input_range(self, name: str) -> tuple[float, float]:
        """Return between what the values of a layer's input lie, padding with zeros included."""
        low, high = self._bounds(self._makers.get(name)) or (-np.inf, np.inf)
        return min(low, 0.0), max(high, 0.0)


def _constants(weight: np.ndarray, bias: np.ndarray, given: tuple[float, float]) -> dict[int, tuple[float, float]]:
    """Return between what each output channel lies."""
    rows = weight.reshape(len(weight), -1).astype(np.float64)
    low, high = given
    with np.errstate(invalid="ignore"):
        ends = np.stack([np.where(rows == 0, 0, rows * low), np.where(rows == 0, 0, rows * high)])
    bottoms, tops = ends.min(axis=0).sum(axis=1) + bias, ends.max(axis=0).sum(axis=1) + bias
    # Sums of the engine are rounded in another order: what is within a rounding of zero is not proven.
    slack = np.where((rows != 0).any(axis=1), 1e-5 * np.abs(rows).sum(axis=1), 0)
    return {i: (float(bottoms[i]), float(tops[i] + slack[i])) for i in range(len(rows))}


def _has_padding(node: onnx.NodeProto) -> bool:
    if node.op_type != "Conv":
        return False
    return any(
        (one.name == "pads" and any(one.ints)) or (one.name == "auto_pad" and one.s not in (b"NOTSET", b"VALID"))
        for one in node.attribute
    )
