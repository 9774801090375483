"""Read a model over tables from ONNX into the graph that is compiled: one row of numbers in, labels and numbers out.

The operators are those of ONNX-ML that scikit-learn's and boosters' exporters write, and the plain ones that stand
beside them. One run computes one row: so each tensor is [1, columns], and the batch stays free.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from onnx import helper, numpy_helper

from edge_infer.errors import UnsupportedModel, UnsupportedOperator, listed
from edge_infer_converters.writers.compiled.tables.nodes import RULES
from edge_infer_converters.writers.compiled.tables.reading import Node, Table
from edge_infer_converters.writers.tflite.graph import Graph

if TYPE_CHECKING:
    import onnx


def graph_of(model: onnx.ModelProto) -> Graph:
    """Return the graph of a model over tables.

    Args:
        model: The model, with plain tensors at its outputs.

    Raises:
        UnsupportedOperator: Operators or their settings are not supported; all of them are named.
        UnsupportedModel: Its interface is another one than rows of numbers.
    """
    table = Table(Graph(), frozenset(value.name for value in model.graph.output), least_columns=_read_by_trees(model))
    for tensor in model.graph.initializer:
        table.constants[tensor.name] = numpy_helper.to_array(tensor)
    for value in model.graph.input:
        if value.name not in table.constants:
            table.add_input(value)
    faults: dict[str, None] = {}
    for node in model.graph.node:
        view = Node(node, table)
        name = f"{node.domain}.{node.op_type}" if node.domain else node.op_type
        rule = RULES.get(name)
        try:
            if node.op_type == "Constant" and not node.domain:
                table.constants[node.output[0]] = numpy_helper.to_array(helper.get_node_attr_value(node, "value"))
                continue
            if rule is None:
                raise UnsupportedModel("")
            rule(view)
        except UnsupportedModel as error:
            faults[f"{name} ({error.message})" if error.message else name] = None
        except (KeyError, ValueError, TypeError, IndexError, AttributeError) as error:
            faults[f"{name} (its values contradict each other: {error})"] = None
        if faults:
            for output in node.output:  # so that the nodes behind it are looked at too
                table.values.setdefault(output, table.tensor(output, 1))
    if faults:
        raise UnsupportedOperator(
            f"No kernel computes {listed([*faults])}",
            hint="`edge-infer convert` writes a bundle that an engine runs",
            operators=[*faults],
        )
    for value in model.graph.output:
        table.add_output(value)
    return table.graph


def _read_by_trees(model: onnx.ModelProto) -> int:
    """Return how many columns trees read at least: exporters leave the number of columns of some models free."""
    read = [
        max(attribute.ints, default=-1)
        for node in model.graph.node
        for attribute in node.attribute
        if attribute.name == "nodes_featureids"
    ]
    return max(read, default=-1) + 1
