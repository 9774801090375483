from __future__ import annotations

import hashlib
import json
from threading import current_thread
from typing import TYPE_CHECKING

import pytest

import edge_infer
from edge_infer.bundle.bundle import Bundle
from edge_infer.errors import BundleError, InputError, ModelNotFound
from edge_infer.server.app import create_app
from edge_infer.server.execution.repository import ModelRepository, ServedModel, name_models
from edge_infer.server.http.in_thread import ServerThread
from edge_infer.server.static.models import described
from tests.support.generation.bundles import CHATML
from tests.support.generation.bundles import write_bundle as write_text_bundle
from tests.support.server.bundles import bundle_files, onnx_model, write_bundle, zip_bundle
from tests.support.server.client import Client

if TYPE_CHECKING:
    from pathlib import Path


def test_the_index_names_every_model_and_where_to_load_it(get: Client) -> None:
    entries = {entry["name"]: entry for entry in json.loads(get("/models/").body)["models"]}
    assert list(entries) == ["tiny", "packed", "bare model"]
    for entry in entries.values():
        with edge_infer.load(get.url + entry["url"], arrays="tensor") as session:
            assert session.run({"x": [[1.0, 2.0, 3.0]]})["y"].tolist() == [[1.0, 2.0, 3.0]]
            assert session.bundle.revision == entry["revision"]
    assert json.loads(get("/models/tiny/").body) == entries["tiny"]
    assert entries["tiny"]["variants"][0]["size"] == len(onnx_model())


@pytest.mark.parametrize("name", ["tiny", "packed"])
def test_a_bundle_gives_its_manifest_and_the_files_that_it_names(get: Client, name: str) -> None:
    manifest = get(f"/models/{name}/manifest.json")
    assert manifest.body == bundle_files(name)["manifest.json"]
    assert manifest.headers["cache-control"] == "no-cache"
    model = get(f"/models/{name}/onnx/model.onnx")
    assert model.body == onnx_model()
    (entry,) = json.loads(manifest.body)["files"]
    pinned = get(f"/models/{name}/onnx/model.onnx?sha256={entry['sha256']}")
    assert pinned.body == model.body
    assert "immutable" in pinned.headers["cache-control"]
    assert get(f"/models/{name}/quality.json").status == 200


def test_a_bundle_without_quality_has_none(tmp_path: Path) -> None:
    models = {
        "folder": write_bundle(tmp_path / "a", bundle_files()),
        "zip": zip_bundle(tmp_path / "b.zip", bundle_files()),
    }
    with ServerThread(create_app(models)) as server:
        for name in models:
            assert Client(server.url)(f"/models/{name}/quality.json").status == 404


@pytest.mark.parametrize("template", [None, CHATML])
def test_the_index_says_whether_a_language_model_takes_conversations(tmp_path: Path, template: str | None) -> None:
    bundle = Bundle.open(write_text_bundle(tmp_path / "writer.bundle", template=template))

    assert described(bundle)["chat"] is (template is not None)
    assert "chat" not in described(Bundle.open(write_bundle(tmp_path / "tiny", bundle_files("tiny"))))


def test_an_unknown_model_is_answered_with_the_nearest(get: Client) -> None:
    answer = get("/models/tinny/manifest.json")
    document = json.loads(answer.body)
    assert answer.status == 404
    assert (document["code"], document["hint"]) == ("model_not_found", "did you mean `tiny`?")
    assert document["details"]["allowed"] == ["tiny", "packed", "bare model"]


def test_an_unknown_file_is_answered_with_the_nearest(get: Client) -> None:
    document = json.loads(get("/models/tiny/onnx/modle.onnx").body)
    assert (document["code"], document["hint"]) == ("not_found", "did you mean `onnx/model.onnx`?")


def test_a_file_that_is_not_the_named_one_is_not_sent(tmp_path: Path) -> None:
    folder = write_bundle(tmp_path / "tiny.bundle", bundle_files())
    (folder / "onnx" / "model.onnx").write_bytes(onnx_model("Neg"))
    with ServerThread(create_app({"tiny": folder})) as server:
        answer = Client(server.url)("/models/tiny/onnx/model.onnx")
    assert answer.status == 500
    assert json.loads(answer.body)["code"] == "integrity_error"


def test_a_link_that_leaves_the_bundle_is_not_followed(tmp_path: Path) -> None:
    folder = write_bundle(tmp_path / "tiny.bundle", bundle_files())
    outside = tmp_path / "model.onnx"
    (folder / "onnx" / "model.onnx").rename(outside)
    (folder / "onnx" / "model.onnx").symlink_to(outside)
    with ServerThread(create_app({"tiny": folder})) as server:
        answer = Client(server.url)("/models/tiny/onnx/model.onnx")
    assert answer.status == 500
    assert "link" in json.loads(answer.body)["error"]


def test_a_bundle_that_is_converted_again_is_served_anew(tmp_path: Path) -> None:
    folder = write_bundle(tmp_path / "tiny.bundle", bundle_files())
    repository = ModelRepository({"tiny": folder})
    model = repository.get("tiny")
    first = model.loaded().session
    assert model.loaded().session is first
    write_bundle(folder, bundle_files(model=onnx_model("Neg"), more={"labels.json": b"[]"}))
    assert model.loaded().session.run({"x": [[1.0, 2.0, 3.0]]})["y"].tolist() == [[-1.0, -2.0, -3.0]]
    assert model.bundle().revision == hashlib.sha256((folder / "manifest.json").read_bytes()).hexdigest()
    repository.close()


def test_a_broken_bundle_is_listed_as_broken_and_spares_the_others(tmp_path: Path) -> None:
    models = {name: write_bundle(tmp_path / name, bundle_files(name)) for name in ("good", "bad", "gone")}
    (models["bad"] / "manifest.json").write_bytes(b"{")
    (models["gone"] / "manifest.json").unlink()
    with ServerThread(create_app(models)) as server:
        get = Client(server.url)
        entries = {entry["name"]: entry for entry in json.loads(get("/models/").body)["models"]}
        assert get("/models/bad/").status == 500
        assert get("/models/good/manifest.json").status == 200
    assert "error" not in entries["good"]
    assert entries["bad"]["error"]["code"] == "manifest_error"
    assert entries["gone"]["error"]["hint"] == "convert it again"


def test_a_model_of_which_no_version_can_be_read_is_listed_and_manifests_are_read_in_threads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    readers = set()
    read = ServedModel.bundle

    def watched(self: ServedModel) -> Bundle:
        readers.add(current_thread().name)
        return read(self)

    monkeypatch.setattr(ServedModel, "bundle", watched)
    good, *bad = (write_bundle(tmp_path / name, bundle_files(name)) for name in ("good", "bad", "worse"))
    for folder in bad:
        (folder / "manifest.json").write_bytes(b"{")
    with ServerThread(create_app({"good": good, "bad": bad})) as server:
        get = Client(server.url)
        answer = get("/models/")
        entries = {entry["name"]: entry for entry in json.loads(answer.body)["models"]}
        assert get("/models/bad/").status == get("/models/bad/manifest.json").status == 500
        assert get("/models/good/").status == get("/models/good/manifest.json").status == 200
        assert get("/models/none/").status == get("/models/none/manifest.json").status == 404
    assert answer.status == 200
    assert "error" not in entries["good"]
    assert (entries["bad"]["url"], entries["bad"]["error"]["code"]) == ("/models/bad", "manifest_error")
    assert "edge-infer server" not in readers


def test_models_are_called_what_their_manifest_says(tmp_path: Path) -> None:
    folder = write_bundle(tmp_path / "any name", bundle_files("tiny"))
    zipped = zip_bundle(tmp_path / "other.zip", bundle_files("tiny"))
    assert name_models([folder]) == {"tiny": [folder]}
    with pytest.raises(InputError, match=r"(?s)Two bundles are called `tiny`.*--name or --model-version"):
        name_models([folder, zipped])
    with pytest.raises(BundleError, match="no file or folder"):
        name_models([tmp_path / "none"])
    with pytest.raises(ModelNotFound):
        ModelRepository({}).get("tiny")
