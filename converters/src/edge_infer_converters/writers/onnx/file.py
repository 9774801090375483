"""Write an ONNX model as bytes, the same model always as the same bytes."""

from __future__ import annotations

from io import BytesIO
from typing import TYPE_CHECKING

from edge_infer_converters.passes.graphs import (
    GRAPH,
    INITIALIZER,
    copy_fields,
    field_head,
    graph_nbytes,
    nbytes_of,
    tensor_nbytes,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import onnx

#: A smaller model is written by protobuf at once, which has it in memory twice more meanwhile.
_LARGE_BYTES = 2**24


def write(model: onnx.ModelProto) -> bytes:
    """Return the bytes of an `.onnx` file, weights inside; protobuf maps are sorted."""
    if nbytes_of(model) < _LARGE_BYTES:
        data: bytes = model.SerializeToString(deterministic=True)
        return data
    file = BytesIO()  # whose buffer becomes the result
    for part in _parts(model):
        file.write(part)
    return file.getvalue()


def _parts(model: onnx.ModelProto) -> Iterator[bytes]:
    """Yield the bytes in pieces, as protobuf puts them: fields in the order of their numbers."""
    yield _fields(model, lambda number: number < GRAPH)
    yield field_head(GRAPH, graph_nbytes(model.graph))
    yield _fields(model.graph, lambda number: number < INITIALIZER)
    for tensor in model.graph.initializer:
        yield field_head(INITIALIZER, tensor_nbytes(tensor))
        yield tensor.SerializeToString(deterministic=True)
    yield _fields(model.graph, lambda number: number > INITIALIZER)
    yield _fields(model, lambda number: number > GRAPH)


def _fields(message: onnx.ModelProto | onnx.GraphProto, keeps: Callable[[int], bool]) -> bytes:
    part = type(message)()
    copy_fields(message, part, keeps)
    data: bytes = part.SerializeToString(deterministic=True)
    return data
