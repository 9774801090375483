"""Read a `.tflite` file back into a graph, to write it in fewer bits."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

import numpy as np
from ai_edge_litert import schema_py_generated as schema
from flatbuffers import flexbuffers

from edge_infer.errors import UnsupportedModel, UnsupportedOperator
from edge_infer.formats import tflite
from edge_infer_converters.writers.tflite import metadata
from edge_infer_converters.writers.tflite.graph import Graph, Operator, Quantization, Tensor
from edge_infer_converters.writers.tflite.peephole import fuse_activations
from edge_infer_converters.writers.tflite.writer import FloatGraph

if TYPE_CHECKING:
    from collections.abc import Container

    from edge_infer.formats.tflite import TFLiteFile, TFLiteTensor

_TYPES = frozenset(
    (
        *("float32", "float16", "float64", "complex64", "bool"),
        *("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"),
    )
)
#: The dtype of the handle of a variable.
RESOURCE = np.dtype("V4")
# No operator's options have longer lists; a file of lies could have one that is as long as itself for each operator.
_LONGEST_OPTION = 256
_LARGEST_CUSTOM = 4096


def read(content: bytes, name: str, *, with_variables: bool = False) -> FloatGraph:
    """Read a file.

    Args:
        content: Its bytes.
        name: What to call it.
        with_variables: Whether resource variables are read, which cannot be written back: the graph that gives them
            their first values is left out.

    Raises:
        UnsupportedModel: It is not a TFLite file, is cut short or contradicts itself, or has what is not written back:
            control flow, strings.
        UnsupportedOperator: It has operators that are not TFLite's own.
    """
    file = tflite.read(content, name)
    if file.subgraphs > 1 and not with_variables:
        raise UnsupportedModel(
            f"`{name}` has {file.subgraphs} subgraphs: control flow is not written back",
            hint="convert the model that it was made of",
        )
    graph = _graph(content, file, name, kinds=("resource",) if with_variables else ())
    fuse_activations(graph)
    files = metadata.files_of(content)
    return FloatGraph(graph, name.removesuffix(".tflite"), entries=file.metadata, files=files)


def read_subgraphs(content: bytes, name: str, custom: Container[str] = ()) -> list[Graph]:
    """Read all subgraphs of a file, to write them in another format: the first is the model, the others are bodies.

    Args:
        content: Its bytes.
        name: What to call it.
        custom: The custom operators that are read: their options are a dict.

    Raises:
        UnsupportedModel: As `read` says; variables and complex numbers are read.
        UnsupportedOperator: It has other operators that are not TFLite's own.
    """
    file = tflite.read(content, name)
    files = [file, *(tflite.read(content, name, number) for number in range(1, file.subgraphs))]
    graphs = [
        _graph(content, one, name, number, kinds=("resource",), custom=custom) for number, one in enumerate(files)
    ]
    for graph in graphs:
        fuse_activations(graph)
    return graphs


def _graph(
    content: bytes,
    file: TFLiteFile,
    name: str,
    number: int = 0,
    *,
    kinds: Container[str] = (),
    custom: Container[str] = (),
) -> Graph:
    """Read a subgraph; `kinds` are the types beside those that can be written back."""
    strange = sorted({one.code for one in file.operators if one.code.startswith("CUSTOM") and one.code not in custom})
    if strange:
        raise UnsupportedOperator(
            f"`{name}` has operators that are not TFLite's own: {', '.join(strange)}",
            hint=_advice(strange[0]),
            operators=strange,
        )
    tensors = [_tensor(one, name, kinds) for one in file.tensors]
    for one, tensor in zip(file.tensors, tensors, strict=True):
        if one.scales is not None:
            tensor.quantization = _quantization(one, tensors, name)
    _name_ends(file, tensors, name)
    graph = Graph([tensors[i] for i in file.inputs.values()], [tensors[i] for i in file.outputs.values()])
    packed: Any = schema.Model.GetRootAs(content).Subgraphs(number)
    for i, operator in enumerate(file.operators):
        inputs = [tensors[place] if place >= 0 else None for place in operator.inputs]
        outputs = [tensors[place] for place in operator.outputs]
        if operator.code == "DENSIFY" and inputs[0] is not None and inputs[0].data is not None:
            outputs[0].data = inputs[0].data  # the file's reader gives constants with their zeros
            continue
        try:
            read_them = _custom_options if operator.code.startswith("CUSTOM") else _options
            options = read_them(packed.Operators(i), operator.code)
        except (
            struct.error,
            TypeError,
            ValueError,
            IndexError,
            RecursionError,
        ) as error:  # flatbuffers raises what Python raises
            raise UnsupportedModel(
                f"`{name}` contradicts itself: the options of {operator.code} lie outside"
            ) from error
        graph.operators.append(Operator(operator.code, inputs, outputs, options, operator.version))
    return graph


def _advice(custom: str) -> str:
    if "edgetpu" in custom:
        return "it is compiled for an Edge TPU: convert the file that it was compiled from"
    if custom.startswith("CUSTOM Flex"):
        return "these are TensorFlow's: export the model without SELECT_TF_OPS"
    return "convert the model that it was made of, without them"


def _tensor(one: TFLiteTensor, name: str, kinds: Container[str]) -> Tensor:
    if one.dtype == "resource" and one.dtype in kinds:
        return Tensor(one.name, one.shape, one.signature, RESOURCE)
    if one.dtype not in (*_TYPES, "int4") and one.dtype not in kinds:
        raise UnsupportedModel(f"`{one.name}` of `{name}` is a tensor of {one.dtype}, which is not written back")
    dtype = np.dtype("int8" if one.dtype == "int4" else one.dtype)
    data = None
    if one.data is not None and one.dtype == "int4":
        data = _unpacked(np.frombuffer(one.data, np.uint8), one.shape)
    elif one.data is not None:
        data = np.frombuffer(one.data, dtype.newbyteorder("<")).reshape(one.shape)
    return Tensor(one.name, one.shape, one.signature, dtype, data, is_variable=one.is_variable)


def _unpacked(pairs: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """Undo `flatbuffer.in_pairs`."""
    both = np.stack([pairs & 15, pairs >> 4], axis=1).reshape(-1)[: int(np.prod(shape))].astype(np.int8)
    signed: np.ndarray = np.where(both > 7, both - 16, both).astype(np.int8).reshape(shape)
    return signed


def _quantization(one: TFLiteTensor, tensors: list[Tensor], name: str) -> Quantization | None:
    found = one.scales
    if found is None:
        return None
    bits = 4 if one.dtype == "int4" else 8
    if found.block_size:
        if not 0 <= found.blocks < len(tensors):
            raise UnsupportedModel(
                f"The scales of `{one.name}` in `{name}` are tensor {found.blocks}, which is not there"
            )
        none = np.zeros(0, np.float32)
        return Quantization(none, bits=bits, blocks=tensors[found.blocks], block_size=found.block_size)
    if len(set(found.zero_points)) > 1:
        raise UnsupportedModel(f"`{one.name}` of `{name}` has channels with different zero points")
    return Quantization(np.array(found.scales, np.float32), found.zero_points[0], found.axis, bits)


def _name_ends(file: TFLiteFile, tensors: list[Tensor], name: str) -> None:
    """Call inputs and outputs as the signature does."""
    called: dict[int, str] = {}
    for ends in (file.inputs, file.outputs):
        for end, i in ends.items():
            if called.setdefault(i, end) != end:
                raise UnsupportedModel(f"`{name}` calls one tensor `{called[i]}` and `{end}`")
            tensors[i].name = end


def _custom_options(packed: Any, code: str) -> object:
    """Return the options of a custom operator, which are a FlexBuffers map."""
    length = packed.CustomOptionsLength()
    if length > _LARGEST_CUSTOM:
        raise UnsupportedOperator(f"The options of {code} take {length} bytes", operators=[code])
    found = flexbuffers.Loads(packed.CustomOptionsAsNumpy().tobytes()) if length else None
    if not isinstance(found, dict):
        raise UnsupportedOperator(f"The options of {code} are not a map", operators=[code])
    return found


def _options(packed: Any, code: str) -> object | None:
    """Return an operator's options as the schema's object."""
    number = packed.BuiltinOptionsType()
    names = {value: key for key, value in vars(schema.BuiltinOptions).items() if not key.startswith("_")}
    if packed.BuiltinOptions2Type() or number not in names:
        raise UnsupportedOperator(f"The options of {code} are not known", operators=[code])
    table = packed.BuiltinOptions()
    if number == schema.BuiltinOptions.NONE or table is None:
        return None
    kind = names[number]
    read = getattr(schema, kind)()
    read.Init(table.Bytes, table.Pos)
    lengths = [getattr(read, one)() for one in dir(read) if one.endswith("Length")]
    if any(length > _LONGEST_OPTION for length in lengths):
        raise UnsupportedOperator(f"The options of {code} hold a list of {max(lengths)}", operators=[code])
    options: object = getattr(schema, f"{kind}T").InitFromObj(read)
    return options
