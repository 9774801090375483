"""`edge_infer.check` tells what `load` would do, and fetches the manifest alone."""

from __future__ import annotations

import threading
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

import pytest

import edge_infer
from edge_infer.errors import BackendUnavailable, BundleError, InputError
from edge_infer.runtime.measurements import Measurement, remember
from tests.support import zoo

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.model_files import WriteBundle, WriteModel


@pytest.fixture
def bundle(write_bundle: WriteBundle, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("EDGE_INFER_CACHE", str(tmp_path / "cache"))
    return write_bundle({"onnx/fp32": zoo.mlp(), "onnx/int8": zoo.mlp(seed=1)})


@pytest.mark.parametrize("options", [{}, {"variant": "onnx/fp32"}, {"backend": "onnxruntime", "device": "cpu"}])
def test_a_load_does_what_was_told_before(bundle: Path, options: dict[str, Any]) -> None:
    told = edge_infer.check(bundle, **options)

    with edge_infer.load(bundle, **options) as session:
        report = session.report()
    assert (told.variant, told.engine, told.device) == (report.variant, report.engine, report.device)
    (file,) = told.files
    opened = edge_infer.Bundle.open(bundle)
    assert file.url == f"{bundle}/{opened.manifest.variant(told.variant).file}"
    assert file.bytes == file.here == told.bytes_here == len(opened.read(opened.manifest.variant(told.variant).file))
    assert (told.bytes_to_fetch, told.memory_bytes) == (0, 2 * file.bytes)


def test_what_was_measured_here_decides_and_gives_the_time(bundle: Path) -> None:
    assert edge_infer.check(bundle).expected_ms is None
    assert any("nothing was measured here" in said for said in edge_infer.check(bundle).not_better)

    opened = edge_infer.Bundle.open(bundle)
    version = edge_infer.load(bundle).report().engine_version
    row = Measurement("onnx/fp32", "onnxruntime", version, "cpu", 1, 0.25, 0.01, None, "ok")
    remember(opened.manifest.name, opened.revision, [row])
    told = edge_infer.check(bundle)

    assert (told.variant, told.expected_ms) == ("onnx/fp32", 0.25)
    assert told.why.startswith("measured")
    assert not any("measured" in said for said in told.not_better)


def test_of_a_bundle_at_a_url_the_manifest_alone_is_fetched(bundle: Path) -> None:
    asked: list[str] = []

    class Handler(SimpleHTTPRequestHandler):
        def __init__(self, *values: object) -> None:
            super().__init__(*values, directory=str(bundle))  # type: ignore[arg-type]

        def log_message(self, *_: object) -> None:
            asked.append(self.path)

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        told = edge_infer.check(f"http://127.0.0.1:{server.server_port}")
        server.shutdown()

    assert set(asked) == {"/manifest.json"}
    assert (told.bytes_here, told.bytes_to_fetch) == (0, told.files[0].bytes)
    assert told.files[0].bytes > 0


def test_a_gpu_that_is_not_there_is_told_as_load_tells_it(bundle: Path) -> None:
    if edge_infer.check(bundle).device != "cpu":
        pytest.skip("this machine has a GPU")
    assert not any(said.startswith("ort-web") for said in edge_infer.check(bundle).not_better)
    assert any(said.startswith("cuda: ") for said in edge_infer.check(bundle).not_better)
    with pytest.raises(BackendUnavailable):
        edge_infer.check(bundle, device="cuda")


def test_a_bare_model_is_looked_at_too(write_model: WriteModel) -> None:
    path = write_model(zoo.mlp())

    told = edge_infer.check(path)

    assert (told.files[0].url, told.bytes_to_fetch) == (str(path), 0)


@pytest.mark.parametrize(
    "source", ["http://127.0.0.1:9/m.onnx", "http://127.0.0.1:9/v2/models/m", "hf:a/b", "edge+http://127.0.0.1:9/m"]
)
def test_what_has_to_be_fetched_whole_is_refused(source: str) -> None:
    with pytest.raises(InputError, match="nothing to look at"):
        edge_infer.check(source)


def test_what_is_not_there_is_an_error_of_bundles() -> None:
    with pytest.raises(BundleError):
        edge_infer.check("none.bundle")
