from __future__ import annotations

from http.client import HTTPConnection
from typing import TYPE_CHECKING, NamedTuple

import pytest

from edge_infer.server.app import create_app
from edge_infer.server.http.in_thread import ServerThread
from tests.server.bundles import bundle_files, write_bundle, zip_bundle

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

MODULE = b"export const answer = 42;\n" + b"// the quick brown fox jumps over the lazy dog\n" * 200


@pytest.fixture(scope="module")
def web_root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A stand-in for `web/`: one file of each kind."""
    root = tmp_path_factory.mktemp("web")
    files = {
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


class Answer(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes


class Client:
    """Sends requests as they are written: no client library tidies the path or adds a header."""

    def __init__(self, url: str) -> None:
        self.url = url

    def __call__(self, path: str, method: str = "GET", body: bytes | None = None, **headers: str) -> Answer:
        connection = HTTPConnection(self.url.removeprefix("http://"), timeout=60)
        try:
            connection.putrequest(method, path, skip_accept_encoding=True)
            if body is not None and "transfer_encoding" not in headers:
                headers.setdefault("content_length", str(len(body)))
            for name, value in headers.items():
                connection.putheader(name.replace("_", "-"), value)
            connection.endheaders(body)
            response = connection.getresponse()
            found = {name.lower(): value for name, value in response.getheaders()}
            return Answer(response.status, found, response.read())
        finally:
            connection.close()


@pytest.fixture(scope="module")
def get(web_root: Path, models: dict[str, Path]) -> Iterator[Client]:
    """A client of a real server on a real socket."""
    with ServerThread(create_app(models, web_root)) as server:
        yield Client(server.url)
