"""Model files that are not what they should be: one clear error each, nothing half-written, no traceback."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import onnx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from onnx import helper

from edge_infer.errors import ConversionError, EdgeInferError, UnsupportedModel, UnsupportedOperator
from edge_infer_converters import convert
from edge_infer_converters.sources import onnx as source
from tests.support import zoo

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def changed(data: bytes, change: Callable[[onnx.ModelProto], None]) -> bytes:
    proto = onnx.load_from_string(data)
    change(proto)
    serialized: bytes = proto.SerializeToString()
    return serialized


def without_opset(proto: onnx.ModelProto) -> None:
    del proto.opset_import[:]


def without_outputs(proto: onnx.ModelProto) -> None:
    del proto.graph.output[:]


def future_ir(proto: onnx.ModelProto) -> None:
    proto.ir_version = 999


def unknown_in_own_domain() -> bytes:
    return zoo.model([helper.make_node("Frobnicate", ["x"], ["y"])], [zoo.value("x", [1])], [zoo.value("y", [1])])


def dangling_input() -> bytes:
    return zoo.model([helper.make_node("Neg", ["nowhere"], ["y"])], [zoo.value("x", [1])], [zoo.value("y", [1])])


def circle() -> bytes:
    nodes = [helper.make_node("Neg", ["b"], ["a"]), helper.make_node("Neg", ["a"], ["b"])]
    return zoo.model(nodes, [zoo.value("x", [1])], [zoo.value("b", [1])])


def weight_too_short(proto: onnx.ModelProto) -> None:
    proto.graph.initializer[0].raw_data = b"\0" * 12


def wrong_shapes() -> bytes:
    weights = {"w": np.ones((5, 3), np.float32)}
    return zoo.model(
        [helper.make_node("MatMul", ["x", "w"], ["y"])], [zoo.value("x", [2, 4])], [zoo.value("y", [2, 3])], weights
    )


def external(location: str) -> bytes:
    def change(proto: onnx.ModelProto) -> None:
        tensor = proto.graph.initializer[0]
        tensor.ClearField("raw_data")
        tensor.data_location = onnx.TensorProto.EXTERNAL
        tensor.external_data.add(key="location", value=location)

    return changed(zoo.mlp(), change)


CORPUS: dict[str, tuple[bytes, type[EdgeInferError], str]] = {
    "empty": (b"", ConversionError, "is empty"),
    "text": (b"hello, this is not a model\n" * 40, ConversionError, "is not an ONNX model, or is cut short"),
    "garbage": (bytes(range(256)) * 40, ConversionError, "is not an ONNX model, or is cut short"),
    "zeros": (b"\0" * 4096, ConversionError, "is not an ONNX model"),
    "truncated": (zoo.mlp()[:-100], ConversionError, "is not an ONNX model, or is cut short"),
    "half": (zoo.mlp()[: len(zoo.mlp()) // 2], ConversionError, "is not an ONNX model, or is cut short"),
    "a-zip": (b"PK\x03\x04" + b"\0" * 100, ConversionError, "is not an ONNX model"),
    "another-message": (zoo.value("x", [1]).SerializeToString(), ConversionError, "is not an ONNX model"),
    "without-opset": (changed(zoo.identity(), without_opset), ConversionError, "no graph with outputs"),
    "without-outputs": (changed(zoo.identity(), without_outputs), ConversionError, "no graph with outputs"),
    "future-opset": (zoo.future_opset(), UnsupportedModel, "uses operator set 999"),
    "future-ir": (changed(zoo.identity(), future_ir), UnsupportedModel, "ir_version 999 is higher"),
    "unknown-operator": (
        unknown_in_own_domain(),
        UnsupportedOperator,
        "`Frobnicate` (1 node: `y`; not in onnxruntime)",
    ),
    "unknown-domain": (zoo.unknown_operator(), UnsupportedOperator, "`example.org.Frobnicate` (1 node: `y`;"),
    "name-of-no-text": (zoo.identity().replace(b"\x01x", b"\x01\xff"), ConversionError, "names that are not UTF-8"),
    "dangling-input": (dangling_input(), ConversionError, "not a valid ONNX model"),
    "circle": (circle(), ConversionError, "not a valid ONNX model"),
    "weight-too-short": (changed(zoo.mlp(), weight_too_short), ConversionError, "not a valid ONNX model"),
    "wrong-shapes": (wrong_shapes(), UnsupportedModel, "ONNX Runtime cannot load"),
    "external-escaping": (external("../secret.bin"), ConversionError, "which leaves its folder: refused"),
    "external-absolute": (external("/etc/passwd"), ConversionError, "which leaves its folder: refused"),
    "external-missing": (external("weights.bin"), ConversionError, "keeps weights in `weights.bin`, which is missing"),
}


@pytest.mark.parametrize(("data", "kind", "said"), CORPUS.values(), ids=CORPUS.keys())
def test_a_bad_model_file_is_one_clear_error(
    tmp_path: Path, data: bytes, kind: type[EdgeInferError], said: str
) -> None:
    (tmp_path / "secret.bin").write_bytes(b"\0" * 8192)
    folder = tmp_path / "work"
    folder.mkdir()
    (folder / "model.onnx").write_bytes(data)

    with pytest.raises(kind) as caught:
        convert(folder / "model.onnx", folder / "out.bundle")

    assert said in caught.value.message
    assert "\n" not in caught.value.message
    assert [path.name for path in folder.iterdir()] == ["model.onnx"]


def test_external_data_through_a_link_is_refused(tmp_path: Path) -> None:
    """The name stays inside the folder, what it points to does not."""
    (tmp_path / "secret.bin").write_bytes(b"\0" * 8192)
    folder = tmp_path / "work"
    folder.mkdir()
    (folder / "weights.bin").symlink_to(tmp_path / "secret.bin")
    (folder / "model.onnx").write_bytes(external("weights.bin"))

    with pytest.raises(ConversionError, match="leaves its folder"):
        convert(folder / "model.onnx", folder / "out.bundle")


def test_external_data_that_are_too_short_are_refused(tmp_path: Path) -> None:
    (tmp_path / "weights.bin").write_bytes(b"\0" * 12)
    (tmp_path / "model.onnx").write_bytes(external("weights.bin"))

    with pytest.raises(ConversionError):
        convert(tmp_path / "model.onnx", tmp_path / "out.bundle")

    assert not (tmp_path / "out.bundle").exists()


def test_a_file_too_large_for_protobuf_is_refused_unread(tmp_path: Path) -> None:
    with (tmp_path / "model.onnx").open("wb") as file:
        file.truncate(2**31 + 1)  # sparse: it takes no room

    with pytest.raises(ConversionError, match="has 2147483649 bytes with its weights"):
        convert(tmp_path / "model.onnx", tmp_path / "out.bundle")


def test_of_a_file_of_weights_that_is_too_large_what_the_model_needs_is_read(tmp_path: Path) -> None:
    (tmp_path / "model.onnx").write_bytes(external("weights.bin"))
    with (tmp_path / "weights.bin").open("wb") as file:
        file.truncate(2**31)  # sparse: it takes no room

    model = source.load(tmp_path / "model.onnx")

    assert model.in_files is None
    assert model.nbytes < 2**16


def test_a_tensor_of_more_than_its_file_is_refused_unread(tmp_path: Path) -> None:
    def change(proto: onnx.ModelProto) -> None:
        proto.graph.initializer[0].dims[:] = [2**20, 2**20]

    (tmp_path / "model.onnx").write_bytes(changed(external("weights.bin"), change))
    with (tmp_path / "weights.bin").open("wb") as file:
        file.truncate(2**31)

    with pytest.raises(ConversionError, match=r"has 4398046511104 bytes at 0 of `weights.bin`, which has 2147483648"):
        convert(tmp_path / "model.onnx", tmp_path / "out.bundle")

    assert not (tmp_path / "out.bundle").exists()


def test_a_folder_is_no_model(tmp_path: Path) -> None:
    (tmp_path / "model.onnx").mkdir()

    with pytest.raises(ConversionError, match="is a folder"):
        convert(tmp_path / "model.onnx", tmp_path / "out.bundle")


@pytest.mark.parametrize(
    ("name", "said"),
    [
        (
            "model.safetensors",
            r"which `convert` does not read; expected \.onnx, \.ort, \.pt, \.pt2, \.keras, \.h5 or \.tflite",
        ),
        ("model.h5", r"`model\.h5` is not a \.h5 file: it begins with"),
    ],
)
def test_another_format_is_named_as_such(tmp_path: Path, name: str, said: str) -> None:
    (tmp_path / name).write_bytes(b"whatever")

    with pytest.raises(ConversionError, match=said):
        convert(tmp_path / name, tmp_path / "out.bundle")


@pytest.mark.torch
def test_a_file_that_only_has_the_name_of_pytorch_is_refused(tmp_path: Path) -> None:
    for name, data in {"a.pt": b"whatever", "b.pth": b"PK\x05\x06" + bytes(18), "c.pt": b""}.items():
        (tmp_path / name).write_bytes(data)
        with pytest.raises(ConversionError, match=r"not a file of PyTorch|weights without a model"):
            convert(tmp_path / name, tmp_path / "out.bundle")


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.integers(0, len(zoo.mlp()) - 1), st.integers(1, 255))
def test_a_flipped_byte_is_an_error_of_ours_or_none(tmp_path: Path, place: int, change: int) -> None:
    """Whatever a damaged file does, it ends in a model or in one of our errors."""
    data = bytearray(zoo.mlp())
    data[place] ^= change
    (tmp_path / "model.onnx").write_bytes(bytes(data))

    try:
        source.load(tmp_path / "model.onnx")
    except EdgeInferError as error:
        assert error.message


def test_descriptions_in_another_encoding_are_dropped(tmp_path: Path) -> None:
    """Descriptions say nothing of what a model computes, and some tools write them as Latin-1 or GBK."""
    model = onnx.load_from_string(zoo.mlp())
    for message in (model, model.graph, model.graph.node[0], model.graph.initializer[0]):
        message.doc_string = "plain#"
    data = model.SerializeToString().replace(b"plain#", b"plain\xff")
    (tmp_path / "model.onnx").write_bytes(data)

    read = source.load(tmp_path / "model.onnx")

    assert b"plain" not in read.proto.SerializeToString()
