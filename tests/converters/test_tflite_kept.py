"""TFLite files of other converters: what cannot be written in other precisions is kept, and every end has a name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import flatbuffers
import numpy as np
import onnx
import pytest
from ai_edge_litert import schema_py_generated as schema

import edge_infer
from edge_infer.errors import UnsupportedOperator
from edge_infer.formats import tflite as tflite_file
from edge_infer_converters import convert
from edge_infer_converters.sources import tflite as source
from edge_infer_converters.writers import tflite
from tests.support import zoo

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

MLP = onnx.load_from_string(zoo.mlp())
X = np.random.default_rng(0).normal(0, 1, (1, 64)).astype(np.float32)


def written(path: Path, change: Callable[[Any], None], precision: str = "fp32") -> Path:
    """Write the MLP as TFLite, and change the objects of its schema."""
    data = tflite.FloatGraph.of_onnx(MLP).write(precision, [{"x": X}]).data
    model: Any = schema.ModelT.InitFromPackedBuf(data, 0)
    change(model)
    builder = flatbuffers.Builder(1024)
    builder.Finish(model.Pack(builder), file_identifier=b"TFL3")
    path.write_bytes(bytes(builder.Output()))
    return path


def unchanged(model: Any) -> None:
    del model


def with_a_second_graph(model: Any) -> None:
    model.subgraphs.append(model.subgraphs[0])


def without_names(model: Any) -> None:
    model.signatureDefs = []
    for tensor in model.subgraphs[0].tensors:
        tensor.name = b""


def with_the_axis_of_the_weights(model: Any) -> None:
    for tensor in model.subgraphs[0].tensors:
        if tensor.quantization is not None and tensor.shape is not None and len(tensor.shape) == 1:
            tensor.quantization.quantizedDimension = 3


def test_a_file_with_more_graphs_is_kept_as_it_is(tmp_path: Path) -> None:
    path = written(tmp_path / "net.tflite", with_a_second_graph)

    result = convert(path, tmp_path / "net.bundle")

    assert [one.variant.id for one in result.variants] == ["tflite/fp32", "compiled/fp32"]
    assert "2 subgraphs: control flow is not written back" in result.not_made["tflite/int8"]
    assert (tmp_path / "net.bundle/tflite/model.tflite").read_bytes() == path.read_bytes()


def test_an_operator_that_litert_lacks_is_refused_by_name(tmp_path: Path) -> None:
    def custom(model: Any) -> None:
        model.operatorCodes[0].builtinCode = schema.BuiltinOperator.CUSTOM
        model.operatorCodes[0].deprecatedBuiltinCode = schema.BuiltinOperator.CUSTOM
        model.operatorCodes[0].customCode = b"FlexMultinomial"

    with pytest.raises(UnsupportedOperator, match="CUSTOM FlexMultinomial") as caught:
        convert(written(tmp_path / "net.tflite", custom), tmp_path / "net.bundle")

    assert "SELECT_TF_OPS" in (caught.value.hint or "")


def test_ends_without_a_name_are_called_by_their_place(tmp_path: Path) -> None:
    path = written(tmp_path / "net.tflite", without_names)

    convert(path, tmp_path / "net.bundle", precision=("fp32",))

    for place in (path, tmp_path / "net.bundle"):
        with edge_infer.load(place, backend="litert") as session:
            assert ([one.name for one in session.inputs], [one.name for one in session.outputs]) == (
                ["input_0"],
                ["output_0"],
            )
            assert session.run({"input_0": X})["output_0"].shape == (1, 10)


def test_the_axis_of_a_biass_scales_is_mended(tmp_path: Path) -> None:
    """TensorFlow wrote the axis of the weights there until 2021; LiteRT 2 refuses it."""
    path = written(tmp_path / "net.tflite", with_the_axis_of_the_weights, "int8")
    sound = written(tmp_path / "sound.tflite", unchanged, "int8")
    data = path.read_bytes()

    read = source.load(path)

    assert read.data != data
    assert tflite_file.mended(read.data) is read.data
    given, expected = (one.reference().run({"x": X})["logits"] for one in (read, source.load(sound)))
    np.testing.assert_array_equal(given, expected)


def test_a_constant_of_no_elements_is_read() -> None:
    def empty(model: Any) -> None:
        buffer = schema.BufferT()
        buffer.data = np.zeros(0, np.uint8)
        model.buffers.append(buffer)
        tensor = schema.TensorT()
        tensor.name, tensor.shape, tensor.type = b"none", np.zeros(1, np.int32), schema.TensorType.INT32
        tensor.buffer = len(model.buffers) - 1
        model.subgraphs[0].tensors.append(tensor)
        last = model.subgraphs[0].operators[-1]
        last.inputs = np.append(last.inputs[:2], len(model.subgraphs[0].tensors) - 1).astype(np.int32)

    data = tflite.write(MLP).data
    model: Any = schema.ModelT.InitFromPackedBuf(data, 0)
    empty(model)
    builder = flatbuffers.Builder(1024)
    builder.Finish(model.Pack(builder), file_identifier=b"TFL3")

    assert tflite_file.read(bytes(builder.Output())).tensors[-1].data == memoryview(b"")


def test_a_value_of_no_elements_is_no_constant_though_it_has_a_buffer(tmp_path: Path) -> None:
    def without_rows(model: Any) -> None:
        (graph,) = model.subgraphs
        model.buffers.append(schema.BufferT())
        hidden = graph.tensors[graph.operators[0].outputs[0]]
        hidden.buffer, hidden.shape = len(model.buffers) - 1, np.array([0, hidden.shape[1]], np.int32)

    read = tflite_file.read(written(tmp_path / "mlp.tflite", without_rows).read_bytes())

    assert read.tensors[read.operators[0].outputs[0]].data is None
