"""The graph of an ONNX model: nodes, attributes, constants, functions, without onnx, protobuf or numpy.

Constants are views of the file's bytes. The field numbers are those of onnx.proto.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, NamedTuple

from edge_infer.formats.onnx import fields, text_of, varint

if TYPE_CHECKING:
    from collections.abc import Iterator

#: As deep as graphs may lie in one another.
_MAX_DEPTH = 32


class Constant(NamedTuple):
    """A tensor of the file.

    Attributes:
        name: Its name.
        kind: The number of its element type (TensorProto.DataType).
        shape: Its shape.
        raw: The bytes of its elements, little end first; None where they are `values` or external.
        values: Its elements, where the file has them one by one; of 16 bits and fewer as their bits.
        external: `location`, `offset` and `length` where another file holds them.
    """

    name: str
    kind: int
    shape: tuple[int, ...]
    raw: memoryview | None
    values: tuple[float | bytes, ...]
    external: dict[str, str]


class SparseConstant(NamedTuple):
    """A sparse tensor: its values, where they lie, and the shape of the whole."""

    values: Constant
    places: Constant
    shape: tuple[int, ...]


class ValueInfo(NamedTuple):
    """An input or output of a graph.

    Attributes:
        name: Its name.
        kind: The number of its element type; 0 where it is no tensor, or has no type.
        shape: Sizes, names of free ones, or an empty text for each that has no name; None where the rank is unknown.
        form: `tensor`, `sequence`, `map`, `optional`, `sparse_tensor`, or an empty text.
    """

    name: str
    kind: int
    shape: tuple[int | str, ...] | None
    form: str


class Graph(NamedTuple):
    """Nodes in their order, with what goes in and comes out."""

    name: str
    nodes: tuple[Node, ...]
    constants: dict[str, Constant]
    sparse: dict[str, SparseConstant]
    inputs: tuple[ValueInfo, ...]
    outputs: tuple[ValueInfo, ...]


#: Of an attribute; a text is bytes, and `Reference` the name of an attribute of the function that the node is in.
Attribute = (
    "float | int | bytes | Constant | SparseConstant | Graph | Reference | tuple[float | int | bytes | Constant, ...]"
)


class Reference(NamedTuple):
    """An attribute whose value is an attribute of the function around it."""

    name: str


class Node(NamedTuple):
    """One operation."""

    name: str
    operator: str
    domain: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: dict[str, object]

    @property
    def label(self) -> str:
        """The node in an error message."""
        return f"{self.operator} node `{self.name or next(iter(self.outputs), '')}`"


class Function(NamedTuple):
    """An operator that the model brings: its nodes are run with the inputs and attributes of the node that names it."""

    name: str
    domain: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    nodes: tuple[Node, ...]
    opsets: dict[str, int]
    defaults: dict[str, object]


class Model(NamedTuple):
    """A model: its graph, the versions of the operators, and its own functions by domain and name."""

    graph: Graph
    opsets: dict[str, int]
    functions: dict[tuple[str, str], Function]


def read_model(data: bytes | memoryview) -> Model:
    """Read a model.

    Raises:
        ValueError: The bytes are not an ONNX model, or hold no graph.

    >>> read_model(open("examples/digits/digits.onnx", "rb").read()).graph.nodes[0].operator
    'Conv'
    """
    graph: Graph | None = None
    opsets: dict[str, int] = {}
    functions: dict[tuple[str, str], Function] = {}
    for number, value in fields(memoryview(data)):
        if isinstance(value, int):
            continue
        if number == 7:
            graph = _graph(value, _MAX_DEPTH)
        elif number == 8:
            opsets.update([_opset(value)])
        elif number == 25:
            function = _function(value)
            functions[function.domain, function.name] = function
    if graph is None:
        raise ValueError("there is no graph in it")
    return Model(graph, opsets, functions)


def _opset(message: memoryview) -> tuple[str, int]:
    entry = dict(fields(message))
    return _domain(text_of(entry.get(1, 0))), _integer(entry.get(2, 1))


def _domain(name: str) -> str:
    return "" if name == "ai.onnx" else name


def _function(message: memoryview) -> Function:
    name = domain = ""
    inputs: list[str] = []
    outputs: list[str] = []
    nodes: list[Node] = []
    opsets: dict[str, int] = {}
    defaults: dict[str, object] = {}
    for number, value in fields(message):
        if isinstance(value, int):
            continue
        if number == 1:
            name = text_of(value)
        elif number == 4:
            inputs.append(text_of(value))
        elif number == 5:
            outputs.append(text_of(value))
        elif number == 7:
            nodes.append(_node(value, _MAX_DEPTH))
        elif number == 9:
            opsets.update([_opset(value)])
        elif number == 10:
            domain = _domain(text_of(value))
        elif number == 11:
            defaults.update([_attribute(value, _MAX_DEPTH)])
    return Function(name, domain, (*inputs,), (*outputs,), (*nodes,), opsets, defaults)


def _graph(message: memoryview, depth: int) -> Graph:
    if not depth:
        raise ValueError(f"not an ONNX model: {_MAX_DEPTH} graphs in one another")
    name = ""
    nodes: list[Node] = []
    constants: dict[str, Constant] = {}
    sparse: dict[str, SparseConstant] = {}
    inputs: list[ValueInfo] = []
    outputs: list[ValueInfo] = []
    for number, value in fields(message):
        if isinstance(value, int):
            continue
        if number == 1:
            nodes.append(_node(value, depth))
        elif number == 2:
            name = text_of(value)
        elif number == 5:
            constant = _constant(value)
            constants[constant.name] = constant
        elif number == 11:
            inputs.append(_value_info(value))
        elif number == 12:
            outputs.append(_value_info(value))
        elif number == 15:
            one = _sparse(value)
            sparse[one.values.name] = one
    return Graph(name, (*nodes,), constants, sparse, (*inputs,), (*outputs,))


def _node(message: memoryview, depth: int) -> Node:
    texts = {3: "", 4: "", 7: ""}
    inputs: list[str] = []
    outputs: list[str] = []
    attributes: dict[str, object] = {}
    for number, value in fields(message):
        if isinstance(value, int):
            continue
        if number == 1:
            inputs.append(text_of(value))
        elif number == 2:
            outputs.append(text_of(value))
        elif number in texts:
            texts[number] = text_of(value)
        elif number == 5:
            attributes.update([_attribute(value, depth)])
    return Node(texts[3], texts[4], _domain(texts[7]), (*inputs,), (*outputs,), attributes)


#: The field that an attribute's value lies in, by the number of its type (AttributeProto.AttributeType).
_FIELDS = {1: 2, 2: 3, 3: 4, 4: 5, 5: 6, 6: 7, 7: 8, 8: 9, 9: 10, 11: 22}


def _attribute(message: memoryview, depth: int) -> tuple[str, object]:
    name = reference = ""
    kind = 0
    found: dict[int, list[memoryview | int]] = {}
    for number, value in fields(message):
        if number == 1:
            name = text_of(value)
        elif number == 20:
            kind = _integer(value)
        elif number == 21:
            reference = text_of(value)
        else:
            found.setdefault(number, []).append(value)
    if reference:
        return name, Reference(reference)
    number = _FIELDS.get(kind) or next((n for n in (*_FIELDS.values(),) if n in found), 0)
    values = found.get(number, [])
    if number in (7, 8, 9, 10):
        return name, _several(number, values)
    last = values[-1] if values else 0
    if number == 2:
        return name, _floats(last, 4)[0] if isinstance(last, memoryview) and len(last) == 4 else 0.0
    if number == 3:
        return name, _signed(_integer(last))
    if isinstance(last, int):
        return name, b"" if number == 4 else None
    if number == 4:
        return name, bytes(last)
    if number == 5:
        return name, _constant(last)
    if number == 6:
        return name, _graph(last, depth - 1)
    return name, _sparse(last) if number == 22 else None


def _several(number: int, values: list[memoryview | int]) -> tuple[float | bytes | Constant, ...]:
    if number == 7:
        packed = [value for value in values if not isinstance(value, int)]
        return tuple(one for value in packed for one in _floats(value, 4))
    if number == 8:
        return tuple(_signed(one) for value in values for one in _integers(value))
    if number == 9:
        return tuple(bytes(value) for value in values if not isinstance(value, int))
    return tuple(_constant(value) for value in values if not isinstance(value, int))


def _integers(value: memoryview | int) -> Iterator[int]:
    """Give the numbers of a repeated field: one, or packed."""
    if isinstance(value, int):
        yield value
        return
    at = 0
    while at < len(value):
        number, at = varint(value, at)
        yield number


def _integer(value: memoryview | int) -> int:
    return value if isinstance(value, int) else 0


def _signed(value: int) -> int:
    value &= 2**64 - 1
    return value - 2**64 if value >= 2**63 else value


def _floats(value: memoryview, size: int) -> tuple[float, ...]:
    if len(value) % size:
        raise ValueError(f"not an ONNX model: {len(value)} bytes of numbers of {size}")
    return struct.unpack(f"<{len(value) // size}{'f' if size == 4 else 'd'}", value)


#: The fields of a tensor that hold floats one by one, and the bytes of each; 5, 7 and 11 hold varints.
_PACKED = {4: 4, 10: 8}


def _constant(message: memoryview) -> Constant:
    name = ""
    kind = 0
    shape: list[int] = []
    raw: memoryview | None = None
    values: list[float | bytes] = []
    external: dict[str, str] = {}
    location = 0
    for number, value in fields(message):
        if number == 1:
            shape += [_signed(one) for one in _integers(value)]
        elif number == 2:
            kind = _integer(value)
        elif number in (5, 7):
            values += [_signed(one) for one in _integers(value)]
        elif number == 11:
            values += list(_integers(value))
        elif number == 14:
            location = _integer(value)
        elif isinstance(value, int):
            continue
        elif number in _PACKED:
            values += _floats(value, _PACKED[number])
        elif number == 6:
            values.append(bytes(value))
        elif number == 8:
            name = text_of(value)
        elif number == 9:
            raw = value
        elif number == 13:
            entry = dict(fields(value))
            external[text_of(entry.get(1, 0))] = text_of(entry.get(2, 0), "surrogateescape")
    if any(size < 0 for size in shape):
        raise ValueError(f"not an ONNX model: `{name}` has the shape {shape}")
    return Constant(name, kind, (*shape,), raw, (*values,), external if location == 1 else {})


def _sparse(message: memoryview) -> SparseConstant:
    parts = {1: Constant("", 1, (0,), None, (), {}), 2: Constant("", 7, (0,), None, (), {})}
    shape: list[int] = []
    for number, value in fields(message):
        if number in parts and not isinstance(value, int):
            parts[number] = _constant(value)
        elif number == 3:
            shape += [_signed(one) for one in _integers(value)]
    return SparseConstant(parts[1], parts[2], (*shape,))


#: The fields of TypeProto.
_FORMS = {1: "tensor", 4: "sequence", 5: "map", 8: "sparse_tensor", 9: "optional"}


def _value_info(message: memoryview) -> ValueInfo:
    name, form, kind = "", "", 0
    shape: tuple[int | str, ...] | None = None
    for number, value in fields(message):
        if number == 1:
            name = text_of(value)
        elif number == 2 and not isinstance(value, int):
            for inner, part in fields(value):
                form = _FORMS.get(inner, form)
                if inner == 1 and not isinstance(part, int):
                    kind, shape = _tensor_type(part)
    return ValueInfo(name, kind, shape, form)


def _tensor_type(message: memoryview) -> tuple[int, tuple[int | str, ...] | None]:
    kind = 0
    shape: list[int | str] | None = None
    for number, value in fields(message):
        if number == 1:
            kind = _integer(value)
        elif number == 2 and not isinstance(value, int):
            shape = [_dimension(dimension) for _, dimension in fields(value) if not isinstance(dimension, int)]
    return kind, None if shape is None else (*shape,)


def _dimension(message: memoryview) -> int | str:
    found: int | str = ""
    for number, value in fields(message):
        if number == 1:
            size = _signed(_integer(value))
            found = size if size >= 0 else ""
        elif number == 2:
            found = text_of(value)
    return found
