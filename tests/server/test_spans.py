"""Spans of OpenTelemetry: each request is one, a child of what `traceparent` names, and its times are its children."""

from __future__ import annotations

import json
import subprocess
import sys
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread
from typing import TYPE_CHECKING, Any

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode

import edge_infer
from edge_infer.errors import ServingError
from edge_infer.formats.safetensors import FRAME
from edge_infer.server.app import create_app
from edge_infer.server.http.in_thread import ServerThread
from edge_infer.server.metrics.tracing import otlp_provider
from tests.support.server.bundles import bundle_files, write_bundle
from tests.support.server.client import Client, ask, row
from tests.support.server.streams import answers_of, raw, stream

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
PARENT = "00f067aa0ba902b7"
PARTS = ["queue", "batch wait", "compute", "serialization"]


@pytest.fixture
def exporter() -> InMemorySpanExporter:
    return InMemorySpanExporter()


@pytest.fixture
def server(tmp_path: Path, exporter: InMemorySpanExporter) -> Iterator[ServerThread]:
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    tiny = write_bundle(tmp_path / "tiny", bundle_files())
    with ServerThread(create_app({"tiny": tiny}, tracer_provider=provider)) as running:
        yield running


def roots(exporter: InMemorySpanExporter) -> list[ReadableSpan]:
    return [span for span in exporter.get_finished_spans() if span.name.startswith("infer ")]


def steps(count: int) -> bytes:
    entry = {"name": "x", "shape": [1, 3], "datatype": "FP32", "data": [1, 2, 3]}
    return json.dumps({"inputs": [entry], "parameters": {"steps": count}}).encode()


def times(span: ReadableSpan) -> tuple[int, int]:
    assert span.start_time is not None
    assert span.end_time is not None
    return span.start_time, span.end_time


@pytest.mark.parametrize("way", ["direct", "application", "events", "stream"])
def test_what_others_added_to_the_trace_goes_on(server: ServerThread, exporter: InMemorySpanExporter, way: str) -> None:
    Client(server.url)("/v2/models/tiny/ready")
    trace = {"traceparent": f"00-{TRACE}-{PARENT}-01", "tracestate": "shop=1,bank=2"}
    if way == "stream":
        with stream(server.url, additional_headers=trace) as streaming:
            streaming.send(raw(1, 1.0))
            answers_of(streaming, 1)
    elif way == "events":
        assert Client(server.url)("/v2/models/tiny/infer_stream", "POST", steps(1), **trace).status == 200
    else:
        more: dict[str, Any] = {"connection": "close"} if way == "application" else {}
        ask(server, **more | trace)
    (span,) = roots(exporter)
    assert span.context is not None
    assert dict(span.context.trace_state) == {"shop": "1", "bank": "2"}


def test_a_session_names_the_span_in_which_it_asks(server: ServerThread, exporter: InMemorySpanExporter) -> None:
    from opentelemetry import trace

    caller = TracerProvider().get_tracer("caller").start_span("asks")
    with edge_infer.load(f"{server.url}/v2/models/tiny") as session, trace.use_span(caller):
        session.run({"x": [[1.0, 2.0, 3.0]]})
    (span,) = roots(exporter)
    assert span.parent is not None
    assert span.parent.span_id == caller.get_span_context().span_id


def test_steps_and_requests_of_a_stream_that_fail_say_why(server: ServerThread, exporter: InMemorySpanExporter) -> None:
    with stream(server.url) as streaming:
        streaming.send(FRAME.pack(1, 0, 1) + b"1")
        answers_of(streaming, 1)
    assert Client(server.url)("/v2/models/tiny/infer_stream", "POST", b"{}").status == 400
    assert [dict(span.attributes or {})["error.type"] for span in roots(exporter)] == ["input_error"] * 2


@pytest.mark.parametrize("headers", [{}, {"connection": "close"}], ids=["direct", "application"])
def test_a_request_is_a_span_of_its_callers_trace_and_its_times_are_children(
    server: ServerThread, exporter: InMemorySpanExporter, headers: dict[str, Any]
) -> None:
    Client(server.url)("/v2/models/tiny/ready")
    answer = ask(server, traceparent=f"00-{TRACE}-{PARENT}-01", **headers)
    assert answer.body == row(1.0)
    (span,) = roots(exporter)
    assert span.parent is not None
    assert f"{span.parent.trace_id:032x}-{span.parent.span_id:016x}" == f"{TRACE}-{PARENT}"
    attributes = dict(span.attributes or {})
    assert attributes["edge_infer.model"] == "tiny"
    assert attributes["edge_infer.batch.rows"] == 1
    assert attributes["http.response.status_code"] == 200
    children = [
        one for one in exporter.get_finished_spans() if one.parent and one.parent.span_id != span.parent.span_id
    ]
    assert [one.name for one in children] == PARTS
    start, end = times(span)
    for child in children:
        first, last = times(child)
        assert start <= first <= last <= end
    # They are those of the header, which is in milliseconds.
    said = dict(part.strip().split(";dur=") for part in answer.headers["server-timing"].split(","))
    first, last = times(children[2])
    assert abs((last - first) / 1e6 - float(said["compute"])) < 0.002


def test_without_a_parent_a_request_begins_a_trace(server: ServerThread, exporter: InMemorySpanExporter) -> None:
    ask(server)
    ask(server, traceparent="nonsense")
    assert [span.parent for span in roots(exporter)] == [None, None]


def test_a_request_that_fails_says_why(server: ServerThread, exporter: InMemorySpanExporter) -> None:
    Client(server.url)("/v2/models/tiny/infer", "POST", b"1", content_type="application/octet-stream")
    (span,) = roots(exporter)
    assert span.status.status_code is StatusCode.ERROR
    attributes = dict(span.attributes or {})
    assert (attributes["error.type"], attributes["http.response.status_code"]) == ("input_error", 400)


def test_each_request_of_a_stream_and_each_step_is_a_span(server: ServerThread, exporter: InMemorySpanExporter) -> None:
    with stream(server.url) as streaming:
        for number in range(3):
            streaming.send(raw(number, 1.0))
            answers_of(streaming, 1)
    assert len(roots(exporter)) == 3
    assert Client(server.url)("/v2/models/tiny/infer_stream", "POST", steps(2)).status == 200
    assert len(roots(exporter)) == 5


def test_serve_exports_to_the_collector_that_the_environment_names(tmp_path: Path) -> None:
    tiny = write_bundle(tmp_path / "tiny.bundle", bundle_files())
    seen: list[bytes] = []

    class Collector(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            seen.append(self.rfile.read(int(self.headers["Content-Length"])))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    with HTTPServer(("127.0.0.1", 0), Collector) as collector:
        Thread(target=collector.serve_forever, daemon=True).start()
        environment = {
            "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{collector.server_port}",
            "OTEL_EXPORTER_OTLP_COMPRESSION": "none",
            "OTEL_SERVICE_NAME": "shop",
        }
        command = [sys.executable, "-m", "edge_infer", "serve", str(tiny), "--port", "0", "--otel"]
        process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment)
        assert process.stderr is not None
        line = process.stderr.readline()
        while "Serving http" not in line:
            assert line, "the server did not start"
            line = process.stderr.readline()
        url = line.split()[1]
        assert (
            Client(url)("/v2/models/tiny/infer", "POST", row(1.0), content_type="application/octet-stream").status
            == 200
        )
        process.terminate()
        process.communicate(timeout=60)
        collector.shutdown()
    (batch,) = (ExportTraceServiceRequest.FromString(one) for one in seen)
    (resource,) = batch.resource_spans
    assert {one.key: one.value.string_value for one in resource.resource.attributes}["service.name"] == "shop"
    assert {span.name for span in resource.scope_spans[0].spans} == {"infer tiny", *PARTS}


def test_without_opentelemetry_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _name: None)
    with pytest.raises(ServingError) as caught:
        otlp_provider()
    assert caught.value.hint == "pip install 'edge-infer[otel]'"
