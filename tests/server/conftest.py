from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from edge_infer.server.app import create_app
from edge_infer.server.execution import job
from edge_infer.server.http.in_thread import ServerThread
from tests.support.server.bundles import bundle_files, write_bundle, zip_bundle
from tests.support.server.client import MODULE, Client
from tests.support.server.gate import Gate
from tests.support.server.texts import use_fakes

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.support.server.texts import HeldDecoder


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Iterator[Gate]:
    made = Gate()
    monkeypatch.setattr(job, "run_batch", made)
    yield made
    made.open.set()


@pytest.fixture
def decoders(monkeypatch: pytest.MonkeyPatch) -> list[HeldDecoder]:
    return use_fakes(monkeypatch)


@pytest.fixture(scope="module")
def web_root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A stand-in for `web/`: one file of each kind."""
    root = tmp_path_factory.mktemp("web")
    files = {
        "studio/index.html": b'<!doctype html><head><link rel="stylesheet" href="studio.css"></head>',
        "studio/studio.css": b"body { margin: 0 }",
        "demo/index.html": b'<!doctype html><head><link rel="stylesheet" href="style.css"></head>' + b" " * 2000,
        "demo/style.css": b"body { margin: 0 }",
        "demo/empty.txt": b"",
        "demo/.secret": b"secret",
        "src/index.js": MODULE,
        "src/deep/er/module.mjs": MODULE,
        "vendor/versions.json": b"{}",
        "vendor/engine.wasm": b"\0asm" + bytes(300_000),
        "vendor/noise.wasm": b"\0asm" + _noise(3 * 2**20),
        "vendor/lib.zip": b"PK" + bytes(5000),
        "vendor/picture.png": b"\x89PNG" + bytes(5000),
        "secret.txt": b"secret",
    }
    return write_bundle(root, files)


def _noise(size: int) -> bytes:
    from random import Random

    return Random(7).randbytes(size)


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """One model as a folder, as a zip, and bare."""
    root = tmp_path_factory.mktemp("models")
    folder = write_bundle(root / "tiny.bundle", {**bundle_files("tiny"), "quality.json": b"{}", "unnamed.txt": b"no"})
    zipped = zip_bundle(root / "packed.zip", {**bundle_files("packed"), "quality.json": b'{"top1": 1}'})
    bare = root / "bare model.onnx"
    bare.write_bytes(bundle_files()["onnx/model.onnx"])
    return {"tiny": folder, "packed": zipped, "bare model": bare}


@pytest.fixture(scope="module")
def get(web_root: Path, models: dict[str, Path]) -> Iterator[Client]:
    """A client of a real server on a real socket."""
    with ServerThread(create_app(models, web_root)) as server:
        yield Client(server.url)
