"""A small server of pages and one bundle, which cuts, refuses ranges, or sends something else, as it is told."""

from __future__ import annotations

import hashlib
import json
import re
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from onnx import TensorProto, helper, numpy_helper

if TYPE_CHECKING:
    from typing import Self

WEB = Path(__file__).parents[3] / "web"
PART = 2**20
_KINDS = {".js": "text/javascript", ".mjs": "text/javascript", ".wasm": "application/wasm", ".html": "text/html"}


def make_model(megabytes: int, seed: int) -> bytes:
    """Make a model that adds as many weights."""
    weights = np.random.default_rng(seed).random(megabytes * PART // 4, np.float32)
    graph = helper.make_graph(
        [helper.make_node("Add", ["x", "w"], ["sum"]), helper.make_node("ReduceSum", ["sum"], ["y"], keepdims=0)],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [])],
        [numpy_helper.from_array(weights, "w")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    data: bytes = model.SerializeToString()
    return data


def path_of(model: bytes) -> str:
    """Return where a bundle has a model, which is TFLite by its identifier, else ONNX."""
    return "tflite/model.tflite" if model[4:8] == b"TFL3" else "onnx/model.onnx"


def make_manifest(name: str, model: bytes) -> bytes:
    """Describe a bundle of one model, with the hashes of its parts."""
    path = path_of(model)
    kind = path.partition("/")[0]
    parts = [hashlib.sha256(model[start : start + PART]).hexdigest() for start in range(0, len(model), PART)]
    file = {"path": path, "size": len(model), "sha256": hashlib.sha256(model).hexdigest(), "parts": parts}
    variant = {"id": f"{kind}/fp32", "format": kind, "precision": "fp32", "file": path}
    document = {"schema_version": "1.0", "name": name, "version": "1", "inputs": [], "outputs": []}
    return json.dumps({**document, "variants": [variant], "files": [file]}).encode()


class FaultServer:
    """Serves `web/` and bundles `/models/NAME/`, on this machine, while the context lasts.

    Attributes:
        cuts: After how many bytes each of the next answers with a model is cut; none when it is empty.
        engine_cuts: The same of engines' wasm files.
        stalls: After how many bytes each of the next answers with a model stands still.
        halted: The ending of the paths of files, engines' and manifests, whose answers stand still in their middle.
        has_ranges: Whether it answers to `Range`.
        as_page: Whether models are answered with an HTML page.
        asked: From where each request for a model asked.
        engine_asked: From where each request for an engine's wasm file asked.
    """

    def __init__(self, models: dict[str, bytes]) -> None:
        self._files = {f"/models/{name}/{path_of(model)}": model for name, model in models.items()}
        self._manifests = {
            f"/models/{name}/manifest.json": make_manifest(name, model) for name, model in models.items()
        }
        self._is_over = threading.Event()
        self.reset()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                outer.answer(self)

            def log_message(self, *_: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"

    def reset(self) -> None:
        """Behave well again, and forget what was asked."""
        self.cuts: list[int] = []
        self.engine_cuts: list[int] = []
        self.stalls: list[int] = []
        self.halted = ""
        self.has_ranges = True
        self.as_page = False
        self.asked: list[int] = []
        self.engine_asked: list[int] = []

    def __enter__(self) -> Self:
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def answer(self, request: BaseHTTPRequestHandler) -> None:
        """Answer one request."""
        path = request.path.partition("?")[0]
        if path == "/blank.html":
            self._send(request, b"<!doctype html><link rel=icon href='data:,'>", "text/html")
        elif path in self._manifests:
            self._send(request, self._manifests[path], "application/json")
        elif path in self._files:
            self._send_model(request, self._files[path])
        elif path.endswith(".wasm") and self.engine_cuts + self.engine_asked:
            self._send_cut(request, (WEB / path.lstrip("/")).read_bytes(), self.engine_asked, self.engine_cuts)
        elif (WEB / path.lstrip("/")).is_file():
            self._send(request, (WEB / path.lstrip("/")).read_bytes(), _KINDS.get(Path(path).suffix, "text/plain"))
        else:
            request.send_error(404)

    def _send_model(self, request: BaseHTTPRequestHandler, model: bytes) -> None:
        if self.as_page:
            self.asked.append(0)
            self._send(request, b"<!doctype html>Please log in", "text/html; charset=utf-8")
        else:
            self._send_cut(request, model, self.asked, self.cuts, self.stalls)

    def _send_cut(
        self,
        request: BaseHTTPRequestHandler,
        model: bytes,
        asked: list[int],
        cuts: list[int],
        stalls: list[int] | None = None,
    ) -> None:
        found = re.match(r"bytes=(\d+)-", request.headers.get("Range", ""))
        start = int(found[1]) if found else 0
        asked.append(start)
        start = start if self.has_ranges else 0
        request.send_response(206 if start else 200)
        request.send_header("Content-Length", str(len(model) - start))
        if start:
            request.send_header("Content-Range", f"bytes {start}-{len(model) - 1}/{len(model)}")
        request.send_header("Content-Type", "application/octet-stream")
        request.send_header("Cache-Control", "no-store")
        request.end_headers()
        if stalls:
            request.wfile.write(model[start : start + stalls.pop(0)])
            request.wfile.flush()
            self._is_over.wait()
            request.close_connection = True
        elif cuts:
            sent = cuts.pop(0)
            request.wfile.write(model[start : start + sent])
            request.wfile.flush()
            # As networks do: the connection dies some time after its last byte. At once, browsers drop what is unread.
            time.sleep(2 if sent else 0)
            request.close_connection = True
        else:
            request.wfile.write(model[start:])

    def _send(self, request: BaseHTTPRequestHandler, body: bytes, kind: str) -> None:
        request.send_response(200)
        request.send_header("Content-Length", str(len(body)))
        request.send_header("Content-Type", kind)
        request.end_headers()
        if self.halted and request.path.endswith(self.halted):
            request.wfile.write(body[: len(body) // 2])
            request.wfile.flush()
            self._is_over.wait()
            request.close_connection = True
        else:
            request.wfile.write(body)
