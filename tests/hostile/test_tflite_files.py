"""TFLite files that are not what they should be: one clear error each, from `convert` and from `info`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import pytest
from ai_edge_litert import schema_py_generated as schema
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from onnx import helper

import edge_infer
from edge_infer.errors import EdgeInferError, UnsupportedModel, UnsupportedOperator
from edge_infer.formats import tflite as tflite_model
from edge_infer_converters import convert
from edge_infer_converters.writers import tflite
from edge_infer_converters.writers.tflite import flatbuffer, reading
from edge_infer_converters.writers.tflite.graph import Graph, Operator, Tensor
from tests.support import zoo

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

MLP = tflite.write(onnx.load_from_string(zoo.mlp())).data


def changed(change: Callable[[Any], None]) -> bytes:
    """Read the MLP's file with the schema's objects, change them, and write them again."""
    import flatbuffers

    model: Any = schema.ModelT.InitFromPackedBuf(MLP, 0)
    change(model)
    builder = flatbuffers.Builder(1024)
    builder.Finish(model.Pack(builder), file_identifier=b"TFL3")
    return bytes(builder.Output())


def in_graph(change: Callable[[Any], None]) -> bytes:
    return changed(lambda model: change(model.subgraphs[0]))


def reads_what_comes_later(graph: Any) -> None:
    graph.operators = graph.operators[::-1]


def reads_itself(graph: Any) -> None:
    graph.operators[0].inputs = np.array([graph.operators[0].outputs[0], *graph.operators[0].inputs[1:]], np.int32)


def writes_a_weight(graph: Any) -> None:
    graph.operators[0].outputs = graph.operators[0].inputs[1:2]


def shape_of_lies(graph: Any) -> None:
    graph.tensors[1].shape = np.array([2**31 - 1, 2**31 - 1], np.int32)


def custom(model: Any) -> None:
    model.operatorCodes[0].builtinCode = schema.BuiltinOperator.CUSTOM
    model.operatorCodes[0].deprecatedBuiltinCode = schema.BuiltinOperator.CUSTOM
    model.operatorCodes[0].customCode = b"MyOp"


def set_field(part: Callable[[Any], Any], name: str, value: Any) -> bytes:
    return changed(lambda model: setattr(part(model), name, value))


def scales_of_lies(graph: Any) -> None:
    graph.tensors[1].quantization = schema.QuantizationParametersT()
    graph.tensors[1].quantization.scale = np.ones(7, np.float32)
    graph.tensors[1].quantization.zeroPoint = np.zeros(7, np.int64)


def signature(side: str, number: int) -> bytes:
    return changed(lambda model: setattr(getattr(model.signatureDefs[0], side)[0], "tensorIndex", number))


@pytest.mark.parametrize("side", ["inputs", "outputs"])
@pytest.mark.parametrize("number", [7, 99, 2**31 - 1, 2**32 - 1])
def test_an_input_or_output_without_a_tensor_is_refused_by_name(tmp_path: Path, side: str, number: int) -> None:
    graph_number = number - 2**32 if number >= 2**31 else number
    files = {
        f"Signature `serving_default` names tensor {number}": signature(side, number),
        f"The main graph names tensor {graph_number}": in_graph(
            lambda graph: setattr(graph, side, np.array([graph_number], np.int32))
        ),
    }
    for message, content in files.items():
        path = tmp_path / "model.tflite"
        path.write_bytes(content)
        with pytest.raises(UnsupportedModel) as caught:
            edge_infer.load(path)
        assert message in caught.value.message
        assert "there are 7 tensors" in caught.value.message
        assert "damaged" in caught.value.hint


def test_a_signature_of_a_graph_that_is_not_there_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "model.tflite"
    path.write_bytes(changed(lambda model: setattr(model.signatureDefs[0], "subgraphIndex", 9)))

    with pytest.raises(UnsupportedModel, match="is of graph 9, there are 1"):
        edge_infer.load(path)


CORPUS: dict[str, tuple[bytes, type[EdgeInferError], str]] = {
    "empty": (b"", UnsupportedModel, "is not a TFLite model"),
    "text": (b"hello, this is not a model\n" * 40, UnsupportedModel, "is not a TFLite model"),
    "zeros": (b"\0" * 4096, UnsupportedModel, "is not a TFLite model"),
    "onnx": (zoo.mlp(), UnsupportedModel, "is not a TFLite model"),
    "truncated": (MLP[:-40], UnsupportedModel, "cut short"),
    "half": (MLP[: len(MLP) // 2], UnsupportedModel, "cut short"),
    "no-subgraph": (set_field(lambda model: model, "subgraphs", []), UnsupportedModel, "has no subgraph"),
    "custom": (changed(custom), UnsupportedOperator, "CUSTOM MyOp"),
    "circle": (in_graph(reads_itself), UnsupportedModel, "which nothing has made"),
    "wrong-order": (in_graph(reads_what_comes_later), UnsupportedModel, "which nothing has made"),
    "writes-a-weight": (in_graph(writes_a_weight), UnsupportedModel, "which is there already"),
    "shape-of-lies": (in_graph(shape_of_lies), UnsupportedModel, "bytes, expected"),
    "negative-shape": (
        set_field(lambda model: model.subgraphs[0].tensors[1], "shape", np.array([-4, 2], np.int32)),
        UnsupportedModel,
        "has shape",
    ),
    "tensor-of-lies": (
        set_field(lambda model: model.subgraphs[0].operators[0], "inputs", np.array([99, 1, 2], np.int32)),
        UnsupportedModel,
        "names tensor 99",
    ),
    "output-of-lies": (
        set_field(lambda model: model.subgraphs[0], "outputs", np.array([-1], np.int32)),
        UnsupportedModel,
        "names tensor -1",
    ),
    "buffer-of-lies": (
        set_field(lambda model: model.subgraphs[0].tensors[1], "buffer", 77),
        UnsupportedModel,
        "a buffer that does not exist",
    ),
    "type-of-lies": (
        set_field(lambda model: model.subgraphs[0].tensors[1], "type", 99),
        UnsupportedModel,
        "has a type",
    ),
    "operator-of-lies": (
        set_field(lambda model: model.operatorCodes[0], "builtinCode", 2**31 - 1),
        UnsupportedModel,
        "operator 2147483647 is not known",
    ),
    "code-of-lies": (
        set_field(lambda model: model.subgraphs[0].operators[0], "opcodeIndex", 9),
        UnsupportedModel,
        "a code that does not exist",
    ),
    "scales-of-lies": (in_graph(scales_of_lies), UnsupportedModel, "7 scales"),
    "name-of-no-text": (MLP.replace(b"logits", b"\xff" * 6), UnsupportedModel, "contradicts itself"),
}


@pytest.mark.parametrize(("data", "kind", "said"), CORPUS.values(), ids=CORPUS.keys())
def test_a_bad_tflite_file_is_one_clear_error(
    tmp_path: Path, data: bytes, kind: type[EdgeInferError], said: str
) -> None:
    (tmp_path / "model.tflite").write_bytes(data)

    with pytest.raises(kind) as caught:
        convert(tmp_path / "model.tflite", tmp_path / "out.bundle")

    assert said in caught.value.message
    assert "\n" not in caught.value.message
    assert [path.name for path in tmp_path.iterdir()] == ["model.tflite"]


def test_sparse_and_string_tensors_are_refused() -> None:
    node = helper.make_node("Neg", ["x"], ["y"])
    model = zoo.model([node], [zoo.value("x", [2])], [zoo.value("y", [2])])
    data = tflite.write(onnx.load_from_string(model)).data
    packed: Any = schema.ModelT.InitFromPackedBuf(data, 0)
    packed.subgraphs[0].tensors[0].type = schema.TensorType.STRING
    import flatbuffers

    builder = flatbuffers.Builder(1024)
    builder.Finish(packed.Pack(builder), file_identifier=b"TFL3")

    with pytest.raises(UnsupportedModel, match="tensor of string"):
        reading.read(bytes(builder.Output()), "text.tflite")


def test_options_as_long_as_the_file_are_refused() -> None:
    """Read for each operator, they would take the square of its length."""
    x = Tensor("x", (4,), (4,), np.dtype(np.float32))
    y = Tensor("y", (4,), (4,), np.dtype(np.float32))
    options = schema.ReshapeOptionsT()
    options.newShape = np.ones(100_000, np.int32)
    data = flatbuffer.write(Graph([x], [y], [Operator("RESHAPE", [x], [y], options)]), "lies")

    with pytest.raises(UnsupportedOperator, match="hold a list of 100000"):
        reading.read(data, "lies.tflite")


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.integers(0, len(MLP) - 1), st.integers(1, 255), st.integers(0, len(MLP) - 1), st.integers(0, 255))
def test_flipped_bytes_are_an_error_of_ours_or_none(place: int, change: int, other: int, value: int) -> None:
    data = bytearray(MLP)
    data[place] ^= change
    data[other] = value
    try:
        tflite_model.read(bytes(data)).arena_bytes()
        reading.read(bytes(data), "flipped.tflite").write()
    except EdgeInferError:
        pass
