"""What requests may take of a server together and each by itself: memory for bodies, rows for a worker."""

from __future__ import annotations

import json
import socket
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import numpy
import pytest

from edge_infer.server.app import Limits, create_app
from edge_infer.server.http.in_thread import ServerThread
from edge_infer.server.scheduling.batcher import BatchLimits
from tests.support.server.bundles import bundle_files, onnx_model, write_bundle
from tests.support.server.client import OCTETS, Client, ask, row
from tests.support.server.gate import Gate, limits
from tests.support.server.streams import answer, answers_of, framed, raw, stream
from tests.support.wait import wait_until

if TYPE_CHECKING:
    from pathlib import Path

DIRECT = "/v2/models/tiny/infer"
APPLICATION = f"{DIRECT}?a=b"
EVENTS = "/v2/models/tiny/infer_stream"


@pytest.fixture
def tiny(tmp_path: Path) -> Path:
    return write_bundle(tmp_path / "tiny", bundle_files())


@pytest.mark.parametrize("max_batch_size", [1, 32])
def test_a_request_of_too_many_rows_is_refused_by_name(tiny: Path, max_batch_size: int) -> None:
    batch = BatchLimits(max_batch_size=max_batch_size, max_rows=4)
    message = "Input `x` has 5 rows, the server takes 4 in one request"
    entry = {"name": "x", "shape": [5, 3], "datatype": "FP32", "data": [0.5] * 15}
    with ServerThread(create_app({"tiny": tiny}, limits=Limits(batch=batch))) as server:
        send = Client(server.url)
        for path in (DIRECT, APPLICATION):
            assert send(path, "POST", row(1.0, 4), content_type=OCTETS).body == row(1.0, 4)
            for body, kind in ((row(1.0, 5), OCTETS), (json.dumps({"inputs": [entry]}).encode(), "application/json")):
                refused = send(path, "POST", body, content_type=kind)
                document = json.loads(refused.body)
                assert (refused.status, document["error"]) == (400, message)
                assert "--max-rows" in document["hint"]
        refused = send(EVENTS, "POST", json.dumps({"inputs": [entry], "parameters": {"steps": 1}}).encode())
        assert (refused.status, json.loads(refused.body)["error"]) == (400, message)
        with stream(server.url) as connection:
            connection.send(framed(1, {"inputs": [entry]}))
            assert answer(connection.recv())[1]["error"] == message


def test_the_entries_of_a_sequence_are_steps_and_no_rows(tiny: Path) -> None:
    with ServerThread(create_app({"tiny": tiny}, limits=Limits(batch=BatchLimits(max_rows=4)))) as server:
        for rows, status in ((4, 200), (5, 400)):
            entry = {"name": "x", "shape": [6, rows, 3], "datatype": "FP32", "data": [0.5] * 18 * rows}
            body = json.dumps({"inputs": [entry], "parameters": {"sequence": "x"}}).encode()
            assert Client(server.url)(EVENTS, "POST", body).status == status


def test_what_may_be_no_rows_and_no_bound_are_not_bounded(tmp_path: Path, tiny: Path) -> None:
    mixing = write_bundle(tmp_path / "mixing", bundle_files("mixing", _sum_of_rows()))
    batch = BatchLimits(max_rows=4)
    with ServerThread(create_app({"tiny": mixing}, limits=Limits(batch=batch))) as server:
        assert Client(server.url)(DIRECT, "POST", row(1.0, 5), content_type=OCTETS).status == 200
    with ServerThread(create_app({"tiny": tiny}, limits=Limits(batch=BatchLimits(max_rows=0)))) as server:
        assert Client(server.url)(DIRECT, "POST", row(1.0, 5000), content_type=OCTETS).status == 200


def _sum_of_rows() -> bytes:
    """A model of one node whose rows are steps of one sequence: each is the sum of those before it."""
    import onnx
    from onnx import helper, numpy_helper

    model = onnx.load_from_string(onnx_model())
    model.graph.initializer.append(numpy_helper.from_array(numpy.array(0, "int64"), "axis"))
    del model.graph.node[:]
    model.graph.node.append(helper.make_node("CumSum", ["x", "axis"], ["y"]))
    data: bytes = model.SerializeToString()
    return data


def request_head(path: str, more: str) -> bytes:
    kind = "application/json" if path == EVENTS else OCTETS
    return f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Type: {kind}\r\n{more}\r\n\r\n".encode()


def connected(server: ServerThread) -> socket.socket:
    return socket.create_connection(("127.0.0.1", int(server.url.rpartition(":")[2])), 30)


@pytest.mark.parametrize(
    ("path", "more", "sent"),
    [
        (DIRECT, "Content-Length: 48", b""),
        (APPLICATION, "Content-Length: 48", b""),
        (APPLICATION, "Transfer-Encoding: chunked", b"30\r\n" + row(3.0, 4)),
        (EVENTS, "Content-Length: 48", b""),
    ],
    ids=["direct", "application", "chunks", "events"],
)
def test_a_body_for_which_there_is_no_memory_is_refused_before_it_comes(
    tiny: Path, gate: Gate, path: str, more: str, sent: bytes
) -> None:
    app = create_app({"tiny": tiny}, limits=limits()._replace(max_bodies_bytes=200))  # and answers
    memory = app.direct.context.memory
    with ServerThread(app) as server, ThreadPoolExecutor(2) as threads:
        send = Client(server.url)
        send("/v2/models/tiny/ready")
        first = threads.submit(send, DIRECT, "POST", row(1.0, 4), content_type=OCTETS)
        assert gate.entered.wait(60)
        second = threads.submit(send, APPLICATION, "POST", row(2.0, 4), content_type=OCTETS)
        wait_until(lambda: memory.taken >= 192)
        with connected(server) as connection:
            connection.sendall(request_head(path, more) + sent)
            text = connection.recv(65536)
            assert text.startswith(b"HTTP/1.1 503 ")
            assert b"retry-after: 1\r\n" in text
        gate.open.set()
        assert (first.result().body, second.result().body) == (row(1.0, 4), row(2.0, 4))
        wait_until(lambda: not memory.taken)
        metrics = send("/metrics").body.decode()
        assert 'edge_infer_rejections_total{code="queue_full",model="tiny",pool="default",version="1"} 1.0' in metrics
        assert "edge_infer_failures_total{" not in metrics
        large = row(5.0, 40)  # more than all have together, but alone
        assert send(DIRECT if path == EVENTS else path, "POST", large, content_type=OCTETS).body == large


def test_a_request_of_a_stream_for_which_there_is_no_memory_is_refused(tiny: Path, gate: Gate) -> None:
    app = create_app({"tiny": tiny}, limits=limits()._replace(max_bodies_bytes=60))
    with ServerThread(app) as server:
        Client(server.url)("/v2/models/tiny/ready")
        with stream(server.url) as connection:
            connection.send(b"".join(raw(number, number) for number in range(4)))
            refused = answers_of(connection, 2)
            assert [(number, document["status"]) for number, document, _ in refused] == [(2, 503), (3, 503)]
            gate.open.set()
            assert sorted(number for number, _, _ in answers_of(connection, 2)) == [0, 1]
        wait_until(lambda: not app.direct.context.memory.taken)  # an answer counts until its sending is over


@pytest.mark.parametrize("path", [DIRECT, APPLICATION, EVENTS])
def test_who_leaves_within_a_body_gives_its_memory_back(tiny: Path, path: str) -> None:
    app = create_app({"tiny": tiny})
    memory = app.direct.context.memory
    with ServerThread(app) as server:
        assert ask(server).status == 200
        with connected(server) as connection:
            connection.sendall(request_head(path, "Content-Length: 48") + row(1.0))
            wait_until(lambda: memory.taken == 12)  # what arrived, not what was announced
        wait_until(lambda: not memory.taken)


def test_what_a_body_unpacks_to_counts_too(tiny: Path, gate: Gate) -> None:
    import gzip

    app = create_app({"tiny": tiny}, limits=limits()._replace(max_bodies_bytes=5000))
    with ServerThread(app) as server, ThreadPoolExecutor(1) as threads:
        first = threads.submit(ask, server)
        assert gate.entered.wait(60)
        send = Client(server.url)
        steps = json.dumps({"inputs": [], "parameters": {"steps": 1}}).encode() + b" " * 10_000
        for path, body, kind in ((DIRECT, row(1.0, 1000), OCTETS), (EVENTS, steps, "application/json")):
            refused = send(path, "POST", gzip.compress(body), content_type=kind, content_encoding="gzip")
            assert (refused.status, json.loads(refused.body)["code"]) == (503, "queue_full")
        gate.open.set()
        assert first.result().status == 200
        wait_until(lambda: not app.direct.context.memory.taken)
