"""What the log says of each request and each WebSocket, and the counts of those that no model was given."""

from __future__ import annotations

import hashlib
import io
import json
import logging
import signal
import socket
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest
from websockets.exceptions import InvalidStatus

from edge_infer.cli.serve import _log_to_output
from edge_infer.server.app import Limits, create_app
from edge_infer.server.config import Settings
from edge_infer.server.http.in_thread import ServerThread
from edge_infer.server.http.limits import DoorLimits
from edge_infer.server.scheduling.batcher import BatchLimits
from edge_infer.server.scheduling.shares import Tenant
from tests.support.server.bundles import bundle_files, write_bundle
from tests.support.server.client import OCTETS, Client, ask, refusals, row
from tests.support.server.gate import Gate, wait_until_queued
from tests.support.server.process import started
from tests.support.server.streams import answers_of, raw, stream
from tests.support.wait import wait_until

if TYPE_CHECKING:
    from pathlib import Path

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
NAMES = {"x_request_id": "seven", "traceparent": f"00-{TRACE}-00f067aa0ba902b7-01"}
PATH = "/v2/models/tiny"
KEY = "k3y-of-the-shop"


def test_a_structured_line_says_whose_a_request_was_and_what_became_of_it(tmp_path: Path, web_root: Path) -> None:
    write_bundle(tmp_path / "tiny.bundle", bundle_files())
    digest = hashlib.sha256(KEY.encode()).hexdigest()
    (tmp_path / "serve.toml").write_text(f'[tenants.shop]\nkeys = ["sha256:{digest}"]\n')
    options = ("--config", "serve.toml", "--web-root", str(web_root), "--log-format", "json")
    mine: dict[str, Any] = {"x_api_key": KEY, **NAMES}
    nobody: dict[str, Any] = NAMES
    steps = {"inputs": [{"name": "x", "shape": [1, 3], "datatype": "FP32", "data": [1, 2, 3]}]}
    with started(tmp_path, *options) as (process, url, _):
        send = Client(url)
        send(f"{PATH}/ready", **mine)
        send(f"{PATH}/infer", "POST", row(1.0), content_type=OCTETS, **mine)
        send(f"{PATH}/infer", "POST", row(1.0), content_type=OCTETS, connection="close", **mine)
        send(f"{PATH}/infer", "POST", b"1", content_type=OCTETS, **mine)
        send("/inference", "POST", row(1.0), content_type=OCTETS, **mine)
        send(f"{PATH}/infer_stream", "POST", json.dumps({**steps, "parameters": {"steps": 2}}).encode(), **mine)
        send(f"{PATH}/infer", "POST", row(1.0), content_type=OCTETS, authorization="Bearer wrong-secret", **nobody)
        send("/v2/models/none/infer", "POST", row(1.0), content_type=OCTETS, **mine)
        send("/metrics", **mine)
        send("/nothing?key=secret", **mine)
        with stream(url, additional_headers={"X-Api-Key": KEY, "X-Request-Id": "seven"}) as opened:
            opened.send(raw(1, 1.0) + raw(2, 2.0))
            answers_of(opened, 2)
        with pytest.raises(InvalidStatus):
            stream(url)
        process.send_signal(signal.SIGTERM)
        rest, _ = process.communicate(timeout=60)
    assert KEY not in rest
    assert "secret" not in rest
    lines = [json.loads(line) for line in rest.splitlines() if line.startswith("{")]
    found = [line for line in lines if "path" in line]
    for one in found:
        assert one.pop("time") > 0
        assert one.pop("level") == "info"
        assert one.pop("ms") >= 0
        one.pop("bytes", None)
    named = {"request_id": "seven", "trace_id": TRACE}
    shop = {**named, "tenant": "shop"}
    tiny = {**shop, "model": "tiny", "version": "1"}

    def line(path: str, status: int, method: str = "POST", **facts: Any) -> dict[str, Any]:
        return {"method": method, "path": path, "status": status, **facts}

    assert found == [
        line(f"{PATH}/ready", 200, "GET", **shop),
        line(f"{PATH}/infer", 200, **tiny),
        line(f"{PATH}/infer", 200, **tiny),
        line(f"{PATH}/infer", 400, **tiny, code="input_error"),
        line("/inference", 200, **tiny),
        line(f"{PATH}/infer_stream", 200, **tiny),
        line(f"{PATH}/infer", 401, **named, code="unauthorized"),
        line("/v2/models/none/infer", 404, **shop, code="model_not_found"),
        line("/metrics", 403, "GET", **shop, code="not_admin"),
        line("/nothing", 404, "GET", **shop, code="not_found"),
        {
            **line(f"{PATH}/stream", 101, "WEBSOCKET", requests=2, errors=0),
            "request_id": "seven",
            "tenant": "shop",
            "model": "tiny",
            "version": "1",
        },
        line(f"{PATH}/stream", 401, "WEBSOCKET", requests=0, code="unauthorized"),
    ]


@pytest.mark.parametrize("log_format", ["text", "json"])
def test_a_log_that_nobody_reads_harms_nobody(log_format: str, monkeypatch: pytest.MonkeyPatch) -> None:
    class Full(io.StringIO):
        def write(self, _: str) -> int:
            raise OSError(28, "No space left on device")

    log = logging.getLogger("a log on a full disk")
    _log_to_output(log_format, [log.name])
    monkeypatch.setattr("sys.stderr", Full())
    log.error("one")
    monkeypatch.setattr("sys.stderr", read := io.StringIO())
    log.error("two")
    assert "two" in read.getvalue()


def test_what_no_model_was_given_is_counted_by_its_code(tmp_path: Path) -> None:
    app = create_app({"tiny": write_bundle(tmp_path / "tiny", bundle_files())})
    with ServerThread(app) as server:
        send = Client(server.url)
        assert refusals(server) == {}
        assert ask(server, name="none").status == send("/v2/models/none").status == 404
        assert send("/v2/models/none/infer_stream", "POST", b"{}").status == 404
        with pytest.raises(InvalidStatus):
            stream(server.url, "none")
        assert send("/nothing").status == 404
        assert send("/livez", "POST", b"").status == 405
        assert ask(server).status == 200
        assert send(f"{PATH}/infer", "POST", b"1", content_type=OCTETS).status == 400  # its model has counted it
        assert refusals(server) == {"model_not_found": 4, "not_found": 1, "method_not_allowed": 1}
        app.engine.is_draining = True
        assert ask(server).status == send(f"{PATH}/infer_stream", "POST", b"{}").status == 503
        assert refusals(server)["shutting_down"] == 2


def test_a_refusal_of_a_model_is_counted_there_alone(tmp_path: Path, gate: Gate) -> None:
    limits = Limits(workers=1, batch=BatchLimits(max_batch_size=1, max_wait_ms=1e6, max_queue_size=1))
    app = create_app({"tiny": write_bundle(tmp_path / "tiny", bundle_files())}, limits=limits)
    with ServerThread(app) as server, ThreadPoolExecutor(2) as threads:
        waiting = [threads.submit(ask, server)]
        assert gate.entered.wait(60)
        waiting.append(threads.submit(ask, server))
        wait_until_queued(server, 1)
        refused = [ask(server), ask(server, connection="close")]  # without ASGI, and through it
        refused.append(Client(server.url)(f"{PATH}/infer_stream", "POST", b"{}"))
        gate.open.set()
        assert [future.result().status for future in waiting] == [200, 200]
        metrics = Client(server.url)("/metrics").body.decode()
        assert refusals(server) == {}
    assert [answer.status for answer in refused] == [503] * 3
    assert 'edge_infer_rejections_total{code="queue_full",model="tiny",pool="default",version="1"} 3.0' in metrics
    assert "edge_infer_failures_total{" not in metrics


def test_no_key_is_counted_too(tmp_path: Path) -> None:
    tenants = {Tenant("prometheus", sees_metrics=True): [hashlib.sha256(b"k").digest()]}
    app = create_app({"tiny": write_bundle(tmp_path / "tiny", bundle_files())}, settings=Settings(tenants=tenants))
    with ServerThread(app) as server:
        assert ask(server).status == Client(server.url)("/v2/models/tiny").status == 401
        metrics = Client(server.url)("/metrics", x_api_key="k").body
    assert b'edge_infer_refusals_total{code="unauthorized"} 2.0' in metrics


HANDSHAKE = (
    b"GET /v2/models/tiny/stream?key=secret HTTP/1.1\r\nX-Request-Id: seven\r\n"
    b"Connection: Upgrade\r\nUpgrade: websocket\r\n\r\n"
)
POST = b"POST /v2/models/tiny/infer%b HTTP/1.1\r\nHost: x\r\nX-Request-Id: seven\r\nContent-Length: 12\r\n\r\n"


@pytest.mark.parametrize(
    ("sent", "method", "path", "status", "code", "request_id"),
    [
        (b"", "-", "-", 408, "request_timeout", ""),
        (b"GET /he%61lth?key=secret", "GET", "/health", 408, "request_timeout", ""),
        (b"nonsense\r\n\r\n", "-", "-", 400, "input_error", ""),
        (b"GET /" + b"a" * 5000 + b" HTTP/1.1\r\n\r\n", "GET", "/" + "a" * 1023, 431, "headers_too_large", ""),
        (HANDSHAKE, "GET", f"{PATH}/stream", 400, "input_error", "seven"),
        (POST % b"" + b"1234", "POST", f"{PATH}/infer", 408, "request_timeout", "seven"),
        (POST % b"?key=secret" + b"1234", "POST", f"{PATH}/infer", 408, "request_timeout", "seven"),
        (POST % b"" + b"1234", "POST", f"{PATH}/infer", 0, "client_left", "seven"),
        (POST % b"?key=secret" + b"1234", "POST", f"{PATH}/infer", 0, "client_left", "seven"),
    ],
    ids=[
        *("nothing", "half a line", "no HTTP", "long", "handshake"),
        *("direct", "application", "direct left", "application left"),
    ],
)
def test_what_is_refused_at_the_door_or_left_has_one_line(
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    sent: bytes,
    method: str,
    path: str,
    status: int,
    code: str,
    request_id: str,
) -> None:
    timeout_s = 0.2 if status == 408 else 60.0
    door = DoorLimits(max_header_bytes=4096, header_timeout_s=timeout_s, body_timeout_s=timeout_s)
    app = create_app({"tiny": write_bundle(tmp_path / "tiny", bundle_files())}, limits=Limits(door=door))
    with ServerThread(app) as server:
        Client(server.url)(f"{PATH}/ready")
        caplog.set_level("INFO", "edge_infer.server.access")
        with socket.create_connection(("127.0.0.1", int(server.url.rpartition(":")[2])), timeout=30) as connection:
            connection.sendall(sent)
            if status:
                data = b""
                while chunk := connection.recv(65536):
                    data += chunk
                assert data.startswith(b"HTTP/1.1 %d" % status)
            else:
                wait_until(lambda: app.direct.context.memory.taken)  # it has begun to read
        wait_until(lambda: caplog.records)
    assert app.refusals == ({code: 1} if status else {})
    (record,) = (record for record in caplog.records if record.name == "edge_infer.server.access")
    facts: dict[str, Any] = record.facts  # type: ignore[attr-defined]
    found = {name: facts.get(name, "") for name in ("method", "path", "status", "code", "request_id")}
    expected = {"method": method, "path": path, "status": status, "code": code, "request_id": request_id}
    assert found == expected
    assert record.getMessage().startswith(f"{method} {path} {status} {facts['bytes']} B")
    assert (facts["bytes"] > 0) == (status > 0)
    assert facts["ms"] >= (190 if status == 408 else 0)
    (model,) = app.engine.active()
    counted = dict(app.refusals) if status else model.statistics.failures
    assert counted == ({code: 1} if code else {})
    assert not (status and model.statistics.failures)


def test_one_connection_too_many_has_a_line_too(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "edge_infer.server.access")
    app = create_app({}, limits=Limits(door=DoorLimits(max_connections=0)))
    with ServerThread(app) as server:
        assert Client(server.url)("/health").status == 503
    assert "- - 503 " in caplog.text
