"""Runs a graph: its nodes in their order, each by the function of its operator."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from edge_infer.backends.reference.call import Call
from edge_infer.backends.reference.elements import constant, decode, dense, encode, small_of
from edge_infer.backends.reference.operators import KEEPS_BITS, OPERATORS
from edge_infer.formats.onnx_model import Constant, Graph, Reference, SparseConstant

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from edge_infer.formats.onnx_model import Model, Node

#: As deep as functions may call one another.
_MAX_DEPTH = 32
#: A model of more nodes is refused; those of a function count wherever it is called. It may be made to fill memory.
_MAX_NODES = 1_000_000


class MissingOperator(Exception):
    """The model has an operator that is not here."""

    def __init__(self, label: str, operator: str) -> None:
        super().__init__(f"{label} has no implementation: {operator}")
        self.label = label
        self.operator = operator


class NodeFailed(Exception):
    """A node cannot be computed; the cause is chained."""

    def __init__(self, label: str, error: Exception) -> None:
        super().__init__(f"{label}: {error}")
        self.label = label


class Context:
    """What the nodes of a model share: its functions, and where its external files lie."""

    def __init__(self, model: Model, folder: str) -> None:
        self.functions = model.functions
        self.nodes = 0
        self.folder = folder


class Program:
    """The nodes of a graph or function, ready to run.

    Args:
        nodes: They, in an order in which each comes after what it reads.
        inputs: The names of what goes in.
        outputs: The names of what comes out.
        constants: Values that are known.
        opsets: The version of each domain.
        context: What the nodes share.
        attributes: Of the node whose function this is.
        depth: How many functions are around it.

    Raises:
        MissingOperator: An operator is not known.
        ValueError: A constant is damaged.
    """

    def __init__(
        self,
        nodes: Iterable[Node],
        inputs: Sequence[str],
        outputs: Sequence[str],
        constants: Mapping[str, Any],
        opsets: Mapping[str, int],
        context: Context,
        attributes: Mapping[str, Any] | None = None,
        depth: int = 0,
    ) -> None:
        self.inputs, self.outputs = tuple(inputs), tuple(outputs)
        self.constants = dict(constants)
        self._steps: list[_Step] = []
        for node in nodes:
            context.nodes += 1
            if context.nodes > _MAX_NODES:
                raise ValueError(f"it has more than {_MAX_NODES} nodes, with those of its functions")
            self._steps.append(_Step(node, opsets, context, attributes or {}, depth))
        self._release()

    @classmethod
    def of_graph(
        cls,
        graph: Graph,
        opsets: Mapping[str, int],
        context: Context,
        attributes: Mapping[str, Any] | None = None,
        depth: int = 0,
    ) -> Program:
        """Prepare a graph."""
        constants: dict[str, Any] = {name: constant(one, context.folder) for name, one in graph.constants.items()}
        constants |= {name: dense(one, context.folder) for name, one in graph.sparse.items()}
        inputs = [info.name for info in graph.inputs]
        outputs = [info.name for info in graph.outputs]
        return cls(graph.nodes, inputs, outputs, constants, opsets, context, attributes, depth)

    def _release(self) -> None:
        """Note after which step each value is not read again."""
        kept = {*self.outputs, *self.constants}
        for step in reversed(self._steps):
            step.releases = tuple(name for name in step.reads if name not in kept)
            kept.update(step.reads)

    def reads(self) -> set[str]:
        """Return the names that the nodes read and that come from around this program."""
        known = {*self.inputs, *self.constants}
        found: set[str] = set()
        for step in self._steps:
            found |= step.reads - known
            known.update(step.outputs)
        return found | ({*self.outputs} - known)

    def run(
        self, feeds: Mapping[str, Any], outputs: Sequence[str], scope: Mapping[str, Any] | None = None
    ) -> list[Any]:
        """Compute outputs.

        Args:
            feeds: A value for each input.
            outputs: Which to compute.
            scope: The values of the graphs around this one.

        Raises:
            NodeFailed: A node cannot be computed.
        """
        values: dict[str, Any] = {**scope, **self.constants, **feeds} if scope else {**self.constants, **feeds}
        for step in self._steps:
            step.run(values)
            for name in step.releases:
                values.pop(name, None)
        return [values[name] for name in outputs]

    def run_on(self, inputs: Sequence[Any], scope: Mapping[str, Any]) -> list[Any]:
        """Compute all outputs of inputs in their order."""
        return self.run(dict(zip(self.inputs, inputs, strict=False)), self.outputs, scope)


class _Step:
    """A node with the function that computes it."""

    def __init__(
        self, node: Node, opsets: Mapping[str, int], context: Context, outer: Mapping[str, Any], depth: int
    ) -> None:
        self.label = node.label
        self.inputs, self.outputs = node.inputs, node.outputs
        attributes: dict[str, Any] = {}
        graphs: dict[str, Program] = {}
        for name, value in node.attributes.items():
            if isinstance(value, Reference):
                if value.name not in outer:
                    continue
                value = outer[value.name]
            if isinstance(value, Graph):
                graphs[name] = Program.of_graph(value, opsets, context, outer, depth)
            elif isinstance(value, Program):
                graphs[name] = value
            else:
                attributes[name] = plain(value, context.folder)
        function = context.functions.get((node.domain, node.operator))
        self._call = Call(node, attributes, graphs, opsets.get(node.domain, 1))
        self._function: Any = None
        self._body: Program | None = None
        if function is not None:
            if depth >= _MAX_DEPTH:
                raise ValueError(f"{self.label}: {_MAX_DEPTH} functions call one another")
            defaults = {name: plain(value, context.folder) for name, value in function.defaults.items()}
            self._body = Program(
                function.nodes,
                function.inputs,
                function.outputs,
                {},
                {**opsets, **function.opsets},
                context,
                {**defaults, **attributes, **graphs},
                depth + 1,
            )
        else:
            self._function = OPERATORS.get(node.domain, {}).get(node.operator)
            if self._function is None:
                name = f"{node.domain}.{node.operator}" if node.domain else node.operator
                raise MissingOperator(self.label, name)
        self._keeps_bits = node.operator in KEEPS_BITS
        self._has_graphs = bool(graphs)
        self.reads = {name for name in node.inputs if name}.union(*(graph.reads() for graph in graphs.values()))
        self.releases: tuple[str, ...] = ()

    def run(self, values: dict[str, Any]) -> None:
        """Compute the node's outputs."""
        try:
            given = [values[name] if name else None for name in self.inputs]
            results = self._results(given, values)
        except NodeFailed:
            raise
        except Exception as error:
            raise NodeFailed(self.label, error) from error
        values.update((name, result) for name, result in zip(self.outputs, results, strict=False) if name)

    def _results(self, given: list[Any], values: dict[str, Any]) -> Sequence[Any]:
        if self._body is not None:
            feeds = dict(zip(self._body.inputs, given, strict=False))
            feeds |= dict.fromkeys(self._body.inputs[len(given) :])
            return self._body.run(feeds, self._body.outputs)
        call = self._call.within(values) if self._has_graphs else self._call
        small = None
        if not self._keeps_bits:
            arrays = [one for one in given if isinstance(one, np.ndarray)]
            small = next((small_of(one.dtype) for one in arrays if one.dtype.names), None)
        if small is not None:
            given = [decode(one) if isinstance(one, np.ndarray) else one for one in given]
        results = self._function(call, *given)
        results = results if isinstance(results, tuple) else (results,)
        if small is None:
            return results
        is_float = small.exponent > 0
        return [
            encode(one, small) if isinstance(one, np.ndarray) and (one.dtype.kind == "f") == is_float else one
            for one in results
        ]


def plain(value: Any, folder: str) -> Any:
    """Return an attribute as operators take it: texts for bytes, arrays for constants, lists for several."""
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    if isinstance(value, Constant):
        return constant(value, folder)
    if isinstance(value, SparseConstant):
        return dense(value, folder)
    if isinstance(value, tuple):
        return [plain(one, folder) for one in value]
    return value
