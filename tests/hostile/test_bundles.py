"""Bundles that lie: each gives one clear error, and nothing that was not checked is used."""

from __future__ import annotations

import json
import shutil
import zipfile
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import pytest

import edge_infer
from edge_infer import Bundle, BundleError, IntegrityError, ManifestError
from tests.support import zoo

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.model_files import WriteBundle

MODEL = "onnx/model_fp32.onnx"


@pytest.fixture
def folder(write_bundle: WriteBundle) -> Path:
    return write_bundle({"onnx/fp32": zoo.identity()}, extra={"labels.json": b'["a"]'}, labels="labels.json")


def rewrite(folder: Path, change: Any) -> None:
    """Apply a change to the manifest's document."""
    path = folder / "manifest.json"
    document = json.loads(path.read_text("utf-8"))
    change(document)
    path.write_text(json.dumps(document), "utf-8")


def zipped(folder: Path) -> Path:
    target = folder.with_suffix(".zip")
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in sorted(folder.rglob("*")):
            if path.is_file():
                archive.write(path, path.relative_to(folder).as_posix())
    return target


@pytest.mark.parametrize("as_zip", [False, True], ids=["folder", "zip"])
class TestFilesThatAreNotTheManifests:
    def opened(self, folder: Path, as_zip: bool) -> Bundle:
        return Bundle.open(zipped(folder) if as_zip else folder)

    def test_a_changed_byte_is_found_by_its_sha256(self, folder: Path, as_zip: bool) -> None:
        data = bytearray((folder / MODEL).read_bytes())
        data[-1] ^= 1
        (folder / MODEL).write_bytes(data)

        with pytest.raises(IntegrityError, match="sha256") as caught:
            edge_infer.load(self.opened(folder, as_zip))

        assert caught.value.path == MODEL
        assert "again" in caught.value.hint

    @pytest.mark.parametrize("change", [lambda data: data[:-1], lambda data: data + b"x"], ids=["cut", "longer"])
    def test_another_size_is_found_before_anything_is_hashed(self, folder: Path, as_zip: bool, change: Any) -> None:
        (folder / MODEL).write_bytes(change((folder / MODEL).read_bytes()))

        with pytest.raises(IntegrityError, match="has size"):
            edge_infer.load(self.opened(folder, as_zip))

    def test_a_missing_file_is_named(self, folder: Path, as_zip: bool) -> None:
        (folder / MODEL).unlink()

        with pytest.raises(BundleError, match=f"has no file `{MODEL}`"):
            edge_infer.load(self.opened(folder, as_zip))

    def test_a_missing_manifest_says_how_to_make_one(self, folder: Path, as_zip: bool) -> None:
        (folder / "manifest.json").unlink()

        with pytest.raises(BundleError, match="edge-infer convert"):
            self.opened(folder, as_zip)

    def test_a_file_that_the_manifest_does_not_name_is_not_read(self, folder: Path, as_zip: bool) -> None:
        (folder / "secret").write_text("x")

        with pytest.raises(ManifestError, match="has no file `secret`"):
            self.opened(folder, as_zip).read("secret")

    def test_labels_that_are_no_list_are_refused(self, folder: Path, as_zip: bool) -> None:
        import hashlib

        data = b'{"a": 1}'
        (folder / "labels.json").write_bytes(data)

        def change(document: Any) -> None:
            entry = next(file for file in document["files"] if file["path"] == "labels.json")
            entry.update(size=len(data), sha256=hashlib.sha256(data).hexdigest())

        rewrite(folder, change)

        with pytest.raises(BundleError, match="not a JSON list of texts"):
            self.opened(folder, as_zip).labels()


def test_a_link_out_of_the_bundle_is_not_followed(folder: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    shutil.copy(folder / "labels.json", outside)
    (folder / "labels.json").unlink()
    (folder / "labels.json").symlink_to(outside)

    with pytest.raises(BundleError, match="leaves the bundle"):
        Bundle.open(folder).labels()


def test_a_model_that_is_a_link_out_of_the_bundle_is_not_followed(folder: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    shutil.move(folder / MODEL, outside)
    (folder / MODEL).symlink_to(outside)

    with pytest.raises(BundleError, match="leaves the bundle"):
        edge_infer.load(folder)


def with_external_data() -> tuple[bytes, bytes]:
    """A model y = x + w whose w lies in a file of its own, and that file."""
    weights = np.array([1.0], np.float32)
    node = onnx.helper.make_node("Add", ["x", "w"], ["y"])
    proto = onnx.load_from_string(zoo.model([node], [zoo.value("x", ["n"])], [zoo.value("y", ["n"])], {"w": weights}))
    tensor = proto.graph.initializer[0]
    onnx.external_data_helper.set_external_data(tensor, "w.bin")
    tensor.ClearField("raw_data")
    tensor.data_location = onnx.TensorProto.EXTERNAL
    return proto.SerializeToString(), weights.tobytes()


def test_external_data_is_read_only_where_the_manifest_lists_it(write_bundle: WriteBundle) -> None:
    model, weights = with_external_data()
    folder = write_bundle({"onnx/fp32": model}, extra={"onnx/w.bin": weights, "onnx/other.bin": weights})
    with pytest.raises(edge_infer.EdgeInferError):
        edge_infer.load(folder)

    rewrite(folder, lambda document: document["variants"][0].update(external=["onnx/other.bin"]))
    with pytest.raises(IntegrityError, match=r"refers to `w.bin`, which the manifest does not list"):
        edge_infer.load(folder)

    rewrite(folder, lambda document: document["variants"][0].update(external=["onnx/w.bin"]))
    assert edge_infer.load(folder).run({"x": [1.0]})["y"].tolist() == [2.0]
    (folder / "onnx/w.bin").write_bytes(np.array([41.0], np.float32).tobytes())
    with pytest.raises(IntegrityError, match="sha256"):
        edge_infer.load(folder)


@pytest.mark.parametrize(
    "written",
    [
        b"\x12\x05w.bin\x0a\x08location",
        b"\x0a\x88\x00location\x12\x05w.bin",
        b"\x8a\x00\x08location\x92\x80\x00\x05w.bin",
        b"\x8a\x80\x80\x80\x10\x08location\x12\x05w.bin",
        b"\x0a\x01x\x12\x01x\x12\x05w.bin\x0a\x08location",
    ],
    ids=["value first", "long length", "long tags", "tag of more than 32 bits", "said again"],
)
def test_external_data_is_found_however_it_is_written(write_bundle: WriteBundle, written: bytes) -> None:
    proto = onnx.load_from_string(with_external_data()[0])
    del proto.graph.initializer[0].external_data[:]
    tensor = proto.graph.initializer[0].SerializeToString() + b"\x6a" + bytes([len(written)]) + written
    del proto.graph.initializer[:]
    graph = proto.graph.SerializeToString() + b"\x2a" + bytes([len(tensor)]) + tensor
    proto.ClearField("graph")
    model = proto.SerializeToString() + b"\x3a" + bytes([len(graph)]) + graph

    folder = refuses_unlisted(write_bundle, model)
    rewrite(folder, lambda document: document["variants"][0].update(external=["onnx/w.bin"]))
    assert edge_infer.load(folder).run({"x": [1.0]})["y"].tolist() == [2.0], "the engine does read it"


def refuses_unlisted(write_bundle: WriteBundle, model: bytes) -> Path:
    """A bundle that lists another file than `w.bin` does not load this model, though that lies beside it."""
    weights = with_external_data()[1]
    folder = write_bundle({"onnx/fp32": model}, extra={"onnx/w.bin": weights, "onnx/other.bin": weights})
    rewrite(folder, lambda document: document["variants"][0].update(external=["onnx/other.bin"]))
    with pytest.raises(IntegrityError, match=r"refers to `w.bin`, which the manifest does not list"):
        edge_infer.load(folder)
    return folder


def test_external_data_is_found_in_whatever_tensor(write_bundle: WriteBundle) -> None:
    tensor = onnx.load_from_string(with_external_data()[0]).graph.initializer[0]
    sparse = onnx.SparseTensorProto(values=tensor, dims=[1])
    graph = onnx.GraphProto(initializer=[tensor])
    constant = onnx.NodeProto(attribute=[onnx.AttributeProto(name="value", t=tensor)])
    places: list[dict[str, Any]] = [{"t": tensor}, {"tensors": [tensor]}, {"g": graph}, {"graphs": [graph]}]
    places += [{"sparse_tensor": sparse}, {"sparse_tensors": [sparse]}]
    nodes = [onnx.NodeProto(attribute=[onnx.AttributeProto(name="a", **place)]) for place in places]
    models = [onnx.ModelProto(graph=onnx.GraphProto(node=[node])) for node in nodes]
    models += [
        onnx.ModelProto(graph=onnx.GraphProto(sparse_initializer=[sparse])),
        onnx.ModelProto(functions=[onnx.FunctionProto(node=[constant])]),
        onnx.ModelProto(functions=[onnx.FunctionProto(attribute_proto=constant.attribute)]),
        onnx.ModelProto(training_info=[onnx.TrainingInfoProto(algorithm=graph)]),
    ]

    for model in models:
        refuses_unlisted(write_bundle, model.SerializeToString())


def test_a_file_name_that_is_no_text_is_not_taken_for_another(write_bundle: WriteBundle) -> None:
    model = with_external_data()[0].replace(b"w.bin", b"w\xff.in")
    folder = write_bundle({"onnx/fp32": model}, extra={"onnx/w\ufffd.in": b"\0" * 4})
    rewrite(folder, lambda document: document["variants"][0].update(external=["onnx/w\ufffd.in"]))

    with pytest.raises(IntegrityError, match="which the manifest does not list"):
        edge_infer.load(folder)


def in_one_another(count: int) -> bytes:
    """A model whose graph holds a node with an attribute with a graph with a node ..."""
    message = b""
    for i in range(count):
        tag = (b"\x32", b"\x2a", b"\x0a")[i % 3]
        message = tag + bytes([len(message) & 127 | 128, len(message) >> 7 & 127 | 128, len(message) >> 14]) + message
    return b"\x3a" + message[1:]


@pytest.mark.parametrize(
    ("model", "said"),
    [(b"\x3a\x7f", "127 bytes at byte 2 of 2"), (in_one_another(301), "100 messages in one another")],
    ids=["cut short", "deeper than protobuf reads"],
)
def test_a_model_that_cannot_be_read_is_not_taken_to_have_no_external_data(
    write_bundle: WriteBundle, model: bytes, said: str
) -> None:
    folder = write_bundle({"onnx/fp32": model}, extra={"onnx/w.bin": b"\0" * 4})
    rewrite(folder, lambda document: document["variants"][0].update(external=["onnx/w.bin"]))

    with pytest.raises(IntegrityError, match=f"is not an ONNX file: not a protobuf message: {said}"):
        edge_infer.load(folder)


def test_a_zip_bomb_is_refused_unpacked(folder: Path, tmp_path: Path) -> None:
    rewrite(folder, lambda document: document["files"][0].update(size=64 * 2**20))
    bomb = tmp_path / "bomb.zip"
    with zipfile.ZipFile(bomb, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.write(folder / "manifest.json", "manifest.json")
        archive.writestr("labels.json", bytes(64 * 2**20))

    with pytest.raises(BundleError, match=r"unpacks from .* refused"):
        Bundle.open(bomb).labels()


def test_a_file_that_is_no_zip_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "model.zip"
    path.write_bytes(b"PK\x03\x04 but not really")

    with pytest.raises(BundleError, match="is not a zip"):
        Bundle.open(path)


def test_a_zip_whose_data_is_damaged_is_refused(folder: Path) -> None:
    path = zipped(folder)
    data = bytearray(path.read_bytes())
    start = data.index(b"manifest.json") + len("manifest.json")
    data[start : start + 40] = bytes(40)
    path.write_bytes(data)

    with pytest.raises(BundleError, match="cannot be unpacked"):
        Bundle.open(path)


@pytest.mark.parametrize("name", ["model.pkl", "model.pt", "model", "model.tar"])
def test_a_file_of_another_kind_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(b"x")

    with pytest.raises(BundleError, match="is neither a bundle nor a model"):
        Bundle.open(tmp_path / name)


def test_nothing_at_all_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BundleError, match="There is no file or folder"):
        Bundle.open(tmp_path / "nowhere.bundle")
