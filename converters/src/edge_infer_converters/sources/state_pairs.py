"""Find the outputs of an ONNX model that are its inputs at the next step: a recurrent net's state, a decoder's cache.

A pair is two tensors of one dtype and fitting shapes. Either they have one name but for words such as `in`, `out` and
`next`, and a word of it means state (`h_in` and `h_out`, `state` and `stateN`); or they are the first and the last
states of the same LSTM, GRU and RNN nodes, whatever their names.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping
    from typing import Any

    import onnx

#: What tells an output from its input, and the names that torch gives the first and the last state.
_SIDES = {"in", "out", "input", "output", "new", "next", "n", "prev", "previous", "initial", "init", "last", "final"}
_SIDES |= {"old", "updated", "past", "present"}
_SHORT = {"h0": "h", "hn": "h", "c0": "c", "cn": "c"}
_STATES = {"state", "states", "hidden", "h", "c", "cell", "cache", "mem", "memory", "lstm", "gru", "rnn", "carry"}
_STATES |= {"past", "present"}
_WORDS = re.compile(r"[A-Z]?[a-z]+\d*|[A-Z]+|\d+")
#: Operators that move elements and compute nothing.
_MOVES = {"Identity", "Slice", "Squeeze", "Unsqueeze", "Reshape", "Transpose", "Split", "Gather", "Concat", "Flatten"}
_MOVES |= {"Cast", "Expand"}
_RECURRENT = ("LSTM", "GRU", "RNN")


def find_pairs(model: onnx.ModelProto) -> dict[str, str]:
    """Return which output becomes which input, in the order of the outputs."""
    graph = model.graph
    weights = {tensor.name for tensor in graph.initializer}
    inputs = {value.name: value for value in graph.input if value.name not in weights}
    outputs = {value.name: value for value in graph.output if value.name not in inputs}
    found = _equal({name: _key(name) for name in outputs}, {name: _key(name) for name in inputs})
    places = _Places(graph)
    found |= _equal(
        {name: places.written(name) for name in outputs if name not in found},
        {name: places.read(name) for name in inputs if name not in found.values()},
    )
    return {name: found[name] for name in outputs if name in found and _fits(outputs[name], inputs[found[name]])}


def _equal(outputs: Mapping[str, Collection[Any]], inputs: Mapping[str, Collection[Any]]) -> dict[str, str]:
    """Join names whose keys are equal, where only one on each side has the key."""
    counts = Counter(outputs.values()), Counter(inputs.values())
    by_key = {key: name for name, key in inputs.items()}
    return {
        name: by_key[key]
        for name, key in outputs.items()
        if key and key in by_key and counts[0][key] == counts[1][key] == 1
    }


def _key(name: str) -> tuple[str, ...]:
    """Return the words of a name that both sides share; nothing where no word means state."""
    words = [word.lower() for word in _WORDS.findall(name.replace("past_key_values", "past"))]
    words = [_SHORT.get(word, word) for word in words]
    shared = tuple(word for word in words if word not in _SIDES)
    return shared if _STATES.intersection(words) else ()


class _Places:
    """Which states of recurrent nodes the inputs of a graph are at first, and its outputs at last."""

    def __init__(self, graph: onnx.GraphProto) -> None:
        self._made_by = {output: node for node in graph.node for output in node.output if output}
        self._readers: dict[str, list[onnx.NodeProto]] = {}
        for node in graph.node:
            for name in set(node.input):
                self._readers.setdefault(name, []).append(node)

    def read(self, name: str) -> frozenset[tuple[str, int]]:
        """Return the weights of the nodes that start from a tensor, each with 0 for hidden and 1 for cell state."""
        found = set()
        for tensor in self._reached(name, self._after):
            for node in self._readers.get(tensor, ()):
                if node.op_type in _RECURRENT:
                    found |= {(node.input[1], i) for i, one in enumerate(node.input[5:7]) if one == tensor}
        return frozenset(found)

    def written(self, name: str) -> frozenset[tuple[str, int]]:
        """Return the weights of the nodes whose last states a tensor holds, likewise."""
        found = set()
        for tensor in self._reached(name, self._before):
            node = self._made_by.get(tensor)
            if node is not None and node.op_type in _RECURRENT:
                found |= {(node.input[1], i) for i, one in enumerate(node.output[1:3]) if one == tensor}
        return frozenset(found)

    def _after(self, tensor: str) -> Iterable[str]:
        return [name for node in self._readers.get(tensor, ()) if node.op_type in _MOVES for name in node.output]

    def _before(self, tensor: str) -> Iterable[str]:
        node = self._made_by.get(tensor)
        return node.input if node is not None and node.op_type in _MOVES else ()

    @staticmethod
    def _reached(name: str, step: Callable[[str], Iterable[str]]) -> set[str]:
        seen, waiting = {name}, [name]
        while waiting:
            for other in step(waiting.pop()):
                if other not in seen:
                    seen.add(other)
                    waiting.append(other)
        return seen


def _fits(output: onnx.ValueInfoProto, given: onnx.ValueInfoProto) -> bool:
    """Tell whether an output can be the input, as far as their shapes are known."""
    one, other = output.type.tensor_type, given.type.tensor_type
    if one.elem_type != other.elem_type or not other.HasField("shape"):
        return False
    if not one.HasField("shape"):
        return True
    dims = list(zip(one.shape.dim, other.shape.dim, strict=False))
    are_equal = all(a.dim_value == b.dim_value or not (a.dim_value and b.dim_value) for a, b in dims)
    return len(one.shape.dim) == len(other.shape.dim) > 0 and are_equal
