"""Walk an ONNX graph: its subgraphs, stored tensors, and what each node reads."""

from __future__ import annotations

from heapq import heappop, heappush
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable

    import onnx


#: The numbers of two fields in onnx.proto: a model's graph, and a graph's stored tensors.
GRAPH, INITIALIZER = 7, 5
#: And of a tensor's bytes.
_RAW_DATA = 9


def opset_of(model: onnx.ModelProto) -> int:
    """Return the version of ONNX's own operator set that a model uses."""
    return next((entry.version for entry in model.opset_import if entry.domain in ("", "ai.onnx")), 1)


def subgraphs_of(node: onnx.NodeProto) -> Iterable[onnx.GraphProto]:
    """Yield the graphs that a node holds: the branches of `If`, the bodies of `Loop` and `Scan`."""
    for attribute in node.attribute:
        if attribute.HasField("g"):
            yield attribute.g
        yield from attribute.graphs


def graphs_of(graph: onnx.GraphProto) -> Iterable[onnx.GraphProto]:
    """Yield a graph and all graphs inside its nodes."""
    yield graph
    for node in graph.node:
        for subgraph in subgraphs_of(node):
            yield from graphs_of(subgraph)


def tensors_of(graph: onnx.GraphProto) -> Iterable[onnx.TensorProto]:
    """Yield every stored tensor of a graph: initializers and attributes, those of subgraphs too."""
    for part in graphs_of(graph):
        yield from part.initializer
        for node in part.node:
            for attribute in node.attribute:
                if attribute.HasField("t"):
                    yield attribute.t
                yield from attribute.tensors


def reads_of(node: onnx.NodeProto) -> set[str]:
    """Name the values that a node reads, those that its subgraphs take from outside included."""
    names = set(node.input)
    for subgraph in subgraphs_of(node):
        inner = {name for child in subgraph.node for name in child.output}
        outer = {name for child in subgraph.node for name in reads_of(child)}
        names |= (outer | {value.name for value in subgraph.output}) - inner
    return names


class FreshNames:
    """Makes up names that nothing else has; each only once.

    Args:
        taken: The names that are there; `names_in` gives those of a graph.

    >>> fresh = FreshNames(["w/half"])
    >>> fresh("w/half"), fresh("v/half")
    ('w/half_2', 'v/half')
    """

    def __init__(self, taken: Iterable[str]) -> None:
        self._taken = set(taken)

    def __call__(self, base: str) -> str:
        """Return the name, with a number behind it where it is taken."""
        name, count = base, 1
        while name in self._taken:
            count += 1
            name = f"{base}_{count}"
        self._taken.add(name)
        return name


def names_in(graph: onnx.GraphProto) -> Iterable[str]:
    """Yield the names of all values of a graph, those of its subgraphs included."""
    for part in graphs_of(graph):
        yield from (value.name for value in (*part.input, *part.output, *part.initializer))
        for node in part.node:
            yield from node.input
            yield from node.output


def not_a_number(model: onnx.ModelProto) -> list[str]:
    """Name the stored float tensors that hold NaN."""
    import numpy as np
    import onnx
    from onnx import numpy_helper

    floats = (onnx.TensorProto.FLOAT, onnx.TensorProto.DOUBLE, onnx.TensorProto.FLOAT16)
    found = [tensor for tensor in tensors_of(model.graph) if tensor.data_type in floats]
    return [tensor.name for tensor in found if np.isnan(numpy_helper.to_array(tensor)).any()]


def without_weights(
    model: onnx.ModelProto, least_bytes: int = 1024, names: Collection[str] | None = None
) -> tuple[onnx.ModelProto, list[onnx.TensorProto]]:
    """Return a copy whose large initializers have a name, a type and dimensions, but no values; and the large ones.

    A copy of a large model takes as much memory again; what looks at nodes and shapes only needs none of it.

    Args:
        model: The model; the tensors are its own, in the order of the copy's empty ones.
        least_bytes: What a large one has at least. The default leaves shapes and axes, which inference reads.
        names: Which ones may be left out; any by default.
    """
    import onnx

    light = onnx.ModelProto()
    copy_fields(model, light, lambda number: number != GRAPH)
    copy_fields(model.graph, light.graph, lambda number: number != INITIALIZER)
    large = []
    for tensor in model.graph.initializer:
        is_kept = tensor.data_type == onnx.TensorProto.STRING or (names is not None and tensor.name not in names)
        if is_kept or tensor_nbytes(tensor) < least_bytes:
            light.graph.initializer.append(tensor)
        else:
            large.append(tensor)
            light.graph.initializer.add(name=tensor.name, data_type=tensor.data_type, dims=tensor.dims)
    return light, large


def nbytes_of(model: onnx.ModelProto) -> int:
    """Return the bytes of a model as a file, one tensor counted at a time.

    `ModelProto.ByteSize` writes the whole model to count them, and takes its memory twice more meanwhile.
    """
    rest = type(model)()
    copy_fields(model, rest, lambda number: number != GRAPH)
    inside = graph_nbytes(model.graph)
    return int(rest.ByteSize()) + len(field_head(GRAPH, inside)) + inside


def graph_nbytes(graph: onnx.GraphProto) -> int:
    """Return the bytes of a graph as a message, without the head of its field; see `nbytes_of`."""
    rest = type(graph)()
    copy_fields(graph, rest, lambda number: number != INITIALIZER)
    sizes = [tensor_nbytes(tensor) for tensor in graph.initializer]
    return int(rest.ByteSize()) + sum(len(field_head(INITIALIZER, size)) + size for size in sizes)


def tensor_nbytes(tensor: onnx.TensorProto) -> int:
    """Return the bytes of a stored tensor as a message, without the head of its field."""
    if not tensor.HasField("raw_data"):
        return int(tensor.ByteSize())
    rest = type(tensor)()
    copy_fields(tensor, rest, lambda number: number != _RAW_DATA)
    size = len(tensor.raw_data)
    return int(rest.ByteSize()) + len(field_head(_RAW_DATA, size)) + size


def field_head(number: int, length: int) -> bytes:
    """Return a field's number and length, as varints (protobuf.dev/programming-guides/encoding)."""
    found = [number << 3 | 2]
    while length > 0x7F:
        found.append(length & 0x7F | 0x80)
        length >>= 7
    return bytes([*found, length])


def copy_fields(source: Any, target: Any, keeps: Callable[[int], bool]) -> None:
    """Copy the fields of a message whose numbers are kept."""
    for field, value in source.ListFields():
        if not keeps(field.number):
            continue
        if hasattr(value, "extend"):
            getattr(target, field.name).extend(value)
        elif field.message_type is not None:
            getattr(target, field.name).CopyFrom(value)
        else:
            setattr(target, field.name, value)


def infer_shapes_in(model: onnx.ModelProto) -> None:
    """Store, in place, the shapes of inner values, as far as inference finds them."""
    import onnx

    light, _ = without_weights(model)
    inferred = onnx.shape_inference.infer_shapes(light).graph
    for side in ("input", "output", "value_info"):
        values = getattr(model.graph, side)
        del values[:]
        values.extend(getattr(inferred, side))


def drop_stored_shapes(graph: onnx.GraphProto, names: Iterable[str] | None = None) -> None:
    """Drop, in place, the stored shapes of these values, or of all inner values."""
    unwanted = None if names is None else set(names)
    kept = [] if unwanted is None else [value for value in graph.value_info if value.name not in unwanted]
    del graph.value_info[:]
    graph.value_info.extend(kept)


def drop_unread_tensors(graph: onnx.GraphProto) -> None:
    """Drop, in place, the initializers that nothing reads and that are not an input."""
    read = {name for node in graph.node for name in reads_of(node)}
    read |= {value.name for value in (*graph.input, *graph.output)}
    # One by one: taking all out and putting some back copies them, and the first copies stay until the model goes.
    for i in reversed(range(len(graph.initializer))):
        if graph.initializer[i].name not in read:
            del graph.initializer[i]


def sort_nodes(graph: onnx.GraphProto) -> None:
    """Put each node, in place, behind those it reads from; the order is kept where it can be.

    Raises:
        ValueError: Nodes read from one another in a circle.
    """
    nodes = list(graph.node)
    makers = {name: index for index, node in enumerate(nodes) for name in node.output if name}
    waits_for = [{makers[name] for name in reads_of(node) if name in makers} for node in nodes]
    readers: list[list[int]] = [[] for _ in nodes]
    for index, needed in enumerate(waits_for):
        for maker in needed:
            readers[maker].append(index)
    ready = [index for index, needed in enumerate(waits_for) if not needed]
    order: list[int] = []
    while ready:
        index = heappop(ready)
        order.append(index)
        for reader in readers[index]:
            waits_for[reader].discard(index)
            if not waits_for[reader]:
                heappush(ready, reader)
    if len(order) < len(nodes):
        raise ValueError(f"{len(nodes) - len(order)} nodes read from one another in a circle")
    if order == sorted(order):
        return
    del graph.node[:]
    graph.node.extend(nodes[index] for index in order)


def attributes_of(node: onnx.NodeProto) -> dict[str, Any]:
    """Return the values of a node's attributes by their names."""
    from onnx import helper

    return {one.name: helper.get_attribute_value(one) for one in node.attribute}
