"""`edge-infer doctor URL`: what a good server and a careless one are told."""

from __future__ import annotations

import json
import re
import threading
import time
from http.server import BaseHTTPRequestHandler, HTTPServer
from math import inf
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

from edge_infer.cli import cli
from edge_infer.cli.serve import serve
from edge_infer.doctor import live_server
from edge_infer.doctor.live_server import examine_server
from edge_infer.doctor.live_target import Target, quantile, trial
from edge_infer.errors import InputError
from edge_infer.server.app import create_app
from edge_infer.server.thread import ServerThread
from tests.server.bundles import bundle_files, write_bundle

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


def test_our_own_server_keeps_the_five_practices(tmp_path: Path) -> None:
    folder = write_bundle(tmp_path / "tiny", bundle_files())
    with ServerThread(create_app({"tiny": folder})) as server:
        done = CliRunner().invoke(cli, ["doctor", server.url, "--json"])
        findings = json.loads(done.stdout)["findings"]

    found = {finding["check"]: finding for finding in findings}
    assert done.exit_code == 0
    assert {"server.reachable", "loop.tiny", "memory.tiny", "timeouts.tiny", "overload.tiny"} <= set(found)
    assert {"limits.body", "p99.known"} <= set(found)
    for check in ("server.reachable", "timeouts.tiny", "overload.tiny", "limits.body"):
        assert found[check]["level"] == "ok", found[check]
    assert next(one for one in findings if one["check"] == "batching.tiny")["level"] in ("ok", "note")
    assert not any(finding["level"] == "problem" for finding in findings)


def test_the_options_that_an_open_server_is_told_to_use_exist(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Target, "is_local", False)
    with ServerThread(create_app({"tiny": write_bundle(tmp_path / "tiny", bundle_files())})) as server:
        found = {finding.check: finding.hint for finding in live_server._protection(Target(server.url, ""))}
    options = {option for parameter in serve.params for option in parameter.opts}
    for check in ("server.tls", "server.keys"):
        assert set(re.findall(r"--[a-z-]+", found[check])) <= options


class Careless(BaseHTTPRequestHandler):
    """One thread that computes where it answers: no batching, no timeout, no bound, no metrics."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        documents = {
            "/v2": {"name": "careless", "version": "0"},
            "/v2/models/m": {"inputs": [{"name": "x", "shape": [-1, 3], "datatype": "FP32"}], "outputs": []},
            "/v2/models/m/config": {"max_batch_size": 8},
        }
        self.answer(documents.get(self.path, {}), 200 if "metrics" not in self.path else 404)

    def do_POST(self) -> None:
        self.rfile.read(min(int(self.headers["Content-Length"]), 10_000))
        if "index" not in self.path:
            time.sleep(0.03)
        self.answer([{"name": "m"}] if "index" in self.path else {"outputs": []}, 200)

    def answer(self, document: object, status: int) -> None:
        body = json.dumps(document).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(body)
        self.close_connection = True

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def careless(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setattr(HTTPServer, "handle_error", lambda *_: None)  # clients that gave up
    server = HTTPServer(("127.0.0.1", 0), Careless, bind_and_activate=False)
    server.request_queue_size = 64
    server.server_bind()
    server.server_activate()
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


def test_a_careless_server_is_told_what_it_lacks(careless: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live_server, "_SECONDS", 0.5)
    levels = {finding.check: finding.level for finding in examine_server(careless)}
    for check in ("batching.m", "loop.m", "timeouts.m", "overload.m", "p99.known"):
        assert levels[check] != "ok", check
    assert levels["loop.m"] == levels["timeouts.m"] == levels["overload.m"] == "warning"


def test_a_server_that_is_not_there_is_a_problem() -> None:
    done = CliRunner().invoke(cli, ["doctor", "http://127.0.0.1:1", "--json"])
    assert done.exit_code == 1
    assert json.loads(done.stdout)["findings"][0]["level"] == "problem"


def test_what_is_no_url_is_refused() -> None:
    with pytest.raises(InputError, match="no URL of a server"):
        examine_server("ftp://x")


def test_a_trial_fills_free_dimensions_and_leaves_texts_alone() -> None:
    request = trial("a/b", {"inputs": [{"name": "x", "shape": [-1, -1, 2], "datatype": "INT64"}]}, {"timeout": 1})
    assert request is not None
    length = int(request.headers["Inference-Header-Content-Length"])
    head = json.loads(request.body[:length])
    assert head["inputs"][0]["shape"] == [1, 8, 2]
    assert len(request.body) - length == 128
    assert request.path == "/v2/models/a%2Fb/infer"
    assert trial("t", {"inputs": [{"name": "x", "shape": [1], "datatype": "BYTES"}]}) is None
    assert trial("t", {}) is None


def test_a_quantile_beyond_the_last_bound_is_unknown() -> None:
    buckets = [('model="a",le="0.1"', 1.0), ('model="a",le="+Inf"', 100.0), ('model="b",le="0.1"', 0.0)]
    assert quantile(buckets, 0.01) == 0.1
    assert quantile(buckets, 0.99) == inf
