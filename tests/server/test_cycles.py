"""A request leaves no reference cycle, which only the garbage collector could free, while the server waits for it."""

from __future__ import annotations

import gc
import gzip
import json
from http.client import HTTPConnection
from typing import TYPE_CHECKING

import pytest
from websockets.sync.client import connect

from edge_infer.formats.safetensors import FRAME
from edge_infer.server.app import Limits, create_app
from edge_infer.server.http.in_thread import ServerThread
from edge_infer.server.scheduling.batcher import BatchLimits
from tests.support.server.bundles import bundle_files, write_bundle
from tests.support.server.client import Client, row

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

LISTS = b"[" + b"[]," * 30_000 + b"[]]"  # so much JSON is parsed in a process
JSON = json.dumps({"inputs": [{"name": "x", "shape": [1, 3], "datatype": "FP32", "data": [1.5, 2, 3]}]}).encode()


@pytest.fixture(scope="module")
def port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    tiny = write_bundle(tmp_path_factory.mktemp("cycles") / "tiny", bundle_files())
    with ServerThread(create_app({"tiny": tiny}, limits=Limits(batch=BatchLimits(max_rows=0)))) as running:
        Client(running.url)("/v2/models/tiny/ready")
        yield int(running.url.rpartition(":")[2])


def send_all(port: int, count: int, kind: str, body: bytes) -> None:
    connection = HTTPConnection("127.0.0.1", port, timeout=60)
    for _ in range(count):
        connection.request("POST", "/v2/models/tiny/infer", body, {"Content-Type": kind})
        answer = connection.getresponse()
        answer.read()
        assert answer.status == 200
    connection.close()


def send_raw(port: int, count: int) -> None:
    send_all(port, count, "application/octet-stream", row(1.0))


def send_json(port: int, count: int) -> None:
    send_all(port, count, "application/json", JSON)


def send_frames(port: int, count: int) -> None:
    frame_bytes = FRAME.size + len(row(1.0))
    with connect(f"ws://127.0.0.1:{port}/v2/models/tiny/stream") as stream:
        for _ in range(count // 100):
            stream.send(b"".join(FRAME.pack(number, 0, len(row(1.0))) + row(1.0) for number in range(100)))
            left = 100
            while left:
                left -= len(stream.recv()) // frame_bytes


@pytest.mark.long
@pytest.mark.parametrize(("send", "count"), [(send_raw, 4000), (send_json, 1000), (send_frames, 5000)])
def test_a_request_leaves_no_cycle(port: int, send: Callable[[int, int], None], count: int) -> None:
    send(port, 100)
    gc.collect()
    gc.disable()
    try:
        send(port, count)
        # A cycle for each request would be `count` objects at least; connections and other threads leave some.
        assert gc.collect() < count // 4
    finally:
        gc.enable()


@pytest.mark.parametrize(
    ("body", "more", "status"),
    [
        (LISTS, {}, 400),
        (gzip.compress(LISTS), {"content_encoding": "gzip"}, 400),
        (gzip.compress(bytes(20 * 2**20)), {"content_encoding": "gzip"}, 413),
        (b"[]", {}, 400),
    ],
    ids=["in a process", "packed", "bomb", "small"],
)
@pytest.mark.parametrize("path", ["/v2/models/tiny/infer", "/v2/models/tiny/infer?a=b"], ids=["direct", "application"])
def test_a_request_that_fails_leaves_no_cycle(
    port: int, path: str, body: bytes, more: dict[str, str], status: int
) -> None:
    """Its body would stay in memory with it, 15 MB of a bomb of 64 kB, until the collector ran."""

    def send(count: int) -> None:
        client = Client(f"http://127.0.0.1:{port}")
        for _ in range(count):
            assert client(path, "POST", body, content_type="application/json", **more).status == status

    send(2)
    gc.collect()
    gc.disable()
    try:
        send(20)
        assert gc.collect() < 20 * 10  # a frame and its traceback, its error, its call: 40 objects and more for each
    finally:
        gc.enable()
