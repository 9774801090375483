"""Remove the exporter's notes, which no engine reads and which are a third of a tiny model."""

from __future__ import annotations

import onnx

from edge_infer_converters.passes.graphs import drop_stored_shapes, graphs_of


def clean_up(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return a copy without metadata, doc strings and the stored shapes of initializers.

    Names, symbolic dimensions, operator sets, the IR version and every number stay as they are.
    """
    cleaned = onnx.ModelProto()
    cleaned.CopyFrom(model)
    cleaned.ClearField("doc_string")
    del cleaned.metadata_props[:]
    for graph in graphs_of(cleaned.graph):
        _clean_graph(graph)
    for function in cleaned.functions:
        function.ClearField("doc_string")
        del function.metadata_props[:]
        for node in function.node:
            _clean_node(node)
    return cleaned


def _clean_graph(graph: onnx.GraphProto) -> None:
    graph.ClearField("doc_string")
    del graph.metadata_props[:]
    # Stale ones make the quantizer fail: "Inferred shape and existing shape differ" once it transposes a weight.
    drop_stored_shapes(graph, [tensor.name for tensor in graph.initializer])
    for value in (*graph.input, *graph.output, *graph.value_info):
        value.ClearField("doc_string")
        del value.metadata_props[:]
    for tensor in graph.initializer:
        tensor.ClearField("doc_string")
        del tensor.metadata_props[:]
    for node in graph.node:
        _clean_node(node)


def _clean_node(node: onnx.NodeProto) -> None:
    node.ClearField("doc_string")
    del node.metadata_props[:]
    for attribute in node.attribute:
        attribute.ClearField("doc_string")
