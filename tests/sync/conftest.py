"""A store with versions of a small model, and a server that hosts it, well or badly."""

from __future__ import annotations

import contextlib
import hashlib
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pytest
from onnx import helper, numpy_helper

from edge_infer.bundle.manifest import FileEntry, Manifest, Variant
from edge_infer.formats.safetensors import write_examples
from edge_infer.runtime.live import trial
from edge_infer.sync.client import Pulled, pull
from edge_infer.sync.publish import Published, publish
from edge_infer.sync.repository import Repository
from edge_infer.tensors.tensor import Tensor, TensorSpec
from tests import zoo

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from edge_infer.sync.device import DeviceStore

SIZE = 96


def weights(version: int, size: int = SIZE) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
    """The weights of a version: those of the one before, each moved a little."""
    result = np.random.default_rng(0).normal(size=(size, size)).astype(np.float32)
    for step in range(1, version):
        result = (result * (1 + np.random.default_rng(step).normal(size=(size, size)) * 1e-5)).astype(np.float32)
    return result


def write_version(folder: Path, version: int, *, wrong: bool = False, size: int = SIZE) -> Path:
    """Write a bundle with one linear layer; a wrong one has golden outputs that the weights do not give."""
    matrix = weights(version, size)
    node = helper.make_node("MatMul", ["x", "w"], ["y"])
    graph = ([zoo.value("x", ["n", size])], [zoo.value("y", ["n", size])], [numpy_helper.from_array(matrix, "w")])
    made = helper.make_graph([node], "linear", *graph)
    model = helper.make_model(made, opset_imports=[helper.make_opsetid("", zoo.OPSET)], ir_version=10)
    x = np.random.default_rng(9).normal(size=(1, size)).astype(np.float32)
    y = x @ matrix + (10 if wrong else 0)
    files = {
        "onnx/model.onnx": model.SerializeToString(),
        "examples/golden.bin": write_examples(
            [({"x": Tensor(x.tobytes(), "float32", x.shape)}, {"y": Tensor(y.tobytes(), "float32", y.shape)})]
        ),
    }
    entries = []
    for path, data in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(data)
        entries.append(FileEntry(path, len(data), hashlib.sha256(data).hexdigest()))
    inputs, outputs = ([TensorSpec(name, "float32", ("n", size))] for name in ("x", "y"))
    variants = [Variant("onnx/fp32", "onnx", "fp32", "onnx/model.onnx")]
    manifest = Manifest("linear", str(version), inputs, outputs, variants, entries, examples="examples/golden.bin")
    (folder / "manifest.json").write_bytes(manifest.to_bytes())
    return folder


class Publisher(NamedTuple):
    """A store and its keys."""

    folder: Path
    keys: Path
    bundles: Path

    def publish(self, version: int, *, wrong: bool = False, size: int = SIZE) -> Published:
        bundle = write_version(self.bundles / str(version), version, wrong=wrong, size=size)
        return publish(bundle, Repository(self.folder), self.keys)


@pytest.fixture
def publisher(tmp_path: Path) -> Publisher:
    made = Publisher(tmp_path / "store", tmp_path / "keys", tmp_path / "bundles")
    Repository(made.folder).create(made.keys)
    return made


def take(
    store: Path | str, device: DeviceStore, check: Callable[[Path], None] = trial, *, retry: bool = False
) -> Pulled:
    """Pull the model `linear`."""
    return pull(str(store), "linear", device, check, retry=retry)


class Host:
    """A web server over a folder; a test sets how it behaves.

    Attributes:
        url: Where it answers.
        asked: The path and the Range header of each request.
        ranges: Whether it knows ranges.
        change: Changes the answer of a path: takes the status, headers and body, returns them.
    """

    def __init__(self, folder: Path) -> None:
        self.asked: list[tuple[str, str]] = []
        self.ranges = True
        self.change: Callable[[str, Answer], Answer] = lambda _path, answer: answer
        host = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                path, wanted = self.path.lstrip("/"), self.headers.get("Range", "")
                host.asked.append((path, wanted))
                answer = host.answer(folder, path, wanted)
                self.send_response(answer.status)
                for name, value in {"Content-Length": str(len(answer.body)), **answer.headers}.items():
                    self.send_header(name, value)
                with contextlib.suppress(ConnectionError):  # a client that gave up
                    self.end_headers()
                    self.wfile.write(answer.body)

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"

    def answer(self, folder: Path, path: str, wanted: str) -> Answer:
        if not (folder / path).is_file():
            return self.change(path, Answer(404, {}, b""))
        body = (folder / path).read_bytes()
        if wanted and self.ranges:
            start = int(wanted.removeprefix("bytes=").rstrip("-"))
            said = {"Content-Range": f"bytes {start}-{len(body) - 1}/{len(body)}"}
            return self.change(path, Answer(206, said, body[start:]))
        return self.change(path, Answer(200, {}, body))


class Answer(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes


@pytest.fixture
def host(publisher: Publisher) -> Iterator[Host]:
    made = Host(publisher.folder)
    thread = threading.Thread(target=made.server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    yield made
    made.server.shutdown()
    made.server.server_close()
    thread.join()
