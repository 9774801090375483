"""Choose what the integers of each value stand for, and which values share one scale.

An operator that only moves values gives them the scale that they have. One that joins values, such as CONCATENATION,
reads all of them in the scale of what it gives: one with other readers, for which that scale is too coarse, keeps a
finer one, and is quantized again for the join. Without that, a net whose blocks end in a concatenation and begin with
its halves (ShuffleNet, CSPNet) has one scale for all of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from edge_infer_converters.writers.tflite.graph import Quantization
from edge_infer_converters.writers.tflite.quantize.regions import is_activation, is_join

if TYPE_CHECKING:
    from edge_infer_converters.writers.tflite.graph import Graph
    from edge_infer_converters.writers.tflite.quantize.ranges import Ranges
    from edge_infer_converters.writers.tflite.quantize.schemes import Scheme

_LOWEST_SENSIBLE = -1e30
# Errors grow with the square of a step. A value of step s that is quantized again to t costs its other readers s * s
# and the join s * s + t * t, else each t * t: it is worth it where t * t is more than twice s * s.
_FINER = 2.0


def meanings(graph: Graph, chosen: set[int], ranges: Ranges, scheme: Scheme) -> dict[int, Quantization]:
    """Return what the integers of each value stand for, by its `id`; a value without a range is left out.

    Args:
        graph: A float graph.
        chosen: The `id` of the operators that compute with integers.
        ranges: What `ranges.measure` gave for it.
        scheme: Which integers.
    """
    widened = _with_whole_tables(graph, _without_padding(graph, ranges))
    prescribed = _with_prescribed(graph, chosen, widened, scheme)
    return _Groups(graph, chosen, prescribed, scheme).meanings()


def meaning_of(low: float, high: float, scheme: Scheme) -> Quantization:
    """Spread the integers over a range and zero, which stands for itself."""
    low, high = min(low, 0.0), max(high, 0.0)
    if high == low:
        return Quantization(np.ones(1, np.float32), 0)
    if scheme.is_symmetric:
        high = max(high, -low)
        low = -high
    scale = np.float32((high - low) / (scheme.highest - scheme.lowest))
    scale = max(scale, np.finfo(np.float32).tiny)
    if scheme.is_symmetric:
        return Quantization(np.array([scale], np.float32), 0)
    zero_point = int(np.clip(np.rint(scheme.lowest - low / scale), scheme.lowest, scheme.highest))
    return Quantization(np.array([scale], np.float32), zero_point)


class _Groups:
    """Values in groups that have one scale each."""

    def __init__(self, graph: Graph, chosen: set[int], ranges: Ranges, scheme: Scheme) -> None:
        self._scheme = scheme
        self._ranges = dict(ranges)
        self._parent: dict[int, int] = {}
        joins = []
        for operator in graph.operators:
            if id(operator) not in chosen or operator.code not in scheme.moving:
                continue
            values = [*operator.inputs, *operator.outputs]
            if is_join(operator, scheme):
                joins.append(operator)
                continue
            moved = [id(one) for one in values if one is not None and is_activation(one)]
            for value in moved[1:]:
                self._unite(value, moved[0])
        #: The step of each group as far as something needs it, whatever it is joined with.
        self._needed = {value: self._step(*one) or np.inf for value, one in self._ranges.items()}
        self._readers = self._readers_of(graph, {id(one) for one in joins})
        for join in reversed(joins):
            for tensor in join.inputs:
                if tensor is not None and is_activation(tensor):
                    self._join(id(tensor), id(join.outputs[0]), id(join))

    def meanings(self) -> dict[int, Quantization]:
        found = {value: meaning_of(*one, self._scheme) for value, one in self._ranges.items()}
        members = {value: found[self._root(value)] for value in self._parent if self._root(value) in found}
        return found | members

    def _readers_of(self, graph: Graph, joins: set[int]) -> dict[int, set[int]]:
        """Return the `id` of what reads the values of each group, other than what only moves them within it."""
        found: dict[int, set[int]] = {}
        for operator in graph.operators:
            given = {self._root(id(tensor)) for tensor in operator.outputs}
            for tensor in operator.inputs:
                if tensor is None or not is_activation(tensor):
                    continue
                root = self._root(id(tensor))
                if id(operator) in joins or root not in given:
                    found.setdefault(root, set()).add(id(operator))
        for tensor in graph.outputs:
            found.setdefault(self._root(id(tensor)), set()).add(id(graph))
        return found

    def _join(self, value: int, given: int, join: int) -> None:
        """Let what a join reads have the scale of what it gives, unless other readers need a finer one."""
        value, given = self._root(value), self._root(given)
        if value == given or value not in self._ranges or given not in self._ranges:
            return
        needed = self._needed[given]
        if self._readers[value] != {join}:
            needed = min(needed, self._needed[value])
        low, high = self._united(value, given)
        if self._step(low, high) ** 2 <= _FINER * needed**2:
            self._unite(value, given)
            self._needed[given] = needed
            self._readers[given] = self._readers.get(given, set()) | self._readers[value]

    def _unite(self, value: int, other: int) -> None:
        """Put the group of a value into that of another one."""
        value, other = self._root(value), self._root(other)
        if value == other:
            return
        self._parent[value] = other
        if value in self._ranges:
            self._ranges[other] = self._united(value, other)

    def _united(self, value: int, other: int) -> tuple[float, float]:
        low, high = self._ranges[value]
        known = self._ranges.get(other, (low, high))
        return min(low, known[0]), max(high, known[1])

    def _step(self, low: float, high: float) -> float:
        """Return what one step is worth, 0 where all values are 0."""
        return float(meaning_of(low, high, self._scheme).scales[0]) if low < 0 or high > 0 else 0.0

    def _root(self, value: int) -> int:
        while self._parent.setdefault(value, value) != value:
            self._parent[value] = self._parent[self._parent[value]]
            value = self._parent[value]
        return value


def _without_padding(graph: Graph, ranges: Ranges) -> Ranges:
    """Leave the lowest float out, with which windows for maxima are padded: nothing else would keep a step."""
    changed = dict(ranges)
    for operator in graph.operators:
        value, fill = operator.inputs[0], operator.inputs[-1]
        if operator.code != "PADV2" or value is None or fill is None or fill.data is None:
            continue
        if float(fill.data.reshape(())) < _LOWEST_SENSIBLE and id(value) in ranges:
            changed[id(operator.outputs[0])] = ranges[id(value)]
            for reader in graph.operators:
                if reader.code == "MAX_POOL_2D" and reader.inputs[0] is operator.outputs[0]:
                    changed[id(reader.outputs[0])] = ranges[id(value)]
    return changed


def _with_whole_tables(graph: Graph, ranges: Ranges) -> Ranges:
    """Let what is chosen from a constant have the range of all of it, and not of what calibration chose."""
    changed = dict(ranges)
    for operator in graph.operators:
        table, picked = operator.inputs[0], operator.outputs[0]
        if operator.code != "GATHER" or table is None or table.data is None or id(picked) not in ranges:
            continue
        low, high = ranges[id(picked)]
        if table.data.size:
            changed[id(picked)] = min(low, float(table.data.min())), max(high, float(table.data.max()))
    return changed


def _with_prescribed(graph: Graph, chosen: set[int], ranges: Ranges, scheme: Scheme) -> Ranges:
    """Let what a kernel gives with a prescribed scale have its range, and what only moves it: 1 is beyond its end."""
    changed = dict(ranges)
    given: set[int] = set()
    for operator in graph.operators:
        if id(operator) not in chosen:
            continue
        if operator.code in scheme.prescribed:
            _, scale, zero_point = scheme.prescribed[operator.code]
            span = ((scheme.lowest - zero_point) * scale, (scheme.highest - zero_point) * scale)
        elif operator.code in scheme.moving and not is_join(operator, scheme) and id(operator.inputs[0]) in given:
            span = changed[id(operator.inputs[0])]
        else:
            continue
        for tensor in operator.outputs:
            given.add(id(tensor))
            changed[id(tensor)] = span
    return changed
