"""Give inner values and nodes short names: in a small quantized model the names weigh as much as the weights."""

from __future__ import annotations

from string import ascii_lowercase, digits
from typing import TYPE_CHECKING

from edge_infer_converters.passes.graphs import graphs_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    import onnx

_DIGITS = ascii_lowercase + digits


def shorten_names(model: onnx.ModelProto) -> None:
    """Call, in place, inner values `a`, `b` …, and take the names of nodes away.

    Names of inputs and outputs are kept. A model with subgraphs, whose names reach in and out, is not changed.
    """
    graph = model.graph
    if len(list(graphs_of(graph))) > 1:
        return
    kept = {value.name for value in (*graph.input, *graph.output)}
    names = {"": "", **{name: name for name in kept}}
    fresh = (name for name in _names() if name not in kept)

    for tensor in graph.initializer:
        if tensor.name not in names:
            names[tensor.name] = next(fresh)
        tensor.name = names[tensor.name]
    for node in graph.node:
        node.ClearField("name")
        for sides in (node.input, node.output):
            for i, name in enumerate(sides):
                if name not in names:
                    names[name] = next(fresh)
                sides[i] = names[name]
    for value in graph.value_info:
        value.name = names.get(value.name, value.name)


def _names() -> Iterator[str]:
    """Yield `a`, `b` … `z`, `aa`, `ab` …: the first character is always a letter."""
    level: list[str] = list(ascii_lowercase)
    while True:
        yield from level
        level = [prefix + digit for prefix in level for digit in _DIGITS]
