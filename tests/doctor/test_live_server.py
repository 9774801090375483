"""`edge-infer doctor URL`: what a good server and a careless one are told."""

from __future__ import annotations

import hashlib
import json
import re
import threading
import time
from http.server import BaseHTTPRequestHandler, HTTPServer, ThreadingHTTPServer
from math import inf
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

from edge_infer.cli import cli
from edge_infer.cli.serve import serve
from edge_infer.errors import FetchError, InputError
from edge_infer.server.app import create_app
from edge_infer.server.config import Settings
from edge_infer.server.http.in_thread import ServerThread
from edge_infer.server.scheduling.shares import Tenant
from edge_infer.tools.doctor import live_server, live_target
from edge_infer.tools.doctor.live_server import examine_server
from edge_infer.tools.doctor.live_target import Reply, Target, Trial, quantile, trial
from tests.support.server.bundles import bundle_files, write_bundle

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


@pytest.mark.parametrize(
    "url", ["ftp://x", "http://localhost:abc", "http://localhost:99999", "http://[::1", "http://a..b/", "http://"]
)
def test_what_is_no_url_is_refused(url: str) -> None:
    with pytest.raises(InputError, match="not a URL of a server"):
        examine_server(url)


def test_a_key_that_no_header_carries_is_refused() -> None:
    with pytest.raises(InputError, match="The API key has characters"):
        Target("http://localhost", "ключ")


def test_a_url_is_told_without_its_password_and_names_a_model_as_people_do() -> None:
    target = Target("http://user:secret@[::1]:8080/v2/models/my%20model/infer", "")

    assert (target.url, target.host, target.model) == ("http://[::1]:8080", "::1", "my model")
    with pytest.raises(InputError) as caught:
        Target("http://user:secret@localhost:abc")
    assert "secret" not in str(caught.value)


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


@pytest.mark.parametrize("shape", [[1, 10**12], [1, 10**30], [2**24, 2], [1, inf], [1, 2.5], ["1"], 3, [[1]]])
def test_a_server_does_not_choose_how_much_memory_its_trial_takes(shape: object) -> None:
    assert trial("m", {"inputs": [{"name": "x", "shape": shape, "datatype": "FP32"}]}) is None


def test_many_inputs_are_bounded_together() -> None:
    entry = {"name": "x", "shape": [2**20, 10], "datatype": "FP32"}
    assert trial("m", {"inputs": [entry]}) is not None
    assert trial("m", {"inputs": [entry, entry]}) is None


@pytest.mark.parametrize(
    "config",
    [
        {"parameters": "x", "dynamic_batching": "x", "queue_policy": "x"},
        {"parameters": {"batching": "x", "max_queue_size": []}, "dynamic_batching": {"default_queue_policy": 1}},
        {"max_batch_size": "8", "dynamic_batching": {}},
    ],
)
def test_a_configuration_of_other_types_says_nothing(config: dict[str, object]) -> None:
    assert live_server._batching("m", config).level == "warning"
    assert live_server._degradation("m", config).level == "warning"


def test_documents_nested_too_deeply_and_bounds_that_are_no_numbers_say_nothing() -> None:
    assert Reply(200, b"[" * 10**6, 0.0).document() == {}
    assert quantile([('le="x"', 1.0)], 0.5) == inf


def test_a_model_that_is_not_there_is_not_blamed_on_the_limit_of_bodies(tmp_path: Path) -> None:
    with ServerThread(create_app({"tiny": write_bundle(tmp_path / "tiny", bundle_files())})) as server:
        found = {finding.check: finding for finding in examine_server(f"{server.url}/v2/models/tony", "")}

    assert found["model.tony"].level == "problem"
    assert "limits.body" not in found


class Long(BaseHTTPRequestHandler):
    """Answers at length, and keeps the connection open."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", "100000")
        self.end_headers()
        self.wfile.write(bytes(100_000))

    def log_message(self, *_: object) -> None:
        pass


def test_a_model_that_is_not_ready_is_the_problem_and_nothing_else_is_blamed(tmp_path: Path) -> None:
    folder = write_bundle(tmp_path / "tiny", bundle_files())
    for path in folder.rglob("*.onnx"):
        path.write_bytes(b"no model")
    with ServerThread(create_app({"tiny": folder})) as server:
        found = {finding.check: finding for finding in examine_server(server.url)}

    model = found["model.tiny"]
    assert (model.level, model.what.split(":")[0], bool(model.hint)) == ("problem", "It is not ready", True)
    assert set(found) == {"server.reachable", "model.tiny"}


def test_a_key_that_may_not_read_counts_is_told_so_once(tmp_path: Path) -> None:
    folder = write_bundle(tmp_path / "tiny", bundle_files())
    settings = Settings(tenants={Tenant("shop"): [hashlib.sha256(b"k").digest()]})
    with ServerThread(create_app({"tiny": folder}, settings=settings)) as server:
        found = {finding.check: finding for finding in examine_server(server.url, "k")}

    assert "metrics = true" in found["server.counts"].hint
    assert not {"memory.tiny", "p99.known"} & set(found)
    assert "statistics" not in found["batching.tiny"].what


class Under(BaseHTTPRequestHandler):
    """A server whose paths lie under `/ml`."""

    def do_GET(self) -> None:
        self.send_response(200 if self.path == "/ml/v2" else 404)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


def test_a_server_under_a_path_is_asked_there() -> None:
    with HTTPServer(("127.0.0.1", 0), Under) as server:
        threading.Thread(target=server.serve_forever).start()
        root = f"http://127.0.0.1:{server.server_port}/ml"
        try:
            assert Target(f"{root}/v2/models/tiny").ask("/v2").status == 200
        finally:
            server.shutdown()
    assert Target(f"{root}/v2/models/tiny").model == "tiny"
    assert Target(f"{root}/").url == Target(f"{root}/v2").url == root


def test_an_answer_that_is_read_in_part_does_not_spoil_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live_target, "_MAX_BYTES", 1000)
    monkeypatch.setattr(ThreadingHTTPServer, "handle_error", lambda *_: None)  # answers that are not read
    with ThreadingHTTPServer(("127.0.0.1", 0), Long) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        target = Target(f"http://127.0.0.1:{server.server_port}", "")
        connection = target.connect()
        replies = [target.ask("/", connection=connection) for _ in range(3)]
        connection.close()
        server.shutdown()

    assert [(reply.status, len(reply.body)) for reply in replies] == [(200, 1000)] * 3


@pytest.mark.parametrize(("seconds", "expected"), [(0.001, 16), (0.3, 16), (0.9, 5), (4.0, 1), (9.0, 1)])
def test_a_slow_model_is_asked_less_at_once(seconds: float, expected: int) -> None:
    assert live_server._at_once(seconds) == expected


class Told(Target):
    """A server whose model answers as a test says, and all else with nothing."""

    def __init__(self, answers: list[Reply | FetchError]) -> None:
        super().__init__("http://127.0.0.1:1", "")
        self.answers = answers

    def ask(self, path: str, *_: object, **__: object) -> Reply:
        answer = self.answers.pop() if path == "infer" else Reply(200, b"{}", 0.001)
        if isinstance(answer, FetchError):
            raise answer
        return answer


def test_what_comes_too_late_is_not_counted_as_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live_server, "_SECONDS", 1e6)
    counts = iter([(0, 0), (9, 9)])
    monkeypatch.setattr(live_server, "_counts", lambda *_: next(counts))
    late = FetchError("x does not answer: timed out", timed_out=True)
    answer = Reply(200, b"", 0.1)

    load = live_server._load(Told([late, answer, answer, answer]), Trial("infer", b"", {}), "", at_once=1)
    found = live_server._gathered("m", load)

    assert (load.answered, load.refused, load.late) == (1, 0, 1)
    assert "1 of 2 requests answered, 1.0 rows a batch at 1 at once; 1 took more than 10 s" in found.what
    assert found.level == "warning"
    assert "queue" not in found.hint


def test_a_model_that_answers_too_late_is_a_finding_and_not_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live_server, "trial", lambda *_: Trial("infer", b"", {}))

    found = live_server._examine_model(Told([FetchError("timed out", timed_out=True)]), "m")

    assert found[-1].level == "warning"
    assert "does not answer zeros within 10 s" in found[-1].what


def test_a_quantile_beyond_the_last_bound_is_unknown() -> None:
    buckets = [('model="a",le="0.1"', 1.0), ('model="a",le="+Inf"', 100.0), ('model="b",le="0.1"', 0.0)]
    assert quantile(buckets, 0.01) == 0.1
    assert quantile(buckets, 0.99) == inf
