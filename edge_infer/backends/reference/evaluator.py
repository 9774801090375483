"""Run a graph: its nodes in their order, each by the function of its operator."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from edge_infer.backends.reference.call import Call
from edge_infer.backends.reference.elements import constant, decode, dense, encode, small_of
from edge_infer.backends.reference.operators import KEEPS_BITS, OPERATORS
from edge_infer.formats.onnx_model import Constant, Graph, Reference, SparseConstant

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from edge_infer.formats.onnx_model import Model, Node, ValueInfo

#: As deep as functions may call one another.
_MAX_DEPTH = 32
#: A model of more nodes is refused; those of a function count wherever it is called. It may be made to fill memory.
_MAX_NODES = 300_000


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
        self._made: dict[int, tuple[Any, Any]] = {}

    def plain(self, value: Any) -> Any:
        """Return an attribute as operators take it: texts for bytes, arrays for constants, lists for several.

        What a function holds is made once, however often the function is called.
        """
        if isinstance(value, bytes):
            return value.decode("utf-8", "replace")
        if not isinstance(value, (Constant, SparseConstant, tuple)):
            return value
        if id(value) not in self._made:
            if isinstance(value, Constant):
                made: Any = constant(value, self.folder)
            elif isinstance(value, SparseConstant):
                made = dense(value, self.folder)
            else:
                made = [self.plain(one) for one in value]
            self._made[id(value)] = value, made
        return self._made[id(value)][1]


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
        self.infos: tuple[ValueInfo, ...] = ()
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
        constants = {name: context.plain(one) for name, one in {**graph.constants, **graph.sparse}.items()}
        inputs = [info.name for info in graph.inputs]
        outputs = [info.name for info in graph.outputs]
        made = cls(graph.nodes, inputs, outputs, constants, opsets, context, attributes, depth)
        made.infos = graph.outputs
        return made

    def _release(self) -> None:
        """Note after which step each value is not read again, and how many outputs of a step are read at all."""
        kept = {*self.outputs, *self.constants}
        for step in reversed(self._steps):
            step.releases = tuple(name for name in step.reads if name not in kept)
            step.asked = max((i for i, name in enumerate(step.outputs, 1) if name in kept), default=0)
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
                attributes[name] = context.plain(value)
        function = context.functions.get((node.domain, node.operator))
        self._call = Call(node, attributes, graphs, opsets.get(node.domain, 1))
        self._function: Any = None
        self._body: Program | None = None
        if function is not None:
            if depth >= _MAX_DEPTH:
                raise ValueError(f"{self.label}: {_MAX_DEPTH} functions call one another")
            defaults = {name: context.plain(value) for name, value in function.defaults.items()}
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
        self.asked = 0

    def run(self, values: dict[str, Any]) -> None:
        """Compute the node's outputs."""
        try:
            given = [values[name] if name else None for name in self.inputs]
            results = self._results(given, values)
            if len(results) < self.asked:
                raise ValueError(f"it gives {len(results)} outputs, and `{self.outputs[self.asked - 1]}` is one more")
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
