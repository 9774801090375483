"""Bundles from a folder, a zip and a URL, and bare model files."""

from __future__ import annotations

import asyncio
import functools
import http.server
import threading
import zipfile
from typing import TYPE_CHECKING

import pytest

import edge_infer
from edge_infer import Bundle, IntegrityError, Tensor
from edge_infer.errors import FetchError
from edge_infer.formats.safetensors import write_examples
from tests.support import zoo

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.support.model_files import WriteBundle, WriteModel


@pytest.fixture
def folder(write_bundle: WriteBundle) -> Path:
    golden = write_examples([({"x": tensor()}, {"y": tensor()})])
    return write_bundle(
        {"onnx/fp32": zoo.identity()},
        extra={"examples/golden.safetensors": golden, "labels.json": b'["a", "b"]'},
        examples="examples/golden.safetensors",
        labels="labels.json",
    )


def tensor() -> Tensor:
    return Tensor.from_list([[1.0, 2.0, 3.0]], "float32")


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        pass


@pytest.fixture
def url(folder: Path) -> Iterator[str]:
    """Serve the folder's parent on the loopback."""
    handler = functools.partial(Quiet, directory=str(folder.parent))
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    thread.join()
    server.server_close()


def check(bundle: Bundle) -> None:
    """Claim that a bundle is the one that `folder` made, and that it runs."""
    assert bundle.manifest.name == "model"
    assert bundle.labels() == ["a", "b"]
    assert [inputs["x"].tolist() for inputs, _ in bundle.examples()] == [[[1.0, 2.0, 3.0]]]
    with edge_infer.load(bundle, arrays="tensor", self_test=True) as session:
        assert session.run({"x": tensor()})["y"].tolist() == [[1.0, 2.0, 3.0]]


def test_a_folder(folder: Path) -> None:
    check(Bundle.open(folder))


def test_a_zip(folder: Path, tmp_path: Path) -> None:
    target = tmp_path / "model.zip"
    with zipfile.ZipFile(target, "w") as archive:
        for path in folder.rglob("*"):
            archive.write(path, path.relative_to(folder).as_posix())

    check(Bundle.open(target))


def test_a_url(url: str, folder: Path) -> None:
    check(Bundle.open(f"{url}/{folder.name}"))
    check(Bundle.open(f"{url}/{folder.name}/"))


def test_a_url_without_blocking(url: str, folder: Path) -> None:
    session = asyncio.run(edge_infer.load_async(f"{url}/{folder.name}"))

    assert session.run({"x": tensor()})["y"].tolist() == [[1.0, 2.0, 3.0]]


def test_a_bare_model_by_path_and_url(url: str, folder: Path, write_model: WriteModel) -> None:
    path = write_model(zoo.identity(), "bare.onnx")

    for source in (str(path), f"{url}/bare.onnx"):
        with edge_infer.load(source) as session:
            assert repr(session) == "Session(bare, onnx/model, onnxruntime on cpu)"
            assert session.inputs[0].name == "x"


def test_a_url_that_answers_404_or_not_at_all(url: str) -> None:
    with pytest.raises(FetchError, match="status 404"):
        Bundle.open(f"{url}/nothing.bundle")
    with pytest.raises(FetchError, match="cannot be reached"):
        Bundle.open("http://127.0.0.1:1/model.onnx")


def test_a_server_of_ours_says_why_it_refuses(folder: Path) -> None:
    from edge_infer.server.app import create_app
    from edge_infer.server.http.in_thread import ServerThread

    with ServerThread(create_app({"model": folder})) as server:
        with pytest.raises(FetchError, match="status 404: Model `modle` is not served") as caught:
            Bundle.open(f"{server.url}/models/modle")
        assert "did you mean `model`?" in caught.value.hint
        (folder / "labels.json").write_bytes(b"[]")
        with pytest.raises(FetchError, match=r"status 500: .*has s"):
            Bundle.open(f"{server.url}/models/model").read("labels.json")


def test_a_file_changed_on_the_server_is_found(url: str, folder: Path) -> None:
    bundle = Bundle.open(f"{url}/{folder.name}")
    (folder / "labels.json").write_bytes(b'["a", "c"]')

    with pytest.raises(IntegrityError, match="sha256"):
        bundle.labels()


def test_the_revision_is_the_manifests_sha256_and_changes_with_any_file(
    folder: Path, write_bundle: WriteBundle
) -> None:
    first = Bundle.open(folder).revision

    second = Bundle.open(write_bundle({"onnx/fp32": zoo.identity(shape=("n", 4))})).revision

    assert len(first) == 64
    assert first != second
