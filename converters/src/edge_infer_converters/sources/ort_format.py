"""Read an `.ort` file, ONNX Runtime's own format, as the ONNX graph that it holds.

The layout is FlatBuffers', the field numbers those of onnxruntime/core/flatbuffers/schema/ort.fbs; types of elements
and attributes have the numbers of onnx.proto. Optimisations that the file only plans are left to the engine.
"""

from __future__ import annotations

from pathlib import Path
from struct import error as struct_error
from typing import TYPE_CHECKING

import onnx
from google.protobuf.message import EncodeError  # type: ignore[import-untyped]

from edge_infer.errors import ConversionError
from edge_infer.formats.tflite_tables import Table
from edge_infer_converters.sources import onnx as onnx_source

if TYPE_CHECKING:
    import os

    from edge_infer_converters.sources.onnx import SourceModel
    from edge_infer_converters.sources.options import SourceOptions

IDENTIFIER = b"ORTM"
_MAX_DEPTH = 32
# DimensionValueType and TypeInfoValue of the schema.
_VALUE, _PARAM = 1, 2
_TENSOR_TYPE = 1


def load(path: str | os.PathLike[str], options: SourceOptions) -> SourceModel:
    """Read an `.ort` file; `sources.onnx.take` tells what it refuses beside the errors here.

    Raises:
        ConversionError: The file does not exist, is not in ORT format, or is cut short.
    """
    place = Path(path)
    try:
        content = place.read_bytes()
    except OSError as error:
        raise ConversionError(f"`{place}` cannot be read: {error.strerror}") from error
    if content[4:8] != IDENTIFIER:
        raise ConversionError(
            f"`{place}` is not in ORT format: it has no `ORTM` at byte 4", hint="an ONNX file has the suffix .onnx"
        )
    try:
        model = _Reader(content).model()
        model.SerializeToString()  # refuses numbers that do not fit
    except (struct_error, IndexError, ValueError, TypeError, EncodeError) as error:  # ValueError: text, a wide number
        raise ConversionError(
            f"`{place}` is cut short or contradicts itself: its {len(content)} bytes cannot be read",
            hint="make or download it again",
            got=len(content),
        ) from error
    return onnx_source.take(model, place, options)


class _Reader:
    """The tables of one file; a file that names the same bytes again and again is refused."""

    def __init__(self, content: bytes) -> None:
        self._content = content
        self._left = len(content)

    def _take(self, count: int) -> None:
        self._left -= count
        if self._left < 0:
            raise IndexError("more parts than bytes")

    def model(self) -> onnx.ModelProto:
        table = _there(Table.root(self._content).table(1))
        # Before version 4 an initializer had to be an input too; the format keeps them apart.
        model = onnx.ModelProto(ir_version=max(4, table.number(0, "q")), producer_name=table.text(2))
        for one in table.tables(1):
            self._take(1)
            model.opset_import.add(domain=one.text(0), version=one.number(1, "q"))
        self._graph(_there(table.table(7)), model.graph, 0)
        model.graph.name = "main"
        return model

    def _graph(self, table: Table, graph: onnx.GraphProto, depth: int) -> None:
        if depth > _MAX_DEPTH:
            raise IndexError("graphs inside graphs")
        for one in table.tables(0):
            self._tensor(one, graph.initializer.add())
        stored = {tensor.name for tensor in graph.initializer}
        values = {}
        for one in table.tables(1):
            self._take(1)
            values[one.text(0)] = one
        # A weight that is an input too could be replaced by callers, which no variant of a bundle allows.
        inputs = [name for name in table.texts(5) if name not in stored]
        for names, members in ((inputs, graph.input), (table.texts(6), graph.output)):
            for name in names:
                member = members.add(name=name)
                if name in values:
                    self._type(values[name], member.type)
        for one in table.tables(2):
            self._node(one, graph.node.add(), depth)

    def _node(self, table: Table, node: onnx.NodeProto, depth: int) -> None:
        self._take(1)
        node.name, node.domain, node.op_type = table.text(0), table.text(2), table.text(5)
        for field, names in ((8, node.input), (9, node.output)):
            texts = table.texts(field)
            self._take(len(texts))
            names.extend(texts)
        for one in table.tables(10):
            self._attribute(one, node.attribute.add(), depth)

    def _attribute(self, table: Table, attribute: onnx.AttributeProto, depth: int) -> None:
        self._take(1)
        attribute.name = table.text(0)
        attribute.type = table.number(2, "i")  # type: ignore[assignment]
        kind = attribute.type
        if kind == onnx.AttributeProto.FLOAT:
            attribute.f = table.real(3)
        elif kind == onnx.AttributeProto.INT:
            attribute.i = table.number(4, "q")
        elif kind == onnx.AttributeProto.STRING:
            attribute.s = bytes(table.bytes(5) or b"")
        elif kind == onnx.AttributeProto.TENSOR:
            self._tensor(_there(table.table(6)), attribute.t)
        elif kind == onnx.AttributeProto.GRAPH:
            attribute.g.name = attribute.name
            self._graph(_there(table.table(7)), attribute.g, depth + 1)
        elif kind == onnx.AttributeProto.FLOATS:
            attribute.floats.extend(table.numbers(8, "f"))
        elif kind == onnx.AttributeProto.INTS:
            attribute.ints.extend(table.numbers(9, "q"))
        elif kind == onnx.AttributeProto.STRINGS:
            attribute.strings.extend(text.encode() for text in table.texts(10))
        elif kind == onnx.AttributeProto.TENSORS:
            for one in table.tables(11):
                self._tensor(one, attribute.tensors.add())
        elif kind == onnx.AttributeProto.GRAPHS:
            for one in table.tables(12):
                self._graph(one, attribute.graphs.add(name=attribute.name), depth + 1)
        else:
            raise ValueError(f"attribute of type {kind}")

    def _tensor(self, table: Table, tensor: onnx.TensorProto) -> None:
        tensor.name, tensor.data_type = table.text(0), table.number(3, "i")
        tensor.dims.extend(table.numbers(2, "q"))
        if tensor.data_type == onnx.TensorProto.STRING:
            tensor.string_data.extend(text.encode() for text in table.texts(5))
            self._take(1 + len(tensor.string_data))
        else:
            tensor.raw_data = bytes(table.bytes(4) or b"")
            self._take(1 + len(tensor.raw_data))

    def _type(self, table: Table, type_: onnx.TypeProto) -> None:
        info = table.table(2)
        if info is None or info.number(1, "B") != _TENSOR_TYPE:
            return  # a sequence or a map, which no bundle takes: without a type it is refused later
        told = _there(info.table(2))
        type_.tensor_type.elem_type = told.number(0, "i")
        shape = told.table(1)
        if shape is None:
            return
        type_.tensor_type.shape.SetInParent()
        for one in shape.tables(0):
            self._take(1)
            dim, value = type_.tensor_type.shape.dim.add(), one.table(0)
            kind = value.number(0, "b") if value else 0
            if value and kind == _VALUE:
                dim.dim_value = value.number(1, "q")
            elif value and kind == _PARAM:
                dim.dim_param = value.text(2)


def _there(table: Table | None) -> Table:
    if table is None:
        raise IndexError("a table is missing")
    return table
